"""The elaboration rules: what no line says, in a fixed order, axis by axis. Nothing is searched or optimised.

Source: language reference, "What is inferred, and shown". Tier, lifetime and dtype are never inferred.
Not for: whether the result trains like one device (`check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from placelang.diagnostics.problems import Problems, fault
from placelang.plan.compose import Key, Written
from placelang.plan.merge import ordered, replace
from placelang.plan.mesh import Mesh, Role
from placelang.plan.plan import Placed, Selection, State
from placelang.plan.steps import (
    FORMS,
    AllGather,
    Consume,
    Gather,
    Journey,
    Partial,
    Reduce,
    Replicate,
    Shard,
    Step,
    When,
)

_LOCAL_DIMS = ("layer", "expert", "heads", "vocab")
"""Dims whose shards compute uses as they are, even over a data axis."""


def infer(written: Mapping[Key, Written], mesh: Mesh, problems: Problems) -> tuple[tuple[Placed, ...], Journey]:
    """Complete journeys: one a state for all tensors, then those for the selections of the text; and `update`."""
    base = {head: w.journey for (head, selections), w in written.items() if not selections}
    if not mesh.axes:
        _check_axes(written, problems)
    states = _complete(base, mesh, problems)
    update = _update(base.get("update", ()), states[State.PARAMS], states[State.OPTIMIZER])
    placed = [Placed(state, journey) for state, journey in states.items()]
    refined: dict[tuple[Selection, ...], dict[str, Written]] = {}
    for (head, selections), w in written.items():
        if selections:
            refined.setdefault(selections, {})[head] = w
    for selections, own in refined.items():
        placed += _refined(selections, own, base, states, mesh, problems)
    return tuple(placed), update


def sharded(journey: Iterable[Step]) -> tuple[str, ...]:
    """The axes that split a state at rest, outer first."""
    return tuple(a for s in journey if isinstance(s, Shard) for a in s.axes)


def split_axes(activations: Iterable[Step]) -> tuple[str, ...]:
    """The axes whose ranks see different tokens."""
    return tuple(a for s in activations if isinstance(s, Shard) and s.dim in ("batch", "seq") for a in s.axes)


def _complete(
    written: Mapping[str, Journey], mesh: Mesh, problems: Problems, also: tuple[str, ...] = ()
) -> dict[State, Journey]:
    """Every state's journey. `also`: axes beside those that split tokens over which the gradient is a partial sum."""
    params = _params(written.get("params", ()), mesh)
    activations = _activations(written.get("activations", ()), mesh)
    split = split_axes(activations)
    partial = _partial_axes(params, tuple(a for a in mesh.names if a in split), mesh)
    partial = (*partial, *(a for a in also if a not in partial))
    optimizer = _optimizer(written.get("optimizer", ()), params, written.get("grads", ()), partial, mesh)
    produced = Partial(axes=partial, why=f"each rank of these axes sees other {_seen(partial, activations, mesh)}")
    grads = _grads(written.get("grads", ()), optimizer, produced, problems)
    return {
        State.PARAMS: params,
        State.GRADS: grads,
        State.OPTIMIZER: optimizer,
        State.ACTIVATIONS: activations,
    }


def _is_local(step: Step) -> bool:
    """Whether compute uses these shards as they are."""
    return isinstance(step, Shard) and (step.word != "shard" or step.dim in _LOCAL_DIMS)


def _partial_axes(params: Journey, split: tuple[str, ...], mesh: Mesh) -> tuple[str, ...]:
    """The axes over which a gradient is produced partial: those that split tokens; where the parameter lies on a view
    of the mesh, the axes of the view in place of those that it factors, less those that hold other shards for use."""
    local = {a for s in params if _is_local(s) for a in s.axes}
    for view in mesh.views:
        if any(a in view for s in params if isinstance(s, Shard) for a in s.axes):
            split = (*(a for a in split if a not in view.over), *(a.name for a in view.axes))
    return tuple(a for a in split if a not in local)


