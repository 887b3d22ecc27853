"""The premises that rules share, and what they are judged against ("semantics", section 9).

Each raises `Ill` where it does not hold. Not for: what an op makes of its operands (`rules`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import attrs

from placelang.check.counterexample import counterexample, wrong
from placelang.check.fault import Fault, Ill
from placelang.check.sizes import Sizes
from placelang.check.types import ACTIVATION_DIMS, COMPLETE, Coefficient, Type, ValueId
from placelang.check.values import Values
from placelang.frozen import Frozen
from placelang.program.event import Buf, Event, Label, Layout
from placelang.program.program import Group

Types = tuple[Type, ...]


@attrs.frozen(eq=False, repr=False)
class Update(Frozen):
    """What one device reads when it updates one state: the gradient's summands."""

    gradient: tuple[ValueId, ...]
    checks: tuple[ValueId, ...] = ()  # the finite checks that it heeds


@attrs.frozen(eq=False, repr=False)
class Context(Frozen):
    """What rules know beside their operands. `updates` is filled by the reference's fold and read by a program's."""

    values: Values
    sizes: Sizes
    groups: Mapping[str, Group]
    data: tuple[str, ...]  # the axes that split the batch
    updates: dict[tuple[ValueId, ValueId], Update]  # by the ids of parameter and optimizer state
    gradients: dict[tuple[str, tuple[int, ...]], tuple[ValueId, ...]] = attrs.field(factory=dict)
    """Summands of the gradient of each group and layer that clipping or a finite check reads on one device."""
    norms: list[ValueId] = attrs.field(factory=list)  # what one device clips by
    is_reference: bool = False
    whole_blocks: bool = False  # the optimizer reads each tensor as a whole, not element by element

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(self.sizes.numbers)


def active_axes(event: Event, ctx: Context) -> tuple[str, ...]:
    """The axes of the event's group that have more than one rank. Refuses unknown and repeated ones."""
    return _each_once(event.axes, ctx, event, next(iter((*event.ins, *event.outs)), None))


def _each_once(axes: tuple[str, ...], ctx: Context, event: Event | None, buf: Buf | None) -> tuple[str, ...]:
    unknown = tuple(axis for axis in axes if axis not in ctx.sizes.numbers)
    if unknown:
        raise Ill(Fault(code="E102", rule="Form", event=event, axes=unknown, buf=buf))
    active = ctx.sizes.active(axes)
    repeated = tuple(axis for axis in dict.fromkeys(active) if active.count(axis) > 1)
    if repeated:
        raise Ill(Fault(code="E104", rule="Form", event=event, axes=repeated, buf=buf))
    return active


def laid(layout: Layout, owner: str | None, ctx: Context, event: Event | None, buf: Buf) -> Layout:
    """(Form): a layout without inert axes, whose axes exist once and whose labels name dims of the buffer."""
    active = _each_once(tuple(axis for axis, _ in layout), ctx, event, buf)
    kept = tuple(pair for pair in layout if pair[0] in active)
    for k, (_, label) in enumerate(kept):
        _has_dim(label, owner, ctx, event, buf)
        if label.dim != "flat" and any(other.dim == "flat" for _, other in kept[:k]):
            raise Ill(Fault(code="E105", rule="Form", event=event, buf=buf, label=label, detail="a flat run"))
    return kept


def _has_dim(label: Label, owner: str | None, ctx: Context, event: Event | None, buf: Buf) -> None:
    if owner is None:
        if label.dim in ACTIVATION_DIMS:
            return
        raise Ill(Fault(code="E105", rule="Form", event=event, buf=buf, label=label, detail="an activation"))
    if label.dim in ("flat", "tensor"):
        return
    tensors = ctx.groups[owner].tensors if owner in ctx.groups else ()
    for tensor in tensors:
        if not label.dim.isdecimal() or int(label.dim) >= len(tensor.shape or (1,)):  # a scalar is one row
            raise Ill(Fault(code="E105", rule="Form", event=event, buf=buf, label=label, detail=f"`{tensor.name}`"))


