"""Lowering: a Plan and a Model become the events of one training step.

Every transition that the plan names becomes one event a unit, and conversions between modules are put in where exactly
one fits (`nodes`); no reduction is added that the plan does not say, so that what is missing there is missing here and
the checker finds it. Not for: filling gaps (`plan.elaborate`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from placelang.model.model import Model
from placelang.plan.mesh import Mesh, Role
from placelang.plan.plan import Plan, State
from placelang.plan.steps import Formats, Journey, Keep, Replicate
from placelang.program.atoms import refined
from placelang.program.event import At, Buf, End, Event, Op, Phase, Var
from placelang.program.facts import Facts, on
from placelang.program.inside import MICROBATCH
from placelang.program.layers import Layer
from placelang.program.profile import PROFILES, Profile
from placelang.program.program import Item, Program, Rep, Rest
from placelang.program.recompute import Policy, policy
from placelang.program.reductions import reduce_step, reduce_unit
from placelang.program.stages import layer_shard
from placelang.program.update import update
from placelang.program.views import free, secondary, view
from placelang.source import Span


def single_device(plan: Plan) -> Plan:
    """The same job on one device: the specification that a strategy must reproduce."""

    def alone(journey: Journey) -> Journey:
        return (Replicate(), *(s for s in journey if isinstance(s, Formats)))

    placed = tuple(attrs.evolve(p, journey=alone(p.journey)) for p in plan.placed if not p.selections)
    return attrs.evolve(plan, mesh=Mesh(), placed=placed, update=())


def opens(plan: Plan) -> bool:
    """Whether an axis splits more than samples, so that what is inside a layer matters."""
    axes = (*plan.mesh.axes, *(axis for view in plan.mesh.views for axis in view.axes))
    return any(axis.role not in (Role.DATA, Role.STAGE) for axis in axes)


def lower(plan: Plan, model: Model, profile: Profile = PROFILES["torch"], inside: bool | None = None) -> Program:
    """The step program of `plan` for `model` under a runtime profile.

    `inside`: open layers to their operations; by default where an axis splits the inside of a layer. A program and its
    one-device reference must be lowered alike.
    """
    plan = refined(plan) or plan
    f = Facts(plan, model, profile, opens(plan) if inside is None else inside)
    return Program(
        mesh=plan.mesh,
        groups=f.groups,
        rests=tuple(_rests(f)),
        setup=tuple(_setup(f)),
        body=(*_accumulators(f), *_microbatches(f), *reduce_step(f), *update(f)),
        loops={
            MICROBATCH: plan.train.microbatches,
            **{layer.key: layer.stack.count for layer in f.layers if layer.looped},
        },
        tokens=f.inside.tokens,
        train=plan.train,
        profile=profile,
        activations=dict(f.inside.activations()),
        stages=f.stages,
    )


# --- what lives between steps ----------------------------------------------------------------------------------------


def _rests(f: Facts) -> Iterator[Rest]:
    p, moments = f.precision, f.plan.train.moments
    for group in f.groups:
        place = f.places[group.name]
        yield Rest(State.PARAMS, "w", group.name, place.rest, place.dtype or p.rest)
        if not group.trainable:
            continue
        yield Rest(State.GRADS, "g", group.name, place.accumulated(), p.accumulate)
        if p.master:
            yield Rest(State.OPTIMIZER, "master", group.name, place.opt, p.master)
        yield Rest(State.OPTIMIZER, "o", group.name, place.opt, p.moments, copies=moments)


def _setup(f: Facts) -> Iterator[Event]:
    for rest in _rests(f):
        if rest.state is State.GRADS:
            continue
        unit = next(u for u in f.units if rest.group in u.groups)
        out = Buf(rest.kind, rest.group, unit.at)
        init = Event(op=Op.INIT, outs=(out,), phase=Phase.INIT, layout=rest.layout, dtype=rest.dtype)
        yield attrs.evolve(init, where=unit.where)


# --- the microbatch loop ---------------------------------------------------------------------------------------------


def _accumulators(f: Facts) -> Iterator[Item]:
    dtype = f.precision.accumulate
    for unit in f.units:
        zero = [
            Event(op=Op.ZERO, outs=(g,), phase=Phase.FORWARD, layout=f.places[g.of].accumulated(), dtype=dtype)
            for g in unit.bufs("g", unit.trained)
        ]
        yield from f.each(unit, zero)
        yield from f.each(unit, view(f, unit, Phase.FORWARD, Keep.STEP))


def _microbatches(f: Facts) -> Iterator[Item]:
    loss = on(f.place(len(f.layers) - 1), [_loss(f)])
    body = (*_forward(f), *loss, *_backward(f))
    yield Rep(MICROBATCH, f.plan.train.microbatches, body)


def _around(f: Facts, layer: Layer, index: int, compute: Sequence[Item], phase: Phase) -> tuple[Item, ...]:
    """The compute of a layer with the views of its units made before it and released after their last use."""
    forward = phase is Phase.FORWARD
    before: list[Item] = []
    after: list[Item] = []
    for unit in f.units_of(layer):
        used = [i for i, other in enumerate(f.layers) if set(other.groups_read) & set(unit.groups)]
        again = [i for i in used if i >= f.inside.first]  # which backward uses too
        first, last = (used[0], used[-1]) if forward else (again[-1], again[0])
        if index == first:
            views = view(f, unit, phase, *((Keep.UNIT, Keep.MICROBATCH) if forward else (Keep.UNIT,)))
            before += on(unit.where, views)
        if index == last:
            done = secondary(f, unit) if forward else reduce_unit(f, unit)
            done += free(f, unit, phase, *((Keep.UNIT,) if forward and again else (Keep.UNIT, Keep.MICROBATCH)))
            after += on(unit.where, done)
    return (*before, *on(f.place(index), compute), *after, *_sent(f, index, phase))


def _bridge(f: Facts, index: int, kind: str, phase: Phase) -> tuple[Item, ...]:
    """Between two runs of blocks the last position of one is the first of the next."""
    if index == 0 or not (f.layers[index].looped and f.layers[index - 1].looped):
        return ()
    a = Buf(kind, f.layers[index - 1].key, (End(f.layers[index - 1].key),))
    b = Buf(kind, f.layers[index].key, (0,))
    forward = phase is Phase.FORWARD
    ins, outs = (a, b) if forward else (b, a)
    copied = Event(op=Op.COPY, ins=(ins,), outs=(outs,), phase=phase, dtype=f.precision.view)
    at = At(f.layers[index].key, 0) if forward else At(f.layers[index - 1].key, End(f.layers[index - 1].key, -1))
    return on((at,) if f.stages else (), [copied])


def _looped(f: Facts, layer: Layer, items: tuple[Item, ...], reverse: bool = False) -> tuple[Item, ...]:
    return (Rep(layer.key, layer.stack.count, items, reverse),) if layer.looped else items


def _forward(f: Facts) -> Iterator[Item]:
    for index, layer in enumerate(f.layers):
        yield from _bridge(f, index, "x", Phase.FORWARD)
        events: list[Item] = list(f.inside.forward(index))
        if (replay := _replay(f, layer)) and (stashes := f.inside.released(index, replay)):
            events.append(Event(op=Op.FREE, ins=stashes, phase=Phase.FORWARD, dtype=f.precision.view))
        yield from _looped(f, layer, _around(f, layer, index, events, Phase.FORWARD))


def _replay(f: Facts, layer: Layer) -> Policy | None:
    """What of a layer is produced again in backward. Of a layer that is not opened: all, or nothing that shows."""
    found = policy(f.plan) if layer.looped else None
    opaque = layer.operations[0].kind == "opaque"
    return None if found is None or (opaque and not found.full) else found


def _loss(f: Facts) -> Event:
    last = f.inside.nodes[-1][-1]
    return Event(
        op=Op.LOSS,
        ins=(Buf("x", "logits"), Buf("targets", "data", (Var(MICROBATCH),))),
        outs=(Buf("dx", "logits"),),
        phase=Phase.FORWARD,
        axes=tuple(axis for axis, label in last.flow.layout if label.dim == "v"),
        power=0 if f.plan.train.loss_scale is None else 1,
        dtype=f.precision.view,
    )


def _backward(f: Facts) -> Iterator[Item]:
    first_use = {g: i for i, layer in reversed(list(enumerate(f.layers))) for g in layer.groups_read}
    raw = f.precision.raw
    for g in sorted(f.inside.shared & f.inside.trained, key=lambda k: first_use[k]):
        zero = Event(op=Op.ZERO, outs=(Buf("dw", g),), phase=Phase.BACKWARD, layout=f.places[g].use, dtype=raw)
        where = next(group.where for group in f.groups if group.name == g)
        yield from on(where, [zero])
    for index, layer in reversed(list(enumerate(f.layers))[f.inside.first :]):
        replay = _replay(f, layer)
        again = f.inside.replayed(index, replay) if replay else ()
        items = _around(f, layer, index, [*again, *f.inside.backward(index)], Phase.BACKWARD)
        yield from _looped(f, layer, items, reverse=True)
        if index > f.inside.first:
            yield from _bridge(f, index, "dx", Phase.BACKWARD)


def _sent(f: Facts, index: int, phase: Phase) -> tuple[Event, ...]:
    """What a layer hands to the next in its phase, where that may be on another stage."""
    forward = phase is Phase.FORWARD
    other = index + 1 if forward else index - 1
    if f.stages is None or not 0 <= other < len(f.layers):
        return ()
    if not forward and other < f.inside.first and not f.layers[index].looped:
        return ()
    layer, neighbour = f.layers[index], f.layers[other]
    if not (layer.looped or neighbour.looped):
        return ()
    buf = f.inside.position(index, "x")[1] if forward else f.inside.position(index, "dx")[0]
    if layer.looped:
        target = At(layer.key, Var(layer.key, 1 if forward else -1))
    else:
        target = At(neighbour.key, 0 if forward else End(neighbour.key, -1))
    (here,) = f.place(index)
    return (
        Event(
            op=Op.SEND,
            ins=(buf,),
            outs=(buf,),
            phase=phase,
            axes=(f.stages.axis,),
            where=(here,),
            target=target,
            dtype=f.precision.view,
            span=_dealt(f),
        ),
    )


def _dealt(f: Facts) -> Span | None:
    step = layer_shard(f.plan)
    return step.span if step else None
