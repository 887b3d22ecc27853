"""The inside of layers: each layer's operations and moves as events, forward, again, and backward.

Not for: parameters between uses, loops and the update (`lower`), or which conversions there are (`nodes`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from functools import partial

import attrs

from placelang.frozen import Frozen
from placelang.model.graph import DIMS, LETTERS, Operation
from placelang.plan.plan import Plan, State
from placelang.plan.steps import Journey, Ring, Shard
from placelang.program.event import Buf, Compute, End, Event, Label, Layout, Op, Phase, Var
from placelang.program.flow import Flow
from placelang.program.layers import Layer
from placelang.program.nodes import Node, nodes
from placelang.program.placement import Placement
from placelang.program.program import Activation, Item
from placelang.program.recompute import Policy

MICROBATCH = "microbatch"  # the loop over microbatches


@attrs.frozen(eq=False, repr=False)
class _Part(Frozen):
    """What one use gives of a value's gradient: partial over `left`, and over `stays` when the use is the only one."""

    buf: Buf
    left: frozenset[str]
    stays: frozenset[str]


def _dealt(plan: Plan) -> frozenset[str]:
    """The axes that deal each rank an early and a late run of positions."""
    steps = (s for p in plan.placed if p.state is State.ACTIVATIONS for s in p.journey)
    return frozenset(a for s in steps if isinstance(s, Ring) and s.balance == "headtail" for a in s.axes)


