"""Journeys joined and replaced. A journey has four facets: layout axis by axis, tier, lifetime, formats.

Not for: which statement replaces which (`compose`, `infer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from placelang.plan.mesh import Mesh
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


def replace(base: Journey, new: Journey, mesh: Mesh) -> Journey:
    """`base`, where `new` replaces what it names: the axes it mentions and any that share their ranks, tier, lifetime,
    formats. The rest stays. `replicate` without an axis names them all; another word without one, its own kind."""
    named = {shared for s in new for axis in s.axes for shared in mesh.shared(axis)}
    whole = any(isinstance(s, Replicate) and not s.axes for s in new)
    bare = {type(s) for s in new if not s.axes and not isinstance(s, FORMS)}
    facets = [facet for facet in _OTHER_FACETS if any(isinstance(s, facet) for s in new)]
    kept: list[Step] = []
    for s in base:
        if not is_layout(s):
            if not any(isinstance(s, facet) for facet in facets):
                kept.append(s)
        elif not whole and type(s) not in bare:
            left = tuple(a for a in s.axes if a not in named)
            if left or (not s.axes and not (named and isinstance(s, FORMS))):
                kept.append(attrs.evolve(s, axes=left))
    return ordered((*kept, *new))


def differ(a: Journey, b: Journey) -> str:
    """In what two journeys contradict each other, in words: on an axis that both name, in tier, lifetime or formats.
    Empty where they join."""
    for axis in sorted({x for s in a for x in s.axes} & {x for s in b for x in s.axes}):
        here, there = (tuple(attrs.evolve(s, axes=(axis,)) for s in j if axis in s.axes) for j in (a, b))
        if here != there:
            return f"over `{axis}`"
    for facet, name in zip(_OTHER_FACETS, ("in tier", "in lifetime", "in formats", "in what is lost"), strict=True):
        here, there = (tuple(s for s in j if isinstance(s, facet)) for j in (a, b))
        if here and there and here != there:
            return name
    return ""
