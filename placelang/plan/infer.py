"""The elaboration rules: what no line says, in a fixed order, axis by axis. Nothing is searched or optimised.

Source: language reference, "What is inferred, and shown". Tier, lifetime and dtype are never inferred.
Not for: the tensors of selections (`refine`), or whether the result trains like one device (`check`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import attrs

from placelang.diagnostics.problems import Problems, fault
from placelang.plan.compose import Key, Written
from placelang.plan.gradients import gradients, open_axes, seen, sharded
from placelang.plan.merge import beside, needs_whole, ordered
from placelang.plan.mesh import Mesh, Role
from placelang.plan.plan import State
from placelang.plan.steps import (
    FORMS,
    AllGather,
    Gather,
    Journey,
    Partial,
    Reduce,
    Replicate,
    Shard,
    Step,
)


def infer(written: Mapping[Key, Written], mesh: Mesh, problems: Problems) -> dict[State, Journey]:
    """The complete journey of every state where no selection says otherwise."""
    base = {head: w.journey for (head, selections), w in written.items() if not selections}
    if not mesh.axes:
        _check_axes(written, problems)
    states = complete(base, mesh, problems)
    check_gathers(base.get("params", ()), states[State.PARAMS], mesh, problems)
    return states


def split_axes(activations: Iterable[Step]) -> tuple[str, ...]:
    """The axes whose ranks see different tokens."""
    return tuple(a for s in activations if isinstance(s, Shard) and s.dim in ("batch", "seq") for a in s.axes)


def complete(
    written: Mapping[str, Journey], mesh: Mesh, problems: Problems, also: tuple[str, ...] = ()
) -> dict[State, Journey]:
    """Every state's journey. `also`: axes beside those that split tokens over which the gradient is a partial sum."""
    params = parameters(written.get("params", ()), mesh)
    activations = _activations(written.get("activations", ()), mesh)
    split = split_axes(activations)
    _check_use(params, split, mesh, problems)
    partial = _partial_axes(params, tuple(a for a in mesh.names if a in split), mesh)
    partial = (*partial, *(a for a in also if a not in partial))
    optimizer = _optimizer(written.get("optimizer", ()), params, written.get("grads", ()), partial, mesh)
    produced = Partial(axes=partial, why=f"each rank of these axes sees other {seen(partial, activations, mesh)}")
    grads = gradients(written.get("grads", ()), optimizer, produced, problems)
    return {
        State.PARAMS: params,
        State.GRADS: grads,
        State.OPTIMIZER: optimizer,
        State.ACTIVATIONS: activations,
    }


def is_local(step: Step, mesh: Mesh) -> bool:
    """Whether a shard is said in the words of compute, which uses it as it is."""
    named = isinstance(step, Shard) and (step.word != "shard" or step.dim in ("layer", "expert", "heads", "vocab"))
    return named and not needs_whole(step, mesh)


def _partial_axes(params: Journey, split: tuple[str, ...], mesh: Mesh) -> tuple[str, ...]:
    """The axes over which a gradient is produced partial: those that split tokens; where the parameter lies on a view
    of the mesh, the axes of the view in place of those that it factors, less those that hold other shards for use."""
    local = {a for s in params if is_local(s, mesh) for a in s.axes}
    for view in mesh.views:
        if any(a in view for s in params if isinstance(s, Shard) for a in s.axes):
            split = (*(a for a in split if a not in view.over), *(a.name for a in view.axes))
    return tuple(a for a in split if a not in local)


def parameters(written: Journey, mesh: Mesh) -> Journey:
    """Rule 1: `replicate`; a shard that compute can't use (flat, or over a data axis) is followed by `gather`."""
    steps = written
    if not any(isinstance(s, FORMS) for s in written):
        steps = (Replicate(why="params rest full unless a line says otherwise"), *written)
    unusable = tuple(a for s in steps for a in needs_whole(s, mesh))
    steps = _without_units(steps, ())
    named = {a for s in steps if isinstance(s, Gather) for a in s.axes}
    open_ = tuple(a for a in unusable if a not in named)
    filled = tuple(attrs.evolve(s, axes=open_) if isinstance(s, Gather) and not s.axes else s for s in steps)
    if open_ and not any(isinstance(s, Gather) and s.axes == open_ for s in filled):
        filled = (*filled, Gather(axes=open_, why="compute needs whole parameters, a shard over a data axis is not"))
    return tuple(s for s in filled if s.axes or not isinstance(s, Gather))