class Inside:
    """What is inside the layers of one plan: nodes, where their values lie, and the buffers that hold them."""

    def __init__(self, plan: Plan, layers: tuple[Layer, ...], places: Mapping[str, Placement]) -> None:
        self.plan, self.layers, self.places = plan, layers, places
        self.precision = plan.train.precision
        self.groups = {group.name: group for layer in layers for group in layer.own}
        tokens = [s for s in plan.journey(State.ACTIVATIONS) if isinstance(s, Shard)]
        self.dealt = _dealt(plan)
        self.tokens: Layout = tuple((axis, self._label(s.dim, axis)) for s in tokens for axis in s.axes)
        uses = [group for layer in layers for group in layer.groups_read]
        self.shared = {group for group in uses if uses.count(group) > 1}
        self.nodes = self._nodes()
        self.trained = {name for name, group in self.groups.items() if group.trainable}
        reading = (i for i, layer in enumerate(layers) if self.trained & set(layer.groups_read))
        self.first = min(reading, default=len(layers))
        """The layer in front of which nothing is trained: backward ends there."""

    def _label(self, dim: str, axis: str) -> Label:
        """How an axis splits a dim of activations."""
        return Label(dim, "headtail" if dim == "seq" and axis in self.dealt else "contiguous")

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
                partial(self._said, layer, fetch=True),
                partial(self._said, layer, fetch=False),
            )
            result.append(made)
            flow = made[-1].flow
        return tuple(result)

    def activations(self) -> Iterator[tuple[str, Activation]]:
        """Sizes and layouts of all that flows, by the name of its buffers."""
        tokens = (("batch", "batch"), ("seq", "seq"))
        yield "data", Activation(tokens, self.tokens)
        for index in range(len(self.layers)):
            inner: dict[str, str | int] = {}  # the width of each value's last dim
            for node in self.nodes[index]:
                o = node.operation
                inner[node.name] = inner.get(node.ins[0], "hidden")
                if o is not None and o.kind in ("linear", "embed"):
                    named = {"h": "hidden", "v": "vocab", "f": "moe_ffn" if "e" in o.out else "ffn"}
                    width = o.tensors[0].shape[0 if o.kind == "embed" else -2]
                    own = o.out[-1] == "f" and o.tensors[0].dims[-2] not in ("ffn", "moe_ffn")  # of shared experts
                    inner[node.name] = width if own else named.get(o.out[-1], width)
                elif o is not None and o.kind == "attention":  # its own width is that of the values
                    heads = [p.tensors[0].shape[1] for p in self.layers[index].operations if o.name in p.ins]
                    inner[node.name] = heads[0]
                routed = (("expert", "top_k"),) if len(node.letters) == 4 else ()  # a token's copies, whoever gets them
                last = (DIMS.get(node.letters[-1], "hidden"), inner[node.name])
                sizes = (*routed, ("batch", "batch"), ("seq", "seq"), last)
                layout = tuple(
                    (a, Label(DIMS.get(label.dim, label.dim), label.partition)) for a, label in node.flow.layout
                )
                for kind in ("x", "dx"):
                    yield self._value(index, node.name, kind).of, Activation(sizes, layout)

    def _splits(self, layer: Layer, o: Operation) -> tuple[Mapping[str, str], ...]:
        """For each tensor of an operation, the letter that each axis splits as compute reads it."""
        if o.kind == "opaque":
            return ()
        found: list[Mapping[str, str]] = []
        for k, tensor in enumerate(o.tensors):
            group = next(
                g
                for g in layer.reads[o.name]
                if any(t.name == (tensor.tied or tensor.name) for t in self.groups[g].tensors)
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

    def _said(self, layer: Layer, o: Operation, fetch: bool) -> Journey:
        """What the `activations` lines say of an operation: of its result, or how it fetches tokens."""
        if (o.kind == "attention" or (o.role.startswith("experts") and fetch)) is not fetch:
            return ()
        if o.kind == "norm" and "a" in o.out:
            return ()  # a norm of heads is inside attention: what is said of norms is said of the stream between layers
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

    def position(self, index: int, kind: str) -> tuple[Buf, Buf]:
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

    def _value(self, index: int, name: str, kind: str = "x") -> Buf:
        """The buffer of a value inside a layer: its input, what it returns, or one between."""
        layer = self.layers[index]
        into, out = self.position(index, kind)
        if name == "":
            return into
        if name == self.nodes[index][-1].name:
            return out
        return Buf(kind, f"{layer.key}/{name}", layer.at)

    def stash(self, layer: Layer, o: Operation) -> Buf:
        return Buf("stash", layer.key if o.kind == "opaque" else f"{layer.key}/{o.name}", layer.at)

    def _reads(self, layer: Layer, o: Operation) -> tuple[Buf, ...]:
        mine = {g.name for g in layer.own}
        return tuple(
            Buf("view" if self.has_view(g) else "w", g, layer.at if g in mine else ()) for g in layer.reads[o.name]
        )

    def _site(self, layer: Layer, o: Operation) -> str:
        return layer.key if o.kind == "opaque" else f"{layer.key}/{o.name}"

    def _compute(self, o: Operation, wrt: int = 0) -> Compute:
        return Compute(o.kind, o.letters, o.out, o.whole, o.shares, len(o.ins), wrt)

    def _move(self, node: Node, ins: Buf, out: Buf, phase: Phase, op: Op | None) -> Event | None:
        """The event of a move in forward, or of what undoes it in backward."""
        move = node.move
        assert move is not None
        if op is None:
            return None
        before, after = move.befores, move.afters
        if phase is Phase.BACKWARD and op is Op.ALL_TO_ALL:
            before, after = after, before
        labels = tuple(self._label(DIMS.get(d, d), a) for a, d in zip(move.axes, before, strict=True) if d)
        tos = tuple(self._label(DIMS.get(d, d), a) for a, d in zip(move.axes, after, strict=True) if d)
        exchange = op is Op.ALL_TO_ALL
        mixed, mixes = exchange and len({*labels}) > 1, exchange and len({*tos}) > 1
        return Event(
            op=op,
            ins=(ins,),
            outs=(out,),
            phase=phase,
            axes=move.axes,
            label=labels[0] if labels and not mixed else None,
            to=tos[0] if exchange and not mixes else None,
            labels=labels if mixed else (),
            tos=tos if mixes else (),
            hops=move.hops,
            dtype=move.wire or self.precision.view,
            span=move.span,
            why=move.why,
        )

    def forward(self, index: int) -> Iterator[Event]:
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
                outs=(out, self.stash(layer, o)),
                phase=Phase.FORWARD,
                site=self._site(layer, o),
                compute=self._compute(o),
                dtype=self.precision.view,
            )

    def released(self, index: int, policy: Policy) -> tuple[Buf, ...]:
        """The stashes that a layer does not keep."""
        layer = self.layers[index]
        return tuple(
            self.stash(layer, node.operation)
            for node in self.nodes[index]
            if node.operation is not None and policy.releases(node)
        )

    def replayed(self, index: int, policy: Policy) -> Iterator[Item]:
        """The forward of a layer again, for the stashes that were released; what is kept is not made again, and what
        nobody reads of the rest is dead and falls away."""
        kept = {self._value(index, n.name) for n in self.nodes[index] if policy.keeps(n)} | {self._value(index, "")}
        released = set(self.released(index, policy))

        def again(bufs: tuple[Buf, ...], fresh: bool) -> Iterator[Buf]:
            for b in bufs:
                if b.kind == "stash":  # one that was not released may fall away with its replay
                    yield b if b in released else attrs.evolve(b, kind="stash+")
                else:
                    yield attrs.evolve(b, kind="xr") if b.kind == "x" and (fresh or b not in kept) else b

        for event in self.forward(index):
            if event.op is Op.FORWARD or event.outs[0] not in kept:
                ins, outs = tuple(again(event.ins, False)), tuple(again(event.outs, True))
                yield attrs.evolve(event, ins=ins, outs=outs, phase=Phase.BACKWARD)

    def backward(self, index: int) -> Iterator[Item]:
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
                kept = (yield from self._summed(index, node.name, mine, scattered)) - scattered
            targets = [n for n in node.ins if n or self._hands_on(index)]
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
            common = (dy, self.stash(layer, o), *self._reads(layer, o))
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
        if self._hands_on(index) and "" in parts:
            yield from self._summed(index, "", parts[""])

    def _hands_on(self, index: int) -> bool:
        """Whether something is trained in front of a layer, or of one of its kind."""
        return index > self.first or (index == self.first > 0 and self.layers[index].looped)

    def _part(self, index: int, value: str, by: str, uses: list[str], left: frozenset[str]) -> Buf:
        """Where one use puts its part of a value's gradient: the gradient itself, if it is the only one and whole."""
        layer = self.layers[index]
        final = self._value(index, value, "dx")
        if uses.count(value) > 1:
            return Buf("dx", f"{layer.key}/{value}<{by}", layer.at)
        return attrs.evolve(final, kind="dx+") if left else final

    def _left_partial(self, layer: Layer, o: Operation, k: int, node: Node) -> frozenset[str]:
        """The axes over which an operand's gradient is a partial sum: those that split letters it lacks."""
        letters = o.letters[k]
        split = {axis: label.dim for axis, label in node.flow.layout}
        for t in self._splits(layer, o):
            split.update(t)
        return frozenset(axis for axis, letter in split.items() if letter not in letters)

    def _left_shared(self, layer: Layer, o: Operation, k: int, node: Node) -> frozenset[str]:
        """The axes that split what reads an operand but not the operand: each rank has its readers' part."""
        if k not in o.shares:
            return frozenset()
        own = {axis for axis, _ in self._flow_of(layer, node, k).layout}
        split = {axis for axis, label in node.flow.layout if label.dim in o.letters[k]}
        return frozenset(split - own)

    def _flow_of(self, layer: Layer, node: Node, k: int) -> Flow:
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

    def _weight_gradients(self, layer: Layer, o: Operation, common: tuple[Buf, ...]) -> Iterator[Item]:
        """One raw gradient a group read; those of parameters with several uses are summed over the uses."""
        reads = layer.reads[o.name]
        views = dict(zip(reads, common[2:], strict=True))
        order = sorted(reads, key=lambda g: g not in self.trained)  # those that get a gradient come first
        common = (*common[:2], *(views[g] for g in order))
        reads = tuple(g for g in order if g in self.trained)
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

    def has_view(self, group: str) -> bool:
        place = self.places[group]
        return place.gather is not None or self.precision.view != (place.dtype or self.precision.rest)
