"""Rules for what reads all gradients at once: unscaling, the finite check, and clipping by global norm.

(Clip): every gradient is complete when its squares are summed; a sum of squares is partial over the axes that split the
gradient, so it must be reduced over exactly these, once; and the norm holds every trainable parameter, once
("semantics", section 9). The flag of an overflow is a maximum: to reduce it twice changes nothing, but no axis over
which ranks hold other elements may be left out (section 13). Not for: what the optimizer makes of it (`rules`).
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from placelang.check.counterexample import counterexample, wrong
from placelang.check.fault import Fault, Ill
from placelang.check.premises import Context, Types, lacking, miscounted, numbers
from placelang.check.types import COMPLETE, Type, ValueId
from placelang.program.event import Event


def _all_whole(event: Event, operands: Iterable[int], ins: Types, ctx: Context) -> list[tuple[ValueId, ...]]:
    """`_whole` of several gradients. What one lacks, the message says of all that lack it."""
    held, faults = [], []
    for k in operands:
        try:
            held.append(_whole(event, k, ins, ctx))
        except Ill as ill:
            faults.append(ill.fault)
    if faults:
        owners = tuple(f.buf.of for f in faults if f.buf and f.code == faults[0].code)
        raise Ill(attrs.evolve(faults[0], owners=owners))
    return held


def _whole(event: Event, k: int, ins: Types, ctx: Context) -> tuple[ValueId, ...]:
    """The summands of a gradient of which each is there once, as many as one device has."""
    buf, terms = event.ins[k], ins[k].terms
    fault = miscounted(terms, ctx, rule="Clip", event=event, buf=buf, of=buf)
    if fault:
        raise Ill(fault)
    held = tuple(v for v, _ in terms)
    wanted = ctx.gradients.setdefault((buf.of, numbers(buf)), held) if ctx.is_reference else None
    wanted = wanted or ctx.gradients.get((buf.of, numbers(buf)), held)
    fault = lacking(event, buf, wanted, held, ctx)
    if fault:
        raise Ill(fault)
    return held


def unscale(event: Event, ins: Types, ctx: Context) -> Types:
    """(Scale)"""
    return tuple(_scaled(type_, event.power, ctx) for type_ in ins)


def _scaled(type_: Type, power: int, ctx: Context) -> Type:
    factor = ctx.sizes.scale**power
    return Type.of(type_.layout, {v: c.scaled(factor) for v, c in type_.terms})


def finite(event: Event, ins: Types, ctx: Context) -> Types:
    """(Nonlin): whether any element overflowed, as far as a rank holds them."""
    return (_joint("finite", event, ins, ctx),)


def squares(event: Event, ins: Types, ctx: Context) -> Types:
    """(Nonlin), then a sum over all elements: partial over the axes that split them."""
    return (_joint("sqnorm", event, ins, ctx),)


def _joint(op: str, event: Event, ins: Types, ctx: Context) -> Type:
    terms = {}
    held = _all_whole(event, range(len(ins)), ins, ctx)
    for k, type_ in enumerate(ins):
        made = ctx.values.made(op, "", 0, held[k], ctx.values[held[k][0]].owner if held[k] else None)
        if made in terms:
            raise Ill(Fault(code="E306", rule="Total", event=event, buf=event.ins[k], detail="an operand twice"))
        terms[made] = COMPLETE.contracted(type_.axes)
    return Type.of((), terms)


def clip(event: Event, ins: Types, ctx: Context) -> Types:
    """(Clip): each gradient, with the norm of all of them, becomes one new value."""
    norm = _norm(event, ins[-1], ctx)
    result = []
    for k, held in enumerate(_all_whole(event, range(len(ins) - 1), ins, ctx)):
        made = ctx.values.made("clip", "", 0, (*held, norm), ctx.values[held[0]].owner if held else None)
        result.append(Type.clean(ins[k].layout, made))
    return tuple(result)


def _norm(event: Event, squared: Type, ctx: Context) -> ValueId:
    """The sum of the squares of all gradients, each element once. Raises Ill."""
    buf = event.ins[-1]
    bad = [(w, v) for v, c in squared.terms if (w := wrong(c, ctx.order, ()))]
    if bad:
        worst, value = min(bad, key=lambda pair: (pair[0].code, pair[1]))
        axes = tuple(axis for axis in ctx.order if any(axis in w.axes for w, _ in bad))
        group = ctx.values[value].owner or _first_owner(value, ctx)
        found = counterexample(worst, ctx.sizes, group, (), None, "")
        raise Ill(Fault(code="E211", rule="Clip", event=event, buf=buf, axes=axes, counterexample=found))
    held = sorted(v for term, _ in squared.terms for v in _summands(term, ctx))
    if any(ctx.values[v].op != "sqnorm" for v in held) or not held:
        raise Ill(Fault(code="E211", rule="Clip", event=event, buf=buf, detail="is none of gradients"))
    value = ctx.values.made("add", "", 0, tuple(held))
    if ctx.is_reference:
        ctx.norms.append(value)
    elif value not in ctx.norms:
        absent = [v for norm in ctx.norms for v in _summands(norm, ctx) if v not in held]
        owners = tuple(dict.fromkeys(ctx.values[v].owner or "" for v in absent))
        detail = "lacks" if absent else "counts gradients more than once"
        raise Ill(Fault(code="E211", rule="Clip", event=event, buf=buf, detail=detail, owners=owners))
    return value


def _first_owner(value: ValueId, ctx: Context) -> str:
    return next((ctx.values[v].owner or "" for v in _summands(value, ctx)), "")


def _summands(value: ValueId, ctx: Context) -> Iterable[ValueId]:
    node = ctx.values[value]
    return node.operands if node.op == "add" else (value,)


def overflow(event: Event, flag: Type, ctx: Context) -> tuple[ValueId, ...]:
    """The finite checks that a flag holds, of which each must be known on every rank. Raises Ill."""
    buf = event.ins[-1]
    lost = tuple(axis for axis in ctx.order if axis in flag.partial)
    if lost or any(c != COMPLETE for _, c in flag.terms):
        detail = "flag" if lost else "a flag that was added up"
        raise Ill(Fault(code="E305", rule="Opt", event=event, buf=buf, axes=lost, detail=detail))
    return tuple(v for v, _ in flag.terms)


def lacks_checks(event: Event, held: tuple[ValueId, ...], wanted: tuple[ValueId, ...], ctx: Context) -> Fault | None:
    """What a flag does not know of."""
    absent = [v for v in wanted if v not in held]
    if held == wanted:
        return None
    owners = tuple(dict.fromkeys(ctx.values[v].owner or "" for v in absent))
    return Fault(code="E305", rule="Opt", event=event, buf=event.ins[-1], owners=owners, detail="flag")
