"""The update: what the optimizer reads, its step, and fresh parameters on their way back to every rank.

Not for: reductions (`reductions`).
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from placelang.plan.steps import AllGather, When
from placelang.program.event import Buf, Event, Label, Layout, Op, Phase
from placelang.program.facts import Facts, Unit
from placelang.program.program import Item
from placelang.program.reductions import reduce
from placelang.program.whole_gradient import clipped, squared, unscaled


def update(f: Facts) -> Iterator[Item]:
    train = f.plan.train
    grads: dict[str, Buf] = {}
    cuts: dict[str, Event] = {}
    for unit in f.units:
        _, ends = reduce(f, unit, "g", When.STEP)
        for g in unit.trained:
            cut = _cut(f, ends[g])
            grads[g] = cut.outs[0] if cut else ends[g]
            if cut:
                cuts[g] = cut
    if train.clip is not None or train.loss_scale is not None:  # which read all gradients before any is used
        for unit in f.units:
            yield from f.each(unit, [cuts.pop(g) for g in unit.trained if g in cuts])
    if train.loss_scale is not None:
        yield from unscaled(f, grads)
        grads = {g: attrs.evolve(b, kind="gu") for g, b in grads.items()}
    if train.clip is not None:
        yield from squared(f, grads)
    for unit in f.units:
        events, short = clipped(f, unit, grads) if train.clip is not None else ([], {})
        for g in unit.trained:
            events += [cuts[g]] if g in cuts else []
            events += _update_group(f, Buf("w", g, unit.at), {**grads, **short}[g])
        yield from f.each(unit, [*events, *_refresh(f, unit)])


def _cut(f: Facts, grad: Buf) -> Event | None:
    """The optimizer's shard of a gradient, where it reads no more."""
    place = f.places[grad.of]
    missing = place.missing(place.after(place.accumulated(), When.STEP))
    return _slice(f, grad, attrs.evolve(grad, kind="gs"), missing, f.precision.accumulate) if missing else None


def _update_group(f: Facts, w: Buf, grad: Buf) -> Iterator[Event]:
    """Update, and bring the master back to the format at rest."""
    p, place = f.precision, f.places[w.of]

    def buf(kind: str) -> Buf:
        return attrs.evolve(w, kind=kind)

    overflow = (Buf("overflow", "(all)"),) if f.plan.train.loss_scale is not None else ()
    sliced = place.missing(place.rest)
    theta = buf("master") if p.master else w
    if not p.master and sliced:
        yield _slice(f, w, buf("s"), sliced, p.rest)
        theta = buf("s")
    yield Event(
        op=Op.OPT,
        ins=(theta, grad, buf("o"), *overflow),
        outs=(theta, buf("o")),
        phase=Phase.UPDATE,
        dtype=p.master or p.rest,
        span=place.opt_span,
    )
    if p.master:
        target = buf("s") if sliced else w
        yield Event(op=Op.COPY, ins=(theta,), outs=(target,), phase=Phase.UPDATE, dtype=p.rest)


def _slice(f: Facts, source: Buf, target: Buf, extra: Layout, dtype: str) -> Event:
    return Event(
        op=Op.SLICE,
        ins=(source,),
        outs=(target,),
        phase=Phase.UPDATE,
        axes=tuple(axis for axis, _ in extra),
        label=extra[0][1],
        dtype=dtype,
        span=f.places[source.of].opt_span,
    )


def _refresh(f: Facts, unit: Unit) -> Iterator[Event]:
    """Each group over those axes of the step that its optimizer's layout splits, which experts have fewer of."""
    for step in f.plan.update:
        if not isinstance(step, AllGather):
            continue
        stale = {g: dict(f.places[g].missing(f.places[g].rest)) for g in unit.trained}
        together: dict[tuple[tuple[str, ...], Label], list[str]] = {}
        for g, missing in stale.items():
            axes = tuple(a for a in step.axes if a in missing)
            if axes:
                together.setdefault((axes, missing[axes[0]]), []).append(g)
            elif step.span and not any(stale.values()):  # what the text says is done, needed or not
                together.setdefault((step.axes, Label("0")), []).append(g)
        for (axes, label), groups in together.items():
            yield Event(
                op=Op.ALL_GATHER,
                ins=unit.bufs("s", groups),
                outs=unit.bufs("w", groups),
                phase=Phase.UPDATE,
                axes=axes,
                label=label,
                dtype=f.precision.rest,
                span=step.span,
                why=step.why,
            )
