"""Dead-event elimination: what no later event and no state at the end of the step reads is not run.

The pruned program is the one that is checked, costed and run ("semantics", section 12, step 2). An event in a loop goes
only if it is dead in every trip, and a coalesced collective only if all of its results are. Not for: judging (`rules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from placelang.frozen import Frozen
from placelang.plan.plan import State
from placelang.program.event import COLLECTIVES, At, Buf, Event, Op
from placelang.program.program import Item, Program, Rest, Sample, flatten, sample

Path = tuple[int, ...]


@attrs.frozen(eq=False, repr=False)
class Pruned(Frozen):
    """The program that is left, and the collectives that changed nothing."""

    program: Program
    removed: tuple[Event, ...]


def states(program: Program, of: Sample) -> Iterator[tuple[Rest, Buf, int]]:
    """Every live state at the start and the end of a step, with a number for each layer, and the coordinate on the
    stage axis of each copy (0 where there are no stages)."""
    for rest in program.rests:
        if rest.state in (State.PARAMS, State.OPTIMIZER):
            group = program.group(rest.group)
            for index in [(i,) for i in range(of.trips[group.loop])] if group.loop else [()]:
                where = tuple(At(at.loop, *index) if group.loop else at for at in group.where)
                for stage in of.where(where):
                    yield rest, Buf(rest.kind, rest.group, index), stage


def prune(program: Program) -> Pruned:
    """`program` without its dead events."""
    of = sample(program)
    events = tuple(zip(_paths(program.body, of.trips), flatten(program, of), strict=True))
    live: dict[int, set[Buf]] = {stage: set() for stage in of.coordinates}
    for _, buf, stage in states(program, of):
        live[stage].add(buf)
    kept: set[Path] = set()
    written: set[Buf] = set()
    for path, event in reversed(events):
        stages = [stage for stage in of.where(event.where) if stage in live]
        if event.op is Op.SEND:
            if not isinstance(event.target, int) or live.get(event.target, set()).isdisjoint(event.outs):
                continue
            live[event.target].difference_update(event.outs)
        elif all(live[stage].isdisjoint(event.outs) for stage in stages):
            continue
        kept.add(path)
        written.update(event.outs)
        for stage in stages:
            if event.op not in (Op.ACC, Op.SEND):  # an accumulation also reads what it adds to
                live[stage].difference_update(event.outs)
            live[stage].update(event.ins)
    frees: dict[Path, set[int]] = {}
    for path, event in events:
        if event.op is Op.FREE:
            frees.setdefault(path, set()).update(k for k, buf in enumerate(event.ins) if buf in written)
    kept.update(path for path, those in frees.items() if those)
    if all(path in kept and len(frees.get(path, event.ins)) == len(event.ins) for path, event in events):
        return Pruned(program, ())

    removed: list[Event] = []

    def rebuild(items: Iterable[Item], at: Path) -> Iterator[Item]:
        for k, item in enumerate(items):
            path = (*at, k)
            if not isinstance(item, Event):
                body = tuple(rebuild(item.body, path))
                if body:
                    yield attrs.evolve(item, body=body)
            elif path not in kept:
                if item.op in COLLECTIVES:
                    removed.append(item)
            elif path in frees:
                yield attrs.evolve(item, ins=tuple(buf for i, buf in enumerate(item.ins) if i in frees[path]))
            else:
                yield item

    body = tuple(rebuild(program.body, ()))
    return Pruned(attrs.evolve(program, body=body), tuple(removed))


def _paths(items: Iterable[Item], counts: Mapping[str, int], at: Path = ()) -> Iterator[Path]:
    """Where in the program's text each event of its `flatten` stands."""
    for k, item in enumerate(items):
        path = (*at, k)
        if isinstance(item, Event):
            yield path
        else:
            for _ in range(counts[item.loop]):
                yield from _paths(item.body, counts, path)
