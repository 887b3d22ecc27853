"""What a rank does in a step, as terms: each kernel and collective of the program with its seconds, once.

Shapes come from the layouts of the program's buffers, so a term is what one rank computes or sends; a layer whose
inside the program does not open is taken apart here. Elementwise operations count the bytes that they must read and
write. Not for: how often a term happens, what hides behind what, or the step (`time`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

import attrs

from placelang.cost.collectives import reached, ring, scattered, sent
from placelang.cost.expr import BYTES, FLOPS, Expr, constant, product, symbol, total
from placelang.cost.kernels import (
    FLOP,
    aligned,
    attention_flops,
    flash,
    flash_backward,
    grouped,
    matmul,
    moved,
)
from placelang.cost.machine import Machine
from placelang.cost.sizes import local, ranks, width
from placelang.cost.stack import Stack
from placelang.model.graph import Operation, operations
from placelang.model.model import Model
from placelang.model.model import Stack as Layers
from placelang.plan.mesh import Mesh
from placelang.program.event import Buf, Event, Layout, Op
from placelang.program.layouts import key, layouts
from placelang.program.program import Program
from placelang.source import Span

BACK = Fraction(17, 10)
"""Bytes of the backward of an elementwise operation over those of its forward (fitted with the shares)."""

PASSES = {Op.ACC: 3, Op.COPY: 2, Op.UNSCALE: 2, Op.FINITE: 1, Op.SQNORM: 1, Op.CLIP: 2}
"""How often an event on parameters or gradients reads or writes each of their elements."""

TIMELESS = frozenset({Op.INIT, Op.ZERO, Op.SLICE, Op.UNSLICE, Op.FREE})
"""Events that move nothing, or happen before the step."""


class NoTimeError(Exception):
    """A program has an event whose seconds nobody has written down."""


_NO_FLOPS = constant(0, FLOPS)


@attrs.frozen
class Term:
    """One kernel or collective. `flops`: those that count as the model's, in a forward."""

    what: str
    kind: str  # "matmul", "attention", "memory", or the kind of a collective
    seconds: Expr
    flops: Expr = _NO_FLOPS
    operations: Expr | int = 0  # that the host issues for it
    span: Span | None = attrs.field(default=None, eq=False)
    why: str = ""


Sizes = Mapping[str, Expr]
"""How much a rank has of each letter of an operation."""


