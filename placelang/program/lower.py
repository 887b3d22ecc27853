"""Lowering: a Plan and a Model become the events of one training step.

Every transition that the plan names becomes one event a unit, and conversions between modules are put in where exactly
one fits (`nodes`); no reduction is added that the plan does not say, so that what is missing there is missing here and
the checker finds it. Not for: filling gaps (`plan.elaborate`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial

import attrs

from placelang.frozen import Frozen
from placelang.model.graph import LETTERS, Operation, opaque, operations
from placelang.model.model import Model, Stack
from placelang.plan.mesh import Mesh, Role
from placelang.plan.plan import Placed, Plan, State
from placelang.plan.steps import AllGather, Gather, Journey, Keep, Recompute, Replicate, Shard, When
from placelang.program.event import Buf, Compute, End, Event, Label, Layout, Op, Phase, Var
from placelang.program.flow import Flow
from placelang.program.nodes import Node, nodes
from placelang.program.placement import Placement, placement
from placelang.program.profile import PROFILES, Profile
from placelang.program.program import Activation, Group, Item, Program, Rep, Rest

MICROBATCH = "microbatch"  # the loop over microbatches

NAMES = {letter: name for name, letter in LETTERS.items()} | {"t": "seq"}
"""The dim that a letter of an activation stands for."""


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
class _Layer(Frozen):
    """A stack with its operations, and the groups of parameters that each of them reads."""

    stack: Stack
    key: str
    operations: tuple[Operation, ...]
    own: tuple[Group, ...]
    reads: Mapping[str, tuple[str, ...]]  # by operation

    @property
    def looped(self) -> bool:
        return self.stack.block

    @property
    def at(self) -> tuple[Var, ...]:
        return (Var(self.key),) if self.looped else ()

    @property
    def groups_read(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(g for groups in self.reads.values() for g in groups))


@attrs.frozen(eq=False, repr=False)
class _Part(Frozen):
    """What one use gives of a value's gradient: partial over `left`, and over `stays` when the use is the only one."""

    buf: Buf
    left: frozenset[str]
    stays: frozenset[str]


@attrs.frozen(eq=False, repr=False)
class _Unit(Frozen):
    """Groups that are gathered and reduced together: one block, or all that stands outside the blocks."""

    groups: tuple[str, ...]
    at: tuple[Var, ...]

    def bufs(self, kind: str, groups: Sequence[str] | None = None) -> tuple[Buf, ...]:
        return tuple(Buf(kind, name, self.at) for name in (self.groups if groups is None else groups))


def _layers(model: Model, inside: bool) -> tuple[_Layer, ...]:
    names = [stack.name for stack in model.stacks]
    keys = [s.name if names.count(s.name) == 1 else f"{s.name}.{s.first}" for s in model.stacks]
    owner: dict[str, str] = {}  # full name of a tensor outside the blocks -> its group
    layers = []
    for stack, key in zip(model.stacks, keys, strict=True):
        inner = operations(model, stack) if inside else (opaque(stack),)
        own: list[Group] = []
        reads: dict[str, tuple[str, ...]] = {}
        for o in inner:
            mine = tuple(t for t in o.tensors if t.tied is None)
            name = key if o.kind == "opaque" else f"{key}/{o.name}"
            if mine:
                own.append(Group(name, stack.count, key if stack.block else None, mine))
                owner |= {stack.fqn(t): name for t in mine if not stack.indexed}
            shared = dict.fromkeys(owner[t.tied] for t in o.tensors if t.tied is not None)
            reads[o.name] = (*((name,) if mine else ()), *(g for g in shared if g != name))
        layers.append(_Layer(stack, key, inner, tuple(own), reads))
    return tuple(layers)


