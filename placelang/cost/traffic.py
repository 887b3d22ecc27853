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
from placelang.cost.sizes import name_of, padded, ranks, shared_by, width
from placelang.plan.mesh import Role
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
    message: Expr  # bytes on the unsharded side, X; of a send, those of the rank
    group: Expr  # ranks that take part
    span: Span | None = attrs.field(default=None, eq=False)
    why: str = attrs.field(default="", eq=False)

    @property
    def alg(self) -> Expr:
        return 2 * self.message if self.kind == "all_reduce" else self.message

    @property
    def wire(self) -> Expr:
        return self.alg if self.kind in ("send", "ring") else self.alg * (self.group - 1) / self.group


@attrs.frozen
class _Key:
    """What collectives of one row share."""

    kind: str
    axes: tuple[str, ...]
    phase: Phase
    dtype: str
    stages: int = 0  # of a collective among some stages, how many


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
            _loss(event, loops, rows, program)
        if event.op not in (*COLLECTIVES, Op.SEND) or program.mesh.size(event.axes) == 1 or len(event.where) == 1:
            continue
        kind = "ring" if event.hops else event.op.value
        what = _Key(kind, event.axes, event.phase, event.dtype, len(event.where))
        row = rows.setdefault(what, _Row(event.span, event.why))
        looped = MICROBATCH in loops
        layers = product(constant(program.loops[loop] or 0) for loop in loops if loop != MICROBATCH)
        row.calls.append(_times(looped) * layers * (_hops(event) if event.hops else 1))
        for buf in event.ins:
            if event.hops:  # each hop passes one rank's piece on
                piece = _activation(event, buf, program) / ranks(event.axes)
                row.values.append(_times(looped) * layers * _hops(event) * piece * width(event.dtype))
                continue
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
        Traffic(
            k.kind,
            k.axes,
            k.phase.value,
            k.dtype,
            total(r.calls),
            _message(k, r, program),
            _group(k, program),
            r.span,
            r.why,
        )
        for k, r in ordered
    )


def _hops(event: Event) -> Expr:
    """How often keys (or values) are passed on around a ring of c ranks: c - 1 times in forward; in backward again, and
    their gradients c times, until they are home (Liu et al., arXiv 2310.01889, section 3; the profile's own ring)."""
    c = ranks(event.axes)
    return c - 1 if event.op is Op.ALL_GATHER else (c - 1) + c


def _group(k: _Key, program: Program) -> Expr:
    """The ranks of a collective; of stages, only those that take part."""
    if not k.stages:
        return ranks(k.axes)
    return constant(k.stages) * ranks(a for a in k.axes if program.mesh[a].role is not Role.STAGE)


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
    split = shared_by(value.layout, program.tokens)
    whole = product(size_symbol(size) for _, size in value.sizes)
    held = event.op in (Op.ALL_TO_ALL, Op.SEND)  # what a rank holds is cut and dealt, or sent
    return whole / ranks(axis for axis in split if held or axis not in event.axes)


def _loss(event: Event, loops: tuple[str, ...], rows: dict[_Key, _Row], program: Program) -> None:
    """Cross-entropy over a split vocabulary reduces its maximum, its sum and the target's logit: three all_reduces of
    one fp32 number a token (Megatron-LM, arXiv 1909.08053, section 3)."""
    row = rows.setdefault(_Key("all_reduce", event.axes, event.phase, "fp32"), _Row(event.span, "loss"))
    times = _times(MICROBATCH in loops)
    row.calls.append(3 * times)
    elsewhere = ranks([axis for axis, label in program.tokens if label.dim == "seq" and axis not in event.axes])
    row.values.append(3 * times * size_symbol("batch") * size_symbol("seq") / elsewhere * width("fp32"))


def _times(looped: bool) -> Expr:
    return symbol("M", "microbatches") if looped else constant(1)


def _by_multiplicity(uses: Counter[tuple[bool, str]]) -> dict[tuple[bool, int], set[str]]:
    """Groups that are moved equally often, so that `2·M·P` can be said of all of them at once."""
    found: dict[tuple[bool, int], set[str]] = {}
    for (looped, group), times in uses.items():
        found.setdefault((looped, times), set()).add(group)
    return found