def clean(event: Event, k: int, ins: Types) -> ValueId:
    value = ins[k].value
    if value is None:
        axes = tuple(sorted(ins[k].partial))
        raise Ill(Fault(code="E304", rule="Nonlin", event=event, buf=event.ins[k], axes=axes))
    return value


def whole_views(event: Event, ins: Types, first: int) -> tuple[ValueId, ...]:
    """Parameters as compute reads them: of each group one clean value, the whole on every rank."""
    for k in range(first, len(ins)):
        if ins[k].layout:
            raise Ill(
                Fault(code="E302", rule="Nonlin", event=event, buf=event.ins[k], axes=ins[k].axes, found=ins[k].layout)
            )
    return tuple(clean(event, k, ins) for k in range(first, len(ins)))


def by_group(views: tuple[ValueId, ...], ctx: Context) -> tuple[ValueId, ...]:
    """Compute knows its parameters by their groups, not by their order."""
    return tuple(sorted(views, key=lambda v: (ctx.values[v].owner or "", v)))


def same_layout(event: Event, ins: Types, a: int, b: int, rule: str) -> None:
    if ins[a].layout != ins[b].layout:
        raise Ill(
            Fault(
                code="E306",
                rule=rule,
                event=event,
                buf=event.ins[a],
                found=ins[a].layout,
                wanted=ins[b].layout,
            )
        )


def rows_only(event: Event, type_: Type) -> None:
    """Rows of the batch are independent; positions of one row are not."""
    split = tuple(axis for axis, label in type_.layout if label.dim != "batch")
    if split:
        raise Ill(
            Fault(code="E306", rule="Nonlin", event=event, buf=event.ins[0], axes=split, found=type_.layout, detail="x")
        )


def miscounted(
    terms: Iterable[tuple[ValueId, Coefficient]], ctx: Context, *, rule: str, event: Event | None, buf: Buf, of: Buf
) -> Fault | None:
    """None if every contribution is there exactly once; else E201, E202 or E203 with the worst counterexample.

    `buf` is what holds the sum, `of` the state whose group and index it is about.
    """
    bad = []
    for value, coefficient in terms:
        if coefficient != COMPLETE and (w := wrong(coefficient, ctx.order, ctx.data)):
            bad.append((w, value))
    if not bad:
        return None
    worst, value = min(bad, key=lambda pair: (pair[0].code, pair[1]))
    axes = tuple(axis for axis in ctx.order if any(axis in w.axes for w, _ in bad))
    found = counterexample(worst, ctx.sizes, of.of, numbers(of), ctx.values.microbatch(value), ctx.values[value].name)
    scale = ctx.sizes.scale.numerator
    scaled = scale > 1 and 0 in (worst.multiplicity.numerator % scale, worst.multiplicity.denominator % scale)
    code = "E203" if scaled and worst.multiplicity else worst.code
    return Fault(code=code, rule=rule, event=event, buf=buf, axes=axes, counterexample=found)


def lacking(
    event: Event, buf: Buf, wanted: tuple[ValueId, ...], held: Collection[ValueId], ctx: Context
) -> Fault | None:
    """E204 if a gradient lacks microbatches, or uses of its parameter, that one device has."""
    absent = [v for v in wanted if v not in held]
    if not absent:
        return None
    some = {ctx.values.microbatch(v) for v in held}
    uses = ((ctx.values.microbatch(v), ctx.values[v].name) for v in absent)
    missing = tuple(dict.fromkeys((m, site if m in some else "") for m, site in uses))
    return Fault(code="E204", rule="Opt", event=event, buf=buf, missing=missing)


def numbers(buf: Buf) -> tuple[int, ...]:
    return tuple(i for i in buf.index if isinstance(i, int))
