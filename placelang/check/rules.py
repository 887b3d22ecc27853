"""The typing rules: one function per op, from the types of its inputs to those of its outputs ("semantics", section 9).

Interiors of layers are opaque: a forward may read every token of a row, so only `batch` may be split in use, and every
parameter it reads matters. A rule raises `Ill` for the first premise that fails, and never anything else. Not for: the
order of events or what is live (`fold`, `prune`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from placelang.check import interior, whole_gradient
from placelang.check.fault import Fault, Ill
from placelang.check.premises import (
    Context,
    Types,
    Update,
    active_axes,
    by_group,
    clean,
    lacking,
    laid,
    miscounted,
    numbers,
    rows_only,
    same_layout,
    whole_views,
)
from placelang.check.types import Type, ValueId
from placelang.check.whole_gradient import lacks_checks, overflow
from placelang.program.event import SCALARS, Buf, Event, Op

Rule = Callable[[Event, Types, Context], Types]


def apply(event: Event, ins: Types, ctx: Context) -> Types:
    """The types of the event's outputs. ACC's inputs are its summand and the accumulator. Raises `Ill`."""
    rule, arity = RULES[event.op]
    if not arity(len(event.ins), len(event.outs)) or len(set(event.outs)) != len(event.outs):
        raise Ill(Fault(code="E306", rule="Total", event=event, detail=f"a {event.op.value} with other operands"))
    return rule(event, ins, ctx)


# --- states ----------------------------------------------------------------------------------------------------------


LEAVES: Mapping[str, str] = {"w": "params", "master": "params", "o": "optimizer"}
"""Which logical state a buffer that INIT makes is a copy of."""


def init(event: Event, ins: Types, ctx: Context) -> Types:
    """(Init): drawn by logical index, so every copy holds the leaf."""
    buf = event.outs[0]
    return (Type.clean(laid(event.layout, buf.of, ctx, event, buf), leaf(buf, ctx)),)


def leaf(buf: Buf, ctx: Context) -> ValueId:
    """What a state buffer holds when the step begins."""
    return ctx.values.leaf(LEAVES.get(buf.kind, buf.kind), numbers(buf), buf.of)


def zero(event: Event, ins: Types, ctx: Context) -> Types:
    out = event.outs[0]
    return (Type.of(() if out.kind in SCALARS else laid(event.layout, out.of, ctx, event, out), {}),)


# --- compute ---------------------------------------------------------------------------------------------------------


def forward(event: Event, ins: Types, ctx: Context) -> Types:
    """(Nonlin): x' and the stash, where x lies."""
    if event.compute is not None and event.compute.kind != "opaque":
        return interior.forward(event, event.compute, ins, ctx)
    x, views = clean(event, 0, ins), by_group(whole_views(event, ins, 1), ctx)
    rows_only(event, ins[0])
    made = (ctx.values.made("forward", event.site, k, (x, *views)) for k in range(2))
    return tuple(Type.clean(ins[0].layout, value) for value in made)


def backward(event: Event, ins: Types, ctx: Context) -> Types:
    """(Lin'): dx is linear in dy, so every summand goes through by itself."""
    if event.compute is not None and event.compute.kind != "opaque":
        return interior.backward(event, event.compute, ins, ctx)
    others = (clean(event, 1, ins), *by_group(whole_views(event, ins, 2), ctx))
    same_layout(event, ins, 0, 1, "Lin'")
    rows_only(event, ins[0])
    terms = {ctx.values.made("backward", event.site, 0, (v, *others)): c for v, c in ins[0].terms}
    return (Type.of(ins[0].layout, terms),)


def wgrad(event: Event, ins: Types, ctx: Context) -> Types:
    """(Ein): sums over tokens, so it is partial over every axis that splits them, and whole in the parameters' dims."""
    if event.compute is not None and event.compute.kind != "opaque":
        return interior.wgrad(event, event.compute, ins, ctx)
    views = whole_views(event, ins, 2)
    others = (clean(event, 1, ins), *by_group(views, ctx))
    same_layout(event, ins, 0, 1, "Ein")
    rows_only(event, ins[0])
    split = ins[0].axes

    def gradient(owner: str | None) -> Type:
        made = {
            ctx.values.made("wgrad", event.site, 0, (v, *others), owner): c.contracted(split) for v, c in ins[0].terms
        }
        return Type.of((), made)

    return tuple(gradient(ctx.values[view].owner) for view in views[: len(event.outs)])


def acc(event: Event, ins: Types, ctx: Context) -> Types:
    """(Acc): equal contributions add, distinct ones stand side by side. A maximum only joins what it knows."""
    _flags(event, ins, ctx)
    if event.largest:
        return (ins[1].joined(ins[0]),)
    if ins[0].layout != ins[1].layout:
        raise Ill(
            Fault(
                code="E306",
                rule="Acc",
                event=event,
                buf=event.ins[0],
                found=ins[0].layout,
                wanted=ins[1].layout,
            )
        )
    return (ins[1].plus(ins[0]),)


