"""Reductions of gradients as the journey of `grads` says: in each microbatch, and once a step.

No reduction is added that the plan does not name. Not for: gradients of activations (`inside`).
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from placelang.plan.steps import Keep, Reduce, When
from placelang.program.event import Buf, Event, Label, Op, Phase
from placelang.program.facts import Facts, Unit
from placelang.program.program import Item
from placelang.program.views import free


def reduce(f: Facts, unit: Unit, kind: str, when: When) -> tuple[list[Event], dict[str, Buf]]:
    """The reductions of a unit's gradients, those of one kind in one event; and where each group's ends."""
    events: list[Event] = []
    now = dict(zip(unit.trained, unit.bufs(kind, unit.trained), strict=True))
    steps = {g: [_between(f, g, r) for r in f.places[g].reductions if r.when is when] for g in unit.trained}
    for k in range(max(map(len, steps.values()), default=0)):
        together: dict[tuple[object, ...], list[str]] = {}
        for g in unit.trained:
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
                    dtype=r.wire or f.precision.wire,
                    span=r.span,
                    why=r.why,
                )
            )
    return events, now


def _between(f: Facts, group: str, step: Reduce) -> Reduce:
    """The reduction without the stage axis where all that use a tensor lie on one stage, as the ends of a V do."""
    where = f.held(group)
    if f.stages is None or f.stages.axis not in step.axes or len(where) < 2:
        return step
    if any(not isinstance(at.index, int) for at in where) or len({f.stages.of(at) for at in where}) > 1:
        return step
    return attrs.evolve(step, axes=tuple(a for a in step.axes if a != f.stages.axis))


def reduce_unit(f: Facts, unit: Unit) -> list[Event]:
    """The reductions of one microbatch, then the accumulation."""
    events, reduced = reduce(f, unit, "dw", When.MICROBATCH)
    for g, buf in zip(unit.trained, unit.bufs("g", unit.trained), strict=True):
        dtype = f.precision.accumulate
        events.append(Event(op=Op.ACC, ins=(reduced[g],), outs=(buf,), phase=Phase.BACKWARD, dtype=dtype))
    return events


def reduce_step(f: Facts) -> Iterator[Item]:
    for unit in reversed(f.units):
        events, _ = reduce(f, unit, "g", When.STEP)
        yield from f.each(unit, events, reverse=True)
    for unit in f.units:
        yield from f.each(unit, free(f, unit, Phase.BACKWARD, Keep.STEP))
