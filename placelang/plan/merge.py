"""Journeys joined and replaced. A journey has four facets: layout axis by axis, tier, lifetime, formats.

Not for: which statement replaces which (`compose`, `infer`).
"""

from __future__ import annotations

import attrs

from placelang.diagnostics.problems import refuse
from placelang.plan.mesh import Mesh
from placelang.plan.steps import (
    FORMS,
    LOSSY,
    Consume,
    Formats,
    Journey,
    Materialize,
    Offload,
    Recompute,
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


def join(head: str, a: Journey, b: Journey) -> Journey:
    """Two factors of `*`: forms first, then transitions. Raises Refused when both use one axis."""
    used = {axis for s in a for axis in s.axes}
    for s in b:
        if clash := used & set(s.axes):
            raise refuse(
                "E104",
                f"two factors place {head} over `{min(clash)}`",
                s.span,
                rule="factors of `*` have disjoint axes",
            )
    return ordered((*a, *b))


def ordered(steps: Journey) -> Journey:
    """Forms first; `replicate` without axes is the unit and gives way to any other form."""
    forms = [s for s in steps if isinstance(s, FORMS)]
    split = any(isinstance(s, Shard) or s.axes for s in forms)
    forms = [s for s in forms if s.axes or not (split and isinstance(s, Replicate))]
    if not split:
        forms = forms[:1]
    return (*forms, *(s for s in steps if not isinstance(s, FORMS)))


def replace(base: Journey, new: Journey, mesh: Mesh) -> Journey:
    """`base`, where `new` replaces what it names: the axes it mentions and any that share their ranks, tier, lifetime,
    formats. The rest stays."""
    named = {shared for s in new for axis in s.axes for shared in mesh.shared(axis)}
    whole_layout = any(is_layout(s) and not s.axes for s in new)
    facets = [facet for facet in _OTHER_FACETS if any(isinstance(s, facet) for s in new)]
    kept: list[Step] = []
    for s in base:
        if is_layout(s):
            left = () if whole_layout else tuple(a for a in s.axes if a not in named)
            if left or (not s.axes and not named and not whole_layout):
                kept.append(attrs.evolve(s, axes=left))
        elif not any(isinstance(s, facet) for facet in facets):
            kept.append(s)
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