def _refined(
    selections: tuple[Selection, ...],
    own: Mapping[str, Written],
    base: Mapping[str, Journey],
    states: Mapping[State, Journey],
    mesh: Mesh,
    problems: Problems,
) -> list[Placed]:
    """What a selection's tensors do where they differ from the rest. Where params lie otherwise, so does what follows
    from them."""
    by_name = all(s.kind in ("glob", "role") for s in selections)
    full: Mapping[State, Journey] = states
    if by_name and any(head in own for head in ("params", "optimizer", "grads")):
        full = _complete_refined({head: w.journey for head, w in own.items()}, base, states, mesh, problems)
    result: list[Placed] = []
    for state in State:
        w = own.get(state.value)
        if state is State.ACTIVATIONS or not by_name:
            if w is not None:
                result.append(Placed(state, w.journey, selections, w.override, w.span))
        elif w is None and state in (State.GRADS, State.OPTIMIZER) and all(s.value == "frozen" for s in selections):
            continue  # what is frozen has neither
        elif w is not None or full[state] != states[state]:
            span = w.span if w else None  # what follows from an override overrides too
            overrides = w.override if w else any(x.override for x in own.values())
            result.append(Placed(state, full[state], selections, overrides, span))
    return result


def _complete_refined(
    own: Mapping[str, Journey],
    base: Mapping[str, Journey],
    states: Mapping[State, Journey],
    mesh: Mesh,
    problems: Problems,
) -> dict[State, Journey]:
    """What a selection's tensors do: its own words where it has any, else those of the text for all tensors."""
    merged = {head: replace(base.get(head, ()), own.get(head, ()), mesh) for head in (*base, *own)}
    # What compute uses as it is lies outside of what is gathered, so that a gather gives back whole local shards.
    merged["params"] = tuple(sorted(merged.get("params", ()), key=lambda s: isinstance(s, FORMS) and not _is_local(s)))
    merged["params"] = ordered(merged["params"])
    params = _params(merged["params"], mesh)
    for head in ("optimizer", "grads"):
        if head in base:
            merged[head] = replace(_seen_from(params, base[head], mesh), own.get(head, ()), mesh)
    merged["activations"] = states[State.ACTIVATIONS]  # what a module returns does not say which tokens it sees
    moves = own.get("grads", ())
    if moves:
        if "grads" not in base:  # axis by axis: what the selection does not name is inferred as elsewhere
            rest = {head: journey for head, journey in merged.items() if head != "grads"}
            inferred = _complete(rest, mesh, problems)[State.GRADS]
            merged["grads"] = replace(tuple(s for s in inferred if not isinstance(s, Partial)), moves, mesh)
        merged["grads"] = tuple(sorted(merged["grads"], key=_moment))
    named = dict.fromkeys(a for s in moves if isinstance(s, (Reduce, Partial)) for a in s.axes)
    also = tuple(a for a in named if mesh[a].role in (Role.STAGE, Role.TENSOR))
    return _complete(merged, mesh, problems, also)


def _moment(step: Step) -> int:
    """When a step of a gradient happens: produced, reduced each microbatch, reduced each step, put to rest."""
    if isinstance(step, Reduce):
        return 1 if step.when is When.MICROBATCH else 2
    return 0 if isinstance(step, Partial) else 3


def _seen_from(params: Journey, journey: Journey, mesh: Mesh) -> Journey:
    """What is said of all tensors, for tensors whose compute holds other shards: an axis over which they are split is
    dropped, and the axes that a view factors become those axes of the view that are left."""
    local = {a for s in params if _is_local(s) for a in s.axes}
    views = [v for v in mesh.views if any(a in v for s in params if isinstance(s, Shard) for a in s.axes)]
    done: set[str] = set()
    found: list[Step] = []
    for step in journey:
        axes: list[str] = []
        for axis in step.axes:
            view = next((v for v in views if axis in v.over), None)
            if view is None:
                axes += [axis] if axis not in local or mesh[axis].role not in (Role.DATA, Role.EXPERT) else []
            elif (kind := f"{view.name} of {type(step).__name__}") not in done:
                done.add(kind)
                axes += [a.name for a in view.axes if a.name not in local]
        if axes or not step.axes:
            found.append(attrs.evolve(step, axes=tuple(axes)))
    return tuple(found)


