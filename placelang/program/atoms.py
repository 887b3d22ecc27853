"""Folded meshes: a plan rewritten to the atomic axes that every declared axis is a product of.

A view is another factorisation of ranks that axes have already (`mesh moe (edp = 2, ep = 4) over (dp)`). All of them
together are cut where any of them is ("semantics", section 1), and lowering, checker and simulator only ever see the
pieces. A piece that is a declared axis keeps its name. Not for: whether views fit their ranks (`plan.meshes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import attrs

from placelang.plan.mesh import Axis, Mesh, View
from placelang.plan.plan import Placed, Plan
from placelang.plan.steps import Gather, Journey, SmallerShard, Step

Pieces = Mapping[str, tuple[str, ...]]
"""Of each declared axis its atomic axes, outer first."""


def refined(plan: Plan) -> Plan | None:
    """The same plan on atomic axes; None where sizes that it takes to find them are not known. A plan without views is
    itself."""
    if not plan.mesh.views:
        return plan
    found = _atoms(plan.mesh)
    if found is None:
        return None
    axes, pieces = found
    return attrs.evolve(
        plan,
        mesh=Mesh(axes),
        placed=tuple(_placed(p, pieces) for p in plan.placed),
        update=_journey(plan.update, pieces),
    )


def _placed(placed: Placed, pieces: Pieces) -> Placed:
    def named(value: str) -> str:
        return " * ".join(piece for axis in value.split(" * ") for piece in pieces.get(axis, (axis,)))

    selections = tuple(
        s if s.kind in ("glob", "role") else attrs.evolve(s, value=named(s.value)) for s in placed.selections
    )
    return attrs.evolve(placed, journey=_journey(placed.journey, pieces), selections=selections)


def _journey(journey: Journey, pieces: Pieces) -> Journey:
    made = (_step(step, pieces) for step in journey)
    # Over an axis of one rank, which has no pieces, nothing happens.
    return tuple(new for new, old in zip(made, journey, strict=True) if new.axes or not old.axes)


def _step(step: Step, pieces: Pieces) -> Step:
    made = attrs.evolve(step, axes=_all(step.axes, pieces))
    if isinstance(made, Gather) and isinstance(made.keep, SmallerShard):
        keep = attrs.evolve(made.keep, axes=_all(made.keep.axes, pieces))
        return attrs.evolve(made, keep=keep)
    return made


def _all(axes: tuple[str, ...], pieces: Pieces) -> tuple[str, ...]:
    return tuple(piece for axis in axes for piece in pieces.get(axis, (axis,)))


def _atoms(mesh: Mesh) -> tuple[tuple[Axis, ...], Pieces] | None:
    """The atomic axes in the mesh's order, and the pieces of each declared axis."""
    found: list[Axis] = []
    pieces: dict[str, tuple[str, ...]] = {}
    done: set[str] = set()
    for axis in mesh.axes:
        if axis.name in done:
            continue
        views = _sharing(mesh, axis.name)
        if not views:
            found.append(axis)
            continue
        names = {name for view in views for name in view.over}
        own = tuple(a for a in mesh.axes if a.name in names)
        done |= names
        if len(own) == len(views) == 1:  # a product of sizes that need not be known
            found += views[0].axes
            pieces[axis.name] = tuple(a.name for a in views[0].axes)
            continue
        cut = _cut(own, views)
        if cut is None:
            return None
        found += cut[0]
        pieces |= cut[1]
    return tuple(found), pieces


def _sharing(mesh: Mesh, name: str) -> tuple[View, ...]:
    """The views that share ranks with an axis, directly or through other views."""
    names, views = {name}, tuple[View, ...]()
    while True:
        more = tuple(view for view in mesh.views if names & set(view.over))
        if more == views:
            return views
        views, names = more, names.union(*(view.over for view in more))


def _cut(own: tuple[Axis, ...], views: tuple[View, ...]) -> tuple[list[Axis], dict[str, tuple[str, ...]]] | None:
    """The pieces of some axes and of the views over them, by the ranks that lie inside of each cut. None where sizes
    are not known, or a view is over axes that others stand between."""
    spans: dict[str, tuple[int, int]] = {}  # of each declared axis, the ranks inside of it, and with it
    declared: list[Axis] = [*own]
    inside = 1
    for axis in reversed(own):
        if axis.size is None:
            return None
        spans[axis.name] = (inside, inside * axis.size)
        inside *= axis.size
    names = [a.name for a in own]
    for view in views:
        first = names.index(view.over[0])
        if tuple(names[first : first + len(view.over)]) != view.over:
            return None
        ranks = spans[view.over[-1]][0]
        declared += view.axes
        for axis in reversed(view.axes):
            if axis.size is None:
                return None
            spans[axis.name] = (ranks, ranks * axis.size)
            ranks *= axis.size
    cuts = sorted({cut for span in spans.values() for cut in span})
    if any(outer % inner for inner, outer in pairwise(cuts)):
        return None
    made: dict[tuple[int, int], Axis] = {}
    for span in reversed([*pairwise(cuts)]):
        known = next((a for a in declared if spans[a.name] == span), None)
        host = next(a for a in own if spans[a.name][0] <= span[0] and span[1] <= spans[a.name][1])
        size = span[1] // span[0]
        made[span] = known or Axis(f"{host.name}/{span[0] // spans[host.name][0]}", host.role, size, host.span)
    pieces = {
        a.name: tuple(m.name for span, m in made.items() if spans[a.name][0] <= span[0] and span[1] <= spans[a.name][1])
        for a in declared
    }
    return [*made.values()], pieces
