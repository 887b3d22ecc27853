"""Traffic of one step, by collective, axes and phase, read off the events of a program.

Two conventions, side by side. With X the bytes on the unsharded side (gathered output, reduce_scatter input, reduced
tensor) and n ranks: `alg` counts 2X for an all_reduce and X for a gather or scatter, as ZeRO does (arXiv 1910.02054,
section 7); `wire` is what one rank sends in a ring, 2(n-1)/n X and (n-1)/n X (Patarasuk and Yuan, 2009; Thakur et
al., 2005). Groups of one rank send nothing and are left out.
"""

from __future__ import annotations

from collections import Counter

import attrs

from placelang.cost.expr import Expr, constant, product, symbol, total
from placelang.cost.sizes import name_of, padded, ranks, width
from placelang.program.event import COLLECTIVES, SCALARS, Buf, Event, Layout, Op, Phase
from placelang.program.inside import MICROBATCH
from placelang.program.layouts import events, key, layouts, scattered
from placelang.program.program import Program
from placelang.source import Span


@attrs.frozen
class Traffic:
    """Collectives that share kind, axes, phase and format, of one rank and step."""

    kind: str
    axes: tuple[str, ...]
    phase: str
    dtype: str
    count: Expr
    message: Expr  # bytes on the unsharded side, X
    span: Span | None = attrs.field(default=None, eq=False)
    why: str = attrs.field(default="", eq=False)

    @property
    def alg(self) -> Expr:
        return 2 * self.message if self.kind == "all_reduce" else self.message

    @property
    def wire(self) -> Expr:
        n = ranks(self.axes)
        return self.alg * (n - 1) / n


@attrs.frozen
class _Key:
    """What collectives of one row share."""

    kind: str
    axes: tuple[str, ...]
    phase: Phase
    dtype: str


@attrs.define
class _Row:
    """A row while it is summed up: calls, and how often the buffers of each layout and group are moved."""

    span: Span | None
    why: str
    calls: list[Expr] = attrs.field(factory=list)
    moved: dict[Layout, Counter[tuple[bool, str]]] = attrs.field(factory=dict)
    values: list[Expr] = attrs.field(factory=list)  # bytes of activations


_ORDER = (Phase.INIT, Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)


def traffic(program: Program) -> tuple[Traffic, ...]:
    """The collectives of one step in order of phase."""
    rows: dict[_Key, _Row] = {}
    known = layouts(program)
    for event, loops in events(program.body):
        if event.op is Op.LOSS and event.axes and program.mesh.size(event.axes) != 1:
            _loss(event, loops, rows)
        if event.op not in COLLECTIVES or program.mesh.size(event.axes) == 1:
            continue
        row = rows.setdefault(_Key(event.op.value, event.axes, event.phase, event.dtype), _Row(event.span, event.why))
        looped = MICROBATCH in loops
        layers = product(constant(program.loops[loop] or 0) for loop in loops if loop != MICROBATCH)
        row.calls.append(_times(looped) * layers)
        for buf in event.ins:
            if buf.kind in SCALARS:
                row.values.append(_times(looped) * layers * width(event.dtype))
                continue
            if key(buf) not in known:
                row.values.append(_times(looped) * layers * _activation(event, buf, program) * width(event.dtype))
                continue
            layout = known[key(buf)]
            if event.op is Op.REDUCE_SCATTER:
                layout = scattered(layout, event)
            row.moved.setdefault(layout, Counter())[looped, buf.of] += 1
    ordered = sorted(rows.items(), key=lambda item: (_ORDER.index(item[0].phase), item[0].kind, item[0].axes))
    return tuple(
        Traffic(k.kind, k.axes, k.phase.value, k.dtype, total(r.calls), _message(k, r, program), r.span, r.why)
        for k, r in ordered
    )


def _message(k: _Key, row: _Row, program: Program) -> Expr:
    """Bytes on the unsharded side of all collectives of a row."""
    parts: list[Expr] = list(row.values)
    for layout, uses in row.moved.items():
        for (looped, times), names in _by_multiplicity(uses).items():
            groups = tuple(g for g in program.groups if g.name in names)
            name = name_of(groups, program.groups, layout)
            outside = [axis for axis, _ in layout if k.kind == "all_reduce" or axis not in k.axes]
            elements = padded(groups, layout, name) / ranks(outside)
            parts.append(times * _times(looped) * elements * width(k.dtype))
    return total(parts)


SYMBOLS = {"batch": ("b", "samples a rank has in one microbatch"), "seq": ("s", "sequence length")}


def size_symbol(size: str | int) -> Expr:
    """A named size of the model or job, or a number."""
    if isinstance(size, int):
        return constant(size)
    return symbol(*SYMBOLS.get(size, (size, f"{size} of the model")))


def _activation(event: Event, buf: Buf, program: Program) -> Expr:
    """Elements on the unsharded side of a collective on an activation: of the whole, what other axes leave. The batch
    counts as what one rank has of it."""
    value = program.activations[buf.of.partition("<")[0]]
    split = {axis: label.dim for axis, label in value.layout if label.dim != "batch"}
    outside = [axis for axis in split if axis not in event.axes]
    whole = product(size_symbol(size) for _, size in value.sizes)
    if event.op is Op.ALL_TO_ALL:  # what a rank holds is cut and dealt
        outside = list(split)
    return whole / ranks(outside)


def _loss(event: Event, loops: tuple[str, ...], rows: dict[_Key, _Row]) -> None:
    """Cross-entropy over a split vocabulary reduces its maximum, its sum and the target's logit: three all_reduces of
    one fp32 number a token (Megatron-LM, arXiv 1909.08053, section 3)."""
    row = rows.setdefault(_Key("all_reduce", event.axes, event.phase, "fp32"), _Row(event.span, "loss"))
    times = _times(MICROBATCH in loops)
    row.calls.append(3 * times)
    row.values.append(3 * times * size_symbol("batch") * size_symbol("seq") * width("fp32"))


def _times(looped: bool) -> Expr:
    return symbol("M", "microbatches") if looped else constant(1)


def _by_multiplicity(uses: Counter[tuple[bool, str]]) -> dict[tuple[bool, int], set[str]]:
    """Groups that are moved equally often, so that `2·M·P` can be said of all of them at once."""
    found: dict[tuple[bool, int], set[str]] = {}
    for (looped, group), times in uses.items():
        found.setdefault((looped, times), set()).add(group)
    return found