def _params(written: Journey, mesh: Mesh) -> Journey:
    """Rule 1: `replicate`; a shard that compute can't use (flat, or over a data axis) is followed by `gather`."""
    steps = written
    if not any(isinstance(s, FORMS) for s in written):
        steps = (Replicate(why="params rest full unless a line says otherwise"), *written)
    unusable = tuple(
        a
        for s in steps
        if isinstance(s, Shard) and not _is_local(s)
        for a in s.axes
        if s.dim == "flat" or mesh[a].role in (Role.DATA, Role.SEQUENCE)
    )
    named = {a for s in steps if isinstance(s, Gather) for a in s.axes}
    open_ = tuple(a for a in unusable if a not in named)
    filled = tuple(attrs.evolve(s, axes=open_) if isinstance(s, Gather) and not s.axes else s for s in steps)
    if open_ and not any(isinstance(s, Gather) and s.axes == open_ for s in filled):
        filled = (*filled, Gather(axes=open_, why="compute needs whole parameters, a shard over a data axis is not"))
    return tuple(s for s in filled if s.axes or not isinstance(s, Gather))


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
    if any(isinstance(s, Replicate) and not s.axes for s in written):
        return ordered((*(s for s in rest if _is_local(s)), *written))
    ends = tuple(
        Shard(axes=s.axes or _open_axes(s, grads, split), dim=s.dim, pad=s.pad, why="as the gradients end")
        for s in grads
        if isinstance(s, Reduce) and s.scatter
    )
    forms = [s for s in written if isinstance(s, FORMS)]
    said = [a for s in forms for a in s.axes]
    order = tuple(dict.fromkeys(a for s in (*rest, *ends) for a in s.axes))
    first = min((order.index(a) for a in said if a in order), default=len(order))
    inside = _unsaid(rest, said, order[:first], mesh), _unsaid(rest, said, order[first:], mesh)
    said += [a for s in rest for a in s.axes]
    beyond = _unsaid(ends, said, order[:first], mesh), _unsaid(ends, said, order[first:], mesh)
    layout = (*inside[0], *beyond[0], *forms, *inside[1], *beyond[1])
    usual = Replicate(why="params and gradients are whole on every rank")
    return ordered((*(layout or (usual,)), *(s for s in written if not isinstance(s, FORMS))))


def _unsaid(shards: Journey, said: Iterable[str], among: tuple[str, ...], mesh: Mesh) -> Journey:
    """The part of some shards over the axes `among` of whose ranks nothing is said."""
    taken = {shared for a in said for shared in mesh.shared(a)}
    parts = (attrs.evolve(s, axes=tuple(a for a in s.axes if a in among and a not in taken)) for s in shards)
    return tuple(s for s in parts if s.axes)


def _open_axes(step: Reduce, grads: Journey, split: tuple[str, ...]) -> tuple[str, ...]:
    """What a reduction without an axis reduces: every axis still partial that no other reduction names."""
    named = {a for s in grads if isinstance(s, Reduce) and s is not step for a in s.axes}
    return tuple(a for a in split if a not in named)


_SEEN = {
    Role.DATA: "samples",
    Role.EXPERT: "samples",
    Role.SEQUENCE: "positions",
    Role.TENSOR: "positions",  # sequence parallelism around the split products
    Role.STAGE: "uses",  # of weights that stages share
}
_SEEN_ALONG = {"batch": "samples", "seq": "positions"}


def _seen(axes: tuple[str, ...], activations: Journey, mesh: Mesh) -> str:
    """What the ranks of the axes see other ones of: as the activations say, else what axes of that role split."""
    said = {a: _SEEN_ALONG.get(s.dim) for s in activations if isinstance(s, Shard) for a in s.axes}
    return " or ".join(dict.fromkeys(said.get(a) or _SEEN[mesh[a].role] for a in axes))


