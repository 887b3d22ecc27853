"""Lowering: a Plan and a Model become the events of one training step.

Every transition that the plan names becomes one event a unit; nothing is added that the plan does not say, so that
what is missing there is missing here and the checker finds it. Not for: filling gaps (`plan.elaborate`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from placelang.frozen import Frozen
from placelang.model.model import Model, Stack
from placelang.plan.mesh import Mesh
from placelang.plan.plan import Plan, State
from placelang.plan.steps import AllGather, Gather, Keep, Reduce, Replicate, Shard, When
from placelang.program.event import Buf, End, Event, Label, Layout, Op, Phase, Var
from placelang.program.profile import PROFILES, Profile
from placelang.program.program import Group, Item, Program, Rep, Rest

MICROBATCH = "microbatch"  # the loop over microbatches


@attrs.frozen(eq=False, repr=False)
class _Layer(Frozen):
    """A stack, the group of its own parameters (if any), and every group that its compute reads."""

    stack: Stack
    key: str
    own: Group | None
    reads: tuple[str, ...]

    @property
    def looped(self) -> bool:
        return self.stack.block

    @property
    def at(self) -> tuple[Var, ...]:
        return (Var(self.key),) if self.looped else ()


@attrs.frozen(eq=False, repr=False)
class _Unit(Frozen):
    """Groups that are gathered and reduced together: one block, or all that stands outside the blocks."""

    groups: tuple[str, ...]
    at: tuple[Var, ...]

    def bufs(self, kind: str) -> tuple[Buf, ...]:
        return tuple(Buf(kind, name, self.at) for name in self.groups)


def single_device(plan: Plan) -> Plan:
    """The same job on one device: the specification that a strategy must reproduce."""
    placed = tuple(attrs.evolve(p, journey=(Replicate(),)) for p in plan.placed)
    return attrs.evolve(plan, mesh=Mesh(), placed=placed, update=())


def lower(plan: Plan, model: Model, profile: Profile = PROFILES["torch"]) -> Program:
    """The step program of `plan` for `model` under a runtime profile."""
    return _Lowering(plan, model, profile).program()


def _layers(model: Model) -> tuple[_Layer, ...]:
    names = [stack.name for stack in model.stacks]
    keys = [s.name if names.count(s.name) == 1 else f"{s.name}.{s.first}" for s in model.stacks]
    owner = {
        stack.fqn(t): key
        for stack, key in zip(model.stacks, keys, strict=True)
        for t in stack.tensors
        if t.tied is None
    }
    layers = []
    for stack, key in zip(model.stacks, keys, strict=True):
        tensors = tuple(t for t in stack.tensors if t.tied is None)
        own = Group(key, stack.count, stack.block, tensors) if tensors else None
        tied = dict.fromkeys(owner[t.tied] for t in stack.tensors if t.tied is not None)
        layers.append(_Layer(stack, key, own, (*((key,) if own else ()), *(k for k in tied if k != key))))
    return tuple(layers)


def _layout(shards: Sequence[Shard]) -> Layout:
    return tuple((axis, Label(s.dim, "padded" if s.pad == "even" else s.pad)) for s in shards for axis in s.axes)


class _Lowering:
    """The facts that every part of the program needs, found once. Methods yield events; nothing is mutated."""

    def __init__(self, plan: Plan, model: Model, profile: Profile) -> None:
        self.plan, self.profile = plan, profile
        self.precision = plan.train.precision
        self.layers = _layers(model)
        self.groups = tuple(layer.own for layer in self.layers if layer.own)
        params, grads = plan.journey(State.PARAMS), plan.journey(State.GRADS)
        self.rest = _layout([s for s in params if isinstance(s, Shard)])
        self.gather = next((s for s in params if isinstance(s, Gather)), None)
        self.reductions = tuple(s for s in grads if isinstance(s, Reduce))
        self.opt = _layout([s for s in plan.journey(State.OPTIMIZER) if isinstance(s, Shard)])
        self.opt_span = next((s.span for s in plan.journey(State.OPTIMIZER)), None)
        self.grad_span = next((s.span for s in reversed(grads)), None)
        self.tokens: Layout = tuple(
            (axis, Label(s.dim, "contiguous"))
            for s in plan.journey(State.ACTIVATIONS)
            if isinstance(s, Shard)
            for axis in s.axes
        )
        gathered = set(self.gather.axes) if self.gather else set()
        self.use: Layout = tuple((axis, label) for axis, label in self.rest if axis not in gathered)
        uses = [key for layer in self.layers for key in layer.reads]
        self.shared = {key for key in uses if uses.count(key) > 1}

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
            tokens=self.tokens,
            train=self.plan.train,
            profile=self.profile,
        )

    # --- what lives between steps ------------------------------------------------------------------------------------

    @property
    def accumulated(self) -> Layout:
        """The layout of the gradient accumulator: that of use, after the reductions of each microbatch."""
        return self._after(self.use, When.MICROBATCH)

    def _after(self, layout: Layout, *when: When) -> Layout:
        for r in self.reductions:
            if r.when in when and r.scatter:
                layout += tuple((axis, Label(r.dim, "padded" if r.pad == "even" else r.pad)) for axis in r.axes)
        return layout

    def _rests(self) -> Iterator[Rest]:
        p, moments = self.precision, self.plan.train.moments
        for group in self.groups:
            yield Rest(State.PARAMS, "w", group.name, self.rest, p.rest)
            yield Rest(State.GRADS, "g", group.name, self.accumulated, p.accumulate)
            if p.master:
                yield Rest(State.OPTIMIZER, "master", group.name, self.opt, p.master)
            yield Rest(State.OPTIMIZER, "o", group.name, self.opt, p.moments, copies=moments)

    def _setup(self) -> Iterator[Event]:
        for rest in self._rests():
            if rest.state is State.GRADS:
                continue
            group = next(g for g in self.groups if g.name == rest.group)
            at = (Var(group.name),) if group.indexed else ()
            out = Buf(rest.kind, group.name, at)
            yield Event(op=Op.INIT, outs=(out,), phase=Phase.INIT, layout=rest.layout, dtype=rest.dtype)

    # --- units and loops ---------------------------------------------------------------------------------------------

    def _units(self) -> tuple[_Unit, ...]:
        root = [layer.key for layer in self.layers if layer.own and not layer.looped]
        blocks = [_Unit((layer.key,), layer.at) for layer in self.layers if layer.own and layer.looped]
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

    def _unit_of(self, layer: _Layer) -> _Unit | None:
        return next((u for u in self._units() if layer.key in u.groups), None)

    # --- the microbatch loop -----------------------------------------------------------------------------------------

    def _accumulators(self) -> Iterator[Item]:
        for unit in self._units():
            zero = [
                Event(
                    op=Op.ZERO, outs=(g,), phase=Phase.FORWARD, layout=self.accumulated, dtype=self.precision.accumulate
                )
                for g in unit.bufs("g")
            ]
            yield from self._each(unit, zero)
            if self.gather and self.gather.keep is Keep.STEP:
                yield from self._each(unit, self._view(unit, Phase.FORWARD))

    def _microbatches(self) -> Iterator[Item]:
        body = (*self._forward(), self._loss(), *self._backward())
        yield Rep(MICROBATCH, self.plan.train.microbatches, body)

    @property
    def _has_views(self) -> bool:
        return self.gather is not None or self.precision.view != self.precision.rest

    def _view(self, unit: _Unit, phase: Phase) -> list[Event]:
        """Bring a unit's parameters to the form in which compute reads them."""
        ins, outs, dtype = unit.bufs("w"), unit.bufs("view"), self.precision.view
        if self.gather is None:
            return [
                Event(op=Op.COPY, ins=(i,), outs=(o,), phase=phase, dtype=dtype) for i, o in zip(ins, outs, strict=True)
            ]
        g = self.gather
        label = next((label for axis, label in self.rest if axis in g.axes), Label("0"))
        return [
            Event(
                op=Op.ALL_GATHER,
                ins=ins,
                outs=outs,
                phase=phase,
                axes=g.axes,
                label=label,
                dtype=g.dtype or dtype,
                span=g.span,
                why=g.why,
            )
        ]

    def _free(self, unit: _Unit, phase: Phase) -> list[Event]:
        return [Event(op=Op.FREE, ins=unit.bufs("view"), phase=phase, dtype=self.precision.view)]

    def _keeps(self, *keep: Keep) -> bool:
        """Whether views exist and live for one of `keep`. A cast that is no gather is made for each use."""
        return self._has_views and (self.gather.keep if self.gather else Keep.UNIT) in keep

    def _reads(self, layer: _Layer) -> tuple[Buf, ...]:
        kind = "view" if self._has_views else "w"
        return tuple(Buf(kind, key, layer.at if key == layer.key else ()) for key in layer.reads)

    def _around(self, layer: _Layer, index: int, compute: list[Item], phase: Phase) -> tuple[Item, ...]:
        """The compute of a layer with the view of its unit made before it and released after its last use."""
        unit = self._unit_of(layer)
        gathers = (Keep.UNIT, Keep.MICROBATCH) if phase is Phase.FORWARD else (Keep.UNIT,)
        frees = (Keep.UNIT,) if phase is Phase.FORWARD else (Keep.UNIT, Keep.MICROBATCH)
        if unit is None:
            return tuple(compute)
        used = [i for i, other in enumerate(self.layers) if set(other.reads) & set(unit.groups)]
        first, last = (used[0], used[-1]) if phase is Phase.FORWARD else (used[-1], used[0])
        before: list[Item] = []
        after: list[Item] = []
        if index == first and self._keeps(*gathers):
            before = list(self._view(unit, phase))
        if index == last:
            if phase is Phase.BACKWARD:
                after += self._reduce_unit(unit, When.MICROBATCH)
            if self._keeps(*frees):
                after += self._free(unit, phase)
        return (*before, *compute, *after)

    def _position(self, index: int, kind: str) -> tuple[Buf, Buf]:
        """What flows into and out of the layer at `index` (of kind `x`, or of their gradients `dx`)."""
        layer = self.layers[index]
        if index == 0:
            into = Buf("tokens", "data", (Var(MICROBATCH),)) if kind == "x" else Buf("dx", "data")
        elif layer.looped:
            into = Buf(kind, layer.key, layer.at)
        elif self.layers[index - 1].looped:
            into = Buf(kind, self.layers[index - 1].key, (End(self.layers[index - 1].key),))
        else:
            into = Buf(kind, layer.key)
        if layer.looped:
            return into, Buf(kind, layer.key, (Var(layer.key, 1),))
        if index + 1 == len(self.layers):
            return into, Buf(kind, "logits")
        after = self.layers[index + 1]
        return into, Buf(kind, after.key, (0,) if after.looped else ())

    def _bridge(self, index: int, kind: str, phase: Phase) -> tuple[Item, ...]:
        """Between two runs of blocks the last position of one is the first of the next."""
        if index == 0 or not (self.layers[index].looped and self.layers[index - 1].looped):
            return ()
        a = Buf(kind, self.layers[index - 1].key, (End(self.layers[index - 1].key),))
        b = Buf(kind, self.layers[index].key, (0,))
        ins, outs = (a, b) if phase is Phase.FORWARD else (b, a)
        return (Event(op=Op.COPY, ins=(ins,), outs=(outs,), phase=phase, dtype=self.precision.view),)

    def _forward(self) -> Iterator[Item]:
        for index, layer in enumerate(self.layers):
            into, out = self._position(index, "x")
            stash = Buf("stash", layer.key, layer.at)
            event = Event(
                op=Op.FORWARD,
                ins=(into, *self._reads(layer)),
                outs=(out, stash),
                phase=Phase.FORWARD,
                site=layer.key,
                dtype=self.precision.view,
            )
            yield from self._bridge(index, "x", Phase.FORWARD)
            yield from self._looped(layer, self._around(layer, index, [event], Phase.FORWARD))

    def _looped(self, layer: _Layer, items: tuple[Item, ...], reverse: bool = False) -> tuple[Item, ...]:
        return (Rep(layer.key, layer.stack.count, items, reverse),) if layer.looped else items

    def _loss(self) -> Event:
        return Event(
            op=Op.LOSS,
            ins=(Buf("x", "logits"), Buf("targets", "data", (Var(MICROBATCH),))),
            outs=(Buf("dx", "logits"),),
            phase=Phase.FORWARD,
            dtype=self.precision.view,
        )

    def _backward(self) -> Iterator[Item]:
        first_use = {key: i for i, layer in reversed(list(enumerate(self.layers))) for key in layer.reads}
        for key in sorted(self.shared, key=lambda k: first_use[k]):
            yield Event(
                op=Op.ZERO, outs=(Buf("dw", key),), phase=Phase.BACKWARD, layout=self.use, dtype=self.precision.raw
            )
        for index, layer in reversed(list(enumerate(self.layers))):
            dx, dy = self._position(index, "dx")
            common = (dy, Buf("stash", layer.key, layer.at), *self._reads(layer))
            items: list[Item] = []
            if index > 0:
                items.append(
                    Event(
                        op=Op.BACKWARD,
                        ins=common,
                        outs=(dx,),
                        phase=Phase.BACKWARD,
                        site=layer.key,
                        dtype=self.precision.view,
                    )
                )
            items += self._weight_gradients(layer, common)
            items = list(self._around(layer, index, items, Phase.BACKWARD))
            yield from self._looped(layer, tuple(items), reverse=True)
            yield from self._bridge(index, "dx", Phase.BACKWARD)

    def _weight_gradients(self, layer: _Layer, common: tuple[Buf, ...]) -> Iterator[Item]:
        """One raw gradient a group read; those of parameters with several uses are summed over the uses."""
        if not layer.reads:
            return
        at = {key: layer.at if key == layer.key else () for key in layer.reads}
        outs = tuple(Buf(f"dw@{layer.key}" if k in self.shared else "dw", k, at[k]) for k in layer.reads)
        raw = self.precision.raw
        yield Event(op=Op.WGRAD, ins=common, outs=outs, phase=Phase.BACKWARD, site=layer.key, dtype=raw)
        for out, key in zip(outs, layer.reads, strict=True):
            if key in self.shared:
                yield Event(op=Op.ACC, ins=(out,), outs=(Buf("dw", key, at[key]),), phase=Phase.BACKWARD, dtype=raw)

    # --- reductions --------------------------------------------------------------------------------------------------

    def _reduce(self, bufs: tuple[Buf, ...], when: When) -> tuple[list[Event], tuple[Buf, ...]]:
        events: list[Event] = []
        for r in (r for r in self.reductions if r.when is when):
            outs = tuple(
                attrs.evolve(b, kind=f"r{len(events)}" if when is When.MICROBATCH else f"q{len(events)}") for b in bufs
            )
            events.append(
                Event(
                    op=Op.REDUCE_SCATTER if r.scatter else Op.ALL_REDUCE,
                    ins=bufs,
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
            bufs = outs
        return events, bufs

    def _reduce_unit(self, unit: _Unit, when: When) -> list[Event]:
        """The reductions of one microbatch, then the accumulation."""
        events, reduced = self._reduce(unit.bufs("dw"), when)
        for buf, g in zip(reduced, unit.bufs("g"), strict=True):
            events.append(
                Event(op=Op.ACC, ins=(buf,), outs=(g,), phase=Phase.BACKWARD, dtype=self.precision.accumulate)
            )
        return events

    def _reduce_step(self) -> Iterator[Item]:
        for unit in reversed(self._units()):
            events, _ = self._reduce(unit.bufs("g"), When.STEP)
            yield from self._each(unit, events, reverse=True)
        if self._keeps(Keep.STEP):
            for unit in self._units():
                yield from self._each(unit, self._free(unit, Phase.BACKWARD))

    # --- the update --------------------------------------------------------------------------------------------------

    def _update(self) -> Iterator[Item]:
        for unit in self._units():
            events = [e for group in unit.groups for e in self._update_group(Buf("w", group, unit.at))]
            yield from self._each(unit, [*events, *self._refresh(unit)])

    def _update_group(self, w: Buf) -> Iterator[Event]:
        """Slice what the optimizer needs a shard of, update, and bring the master back to the format at rest."""
        p = self.precision

        def buf(kind: str) -> Buf:
            return attrs.evolve(w, kind=kind)

        reduced = sum(1 for r in self.reductions if r.when is When.STEP)
        grad = buf(f"q{reduced - 1}" if reduced else "g")
        grad_layout = self._after(self.accumulated, When.STEP)
        missing = self._missing(grad_layout)
        if missing:
            yield self._slice(grad, buf("gs"), missing, p.accumulate)
            grad = buf("gs")
        theta = buf("master") if p.master else w
        if not p.master and self._missing(self.rest):
            yield self._slice(w, buf("s"), self._missing(self.rest), p.rest)
            theta = buf("s")
        yield Event(
            op=Op.OPT,
            ins=(theta, grad, buf("o")),
            outs=(theta, buf("o")),
            phase=Phase.UPDATE,
            dtype=p.master or p.rest,
            span=self.opt_span,
        )
        if p.master:
            target = buf("s") if self._missing(self.rest) else w
            yield Event(op=Op.COPY, ins=(theta,), outs=(target,), phase=Phase.UPDATE, dtype=p.rest)

    def _missing(self, layout: Layout) -> Layout:
        """What the optimizer's layout splits beyond `layout`, when it refines it."""
        return self.opt[len(layout) :] if self.opt[: len(layout)] == layout else ()

    def _slice(self, source: Buf, target: Buf, extra: Layout, dtype: str) -> Event:
        return Event(
            op=Op.SLICE,
            ins=(source,),
            outs=(target,),
            phase=Phase.UPDATE,
            axes=tuple(axis for axis, _ in extra),
            label=extra[0][1],
            dtype=dtype,
            span=self.opt_span,
        )

    def _refresh(self, unit: _Unit) -> Iterator[Event]:
        for step in self.plan.update:
            if isinstance(step, AllGather):
                label = next((label for axis, label in self.opt if axis in step.axes), Label("0"))
                yield Event(
                    op=Op.ALL_GATHER,
                    ins=unit.bufs("s"),
                    outs=unit.bufs("w"),
                    phase=Phase.UPDATE,
                    axes=step.axes,
                    label=label,
                    dtype=self.precision.rest,
                    span=step.span,
                    why=step.why,
                )
