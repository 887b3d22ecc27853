"""Journeys joined and replaced. A journey has four facets: layout axis by axis, tier, lifetime, formats.

Not for: which statement replaces which (`compose`, `infer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import attrs

from placelang.plan.mesh import Mesh, Role
from placelang.plan.steps import (
    FORMS,
    LOSSY,
    Consume,
    Formats,
    Gather,
    Journey,
    Materialize,
    Offload,
    Recompute,
    Reduce,
    Replicate,
    Shard,
    Step,
)

_OTHER_FACETS: tuple[tuple[type[Step], ...], ...] = (
    (Offload,),
    (Recompute, Materialize, Consume),
    (Formats,),
    LOSSY,
)


def is_layout(step: Step) -> bool:
    """Whether a step says where pieces lie or how they get there, not how long, in which tier or format."""
    return not isinstance(step, tuple(c for facet in _OTHER_FACETS for c in facet))


def shared(a: Journey, b: Journey) -> tuple[str, Step, Step] | None:
    """The first axis that both journeys use, with the steps that use it."""
    used = {axis: s for s in reversed(a) for axis in s.axes}
    return next(((axis, used[axis], s) for s in b for axis in s.axes if axis in used), None)


def join(a: Journey, b: Journey) -> Journey:
    """Two factors of `*`, whose axes are disjoint: forms first, then transitions."""
    return ordered((*a, *b))


def one_format(steps: Iterable[Step]) -> Iterator[Step]:
    """The forms of a journey are one phase and have one format: the last that is written."""
    steps = tuple(steps)
    dtype = next((s.dtype for s in reversed(steps) if isinstance(s, FORMS) and s.dtype), None)
    return (attrs.evolve(s, dtype=dtype) if isinstance(s, FORMS) else s for s in steps)


def ordered(steps: Journey) -> Journey:
    """Forms first; `replicate` without axes is the unit and gives way to any other form."""
    forms = [s for s in steps if isinstance(s, FORMS)]
    split = any(isinstance(s, Shard) or s.axes for s in forms)
    forms = [s for s in forms if s.axes or not (split and isinstance(s, Replicate))]
    if not split:
        forms = forms[:1]
    phase = tuple(one_format(forms))
    moves = [s for s in steps if not isinstance(s, FORMS)]
    if any(isinstance(s, Gather) for s in moves):  # what rests elsewhere comes back before it is gathered
        moves.sort(key=lambda s: not isinstance(s, Offload))
    elif any(isinstance(s, Reduce) for s in moves):  # and is put there once it is reduced
        moves.sort(key=lambda s: isinstance(s, Offload))
    return (*phase, *moves)


_DATA = (Role.DATA, Role.SEQUENCE)


def needs_whole(step: Step, mesh: Mesh) -> tuple[str, ...]:
    """The axes of a shard that compute can't use as it is: it lies flat or along tokens, or its axis has other tokens
    on each rank, which need all heads and the whole vocabulary. Layers, experts and `colwise` say that it can."""
    if not isinstance(step, Shard) or step.word != "shard" or step.dim in ("layer", "expert"):
        return ()
    if step.dim in ("flat", "batch", "seq"):
        return step.axes
    return tuple(a for a in step.axes if a in mesh and mesh[a].role in _DATA)


def beside(said: Replicate, held: Iterable[Step], mesh: Mesh) -> tuple[Step, ...]:
    """What `replicate` without an axis says beside shards that compute uses as they are: of the axes that hold other
    tokens on each rank, as far as their ranks are not those of the shards."""
    taken = [a for s in held for a in s.axes]
    shared = {other for a in taken for other in mesh.shared(a)}
    views = (a for v in mesh.views if any(t in v for t in taken) for a in v.axes if a.name not in taken)
    rest = [a.name for a in (*(a for a in mesh.axes if a.name not in shared), *views) if a.role in _DATA]
    if not taken:
        return (said,)
    return (attrs.evolve(said, axes=tuple(rest)),) if rest else ()


def replace(base: Journey, new: Journey, mesh: Mesh) -> Journey:
    """`base`, where `new` replaces what it names: the axes it mentions and any that share their ranks, tier, lifetime,
    formats. The rest stays. `replicate` without an axis names every axis but those whose shards compute uses as they
    are; another word without one, its own kind."""
    named = {shared for s in new for axis in s.axes for shared in mesh.shared(axis)}
    whole = any(isinstance(s, Replicate) and not s.axes for s in new)
    bare = {type(s) for s in new if not s.axes and not isinstance(s, FORMS)}
    facets = [facet for facet in _OTHER_FACETS if any(isinstance(s, facet) for s in new)]
    kept: list[Step] = []
    for s in base:
        if not is_layout(s):
            if not any(isinstance(s, facet) for facet in facets):
                kept.append(s)
        elif type(s) not in bare:
            gone = needs_whole(s, mesh) if whole else ()
            left = tuple(a for a in s.axes if a not in named and a not in gone)
            if (left and (not whole or isinstance(s, Shard))) or (not s.axes and _stays(s, bool(named), whole)):
                kept.append(attrs.evolve(s, axes=left))
    held = [s for s in (*kept, *new) if isinstance(s, Shard)]
    said = (beside(s, held, mesh) if isinstance(s, Replicate) and not s.axes else (s,) for s in new)
    return ordered((*kept, *(s for steps in said for s in steps)))


def _stays(bare: Step, named: bool, whole: bool) -> bool:
    """Whether a layout step without axes stays where others name some, or all."""
    return not whole and not (named and isinstance(bare, FORMS))


def together(a: Journey, b: Journey) -> Journey:
    """The words of two journeys that do not contradict each other, each once, `a` first."""
    found = list(a)
    for s in b:
        again = [x for x in a if attrs.evolve(x, axes=s.axes) == s]
        left = tuple(axis for axis in s.axes if not any(axis in x.axes for x in again))
        if left or not again:
            found.append(attrs.evolve(s, axes=left))
    return tuple(found)


def differ(a: Journey, b: Journey, mesh: Mesh) -> str:
    """In what two journeys contradict each other, in words: on an axis that both name, in tier, lifetime or formats.
    Empty where they join."""
    for kind in (_is_form, _is_gather, _is_move):
        here, there = _by_axis(a, kind), _by_axis(b, kind)
        for axis in here:
            for other in there:
                if axis == other and here[axis] != there[axis]:
                    return f"over `{axis}`"
                if axis != other and kind is _is_form and other in mesh.shared(axis):
                    return f"over `{axis}` and `{other}`, which share ranks"
    for one, two in ((a, b), (b, a)):
        split = [axis for s in two for axis in needs_whole(s, mesh)]
        if split and any(isinstance(s, Replicate) and not s.axes for s in one):
            return f"over `{split[0]}`"
    formats = [{s.dtype for s in j if _is_form(s) and s.dtype} for j in (a, b)]
    if all(formats) and formats[0] != formats[1]:
        return "in format"
    for facet, name in zip(_OTHER_FACETS, ("in tier", "in lifetime", "in formats", "in what is lost"), strict=True):
        of_a, of_b = (tuple(s for s in j if isinstance(s, facet)) for j in (a, b))
        if of_a and of_b and of_a != of_b:
            return name
    return ""


def _is_form(step: Step) -> bool:
    return isinstance(step, FORMS)


def _is_gather(step: Step) -> bool:
    return isinstance(step, Gather)


def _is_move(step: Step) -> bool:
    return is_layout(step) and not _is_form(step) and not _is_gather(step)


def _by_axis(journey: Journey, kind: Callable[[Step], bool]) -> dict[str, tuple[Step, ...]]:
    """The steps of a kind, by the axes that they name. The format of forms is not that of an axis."""
    steps = [attrs.evolve(s, dtype=None) if _is_form(s) else s for s in journey if kind(s)]
    named = dict.fromkeys(a for s in steps for a in s.axes)
    return {axis: tuple(attrs.evolve(s, axes=(axis,)) for s in steps if axis in s.axes) for axis in named}
