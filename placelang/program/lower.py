"""Lowering: a Plan and a Model become the events of one training step.

Every transition that the plan names becomes one event a unit, and conversions between modules are put in where exactly
one fits (`nodes`); no reduction is added that the plan does not say, so that what is missing there is missing here and
the checker finds it. Not for: filling gaps (`plan.elaborate`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from placelang.frozen import Frozen
from placelang.model.model import Model
from placelang.plan.mesh import Mesh, Role
from placelang.plan.plan import Placed, Plan, State
from placelang.plan.steps import AllGather, Gather, Keep, Recompute, Replicate, When
from placelang.program.event import Buf, End, Event, Label, Layout, Op, Phase, Var
from placelang.program.inside import KEEPS_NOTHING, MICROBATCH, Inside, Layer, layers_of
from placelang.program.placement import Placement, placement
from placelang.program.profile import PROFILES, Profile
from placelang.program.program import Item, Program, Rep, Rest


def single_device(plan: Plan) -> Plan:
    """The same job on one device: the specification that a strategy must reproduce."""
    placed = tuple(attrs.evolve(p, journey=(Replicate(),)) for p in plan.placed if not p.selections)
    return attrs.evolve(plan, mesh=Mesh(), placed=placed, update=())


def lower(plan: Plan, model: Model, profile: Profile = PROFILES["torch"], inside: bool | None = None) -> Program:
    """The step program of `plan` for `model` under a runtime profile.

    `inside`: open layers to their operations; by default where an axis splits the inside of a layer. A program and its
    one-device reference must be lowered alike.
    """
    return _Lowering(plan, model, profile, opens(plan) if inside is None else inside).program()


def opens(plan: Plan) -> bool:
    """Whether an axis splits more than samples, so that what is inside a layer matters."""
    return any(axis.role is not Role.DATA for axis in plan.mesh.axes)


def recomputes(plan: Plan) -> bool:
    """Whether the text asks for full recomputation of blocks."""
    base = plan.journey(State.ACTIVATIONS)
    blocks = (s for p in plan.refinements(State.ACTIVATIONS) for s in p.journey if _is_block(p))
    found = [s for s in (*base, *blocks) if isinstance(s, Recompute)]
    return bool(found) and found[-1].policy == "full"


def _is_block(placed: Placed) -> bool:
    return any((s.kind, s.value) == ("role", "block") for s in placed.selections)


@attrs.frozen(eq=False, repr=False)
class _Unit(Frozen):
    """Groups that are gathered and reduced together: one block, or all that stands outside the blocks."""

    groups: tuple[str, ...]
    at: tuple[Var, ...]

    def bufs(self, kind: str, groups: Sequence[str] | None = None) -> tuple[Buf, ...]:
        return tuple(Buf(kind, name, self.at) for name in (self.groups if groups is None else groups))


class _Lowering:
    """The facts that every part of the program needs, found once. Methods yield events; nothing is mutated."""

    def __init__(self, plan: Plan, model: Model, profile: Profile, inside: bool) -> None:
        self.plan, self.profile, self.model = plan, profile, model
        self.precision = plan.train.precision
        self.layers = layers_of(model, inside)
        self.groups = tuple(group for layer in self.layers for group in layer.own)
        self.places: dict[str, Placement] = {
            group.name: placement(plan, model, layer.stack, group.tensors)
            for layer in self.layers
            for group in layer.own
        }
        self.inside = Inside(plan, self.layers, self.places)

    def program(self) -> Program:
        return Program(
            mesh=self.plan.mesh,
            groups=self.groups,
            rests=tuple(self._rests()),
            setup=tuple(self._setup()),
            body=(*self._accumulators(), *self._microbatches(), *self._reduce_step(), *self._update()),
            loops={
                MICROBATCH: self.plan.train.microbatches,
                **{layer.key: layer.stack.count for layer in self.layers if layer.looped},
            },
            tokens=self.inside.tokens,
            train=self.plan.train,
            profile=self.profile,
            activations=dict(self.inside.activations()),
        )

    # --- what lives between steps ------------------------------------------------------------------------------------

    def _rests(self) -> Iterator[Rest]:
        p, moments = self.precision, self.plan.train.moments
        for group in self.groups:
            place = self.places[group.name]
            yield Rest(State.PARAMS, "w", group.name, place.rest, p.rest)
            yield Rest(State.GRADS, "g", group.name, place.accumulated(), p.accumulate)
            if p.master:
                yield Rest(State.OPTIMIZER, "master", group.name, place.opt, p.master)
            yield Rest(State.OPTIMIZER, "o", group.name, place.opt, p.moments, copies=moments)

    def _setup(self) -> Iterator[Event]:
        for rest in self._rests():
            if rest.state is State.GRADS:
                continue
            unit = next(u for u in self._units() if rest.group in u.groups)
            out = Buf(rest.kind, rest.group, unit.at)
            yield Event(op=Op.INIT, outs=(out,), phase=Phase.INIT, layout=rest.layout, dtype=rest.dtype)

    # --- the inside of layers ----------------------------------------------------------------------------------------

    # --- units and loops ---------------------------------------------------------------------------------------------

    def _units(self) -> tuple[_Unit, ...]:
        root = [g.name for layer in self.layers if not layer.looped for g in layer.own]
        blocks = [
            _Unit(tuple(g.name for g in layer.own), layer.at) for layer in self.layers if layer.looped and layer.own
        ]
        outside = [_Unit(tuple(root), ())] if self.profile.root_unit and root else [_Unit((k,), ()) for k in root]
        return (*outside, *blocks)

    def _each(self, unit: _Unit, events: Sequence[Item], reverse: bool = False) -> tuple[Item, ...]:
        """The events once, or for every layer of a block's stack."""
        if not events:
            return ()
        if not unit.at:
            return tuple(events)
        loop = unit.at[0].loop
        return (Rep(loop, self._count(loop), tuple(events), reverse),)

    def _count(self, loop: str) -> int:
        return next(layer.stack.count for layer in self.layers if layer.key == loop)

    def _units_of(self, layer: Layer) -> list[_Unit]:
        return [u for u in self._units() if set(layer.groups_read) & set(u.groups)]

    # --- the microbatch loop -----------------------------------------------------------------------------------------

    def _accumulators(self) -> Iterator[Item]:
        dtype = self.precision.accumulate
        for unit in self._units():
            zero = [
                Event(op=Op.ZERO, outs=(g,), phase=Phase.FORWARD, layout=self.places[g.of].accumulated(), dtype=dtype)
                for g in unit.bufs("g")
            ]
            yield from self._each(unit, zero)
            yield from self._each(unit, self._view(unit, Phase.FORWARD, Keep.STEP))

    def _microbatches(self) -> Iterator[Item]:
        body = (*self._forward(), self._loss(), *self._backward())
        yield Rep(MICROBATCH, self.plan.train.microbatches, body)

    def _view(self, unit: _Unit, phase: Phase, *keep: Keep) -> list[Event]:
        """Bring a unit's parameters to the form in which compute reads them, for views that live for one of `keep`."""
        chosen = [g for g in unit.groups if self.inside.has_view(g) and self.places[g].keep in keep]
        events: list[Event] = []
        gathers: dict[tuple[str, tuple[str, ...], str, Label], list[str]] = {}
        steps: dict[tuple[str, ...], Gather] = {}
        for g in chosen:
            step = self.places[g].gather
            if step is None or not step.axes:
                view = self.precision.view
                events.append(
                    Event(op=Op.COPY, ins=unit.bufs("w", [g]), outs=unit.bufs("view", [g]), phase=phase, dtype=view)
                )
                continue
            again = phase is Phase.BACKWARD and self.places[g].secondary
            axes = self.places[g].secondary if again else step.axes
            label = next((label for axis, label in self.places[g].rest if axis in axes), Label("0"))
            kind = "shard" if again else "w"
            gathers.setdefault((kind, axes, step.dtype or self.precision.view, label), []).append(g)
            steps[axes] = step
        for (kind, axes, dtype, label), groups in gathers.items():
            step = steps[axes]
            ins, outs = unit.bufs(kind, groups), unit.bufs("view", groups)
            events.append(
                Event(
                    op=Op.ALL_GATHER,
                    ins=ins,
                    outs=outs,
                    phase=phase,
                    axes=axes,
                    label=label,
                    dtype=dtype,
                    span=step.span,
                    why=step.why,
                )
            )
        return events

    def _secondary(self, unit: _Unit) -> list[Event]:
        """The smaller shard of a view that backward gathers from, cut before the view is released (ZeRO++, hpZ)."""
        events: list[Event] = []
        for g in unit.groups:
            axes = self.places[g].secondary
            if axes:
                label = next((label for axis, label in self.places[g].rest if axis in axes), Label("0"))
                events.append(
                    Event(
                        op=Op.SLICE,
                        ins=unit.bufs("view", [g]),
                        outs=unit.bufs("shard", [g]),
                        phase=Phase.FORWARD,
                        axes=axes,
                        label=label,
                        dtype=self.precision.view,
                    )
                )
        return events

    def _free(self, unit: _Unit, phase: Phase, *keep: Keep) -> list[Event]:
        chosen = [g for g in unit.groups if self.inside.has_view(g) and self.places[g].keep in keep]
        if not chosen:
            return []
        return [Event(op=Op.FREE, ins=unit.bufs("view", chosen), phase=phase, dtype=self.precision.view)]

    def _around(self, layer: Layer, index: int, compute: Sequence[Item], phase: Phase) -> tuple[Item, ...]:
        """The compute of a layer with the views of its units made before it and released after their last use."""
        forward = phase is Phase.FORWARD
        before: list[Item] = []
        after: list[Item] = []
        for unit in self._units_of(layer):
            used = [i for i, other in enumerate(self.layers) if set(other.groups_read) & set(unit.groups)]
            first, last = (used[0], used[-1]) if forward else (used[-1], used[0])
            if index == first:
                before += self._view(unit, phase, *((Keep.UNIT, Keep.MICROBATCH) if forward else (Keep.UNIT,)))
            if index == last:
                after += self._secondary(unit) if forward else self._reduce_unit(unit)
                after += self._free(unit, phase, *((Keep.UNIT,) if forward else (Keep.UNIT, Keep.MICROBATCH)))
        return (*before, *compute, *after)

    def _bridge(self, index: int, kind: str, phase: Phase) -> tuple[Item, ...]:
        """Between two runs of blocks the last position of one is the first of the next."""
        if index == 0 or not (self.layers[index].looped and self.layers[index - 1].looped):
            return ()
        a = Buf(kind, self.layers[index - 1].key, (End(self.layers[index - 1].key),))
        b = Buf(kind, self.layers[index].key, (0,))
        ins, outs = (a, b) if phase is Phase.FORWARD else (b, a)
        return (Event(op=Op.COPY, ins=(ins,), outs=(outs,), phase=phase, dtype=self.precision.view),)

    def _looped(self, layer: Layer, items: tuple[Item, ...], reverse: bool = False) -> tuple[Item, ...]:
        return (Rep(layer.key, layer.stack.count, items, reverse),) if layer.looped else items

    # --- one layer ---------------------------------------------------------------------------------------------------

    def _forward(self) -> Iterator[Item]:
        for index, layer in enumerate(self.layers):
            yield from self._bridge(index, "x", Phase.FORWARD)
            events: list[Item] = list(self.inside.forward(index))
            if self._recomputes(layer):
                stashes = tuple(self.inside.stash(layer, o) for o in layer.operations if o.kind not in KEEPS_NOTHING)
                events.append(Event(op=Op.FREE, ins=stashes, phase=Phase.FORWARD, dtype=self.precision.view))
            yield from self._looped(layer, self._around(layer, index, events, Phase.FORWARD))

    def _recomputes(self, layer: Layer) -> bool:
        """Whether a block's activations are produced again in backward from its input alone."""
        return layer.looped and recomputes(self.plan)

    def _loss(self) -> Event:
        last = self.inside.nodes[-1][-1]
        return Event(
            op=Op.LOSS,
            ins=(Buf("x", "logits"), Buf("targets", "data", (Var(MICROBATCH),))),
            outs=(Buf("dx", "logits"),),
            phase=Phase.FORWARD,
            axes=tuple(axis for axis, label in last.flow.layout if label.dim == "v"),
            dtype=self.precision.view,
        )

    def _backward(self) -> Iterator[Item]:
        first_use = {g: i for i, layer in reversed(list(enumerate(self.layers))) for g in layer.groups_read}
        raw = self.precision.raw
        for g in sorted(self.inside.shared, key=lambda k: first_use[k]):
            yield Event(op=Op.ZERO, outs=(Buf("dw", g),), phase=Phase.BACKWARD, layout=self.places[g].use, dtype=raw)
        for index, layer in reversed(list(enumerate(self.layers))):
            again = self.inside.replayed(index) if self._recomputes(layer) else ()
            items = self._around(layer, index, [*again, *self.inside.backward(index)], Phase.BACKWARD)
            yield from self._looped(layer, items, reverse=True)
            yield from self._bridge(index, "dx", Phase.BACKWARD)

    # --- reductions --------------------------------------------------------------------------------------------------

    def _reduce(self, unit: _Unit, kind: str, when: When) -> tuple[list[Event], dict[str, Buf]]:
        """The reductions of a unit's gradients, those of one kind in one event; and where each group's ends."""
        events: list[Event] = []
        now = dict(zip(unit.groups, unit.bufs(kind), strict=True))
        steps = {g: [r for r in self.places[g].reductions if r.when is when] for g in unit.groups}
        for k in range(max(map(len, steps.values()), default=0)):
            together: dict[tuple[object, ...], list[str]] = {}
            for g in unit.groups:
                if k < len(steps[g]):
                    r = steps[g][k]
                    together.setdefault((r.scatter, r.axes, r.mean, r.dim, r.pad, r.wire), []).append(g)
            for groups in together.values():
                r = steps[groups[0]][k]
                ins = tuple(now[g] for g in groups)
                letter = "r" if when is When.MICROBATCH else "q"
                outs = tuple(attrs.evolve(b, kind=f"{letter}{k}") for b in ins)
                now.update(zip(groups, outs, strict=True))
                events.append(
                    Event(
                        op=Op.REDUCE_SCATTER if r.scatter else Op.ALL_REDUCE,
                        ins=ins,
                        outs=outs,
                        phase=Phase.BACKWARD,
                        axes=r.axes,
                        label=Label(r.dim, "padded" if r.pad == "even" else r.pad) if r.scatter else None,
                        mean=r.mean,
                        dtype=r.wire or self.precision.wire,
                        span=r.span,
                        why=r.why,
                    )
                )
        return events, now

    def _reduce_unit(self, unit: _Unit) -> list[Event]:
        """The reductions of one microbatch, then the accumulation."""
        events, reduced = self._reduce(unit, "dw", When.MICROBATCH)
        for g, buf in zip(unit.groups, unit.bufs("g"), strict=True):
            dtype = self.precision.accumulate
            events.append(Event(op=Op.ACC, ins=(reduced[g],), outs=(buf,), phase=Phase.BACKWARD, dtype=dtype))
        return events

    def _reduce_step(self) -> Iterator[Item]:
        for unit in reversed(self._units()):
            events, _ = self._reduce(unit, "g", When.STEP)
            yield from self._each(unit, events, reverse=True)
        for unit in self._units():
            yield from self._each(unit, self._free(unit, Phase.BACKWARD, Keep.STEP))

    # --- the update --------------------------------------------------------------------------------------------------

    def _update(self) -> Iterator[Item]:
        for unit in self._units():
            _, ends = self._reduce(unit, "g", When.STEP)
            events = [e for g in unit.groups for e in self._update_group(Buf("w", g, unit.at), ends[g])]
            yield from self._each(unit, [*events, *self._refresh(unit)])

    def _update_group(self, w: Buf, grad: Buf) -> Iterator[Event]:
        """Slice what the optimizer needs a shard of, update, and bring the master back to the format at rest."""
        p, place = self.precision, self.places[w.of]

        def buf(kind: str) -> Buf:
            return attrs.evolve(w, kind=kind)

        missing = place.missing(place.after(place.accumulated(), When.STEP))
        if missing:
            yield self._slice(grad, buf("gs"), missing, p.accumulate)
            grad = buf("gs")
        sliced = place.missing(place.rest)
        theta = buf("master") if p.master else w
        if not p.master and sliced:
            yield self._slice(w, buf("s"), sliced, p.rest)
            theta = buf("s")
        yield Event(
            op=Op.OPT,
            ins=(theta, grad, buf("o")),
            outs=(theta, buf("o")),
            phase=Phase.UPDATE,
            dtype=p.master or p.rest,
            span=place.opt_span,
        )
        if p.master:
            target = buf("s") if sliced else w
            yield Event(op=Op.COPY, ins=(theta,), outs=(target,), phase=Phase.UPDATE, dtype=p.rest)

    def _slice(self, source: Buf, target: Buf, extra: Layout, dtype: str) -> Event:
        return Event(
            op=Op.SLICE,
            ins=(source,),
            outs=(target,),
            phase=Phase.UPDATE,
            axes=tuple(axis for axis, _ in extra),
            label=extra[0][1],
            dtype=dtype,
            span=self.places[source.of].opt_span,
        )

    def _refresh(self, unit: _Unit) -> Iterator[Event]:
        for step in self.plan.update:
            needed = [g for g in unit.groups if self.places[g].missing(self.places[g].rest)]
            groups = needed or (list(unit.groups) if step.span else [])
            if isinstance(step, AllGather) and groups:
                label = next((label for axis, label in self.places[groups[0]].opt if axis in step.axes), Label("0"))
                yield Event(
                    op=Op.ALL_GATHER,
                    ins=unit.bufs("s", groups),
                    outs=unit.bufs("w", groups),
                    phase=Phase.UPDATE,
                    axes=step.axes,
                    label=label,
                    dtype=self.precision.rest,
                    span=step.span,
                    why=step.why,
                )