class Work:
    """Terms of the events of one program on one machine."""

    def __init__(self, program: Program, model: Model, machine: Machine, stack: Stack) -> None:
        self.program, self.model, self.machine, self.stack = program, model, machine, stack
        self.layouts = layouts(program)
        names = [s.name for s in model.stacks]
        self.layers = {s.name if names.count(s.name) == 1 else f"{s.name}.{s.first}": s for s in model.stacks}
        self.operations: dict[str, Operation] = {}
        for name, layers in self.layers.items():
            for o in operations(model, layers):
                self.operations[f"{name}/{o.name}"] = o
        self.forwards: dict[str, Event] = {}

    def terms(self, event: Event) -> Iterator[Term]:
        """Nothing for events that take no time of their own."""
        match event.op:
            case Op.FORWARD | Op.BACKWARD | Op.WGRAD:
                yield from self._compute(event)
            case Op.LOSS:
                logits = product(self.sizes("logits").values())
                yield self._bytes("loss", logits * float(self.stack.logits), event, 8)
            case Op.ADD if event.outs[0].of.partition("<")[0] in self.program.activations:
                size = product(self.sizes(event.outs[0].of).values()) * width(event.dtype)
                yield self._light("sum of gradients", (len(event.ins) + 1) * size, event)
            case op if op in PASSES:
                yield from self._parameters(event)
            case Op.ALL_GATHER | Op.REDUCE_SCATTER | Op.ALL_REDUCE | Op.ALL_TO_ALL | Op.SEND:
                if self.program.mesh.size(event.axes) != 1 and len(event.where) != 1:
                    yield self._collective(event)
            case Op.OPT:
                yield self._update(event)
            case op if op not in TIMELESS and op is not Op.ADD:  # those of a few numbers take none
                raise NoTimeError(f"no time is known of `{event.op.value}`")

    def of_parameters(self, event: Event) -> bool:
        """Whether a collective moves parameters or their gradients, not activations."""
        return any(key(buf) in self.layouts for buf in (*event.ins, *event.outs))

    # --- sizes ------------------------------------------------------------------------------------------------------

    def sizes(self, name: str, layout: Layout | None = None) -> dict[str, Expr]:
        """How much a rank has of each dim of an activation; of samples, what it has of a microbatch."""
        value = self.program.activations[name.partition("<")[0]]
        found: dict[str, Expr] = {}
        for dim, size in value.sizes:
            axes = [axis for axis, label in value.layout if label.dim == dim and dim != "batch"]
            found[dim] = _size(size) / ranks(axes)
        return found

    def _letters(self, event: Event, o: Operation) -> Sizes:
        found: dict[str, Expr] = {}
        for letters, buf in zip(
            (*o.letters[: len(o.ins)], o.out), (*event.ins[: len(o.ins)], event.outs[0]), strict=True
        ):
            found |= dict(zip(letters, self.sizes(buf.of).values(), strict=False))
        return found

    # --- compute ----------------------------------------------------------------------------------------------------

    def _compute(self, event: Event) -> Iterator[Term]:
        assert event.compute is not None
        if event.compute.kind == "opaque":
            layers = self.layers[event.site]
            for o in operations(self.model, layers):
                if o.kind == "opaque":
                    yield from self._whole(layers, event)
                else:
                    yield from self._operation(o, self._closed(layers, o), event)
            return
        o = self.operations[event.site]
        if event.op is Op.FORWARD:
            self.forwards[event.site] = event
        yield from self._operation(o, self._letters(self.forwards[event.site], o), event)

    def _closed(self, layers: Layers, o: Operation) -> Sizes:
        """Sizes in a layer that no axis splits but those of samples: those of its own tensors, or of what it reads."""
        found: dict[str, Expr] = {}
        known = {other.name: other for other in operations(self.model, layers)}
        near = [known[name] for name in o.ins if name in known]
        for other in (*reversed(known.values()), *near, o):
            for tensor, letters in zip(other.tensors, other.letters[len(other.ins) :], strict=True):
                found |= {c: constant(n) for c, n in zip(letters, tensor.shape, strict=False)}
        if o.kind == "attention":  # as wide as what the product after it reads
            after = next(other for other in known.values() if o.name in other.ins and other.tensors)
            found["a"] = constant(after.tensors[0].shape[-1])
        return {**found, "b": _size("batch"), "s": _size("seq"), "t": _size("seq"), "h": _size("hidden")}

    @property
    def _routed(self) -> Fraction:
        """The share of all pairs of a token and an expert that are dealt out."""
        return Fraction(self.model.size("top_k") or 1, self.model.size("experts") or 1)

    def _moved(self, letters: str, sizes: Sizes) -> Expr:
        """Elements of an operand; of what experts read and make, those of the tokens they get."""
        dealt = self._routed if "e" in letters and letters != "bse" else 1
        return product(sizes[c] for c in letters if c in sizes) * dealt

    def _operation(self, o: Operation, sizes: Sizes, event: Event) -> Iterator[Term]:
        forward = event.op is Op.FORWARD
        opened = event.compute is not None and event.compute.kind != "opaque"
        match o.kind:
            case "linear":
                yield self._product(o, sizes, event)
            case "bias" if event.op is Op.WGRAD:
                yield self._light(o.name, self._moved(o.out, sizes) * width(event.dtype), event)
            case "bias":
                return  # in the kernel of the product
            case _ if event.op is Op.WGRAD and o.kind != "embed":
                return  # in the kernel that makes the gradient of its input
            case _ if event.op is Op.BACKWARD and event.compute is not None and event.compute.wrt:
                return  # one kernel makes the gradients of all operands
            case "add" if opened and not forward:
                return  # hands its gradient on; where ways meet, an event of their own adds them
            case "attention":
                yield self._attention(o, sizes, event)
            case _:
                read = o.out if o.kind == "embed" else o.letters[0]
                operands = (read, *o.letters[1 : len(o.ins)], o.out)
                size = total(self._moved(letters, sizes) for letters in operands) * width(event.dtype)
                yield self._light(o.name, size if forward else size * BACK, event)

    def _product(self, o: Operation, sizes: Sizes, event: Event) -> Term:
        """A matrix product, or one for each expert over the tokens that it gets if they are dealt out evenly."""
        x, w, y = (set(letters) for letters in (o.letters[0], o.letters[1], o.out))
        each = x & w & y
        rows, columns, depth = (product(sizes[c] for c in sorted(p)) for p in ((x & y) - each, y - x, x - y))
        if each:
            rows = rows * self._routed
        shape = {Op.FORWARD: (rows, columns, depth), Op.BACKWARD: (rows, depth, columns)}
        m, n, k = shape.get(event.op, (columns, depth, rows))
        groups = product(sizes[c] for c in each)
        if each:
            seconds = grouped(groups, m, n, k, self.machine)
        else:
            seconds = aligned(matmul(m, n, k, self.machine), n, k, machine=self.machine)
        flops = 2 * groups * m * n * k * FLOP
        why = f"product of [{o.letters[0]}] and [{o.letters[1]}]"
        return Term(o.name, "matmul", seconds, flops, 1, event.span, why)

    def _attention(self, o: Operation, sizes: Sizes, event: Event) -> Term:
        size = self.model.size
        head = size("head_dim") or (size("hidden") or 1) // (size("heads") or 1)
        wide = (size("qk_nope_head_dim") or 0) + (size("qk_rope_head_dim") or 0) or head
        heads = sizes["a"] / (size("v_head_dim") or head)
        flops = attention_flops(sizes["b"], sizes["s"], _size("seq"), heads, constant(wide))
        kernel = flash if event.op is Op.FORWARD else flash_backward
        return Term(o.name, "attention", kernel(flops, self.machine), flops, 2, event.span, "fused attention, causal")

    def _whole(self, layers: Layers, event: Event) -> Iterator[Term]:
        """A layer whose inside is not known: its matrices, each read once by every token; experts by those routed."""
        tokens = _size("batch") * _size("seq")
        experts, top = self.model.size("experts") or 1, self.model.size("top_k") or 1
        for tensor in layers.tensors:
            if len(tensor.shape) < 2 or tensor.role == "embed":
                continue
            *many, out, into = (constant(n) for n in tensor.shape)
            several = tensor.role.startswith("experts") or bool(many)
            rows = tokens * top / experts if several else tokens
            m, n, k = {Op.FORWARD: (rows, out, into), Op.BACKWARD: (rows, into, out)}.get(event.op, (out, into, rows))
            groups = product(many) if many else constant(1)
            seconds = grouped(groups, m, n, k, self.machine) if several else matmul(m, n, k, self.machine)
            flops = 2 * groups * m * n * k * FLOP
            yield Term(tensor.name, "matmul", seconds, flops, 1, event.span, "each matrix once")
        if event.op is not Op.WGRAD and layers.block:
            size = 20 * tokens * _size("hidden") * width(event.dtype) / 2
            yield self._light("elementwise", size * (1 if event.op is Op.FORWARD else BACK), event)

    # --- memory -----------------------------------------------------------------------------------------------------

    def _light(self, what: str, size: Expr, event: Event) -> Term:
        return self._bytes(what, size * float(self.stack.fusion), event, 1)

    def _bytes(self, what: str, size: Expr, event: Event, count: int) -> Term:
        sized = size if size.unit is BYTES else size * constant(1, BYTES)
        seconds = moved(sized, self.machine) + count * self.machine["kernel"]
        return Term(what, "memory", seconds, operations=count, span=event.span, why="bytes read and written")

    def _elements(self, buf: Buf) -> Expr | None:
        """Elements of a parameter, gradient or view on one rank; None of what is no such thing."""
        layout = self.layouts.get(key(buf))
        if layout is None or all(g.name != buf.of for g in self.program.groups):
            return None
        group = self.program.group(buf.of)
        return local((attrs.evolve(group, count=1),) if buf.index else (group,), layout)

    def _parameters(self, event: Event) -> Iterator[Term]:
        """Gradients added up, scaled or looked at, or parameters brought to another format."""
        found = [e for buf in event.ins if (e := self._elements(buf)) is not None]
        if found:
            yield self._bytes(event.op.value, PASSES[event.op] * total(found) * width(event.dtype), event, len(found))

    def _update(self, event: Event) -> Term:
        """Every state of a group read and written once, in one fused kernel."""
        name = event.ins[0].of
        group, indexed = self.program.group(name), bool(event.ins[0].index)
        layout = next((r.layout for r in self.program.rests if r.group == name and r.kind == "o"), ())
        size = constant(0, BYTES) + 0
        for rest in self.program.rests:
            if rest.group == name:
                passes = {"g": 1, "w": 1 if any(r.kind == "master" for r in self.program.rests) else 2}.get(
                    rest.kind, 2
                )
                size += passes * rest.copies * width(rest.dtype)
        elements = local((attrs.evolve(group, count=1) if indexed else group,), layout)
        return self._bytes("update", elements * size, event, 1)

    # --- collectives ------------------------------------------------------------------------------------------------

    def _collective(self, event: Event) -> Term:
        size = total(self._message(event, i, o) for i, o in zip(event.ins, event.outs, strict=False)) * width(
            event.dtype
        )
        group = reached(ranks(event.axes), stride(self.program.mesh, event.axes), self.machine, self.stack.striped)
        if event.op is Op.SEND:
            seconds = sent(size, stride(self.program.mesh, event.axes), self.machine)
        elif event.op is Op.ALL_TO_ALL:
            seconds = scattered(size, group, self.machine)
        else:
            seconds = ring(event.op.value, size, group)
        return Term(
            f"{event.op.value} over {'*'.join(event.axes)}",
            event.op.value,
            seconds,
            operations=1,
            span=event.span,
            why=event.why,
        )

    def _message(self, event: Event, source: Buf, made: Buf) -> Expr:
        """Elements on the unsharded side; of an all_to_all or a send, those of the rank."""
        whole = made if event.op is Op.ALL_GATHER else source
        parameters = self._elements(whole)
        if parameters is not None:
            return parameters
        value = self.program.activations.get(whole.of.partition("<")[0])
        if value is None:  # a flag, or the norm of all gradients
            return constant(1)
        apart = [] if event.op in (Op.ALL_TO_ALL, Op.SEND) else list(event.axes)
        split = [axis for axis, label in value.layout if label.dim != "batch" and axis not in apart]
        dims = [dim for dim, _ in value.sizes]
        dealt = self._routed if "expert" in dims and len(dims) > 3 else 1
        return product(_size(size) for _, size in value.sizes) * dealt / ranks(split)


def stride(mesh: Mesh, axes: tuple[str, ...]) -> Expr:
    """Ranks between neighbours of a group: those of all axes inside of its innermost one."""
    inner = axes[-1]
    view = next((v for v in mesh.views if inner in v), None)
    own = [a.name for a in (view.axes if view else mesh.axes)]
    found = ranks(own[own.index(inner) + 1 :])
    if view:
        found = found * ranks(mesh.names[mesh.names.index(view.over[-1]) + 1 :])
    return found


def _size(size: str | int) -> Expr:
    if isinstance(size, int):
        return constant(size)
    known = {"batch": ("b", "samples a rank has in one microbatch"), "seq": ("s", "sequence length")}
    return symbol(*known.get(size, (size, f"{size} of the model")))