class _Lowering:
    """The facts that every part of the program needs, found once. Methods yield events; nothing is mutated."""

    def __init__(self, plan: Plan, model: Model, profile: Profile, inside: bool) -> None:
        self.plan, self.profile, self.model = plan, profile, model
        self.precision = plan.train.precision
        self.layers = _layers(model, inside)
        self.groups = tuple(group for layer in self.layers for group in layer.own)
        self.places: dict[str, Placement] = {
            group.name: placement(plan, model, layer.stack, group.tensors)
            for layer in self.layers
            for group in layer.own
        }
        tokens = [s for s in plan.journey(State.ACTIVATIONS) if isinstance(s, Shard)]
        self.tokens: Layout = tuple((axis, Label(s.dim, "contiguous")) for s in tokens for axis in s.axes)
        uses = [group for layer in self.layers for group in layer.groups_read]
        self.shared = {group for group in uses if uses.count(group) > 1}
        self.nodes = self._nodes()

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
            activations=dict(self._activations()),
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

    def _nodes(self) -> tuple[tuple[Node, ...], ...]:
        """Each layer's operations with the moves between them; the first layer reads tokens."""
        result: list[tuple[Node, ...]] = []
        flow = Flow(tuple((axis, Label(LETTERS[label.dim], label.partition)) for axis, label in self.tokens))
        for index, layer in enumerate(self.layers):
            letters = "bs" if index == 0 and layer.operations[0].kind != "opaque" else "bsh"
            made = nodes(
                layer.operations,
                flow,
                letters,
                partial(self._splits, layer),
                partial(self._said, layer, attention=True),
                partial(self._said, layer, attention=False),
            )
            result.append(made)
            flow = made[-1].flow
        return tuple(result)

    def _activations(self) -> Iterator[tuple[str, Activation]]:
        """Sizes and layouts of all that flows, by the name of its buffers."""
        tokens = (("batch", "batch"), ("seq", "seq"))
        yield "data", Activation(tokens, self.tokens)
        for index in range(len(self.layers)):
            inner: dict[str, str | int] = {}  # the width of each value's last dim
            for node in self.nodes[index]:
                o = node.operation
                inner[node.name] = inner.get(node.ins[0], "hidden")
                if o is not None and o.kind in ("linear", "embed"):
                    named = {"h": "hidden", "v": "vocab", "f": "ffn"}
                    inner[node.name] = named.get(o.out[-1], o.tensors[0].shape[0])
                sizes = (("batch", "batch"), ("seq", "seq"), (NAMES.get(node.letters[-1], "hidden"), inner[node.name]))
                layout = tuple((a, Label(NAMES[label.dim], label.partition)) for a, label in node.flow.layout)
                for kind in ("x", "dx"):
                    yield self._value(index, node.name, kind).of, Activation(sizes, layout)

    def _splits(self, layer: _Layer, o: Operation) -> tuple[Mapping[str, str], ...]:
        """For each tensor of an operation, the letter that each axis splits as compute reads it."""
        if o.kind == "opaque":
            return ()
        found: list[Mapping[str, str]] = []
        for k, tensor in enumerate(o.tensors):
            group = next(
                g
                for g in layer.reads[o.name]
                if any(t.name == (tensor.tied or tensor.name) for t in self._group(g).tensors)
            )
            letters = o.letters[len(o.ins) + k]
            use = self.places[group].use
            found.append(
                {
                    axis: letters[int(label.dim)]
                    for axis, label in use
                    if label.dim.isdigit() and int(label.dim) < len(letters)
                }
            )
        return tuple(found)

    def _group(self, name: str) -> Group:
        return next(g for g in self.groups if g.name == name)

    def _said(self, layer: _Layer, o: Operation, attention: bool) -> Journey:
        """What the `activations` lines say of an operation: of its result, or how attention fetches tokens."""
        if (o.kind == "attention") is not attention:
            return ()
        found: Journey = ()
        for placed in self.plan.refinements(State.ACTIVATIONS):
            for s in placed.selections:
                role = o.role if o.kind != "attention" else "attn"
                roles = (
                    s.kind == "role"
                    and o.kind not in ("bias", "add", "mul")
                    and (role == s.value or role.startswith(f"{s.value}."))
                )
                if roles and (o.kind == "attention" or s.value != "attn"):
                    found = (*found, *placed.journey)
        return found

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

    def _units_of(self, layer: _Layer) -> list[_Unit]:
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

    def _has_view(self, group: str) -> bool:
        return self.places[group].gather is not None or self.precision.view != self.precision.rest

    def _view(self, unit: _Unit, phase: Phase, *keep: Keep) -> list[Event]:
        """Bring a unit's parameters to the form in which compute reads them, for views that live for one of `keep`."""
        chosen = [g for g in unit.groups if self._has_view(g) and self.places[g].keep in keep]
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
        chosen = [g for g in unit.groups if self._has_view(g) and self.places[g].keep in keep]
        if not chosen:
            return []
        return [Event(op=Op.FREE, ins=unit.bufs("view", chosen), phase=phase, dtype=self.precision.view)]

    def _around(self, layer: _Layer, index: int, compute: Sequence[Item], phase: Phase) -> tuple[Item, ...]:
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

    def _looped(self, layer: _Layer, items: tuple[Item, ...], reverse: bool = False) -> tuple[Item, ...]:
        return (Rep(layer.key, layer.stack.count, items, reverse),) if layer.looped else items

    # --- one layer ---------------------------------------------------------------------------------------------------

    def _value(self, index: int, name: str, kind: str = "x") -> Buf:
        """The buffer of a value inside a layer: its input, what it returns, or one between."""
        layer = self.layers[index]
        into, out = self._position(index, kind)
        if name == "":
            return into
        if name == self.nodes[index][-1].name:
            return out
        return Buf(kind, f"{layer.key}/{name}", layer.at)

    def _stash(self, layer: _Layer, o: Operation) -> Buf:
        return Buf("stash", layer.key if o.kind == "opaque" else f"{layer.key}/{o.name}", layer.at)

    def _reads(self, layer: _Layer, o: Operation) -> tuple[Buf, ...]:
        mine = {g.name for g in layer.own}
        return tuple(
            Buf("view" if self._has_view(g) else "w", g, layer.at if g in mine else ()) for g in layer.reads[o.name]
        )

    def _site(self, layer: _Layer, o: Operation) -> str:
        return layer.key if o.kind == "opaque" else f"{layer.key}/{o.name}"

    def _compute(self, o: Operation, wrt: int = 0) -> Compute:
        return Compute(o.kind, o.letters, o.out, o.whole, o.shares, len(o.ins), wrt)

    def _move(self, node: Node, ins: Buf, out: Buf, phase: Phase, op: Op | None) -> Event | None:
        """The event of a move in forward, or of what undoes it in backward."""
        move = node.move
        assert move is not None
        if op is None:
            return None
        letter = move.letter
        back = phase is Phase.BACKWARD and op is Op.ALL_TO_ALL
        source, target = (move.to, letter) if back else (letter, move.to)
        return Event(
            op=op,
            ins=(ins,),
            outs=(out,),
            phase=phase,
            axes=move.axes,
            label=Label(NAMES[source], "contiguous") if source else None,
            to=Label(NAMES[target], "contiguous") if op is Op.ALL_TO_ALL else None,
            dtype=self.precision.view,
            span=move.span,
            why=move.why,
        )

    def _forward(self) -> Iterator[Item]:
        for index, layer in enumerate(self.layers):
            yield from self._bridge(index, "x", Phase.FORWARD)
            events: list[Item] = list(self._layer_forward(index))
            if self._recomputes(layer):
                stashes = tuple(self._stash(layer, o) for o in layer.operations if o.kind not in ("add", "bias"))
                events.append(Event(op=Op.FREE, ins=stashes, phase=Phase.FORWARD, dtype=self.precision.view))
            yield from self._looped(layer, self._around(layer, index, events, Phase.FORWARD))

    def _layer_forward(self, index: int) -> Iterator[Event]:
        layer = self.layers[index]
        for node in self.nodes[index]:
            out = self._value(index, node.name)
            ins = tuple(self._value(index, n) for n in node.ins)
            if node.operation is None:
                event = self._move(node, ins[0], out, Phase.FORWARD, node.move.op if node.move else None)
                assert event is not None
                yield event
                continue
            o = node.operation
            yield Event(
                op=Op.FORWARD,
                ins=(*ins, *self._reads(layer, o)),
                outs=(out, self._stash(layer, o)),
                phase=Phase.FORWARD,
                site=self._site(layer, o),
                compute=self._compute(o),
                dtype=self.precision.view,
            )

    def _recomputes(self, layer: _Layer) -> bool:
        """Whether a block's activations are produced again in backward from its input alone."""
        return layer.looped and recomputes(self.plan)

    def _replayed(self, index: int) -> Iterator[Item]:
        """The forward of a layer again, for its stashes; what nobody reads of it is dead and falls away."""
        into = self._value(index, "")

        def again(bufs: tuple[Buf, ...]) -> tuple[Buf, ...]:
            return tuple(attrs.evolve(b, kind="xr") if b.kind == "x" and b != into else b for b in bufs)

        for event in self._layer_forward(index):
            yield attrs.evolve(event, ins=again(event.ins), outs=again(event.outs), phase=Phase.BACKWARD)

    def _loss(self) -> Event:
        last = self.nodes[-1][-1]
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
        for g in sorted(self.shared, key=lambda k: first_use[k]):
            yield Event(op=Op.ZERO, outs=(Buf("dw", g),), phase=Phase.BACKWARD, layout=self.places[g].use, dtype=raw)
        for index, layer in reversed(list(enumerate(self.layers))):
            again = self._replayed(index) if self._recomputes(layer) else ()
            items = self._around(layer, index, [*again, *self._layer_backward(index)], Phase.BACKWARD)
            yield from self._looped(layer, items, reverse=True)
            yield from self._bridge(index, "dx", Phase.BACKWARD)

    def _layer_backward(self, index: int) -> Iterator[Item]:
        """Against the order of the layer's nodes: the gradient of each value is the sum over those who read it, made
        as whole as the value was; then each operation hands on its part. Only gradients of shared keys and values stay
        partial until their inputs' other readers have added theirs, so that all are reduced at once."""
        layer, chain = self.layers[index], self.nodes[index]
        parts: dict[str, list[_Part]] = {}
        uses = [n for node in chain for n in node.ins]
        for position in reversed(range(len(chain))):
            node = chain[position]
            dy, kept, back = (
                self._value(index, node.name, "dx"),
                frozenset[str](),
                node.move.back if node.move else None,
            )
            if position < len(chain) - 1:
                if node.name not in parts:
                    continue  # nothing reads it
                mine = parts[node.name]
                if back is Op.REDUCE_SCATTER and not all(set(node.axes) <= p.left for p in mine):
                    back = Op.SLICE  # some reader has the whole gradient on every rank
                scattered = frozenset(node.axes) if back is Op.REDUCE_SCATTER else frozenset[str]()
                kept = yield from self._summed(index, node.name, mine, scattered)
            targets = [n for n in node.ins if not (index == 0 and n == "")]
            if node.operation is None:
                stays = kept if uses.count(node.ins[0]) == 1 else frozenset[str]()
                part = self._part(index, node.ins[0], node.name, uses, kept - stays)
                event = self._move(node, dy, part, Phase.BACKWARD, back)
                if event is None:
                    event = Event(op=Op.COPY, ins=(dy,), outs=(part,), phase=Phase.BACKWARD, dtype=self.precision.view)
                yield event
                parts.setdefault(node.ins[0], []).append(_Part(part, kept, stays))
                continue
            o = node.operation
            common = (dy, self._stash(layer, o), *self._reads(layer, o))
            for k, n in enumerate(node.ins):
                if n not in targets:
                    continue
                shared = self._left_shared(layer, o, k, node)
                left = self._left_partial(layer, o, k, node) | shared | kept
                stays = shared | kept if n and uses.count(n) == 1 else frozenset[str]()
                part = self._part(index, n, f"{node.name}.{k}", uses, left - stays)
                yield Event(
                    op=Op.BACKWARD,
                    ins=common,
                    outs=(part,),
                    phase=Phase.BACKWARD,
                    site=self._site(layer, o),
                    compute=self._compute(o, k),
                    dtype=self.precision.view,
                )
                parts.setdefault(n, []).append(_Part(part, left, stays))
            yield from self._weight_gradients(layer, o, common)
        if index > 0 and "" in parts:
            yield from self._summed(index, "", parts[""])

    def _part(self, index: int, value: str, by: str, uses: list[str], left: frozenset[str]) -> Buf:
        """Where one use puts its part of a value's gradient: the gradient itself, if it is the only one and whole."""
        layer = self.layers[index]
        final = self._value(index, value, "dx")
        if uses.count(value) > 1:
            return Buf("dx", f"{layer.key}/{value}<{by}", layer.at)
        return attrs.evolve(final, kind="dx+") if left else final

    def _left_partial(self, layer: _Layer, o: Operation, k: int, node: Node) -> frozenset[str]:
        """The axes over which an operand's gradient is a partial sum: those that split letters it lacks."""
        letters = o.letters[k]
        split = {axis: label.dim for axis, label in node.flow.layout}
        for t in self._splits(layer, o):
            split.update(t)
        return frozenset(axis for axis, letter in split.items() if letter not in letters)

    def _left_shared(self, layer: _Layer, o: Operation, k: int, node: Node) -> frozenset[str]:
        """The axes that split what reads an operand but not the operand: each rank has its readers' part."""
        if k not in o.shares:
            return frozenset()
        own = {axis for axis, _ in self._flow_of(layer, node, k).layout}
        split = {axis for axis, label in node.flow.layout if label.dim in o.letters[k]}
        return frozenset(split - own)

    def _flow_of(self, layer: _Layer, node: Node, k: int) -> Flow:
        index = self.layers.index(layer)
        return next((n.flow for n in self.nodes[index] if n.name == node.ins[k]), Flow())

    def _summed(
        self, index: int, name: str, parts: list[_Part], scattered: frozenset[str] = frozenset()
    ) -> Generator[Item, None, frozenset[str]]:
        """The gradient of a value from those of its uses, reduced over the axes on which a use left a part, but not
        over `scattered`, which its way back reduces. Returns the axes over which it stays partial."""
        final = self._value(index, name, "dx")
        dtype, back = self.precision.view, Phase.BACKWARD
        why = "each rank's use gives its part of this gradient"

        def reduced(source: Buf, target: Buf, axes: frozenset[str]) -> Event:
            names = tuple(a for a in self.plan.mesh.names if a in axes)
            return Event(op=Op.ALL_REDUCE, ins=(source,), outs=(target,), phase=back, axes=names, dtype=dtype, why=why)

        pending = [p.left - p.stays - scattered for p in parts]
        alike = len(set(pending)) == 1
        for part, axes in zip(parts, pending, strict=True):
            if axes and not alike:  # other parts are whole already, or partial elsewhere
                yield reduced(part.buf, part.buf, axes)
        total = attrs.evolve(final, kind="dx+") if alike and pending[0] else final
        bufs = tuple(p.buf for p in parts)
        if len(bufs) > 1:
            yield Event(op=Op.ADD, ins=bufs, outs=(total,), phase=back, dtype=dtype)
        elif bufs[0] != total:
            yield Event(op=Op.COPY, ins=bufs, outs=(total,), phase=back, dtype=dtype)
        if alike and pending[0]:
            yield reduced(total, final, pending[0])
        return parts[0].stays

    def _weight_gradients(self, layer: _Layer, o: Operation, common: tuple[Buf, ...]) -> Iterator[Item]:
        """One raw gradient a group read; those of parameters with several uses are summed over the uses."""
        reads = layer.reads[o.name]
        if not reads:
            return
        mine = {g.name for g in layer.own}
        at = {g: layer.at if g in mine else () for g in reads}
        site, raw = self._site(layer, o), self.precision.raw
        outs = tuple(Buf(f"dw@{site}" if g in self.shared else "dw", g, at[g]) for g in reads)
        yield Event(
            op=Op.WGRAD,
            ins=common,
            outs=outs,
            phase=Phase.BACKWARD,
            site=site,
            compute=self._compute(o),
            dtype=raw,
        )
        for out, g in zip(outs, reads, strict=True):
            if g in self.shared:
                yield Event(op=Op.ACC, ins=(out,), outs=(Buf("dw", g, at[g]),), phase=Phase.BACKWARD, dtype=raw)

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