def check_gathers(written: Journey, params: Journey, mesh: Mesh, problems: Problems) -> None:
    """A written `gather` has something to gather in the complete journey."""
    split = {other for a in sharded(params) for other in mesh.shared(a)}
    for step in written:
        if isinstance(step, Gather):
            bare = not step.axes and not any(isinstance(s, Gather) for s in params)
            whole = [a for a in step.axes if a not in split]
            if bare or whole:
                data = (*whole, *mesh.of_role(Role.DATA), "dp")[0]
                where = f" over `{' * '.join(whole)}`" if whole else ""
                usable = " as compute needs them" if sharded(params) and bare else " whole"
                said = f"`gather` has nothing to gather: params rest{usable}{where}"
                help_ = f"`shard({data}) | gather`, or no `gather`"
                rule = "a gather makes whole, for use, what rests in shards that compute can't use"
                problems.add(fault("E118", said, step.span, help=help_, rule=rule))


def _check_use(params: Journey, split: tuple[str, ...], mesh: Mesh, problems: Problems) -> None:
    """Ranks that see other tokens do not compute one product together."""
    for step in params:
        over = [a for a in step.axes if a in split and mesh[a].role in (Role.DATA, Role.SEQUENCE)]
        if isinstance(step, Shard) and step.word != "shard" and over:
            tokens = "samples" if mesh[over[0]].role is Role.DATA else "positions"
            said = f"`{step.word}` splits one product over `{over[0]}`, whose ranks see other {tokens}"
            help_ = (
                f"`shard({' * '.join(step.axes)})` is gathered before use; `{step.word}(tp)` splits over another axis"
            )
            problems.add(fault("E302", said, step.span, help=help_))


def _activations(written: Journey, mesh: Mesh) -> Journey:
    """Rule 4, axis by axis: samples split over axes of role data and expert, the sequence over those of role sequence.
    `replicate` without an axis says that no axis splits them."""
    forms = [s for s in written if isinstance(s, FORMS)]
    if forms and not any(s.axes for s in forms):
        return written
    named = {shared for s in forms for a in s.axes for shared in mesh.shared(a)}
    batch = tuple(a for a in mesh.of_role(Role.DATA, Role.EXPERT) if a not in named)
    seq = tuple(a for a in mesh.of_role(Role.SEQUENCE) if a not in named)
    steps: list[Step] = []
    if batch:
        steps.append(Shard(axes=batch, dim="batch", why="each rank of a data axis reads other samples"))
    if seq:
        steps.append(Shard(axes=seq, dim="seq", why="each rank of a sequence axis reads other positions"))
    if not steps and not forms:
        steps.append(Replicate(why="no axis splits the batch"))
    return ordered((*steps, *written))


