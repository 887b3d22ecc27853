"""Collectives over a pipeline's stage axis: the one axis whose ranks the checker looks at one by one.

Stages hold different layers, so the only thing that several of them have in common is a tensor that each uses, such as
a tied embedding: their gradients add up. Everything else over the stage axis would join different layers. Not for:
collectives over other axes (`rules`), or what passes from stage to stage (`fold`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import attrs

from placelang.check.fault import Fault, Ill
from placelang.check.premises import Context, Types, active_axes
from placelang.check.rules import apply
from placelang.check.types import Type
from placelang.program.event import Event, Op


def across(event: Event, axis: str, ins: Mapping[int, Types], ctx: Context) -> dict[int, Types]:
    """(AR) over stages: the sum of what each stage that takes part holds. Raises Ill for anything else."""
    active_axes(event, ctx)
    if event.op is not Op.ALL_REDUCE or len(ins) < 2:
        raise Ill(Fault(code="E207", rule="AR", event=event, buf=event.ins[0], axes=(axis,), detail="stages"))
    inner = attrs.evolve(event, axes=tuple(a for a in event.axes if a != axis))
    parts = [apply(inner, types, ctx) for types in ins.values()]
    sums: list[Type] = []
    for k, first in enumerate(parts[0]):
        total = first
        for part in parts[1:]:
            if part[k].layout != first.layout:
                found = part[k].layout
                raise Ill(
                    Fault(code="E306", rule="AR", event=event, buf=event.ins[k], found=found, wanted=first.layout)
                )
            total = total.joined(part[k]) if event.largest else total.plus(part[k])
        if event.mean:
            scale = Fraction(1, len(parts))
            total = Type.of(total.layout, {v: c.scaled(scale) for v, c in total.terms})
        sums.append(total)
    return dict.fromkeys(ins, tuple(sums))