# --- transitions -----------------------------------------------------------------------------------------------------


def _not_split(event: Event, ins: Types, axes: tuple[str, ...], rule: str) -> None:
    """A sum adds pieces of the same elements: no axis of the group splits the buffer."""
    split = [(buf, t) for buf, t in zip(event.ins, ins, strict=True) if any(axis in t.axes for axis in axes)]
    if split:
        buf, type_ = split[0]
        both = tuple(axis for axis in axes if axis in type_.axes)
        alike = attrs.evolve(event, ins=tuple(b for b, _ in split))  # what else it moves is no part of the fault
        raise Ill(Fault(code="E207", rule=rule, event=alike, buf=buf, axes=both, found=type_.layout))


def all_reduce(event: Event, ins: Types, ctx: Context) -> Types:
    """(AR)"""
    axes = active_axes(event, ctx)
    _not_split(event, ins, axes, "AR")
    _flags(event, ins, ctx)
    if event.largest:
        return tuple(type_.largest(axes) for type_ in ins)
    return tuple(type_.summed(axes, ctx.sizes.numbers, event.mean) for type_ in ins)


def _flags(event: Event, ins: Types, ctx: Context) -> None:
    """A maximum is known of finite checks alone, and they have no sum."""
    flags = {ctx.values[v].op == "finite" for type_ in ins for v, _ in type_.terms}
    if (flags and flags != {event.largest}) or (event.largest and event.mean):
        detail = "a maximum of no flags" if event.largest else "a sum of flags"
        raise Ill(Fault(code="E306", rule="Total", event=event, buf=event.ins[0], detail=detail))


def _cut(event: Event, ins: Types, axes: tuple[str, ...], ctx: Context) -> Types:
    if not axes:
        return ins
    if event.label is None:
        raise Ill(Fault(code="E306", rule="Form", event=event, buf=event.ins[0], detail="a split along no dim"))
    for buf, type_ in zip(event.ins, ins, strict=True):
        if any(ctx.values.is_number(v) for v, _ in type_.terms):
            raise Ill(Fault(code="E306", rule="Form", event=event, buf=buf, detail="a split of one number"))
        if type_.terms:
            owner = ctx.values[type_.terms[0][0]].owner
            laid((*type_.layout, (axes[0], event.label)), owner, ctx, event, buf)
    return tuple(type_.split(axes, event.label) for type_ in ins)


def reduce_scatter(event: Event, ins: Types, ctx: Context) -> Types:
    """(RS)"""
    axes = active_axes(event, ctx)
    _not_split(event, ins, axes, "RS")
    _flags(attrs.evolve(event, largest=False), ins, ctx)
    return _cut(event, tuple(t.summed(axes, ctx.sizes.numbers, event.mean) for t in ins), axes, ctx)


def cut_slice(event: Event, ins: Types, ctx: Context) -> Types:
    """(Slice): keeps a rank's own part of the elements, so what other ranks hold of them must not be missing here."""
    axes = active_axes(event, ctx)
    for buf, type_ in zip(event.ins, ins, strict=True):
        again = tuple(axis for axis in axes if axis in type_.axes)
        if again:
            raise Ill(Fault(code="E306", rule="Slice", event=event, buf=buf, axes=again, found=type_.layout))
        lost = tuple(axis for axis in axes if axis in type_.partial)
        if lost and any(ctx.values[v].op == "wgrad" for v, _ in type_.terms):
            fault = miscounted(type_.terms, ctx, rule="Slice", event=event, buf=buf, of=event.outs[0])
            if fault:
                raise Ill(fault)
        if lost:
            raise Ill(Fault(code="E208", rule="Slice", event=event, buf=buf, axes=lost))
    return _cut(event, ins, axes, ctx)


def all_gather(event: Event, ins: Types, ctx: Context) -> Types:
    """(AG): the innermost axes of one dim, in their order, put back by the inverse of their partition."""
    axes = active_axes(event, ctx)
    for buf, type_ in zip(event.ins, ins, strict=True):
        if not axes:
            continue
        label = event.label
        ours = [p for p in type_.layout if label and (label.dim in (p[1].dim, "flat") or p[1].dim == "flat")]
        if tuple(ours[-len(axes) :]) != tuple((axis, label) for axis in axes):
            raise Ill(Fault(code="E306", rule="AG", event=event, buf=buf, axes=axes, label=label, found=type_.layout))
    return tuple(type_.gathered(axes) for type_ in ins)


def all_to_all(event: Event, ins: Types, ctx: Context) -> Types:
    """(A2A): shards along some dims become shards along others, over axes that split the first ones innermost."""
    active = active_axes(event, ctx)
    if event.axes and not (event.undoes and event.makes):
        raise Ill(Fault(code="E306", rule="AG", event=event, buf=event.ins[0], detail="a split along no dim"))
    for label in reversed(dict.fromkeys(label for _, label in event.undoes)):  # inner first
        axes = tuple(axis for axis, own in event.undoes if own == label)
        ins = all_gather(attrs.evolve(event, axes=axes, label=label), ins, ctx)
    for axis, label in event.makes:
        if axis in active:
            ins = tuple(t.split((axis,), label) for t in ins)
    return ins


