"""The elaboration rules: what no line says, in a fixed order, axis by axis. Nothing is searched or optimised.

Source: language reference, "What is inferred, and shown". Tier, lifetime and dtype are never inferred.
Not for: whether the result trains like one device (`check`).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from placelang.diagnostics.problems import Problems, fault
from placelang.plan.mesh import Mesh, Role
from placelang.plan.plan import (
    AllGather,
    Gather,
    Journey,
    Partial,
    Reduce,
    Replicate,
    Shard,
    State,
    Step,
    When,
)


def infer(written: Mapping[str, Journey], mesh: Mesh, problems: Problems) -> tuple[dict[State, Journey], Journey]:
    """Complete journeys for the four states, and for `update`."""
    params = _params(written.get("params", ()), mesh)
    activations = written.get("activations") or _activations(mesh)
    split = tuple(a for s in activations if isinstance(s, Shard) for a in s.axes)
    optimizer = written.get("optimizer") or _optimizer(params, written.get("grads", ()), split)
    grads = _grads(written.get("grads", ()), optimizer, tuple(a for a in mesh.names if a in split), problems)
    update = _update(written.get("update", ()), params, optimizer)
    states = {State.PARAMS: params, State.GRADS: grads, State.OPTIMIZER: optimizer, State.ACTIVATIONS: activations}
    return states, update


def sharded(journey: Journey) -> tuple[str, ...]:
    """The axes that split a state at rest, outer first."""
    return tuple(a for s in journey if isinstance(s, Shard) for a in s.axes)


def _params(written: Journey, mesh: Mesh) -> Journey:
    """Rule 1: `replicate`; a shard over a data axis, which no consumer can use, is followed by `gather`."""
    if not written:
        return (Replicate(why="params rest full unless a line says otherwise"),)
    data = tuple(a for a in sharded(written) if mesh[a].role in (Role.DATA, Role.SEQUENCE))
    steps: list[Step] = [attrs.evolve(s, axes=data) if isinstance(s, Gather) and not s.axes else s for s in written]
    if data and not any(isinstance(s, Gather) for s in written):
        steps.append(Gather(axes=data, why="compute needs whole parameters, a shard over a data axis is not"))
    return tuple(steps)


def _activations(mesh: Mesh) -> Journey:
    """Rule 4: samples split over axes of role data and expert, the sequence over axes of role sequence."""
    batch, seq = mesh.of_role(Role.DATA, Role.EXPERT), mesh.of_role(Role.SEQUENCE)
    steps: list[Step] = []
    if batch:
        steps.append(Shard(axes=batch, dim="batch", why="each rank of a data axis reads other samples"))
    if seq:
        steps.append(Shard(axes=seq, dim="seq", why="each rank of a sequence axis reads other positions"))
    return tuple(steps) or (Replicate(why="no axis splits the batch"),)


def _optimizer(params: Journey, grads: Journey, split: tuple[str, ...]) -> Journey:
    """Rule 2: sharded as params rest, else as the written grads end."""
    rest = tuple(s for s in params if isinstance(s, Shard))
    if rest:
        return tuple(attrs.evolve(s, span=None, dtype=None, why="as params rest") for s in rest)
    ends = tuple(
        Shard(axes=s.axes or _open_axes(s, grads, split), dim=s.dim, pad=s.pad, why="as the gradients end")
        for s in grads
        if isinstance(s, Reduce) and s.scatter
    )
    return ends or (Replicate(why="params and gradients are whole on every rank"),)


def _open_axes(step: Reduce, grads: Journey, split: tuple[str, ...]) -> tuple[str, ...]:
    """What a reduction without an axis reduces: every axis still partial that no other reduction names."""
    named = {a for s in grads if isinstance(s, Reduce) and s is not step for a in s.axes}
    return tuple(a for a in split if a not in named)


def _grads(written: Journey, optimizer: Journey, split: tuple[str, ...], problems: Problems) -> Journey:
    """Rule 3: produced partial, then reduce_scatter where the optimizer is sharded and all_reduce elsewhere."""
    start: Step = Partial(axes=split, why="each rank of these axes sees other samples")
    claims = tuple(s for s in written if isinstance(s, Partial))
    claimed = {a for s in claims for a in s.axes}
    if claims and claimed != set(split):
        truth = f"partial({' * '.join(split)})" if split else "whole on every rank"
        problems.add(
            fault(
                "E118",
                f"gradients are produced {truth}, the text says otherwise",
                claims[0].span,
                rule="a gradient is partial over the axes whose ranks see other tokens, which `activations` says",
            )
        )
    head: Journey = claims or ((start,) if split else ())
    moves = [s for s in written if not isinstance(s, Partial)]
    if claims and not moves:
        return written  # a journey that ends partial was asked for; the checker says what that means
    if not moves:
        over = sharded(optimizer)
        scatter = tuple(a for a in over if a in split)
        rest = tuple(a for a in split if a not in scatter)
        dim, pad = next(((s.dim, s.pad) for s in optimizer if isinstance(s, Shard)), ("0", "even"))
        if scatter:
            why = "the optimizer holds a shard over these axes"
            moves.append(Reduce(axes=scatter, scatter=True, when=When.MICROBATCH, dim=dim, pad=pad, why=why))
        if rest:
            moves.append(Reduce(axes=rest, scatter=False, why="every rank of these axes updates the whole"))
    else:
        moves = [
            attrs.evolve(s, axes=_open_axes(s, written, split)) if isinstance(s, Reduce) and not s.axes else s
            for s in moves
        ]
    seen_step = False
    for s in moves:
        if isinstance(s, Reduce):
            if seen_step and s.when is When.MICROBATCH:
                problems.add(
                    fault(
                        "E118",
                        "a reduction per microbatch cannot follow one per step",
                        s.span,
                        help="give both the same `when`",
                    )
                )
            seen_step = seen_step or s.when is When.STEP
    empty = [s for s in moves if not s.axes]
    if empty and not split:
        moves = [s for s in moves if s.axes]  # on one device, or where every rank sees all, nothing is partial
    return (*head, *moves)


def _update(written: Journey, params: Journey, optimizer: Journey) -> Journey:
    """Rule 5: from the optimizer's layout to that of params, where there is one way."""
    missing = tuple(a for a in sharded(optimizer) if a not in sharded(params))
    if written:
        return tuple(attrs.evolve(s, axes=s.axes or missing) for s in written)
    if missing:
        return (AllGather(axes=missing, why="fresh shards return to every rank that holds whole parameters"),)
    return ()
