"""Views: parameters brought to the form in which compute reads them, and released.

Not for: where parameters rest (`placement`), or when compute reads them (`lower`).
"""

from __future__ import annotations

from placelang.plan.steps import Gather, Keep
from placelang.program.event import Event, Label, Op, Phase
from placelang.program.facts import Facts, Unit


def view(f: Facts, unit: Unit, phase: Phase, *keep: Keep) -> list[Event]:
    """Bring a unit's parameters to the form in which compute reads them, for views that live for one of `keep`."""
    chosen = [g for g in unit.groups if f.inside.has_view(g) and f.places[g].keep in keep]
    events: list[Event] = []
    gathers: dict[tuple[str, tuple[str, ...], str, Label], list[str]] = {}
    steps: dict[tuple[str, ...], Gather] = {}
    for g in chosen:
        step = f.places[g].gather
        if step is None or not step.axes:
            ins, outs = unit.bufs("w", [g]), unit.bufs("view", [g])
            events.append(Event(op=Op.COPY, ins=ins, outs=outs, phase=phase, dtype=f.precision.view))
            continue
        again = phase is Phase.BACKWARD and f.places[g].secondary
        axes = f.places[g].secondary if again else step.axes
        label = next((label for axis, label in f.places[g].rest if axis in axes), Label("0"))
        kind = "shard" if again else "w"
        gathers.setdefault((kind, axes, step.wire or step.dtype or f.precision.view, label), []).append(g)
        steps[axes] = step
    for (kind, axes, dtype, label), groups in gathers.items():
        step = steps[axes]
        ins, outs = unit.bufs(kind, groups), unit.bufs("view", groups)
        events.append(
            Event(
                op=Op.ALL_GATHER,
                ins=ins,
                outs=outs,
                phase=phase,
                axes=axes,
                label=label,
                dtype=dtype,
                span=step.span,
                why=step.why,
            )
        )
    return events


def secondary(f: Facts, unit: Unit) -> list[Event]:
    """The smaller shard of a view that backward gathers from, cut before the view is released (ZeRO++, hpZ)."""
    events: list[Event] = []
    for g in unit.groups:
        axes = f.places[g].secondary
        if axes:
            label = next((label for axis, label in f.places[g].rest if axis in axes), Label("0"))
            events.append(
                Event(
                    op=Op.SLICE,
                    ins=unit.bufs("view", [g]),
                    outs=unit.bufs("shard", [g]),
                    phase=Phase.FORWARD,
                    axes=axes,
                    label=label,
                    dtype=f.precision.view,
                )
            )
    return events


def free(f: Facts, unit: Unit, phase: Phase, *keep: Keep) -> list[Event]:
    chosen = [g for g in unit.groups if f.inside.has_view(g) and f.places[g].keep in keep]
    if not chosen:
        return []
    return [Event(op=Op.FREE, ins=unit.bufs("view", chosen), phase=phase, dtype=f.precision.view)]