def unslice(event: Event, ins: Types, ctx: Context) -> Types:
    """(Part): the whole with zeros outside a rank's own shard, so that the sum over the axes is the value."""
    gathered = all_gather(event, ins, ctx)
    axes = active_axes(event, ctx)
    return tuple(Type.of(t.layout, {v: c.contracted(axes) for v, c in t.terms}) for t in gathered)


def copy(event: Event, ins: Types, ctx: Context) -> Types:
    """(Copy): another buffer, format or tier. Casts at declared formats belong to the reference."""
    return ins


# --- the update ------------------------------------------------------------------------------------------------------


def opt(event: Event, ins: Types, ctx: Context) -> Types:
    """(Opt): parameter, complete gradient and optimizer state in one layout, each the one that one device reads."""
    theta, state = clean(event, 0, ins), clean(event, 2, ins)
    owner = event.outs[0]
    gradient = ins[1]
    checks = overflow(event, ins[3], ctx) if len(ins) > 3 else ()
    if ctx.is_reference:
        ctx.updates[theta, state] = Update(tuple(v for v, _ in gradient.terms), checks)
    update = ctx.updates.get((theta, state))
    if update is None:
        raise Ill(
            Fault(code="E209", rule="Opt", event=event, buf=event.ins[0], detail="a parameter and state of no update")
        )
    held = dict(gradient.terms)
    foreign = [v for v in held if v not in update.gradient]
    if foreign:
        raise Ill(Fault(code="E209", rule="Opt", event=event, buf=event.ins[1], detail="a foreign gradient"))
    fault = miscounted(gradient.terms, ctx, rule="Opt", event=event, buf=event.ins[1], of=owner)
    if fault:
        raise Ill(fault)
    fault = lacking(event, event.ins[1], update.gradient, held, ctx) or lacks_checks(event, checks, update.checks, ctx)
    if fault:
        raise Ill(fault)
    for k in (0, 1):
        if ins[k].layout != ins[2].layout:
            raise Ill(
                Fault(
                    code="E206",
                    rule="Opt",
                    event=event,
                    buf=event.ins[k],
                    found=ins[k].layout,
                    wanted=ins[2].layout,
                )
            )
    if ctx.whole_blocks and (cut := tuple(a for a, label in ins[0].layout if label.dim != "tensor")):
        raise Ill(Fault(code="E205", rule="Opt", event=event, buf=owner, axes=cut, found=ins[0].layout))
    operands = (theta, state, *update.gradient, *checks)
    name = ctx.values[theta].owner
    made = (ctx.values.made("opt", "", k, operands, name) for k in range(2))
    return tuple(Type.clean(ins[0].layout, value) for value in made)


def _pairs(n: int, m: int) -> bool:
    return n == m > 0


RULES: Mapping[Op, tuple[Rule, Callable[[int, int], bool]]] = {
    Op.INIT: (init, lambda n, m: (n, m) == (0, 1)),
    Op.ZERO: (zero, lambda n, m: (n, m) == (0, 1)),
    Op.FORWARD: (forward, lambda n, m: n >= 1 and m == 2),
    Op.LOSS: (interior.loss, lambda n, m: (n, m) == (2, 1)),
    Op.BACKWARD: (backward, lambda n, m: n >= 2 and m == 1),
    Op.WGRAD: (wgrad, lambda n, m: 1 <= m <= n - 2),
    Op.ACC: (acc, lambda n, m: (n, m) == (1, 1)),
    Op.ALL_GATHER: (all_gather, _pairs),
    Op.ALL_TO_ALL: (all_to_all, _pairs),
    Op.ADD: (interior.add, lambda n, m: n >= 1 and m == 1),
    Op.REDUCE_SCATTER: (reduce_scatter, _pairs),
    Op.ALL_REDUCE: (all_reduce, _pairs),
    Op.SLICE: (cut_slice, _pairs),
    Op.UNSLICE: (unslice, _pairs),
    Op.COPY: (copy, _pairs),
    Op.SEND: (copy, _pairs),
    Op.UNSCALE: (whole_gradient.unscale, _pairs),
    Op.FINITE: (whole_gradient.finite, lambda n, m: n >= 1 and m == 1),
    Op.SQNORM: (whole_gradient.squares, lambda n, m: n >= 1 and m == 1),
    Op.CLIP: (whole_gradient.clip, lambda n, m: n == m + 1 > 1),
    Op.OPT: (opt, lambda n, m: n in (3, 4) and m == 2),
}
"""Each op's rule, and whether it takes that many inputs and outputs. FREE has no types: see `fold`."""