def _optimizer(written: Journey, params: Journey, grads: Journey, split: tuple[str, ...], mesh: Mesh) -> Journey:
    """Rule 2, axis by axis: sharded as params rest, else as the written grads end. `replicate` without an axis speaks
    of the axes over which params are whole in compute: a rank updates no shard that it does not hold."""
    rest = tuple(attrs.evolve(s, span=None, dtype=None, why="as params rest") for s in params if isinstance(s, Shard))
    ends = tuple(
        Shard(axes=s.axes or open_axes(s, grads, split), dim=s.dim, pad=s.pad, why="as the gradients end")
        for s in grads
        if isinstance(s, Reduce) and s.scatter
    )
    parts = [attrs.evolve(s, axes=tuple(a for a in s.axes if a not in needs_whole(s, mesh))) for s in rest]
    held = tuple(s for s in parts if s.axes)
    elsewhere = {a for s in (*rest, *ends) for a in s.axes} - {a for s in held for a in s.axes}
    if whole := next((s for s in written if isinstance(s, Replicate) and not s.axes), None):
        said = beside(whole, held, mesh)
        return _without_units(ordered((*held, *said, *(s for s in written if s is not whole))), elsewhere)
    forms = [s for s in written if isinstance(s, FORMS)]
    told = [a for s in forms for a in s.axes]
    order = tuple(dict.fromkeys(a for s in (*rest, *ends) for a in s.axes))
    first = min((order.index(a) for a in told if a in order), default=len(order))
    inside = _unsaid(rest, told, order[:first], mesh), _unsaid(rest, told, order[first:], mesh)
    told += [a for s in rest for a in s.axes]
    beyond = _unsaid(ends, told, order[:first], mesh), _unsaid(ends, told, order[first:], mesh)
    layout = (*inside[0], *beyond[0], *forms, *inside[1], *beyond[1])
    usual = Replicate(why="params and gradients are whole on every rank")
    found = ordered((*(layout or (usual,)), *(s for s in written if not isinstance(s, FORMS))))
    return _without_units(found, {a for s in (*rest, *ends) for a in s.axes})


def _without_units(journey: Journey, but: Container[str]) -> Journey:
    """A journey without `replicate(axis)`, the unit of `*`; `but`: axes that would be split if it said nothing."""
    units = [s for s in journey if isinstance(s, Replicate)]
    kept = [attrs.evolve(s, axes=tuple(a for a in s.axes if a in but)) for s in units]
    left = [s for s in kept if s.axes]
    if not left and not any(isinstance(s, Shard) for s in journey):
        left = kept[:1]
    return ordered(
        (
            *(s for s in journey if s not in units and isinstance(s, FORMS)),
            *left,
            *(s for s in journey if not isinstance(s, FORMS)),
        )
    )


def _unsaid(shards: Journey, said: Iterable[str], among: tuple[str, ...], mesh: Mesh) -> Journey:
    """The part of some shards over the axes `among` of whose ranks nothing is said."""
    taken = {shared for a in said for shared in mesh.shared(a)}
    parts = (attrs.evolve(s, axes=tuple(a for a in s.axes if a in among and a not in taken)) for s in shards)
    return tuple(s for s in parts if s.axes)


def _check_axes(written: Mapping[Key, Written], problems: Problems) -> None:
    """In a text of no axis, a reduction that names none reduces over nothing."""
    for (head, _), w in written.items():
        for step in w.journey if head == "grads" else ():
            if isinstance(step, Reduce):
                word = "reduce_scatter" if step.scatter else "all_reduce"
                said = f"`{word}` has nothing to reduce over: the text names no axis"
                problems.add(fault("E107", said, step.span, help=f"`{word}(dp)`, or a line `mesh (dp)`"))


def update(written: Journey, lie: Sequence[tuple[Journey, Journey]], mesh: Mesh, problems: Problems) -> Journey:
    """Rule 5: from the optimizer's layout to that of params, where there is one way. `lie`: the complete journeys of
    params and of the optimizer, those of all tensors first, then of each selection."""
    wanted = [tuple(a for a in sharded(optimizer) if a not in sharded(params)) for params, optimizer in lie]
    missing = next(filter(None, wanted), ())
    if not written:
        why = "fresh shards return to every rank that holds whole parameters"
        return (AllGather(axes=missing, why=why),) if missing else ()
    needed = {other for axes in wanted for a in axes for other in mesh.shared(a)}
    for step in written:
        idle = [a for a in step.axes if a not in needed]
        if isinstance(step, AllGather) and (idle or not (step.axes or missing)):
            where = f" over `{' * '.join(idle)}`" if idle else ""
            said = f"`all_gather` has nothing to gather{where}: the optimizer's state lies as params do"
            data = (*idle, *mesh.of_role(Role.DATA), "dp")[0]
            help_ = f"leave `update` out, or `optimizer: shard({data})`"
            problems.add(fault("E118", said, step.span, help=help_))
    return tuple(attrs.evolve(s, axes=s.axes or missing) for s in written)