def _grads(written: Journey, optimizer: Journey, produced: Partial, problems: Problems) -> Journey:
    """Rule 3: produced partial, then reduce_scatter where the optimizer is sharded and all_reduce elsewhere."""
    split = produced.axes
    claims = tuple(s for s in written if isinstance(s, Partial))
    moves = tuple(s for s in written if not isinstance(s, Partial))
    reductions = tuple(s for s in moves if isinstance(s, Reduce))
    _check_claims(claims, split, problems)
    head: Journey = claims or ((produced,) if split else ())
    if not reductions and not (claims and not moves):
        consumed = any(isinstance(s, Consume) for s in moves)
        reductions = _reductions(optimizer, split, When.MICROBATCH if consumed else None)
        return (*head, *reductions, *moves)
    filled = tuple(
        attrs.evolve(s, axes=_open_axes(s, written, split)) if isinstance(s, Reduce) and not s.axes else s
        for s in moves
    )
    if not split:  # where every rank sees all tokens, nothing is partial
        filled = tuple(s for s in filled if s.axes or not isinstance(s, Reduce))
    _check_times(filled, problems)
    return (*head, *filled)


def _reductions(optimizer: Journey, split: tuple[str, ...], when: When | None) -> tuple[Reduce, ...]:
    moves: list[Reduce] = []
    scatter = tuple(a for a in sharded(optimizer) if a in split)
    rest = tuple(a for a in split if a not in scatter)
    if scatter:
        dim, pad = next((s.dim, s.pad) for s in optimizer if isinstance(s, Shard) and set(s.axes) & set(scatter))
        why = "the optimizer holds a shard over these axes"
        moves.append(Reduce(axes=scatter, scatter=True, when=When.MICROBATCH, dim=dim, pad=pad, why=why))
    if rest:
        why = "every rank of these axes updates the whole"
        moves.append(Reduce(axes=rest, scatter=False, when=when or When.STEP, why=why))
    return tuple(moves)


def _check_claims(claims: Journey, split: tuple[str, ...], problems: Problems) -> None:
    """A written `partial(...)` must say what is so."""
    if claims and {a for s in claims for a in s.axes} != set(split):
        truth = f"partial over {' * '.join(split)}" if split else "whole on every rank"
        problems.add(
            fault(
                "E118",
                f"gradients are produced {truth}, the text says otherwise",
                claims[0].span,
                help=f"`partial({' * '.join(split)})`, or leave it out" if split else "leave it out",
                rule="a gradient is partial over the axes whose ranks see other tokens, which `activations` says",
            )
        )


def _check_axes(written: Mapping[Key, Written], problems: Problems) -> None:
    """In a text of no axis, a reduction that names none reduces over nothing."""
    for (head, _), w in written.items():
        for step in w.journey if head == "grads" else ():
            if isinstance(step, Reduce):
                word = "reduce_scatter" if step.scatter else "all_reduce"
                said = f"`{word}` has nothing to reduce over: the text names no axis"
                problems.add(fault("E107", said, step.span, help=f"`{word}(dp)`, or a line `mesh (dp)`"))


def _check_times(moves: Journey, problems: Problems) -> None:
    once = False
    for s in moves:
        if isinstance(s, Reduce):
            if once and s.when is When.MICROBATCH:
                help_ = "give both the same `when`"
                problems.add(fault("E118", "a reduction per microbatch cannot follow one per step", s.span, help=help_))
            once = once or s.when is not When.MICROBATCH


def _update(written: Journey, params: Journey, optimizer: Journey) -> Journey:
    """Rule 5: from the optimizer's layout to that of params, where there is one way."""
    missing = tuple(a for a in sharded(optimizer) if a not in sharded(params))
    if written:
        return tuple(attrs.evolve(s, axes=s.axes or missing) for s in written)
    if missing:
        return (AllGather(axes=missing, why="fresh shards return to every rank that holds whole parameters"),)
    return ()
