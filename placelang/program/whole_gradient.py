"""What reads all gradients before any optimizer runs: unscaling with its finite check, and clipping by global norm.

Each logical element counts once in the norm: sums of squares are kept apart by the axes that split the gradients they
are of, and each is reduced over exactly these, and over stages, where a tensor that several hold counts on the first
("semantics", sections 9, Clip, and 13). The flag of an overflow is reduced over every axis: to take the largest twice
changes nothing. Not for: how gradients come to lie as the optimizer reads them (`update`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from placelang.program.event import Buf, Event, Op, Phase
from placelang.program.facts import Facts, Unit
from placelang.program.program import Item

Grads = Mapping[str, Buf]
"""Where the gradient of each group is, with the index of its unit."""


def _format(f: Facts) -> str:
    """Of norms and flags: fp32, or what gradients have if that is wider."""
    return "fp64" if "fp64" in (f.precision.accumulate, f.precision.master) else "fp32"


def unscaled(f: Facts, grads: Grads) -> Iterator[Item]:
    """Every gradient divided by the loss scale, and whether any overflowed, on every rank."""
    yield _zero(f, Buf("flags", "(all)"))
    for unit in f.units:
        ins = tuple(grads[g] for g in unit.trained)
        outs = tuple(attrs.evolve(b, kind="gu") for b in ins)
        flag = Buf("flag", "(all)", unit.at)
        events = [
            Event(op=Op.UNSCALE, ins=ins, outs=outs, phase=Phase.UPDATE, power=-1, dtype=f.precision.accumulate),
            Event(op=Op.FINITE, ins=outs, outs=(flag,), phase=Phase.UPDATE, dtype=_format(f)),
            attrs.evolve(_acc(f, flag, Buf("flags", "(all)")), largest=True),
        ]
        yield from f.each(unit, events if ins else ())
    axes = f.plan.mesh.names
    yield Event(
        op=Op.ALL_REDUCE if axes else Op.COPY,
        ins=(Buf("flags", "(all)"),),
        outs=(Buf("overflow", "(all)"),),
        phase=Phase.UPDATE,
        axes=axes,
        largest=bool(axes),
        dtype=_format(f),
        why="every rank skips the step, or none does",
    )


def squared(f: Facts, grads: Grads) -> Iterator[Item]:
    """The sum of the squares of all gradients, on every rank."""
    split: dict[tuple[str, ...], list[tuple[Unit, list[str]]]] = {}
    for unit in f.units:
        by_axes: dict[tuple[str, ...], list[str]] = {}
        for g in unit.trained:
            by_axes.setdefault(_axes(f, g), []).append(g)
        for axes, groups in by_axes.items():
            split.setdefault(axes, []).append((unit, groups))
    ends: list[Buf] = []
    for axes, parts in split.items():
        name = f"({' * '.join(axes) or 'whole'})"
        total, end = Buf("squares", name), Buf("squares+", name)
        yield _zero(f, total)
        for unit, groups in parts:
            ins, one = tuple(grads[g] for g in groups), Buf("sq", name, unit.at)
            square = Event(op=Op.SQNORM, ins=ins, outs=(one,), phase=Phase.UPDATE, dtype=_format(f))
            first = unit.where[:1]  # a tensor that several stages hold counts once
            yield from f.each(attrs.evolve(unit, where=first), [square, _acc(f, one, total)])
        over = (*axes, *((f.stages.axis,) if f.stages else ()))
        if over:
            yield Event(
                op=Op.ALL_REDUCE,
                ins=(total,),
                outs=(end,),
                phase=Phase.UPDATE,
                axes=over,
                dtype=_format(f),
                span=f.plan.train.span,
                why="clipping needs the norm of the whole gradient",
            )
        ends.append(end if over else total)
    yield Event(op=Op.ADD, ins=tuple(ends), outs=(Buf("norm", "(all)"),), phase=Phase.UPDATE, dtype=_format(f))


def clipped(f: Facts, unit: Unit, grads: Grads) -> tuple[list[Event], dict[str, Buf]]:
    """The gradients of a unit, no longer than the largest norm together with all others."""
    ins = tuple(grads[g] for g in unit.trained)
    outs = tuple(attrs.evolve(b, kind="gc") for b in ins)
    if not ins:
        return [], {}
    event = Event(
        op=Op.CLIP,
        ins=(*ins, Buf("norm", "(all)")),
        outs=outs,
        phase=Phase.UPDATE,
        dtype=f.precision.accumulate,
        span=f.plan.train.span,
    )
    return [event], dict(zip(unit.trained, outs, strict=True))


def _axes(f: Facts, group: str) -> tuple[str, ...]:
    """The axes that split a group's gradient as the optimizer reads it."""
    lies = f.places[group].delivered()
    return tuple(dict.fromkeys(axis for axis, _ in lies if f.plan.mesh.size((axis,)) != 1))


def _zero(f: Facts, total: Buf) -> Event:
    return Event(op=Op.ZERO, outs=(total,), phase=Phase.UPDATE, dtype=_format(f))


def _acc(f: Facts, one: Buf, total: Buf) -> Event:
    return Event(op=Op.ACC, ins=(one,), outs=(total,), phase=Phase.UPDATE, dtype=_format(f))
