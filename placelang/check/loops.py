"""(Rep): the loops of which a few trips stand for all of them.

The fold looks at three trips of a loop, or at few layers of each kind of pipeline stage (`program.sample`). That shows
every fault of a longer one if its body is uniform: indices reach to the neighbouring trip, the first or the end only,
and values pass from trip to trip through one buffer at most, so that what goes wrong in any trip goes wrong by the
third. Through a chain of buffers a value could arrive later than that. All that `program.lower` makes is uniform. Not
for: the types of a body (`fold`).
"""

from __future__ import annotations

from collections.abc import Iterable

from placelang.check.fault import Fault
from placelang.program.event import Buf, Op, Var
from placelang.program.layouts import events
from placelang.program.program import Item, Program, Rep, sample

Name = tuple[str, str]


def irregular(program: Program) -> tuple[Fault, ...]:
    """The first fault of each kind that makes a program's long loops more than their first three trips."""
    looked = sample(program).trips
    long = {name for name, count in program.loops.items() if count != looked[name]}
    return (*_far(program.body), *_chains(program.body, long)) if long else ()


def _far(items: Iterable[Item]) -> tuple[Fault, ...]:
    for event, _ in events(items):
        for buf in (*event.ins, *event.outs):
            if any(i != 0 if isinstance(i, int) else abs(i.offset) > 1 for i in buf.index):
                detail = f"`{buf}` is neither the first, the last nor a neighbour"
                return (Fault(code="E306", rule="Rep", event=event, buf=buf, detail=detail),)
    return ()


def _chains(items: Iterable[Item], long: set[str]) -> tuple[Fault, ...]:
    for item in items:
        if isinstance(item, Rep):
            carried = sorted(_carried(item)) if item.loop in long else []
            if len(carried) > 1:
                detail = f"{', '.join(f'`{kind}:{of}`' for kind, of in carried)} all pass from trip to trip"
                return (Fault(code="E306", rule="Rep", detail=detail),)
            inner = _chains(item.body, long)
            if inner:
                return inner
    return ()


def _carried(rep: Rep) -> set[Name]:
    """Buffers that a trip reads as an earlier trip left them. Accumulators that are only added to do not count."""
    written: set[Name] = set()  # before anything else in the trip
    stale: set[Name] = set()
    reads: dict[Name, set[int | None]] = {}
    writes: dict[Name, set[int | None]] = {}
    for event, _ in events(rep.body):
        if event.op is Op.FREE:
            continue
        for buf in event.ins:
            reads.setdefault(_name(buf), set()).add(_offset(buf, rep.loop))
            stale.update({_name(buf)} - written)
        for buf in event.outs:
            writes.setdefault(_name(buf), set()).add(_offset(buf, rep.loop))
            if event.op is Op.ACC:
                stale.update({_name(buf)} - written)
            elif _name(buf) not in stale:
                written.add(_name(buf))

    def passes(name: Name) -> bool:
        offsets = reads[name] | writes[name]
        return name in stale if None in offsets else len(offsets) > 1

    return {name for name in reads.keys() & writes.keys() if passes(name)}


def _name(buf: Buf) -> Name:
    return (buf.kind, buf.of)


def _offset(buf: Buf, loop: str) -> int | None:
    """How far from the running trip an index is; None of a buffer that this loop does not index."""
    return next((i.offset for i in buf.index if isinstance(i, Var) and i.loop == loop), None)
