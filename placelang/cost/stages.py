"""A pipeline seen from one of its stages: the program and the model that its ranks run, and how much they hold at once.

Microbatches in flight are those whose forward a rank has run and whose backward it has not: what it keeps of each
counts so often. Not for: how long a step takes (`time`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import attrs

from placelang.cost.expr import Expr, constant, minimum, symbol
from placelang.cost.sizes import axis_symbol
from placelang.model.model import Model
from placelang.plan.plan import Plan
from placelang.program.event import At, End, Op, Phase
from placelang.program.layers import layers_of
from placelang.program.layouts import events
from placelang.program.program import Item, Program, Rep
from placelang.program.stages import Stages


def kinds(stages: Stages) -> tuple[int, ...]:
    """A coordinate of each kind of stage: those that hold other layers, or more microbatches in flight."""
    first: dict[tuple[object, ...], int] = {}
    for rank in stages.coordinates:
        ends = (rank == stages.ranks[0], rank == stages.ranks[-1])
        first.setdefault((*stages.layers(rank).items(), ends, _sends(stages, rank)), rank)
    return tuple(first.values())


def at(program: Program, model: Model, rank: int) -> tuple[Program, Model]:
    """What the ranks of one stage run, with as many trips of each loop as they have layers, and the part of the model
    that they hold. Events over the stage axis keep the coordinates that take part."""
    stages = program.stages
    assert stages is not None
    layers = stages.layers(rank)

    def here(where: Iterable[At | int]) -> bool:
        return not (places := tuple(where)) or any(
            (not isinstance(w, int) and w.loop in layers and not _fixed(w)) or stages.of(_end(w, stages)) == rank
            for w in places
        )

    def walk(items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            if isinstance(item, Rep):
                body = tuple(walk(item.body))
                trips = layers.get(item.loop, item.trips)
                if body and trips != 0:
                    yield attrs.evolve(item, body=body, trips=trips)
            elif item.op is not Op.SEND and here(item.where):
                joint = stages.axis in item.axes
                where = tuple(sorted({stages.of(_end(w, stages)) for w in item.where})) if joint else ()
                yield attrs.evolve(item, where=where)

    sends = dict(zip((Phase.FORWARD, Phase.BACKWARD), _sends(stages, rank), strict=True))
    body = tuple(_sending(walk(program.body), program, sends))
    groups = tuple(
        attrs.evolve(g, count=layers.get(g.loop or "", g.count), where=())
        for g in program.groups
        if (layers[g.loop] if g.loop in layers else here(g.where))
    )
    names = {g.name for g in groups}
    part = attrs.evolve(
        program,
        groups=groups,
        rests=tuple(r for r in program.rests if r.group in names),
        setup=tuple(e for e in program.setup if all(b.of in names for b in e.outs)),
        body=body,
        loops={**program.loops, **layers, **{f"sends/{phase.value}": n for phase, n in sends.items()}},
        stages=None,
    )
    return part, _part(model, stages, rank)


def _fixed(place: At) -> bool:
    """Whether a place is one layer whatever the trip."""
    return isinstance(place.index, (int, End))


def _end(place: At | int, stages: Stages) -> At | int:
    """The place with a number for the end of a run."""
    if isinstance(place, int) or isinstance(place.index, int):
        return place
    return At(place.loop, dict(stages.runs)[place.loop] + place.index.offset)


def _part(model: Model, stages: Stages, rank: int) -> Model:
    """The stacks that a stage holds, with as many layers as it has of each."""
    layers = layers_of(model, inside=False)
    blocks = [k for k, layer in enumerate(layers) if layer.looped]
    kept = []
    for k, layer in enumerate(layers):
        if layer.looped:
            count = stages.layers(rank)[layer.key]
        else:
            count = int(stages.ranks[0 if k < blocks[0] else -1] == rank)
        if count:
            kept.append(attrs.evolve(layer.stack, count=count))
    return attrs.evolve(model, stacks=tuple(kept))


def _sends(stages: Stages, rank: int) -> tuple[int, int]:
    """How often a rank sends a microbatch on, in forward and in backward: where the next layer, or the one before, lies
    elsewhere. What stands before the blocks and behind them counts."""
    order = [stages.ranks[0], *(stages.ranks[stages.part(k)] for k in range(sum(n for _, n in stages.runs)))]
    order.append(stages.ranks[-1])
    steps = [(a, b) for a, b in itertools.pairwise(order) if a != b]
    return sum(a == rank for a, _ in steps), sum(b == rank for _, b in steps)


def _sending(items: Iterator[Item], program: Program, sends: dict[Phase, int]) -> Iterator[Item]:
    """The body with the sends of a stage, each as often as it is made, in the loop over microbatches."""
    models = {event.phase: event for event, _ in events(program.body) if event.op is Op.SEND}
    for item in items:
        if isinstance(item, Rep) and any(e.op is Op.LOSS or e.op is Op.FORWARD for e, _ in events(item.body)):
            more = tuple(
                Rep(f"sends/{phase.value}", n, (attrs.evolve(models[phase], where=(), target=None),))
                for phase, n in sends.items()
                if n and phase in models
            )
            yield attrs.evolve(item, body=(*item.body, *more))
        else:
            yield item


def in_flight(plan: Plan, stages: Stages, rank: int) -> Expr:
    """How many microbatches' activations the ranks of a stage hold at once, of all their layers; a half where they hold
    those of half their layers.

    Sources: GPipe (arXiv 1811.06965) holds all; 1F1B and its interleaved form, Narayanan et al., SC 2021 (arXiv
    2104.04473), section 2.2, and Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.3: L (1 + (p-1)/(pv)) layers
    on the first stage; zero-bubble schedules, Qi et al. (arXiv 2401.10241), Table 1 (H1 as 1F1B's first stage, H2 up to
    2p - 1) and section 6 (V: p); DualPipeV: 2p + 1 half stages (deepseek-ai/DualPipe).
    """
    p, many = axis_symbol(stages.axis), symbol("M", "microbatches")
    chunks = plan.schedule.chunks if plan.schedule else 1
    match plan.schedule.name if plan.schedule else "1f1b":
        case "gpipe":
            return many
        case "interleaved_1f1b":
            warm = 2 * (p - rank - 1) + (chunks - 1) * p + 1
            return minimum(many * chunks, warm) / constant(chunks)
        case "zb_h1" | "zbv":
            return minimum(many, p)
        case "zb_h2":
            return minimum(many, 2 * p - 1)
        case "dualpipev":
            return minimum(2 * many, 2 * p + 1) / 2
        case _:
            return minimum(many, p - rank)
