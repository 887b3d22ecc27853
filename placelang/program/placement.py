"""Where the parameters of each group lie: the plan's journeys, resolved for the tensors of one operation.

A group is what moves together; its tensors have one journey each way. Not for: activations (`nodes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from placelang.frozen import Frozen
from placelang.model.model import Model, Stack, Tensor
from placelang.plan import selectors
from placelang.plan.merge import replace
from placelang.plan.mesh import Mesh
from placelang.plan.plan import Placed, Plan, Selection, State
from placelang.plan.steps import Gather, Journey, Keep, Reduce, Replicate, Shard, SmallerShard, When
from placelang.program.event import Label, Layout
from placelang.source import Span


@attrs.frozen(eq=False, repr=False)
class Placement(Frozen):
    """The layouts and transitions of one group. `use`: as compute reads it; `gather`: how, if not at rest so."""

    rest: Layout
    use: Layout
    gather: Gather | None
    reductions: tuple[Reduce, ...]
    opt: Layout
    opt_span: Span | None = None
    dtype: str | None = None  # of the parameters at rest, where the text gives them one of their own

    def accumulated(self) -> Layout:
        """The layout of the accumulator: that of use, after the reductions of each microbatch."""
        return self.after(self.use, When.MICROBATCH)

    def after(self, layout: Layout, when: When) -> Layout:
        for r in self.reductions:
            if r.when is when and r.scatter:
                layout += tuple((axis, Label(r.dim, _partition(r.pad))) for axis in r.axes)
        return layout

    def delivered(self) -> Layout:
        """How the gradient lies when the optimizer reads it."""
        layout = self.after(self.accumulated(), When.STEP)
        return (*layout, *self.missing(layout))

    def missing(self, layout: Layout) -> Layout:
        """What the optimizer's layout splits beyond `layout`, when it refines it."""
        return self.opt[len(layout) :] if self.opt[: len(layout)] == layout else ()

    @property
    def keep(self) -> Keep:
        """How long a view lives. A cast that is no gather is made for each use."""
        keep = self.gather.keep if self.gather else Keep.UNIT
        return keep if isinstance(keep, Keep) else Keep.UNIT

    @property
    def secondary(self) -> tuple[str, ...]:
        """The axes of the smaller shard that backward gathers from; none: it gathers as forward does."""
        keep = self.gather.keep if self.gather else Keep.UNIT
        return keep.axes if isinstance(keep, SmallerShard) else ()


def _partition(pad: str) -> str:
    return "padded" if pad == "even" else pad


def journey(plan: Plan, state: State, model: Model, stack: Stack, tensors: Sequence[Tensor]) -> Journey:
    """The journey of a state for these tensors: that of the last selection that takes them, which is complete, or of
    all. What modules return is said step by step: each selection replaces what it names of what was said before."""
    found = plan.journey(state)
    names = [stack.fqn(t) for t in tensors]
    chosen = (p for p in plan.refinements(state) if not _by_placement(p))
    for placed in chosen:
        if any(set(names) & selectors.matches(s, model, plan.train.frozen) for s in placed.selections):
            found = placed.journey if state is not State.ACTIVATIONS else replace(found, placed.journey, plan.mesh)
    return found


def _by_placement(placed: Placed) -> bool:
    return not all(s.by_name for s in placed.selections)


def placement(plan: Plan, model: Model, stack: Stack, tensors: Sequence[Tensor]) -> Placement:
    """The placement of a group, of which every tensor is selected alike."""
    params, grads, optimizer = (
        journey(plan, state, model, stack, tensors) for state in (State.PARAMS, State.GRADS, State.OPTIMIZER)
    )
    gather = next((s for s in params if isinstance(s, Gather)), None)
    gathered = set(gather.axes) if gather else set()
    rest = layout([s for s in params if isinstance(s, Shard)], tensors, gathered)
    use = tuple((axis, label) for axis, label in rest if axis not in gathered)
    for placed in plan.refinements(State.GRADS):
        if _by_placement(placed) and all(_so_placed(s, use, rest, plan.mesh) for s in placed.selections):
            grads = replace(grads, placed.journey, plan.mesh)
    return Placement(
        rest,
        use,
        gather,
        tuple(s for s in grads if isinstance(s, Reduce)),
        layout([s for s in optimizer if isinstance(s, Shard)], tensors, gathered),
        next((s.span for s in optimizer), None),
        next((s.dtype for s in params if s.dtype and isinstance(s, (Shard, Replicate))), None),
    )


def _so_placed(selection: Selection, use: Layout, rest: Layout, mesh: Mesh) -> bool:
    """`replicated(tp)`: on all ranks of the axis, whichever way they are named, compute reads the same; `sharded(tp)`:
    it rests split there."""
    names = selection.value.split(" * ")
    if selection.kind == "replicated":
        shared = {other for axis in names for other in mesh.shared(axis)}
        return not any(axis in shared for axis, _ in use)
    return selection.kind == "sharded" and all(any(a == axis for a, _ in rest) for axis in names)


def layout(shards: Iterable[Shard], tensors: Sequence[Tensor], gathered: set[str]) -> Layout:
    """The split of a group, outer first: shards that compute uses as they are lie outside those that are gathered."""
    found: list[tuple[str, Label]] = []
    for s in shards:
        dim = _dim(s, tensors)
        if dim is not None:
            found += [(axis, Label(dim, _partition(s.pad))) for axis in s.axes]
    return tuple(sorted(found, key=lambda pair: pair[0] in gathered))


def _dim(shard: Shard, tensors: Sequence[Tensor]) -> str | None:
    """The number of the dim that a shard splits; None where these tensors have no such dim and stay whole."""
    if shard.dim.isdigit():
        return shard.dim if all(len(t.shape or (1,)) > int(shard.dim) for t in tensors) else None  # a scalar is one row
    if all(shard.dim in t.dims for t in tensors):
        return str(tensors[0].dims.index(shard.dim))
    return shard.dim if shard.dim == "flat" else None
