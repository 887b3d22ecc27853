"""The layout of every buffer of a program, read off its events: which axes split it, outer first.

Not for: whether the layouts make sense (`check`); here each event does what its label says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from placelang.program.event import Buf, Event, Label, Layout, Op
from placelang.program.program import Item, Program, Rep

Key = tuple[str, str]
"""Kind and group of a buffer: every index of it has the same layout."""


def key(buf: Buf) -> Key:
    return buf.kind, buf.of


def events(items: Iterable[Item], loops: tuple[str, ...] = ()) -> Iterator[tuple[Event, tuple[str, ...]]]:
    """Each event of the text of a program once, with the loops around it, outer first."""
    for item in items:
        if isinstance(item, Rep):
            yield from events(item.body, (*loops, item.loop))
        else:
            yield item, loops


def scattered(layout: Layout, event: Event) -> Layout:
    """The layout after a reduce_scatter or slice: its axes split innermost."""
    return (*layout, *((axis, event.label or Label("0")) for axis in event.axes))


def gathered(layout: Layout, event: Event) -> Layout:
    return tuple((axis, label) for axis, label in layout if axis not in event.axes)


def layouts(program: Program) -> Mapping[Key, Layout]:
    """Layouts of parameters, gradients and optimizer state by kind and group. Activations lie as `tokens` do."""
    known: dict[Key, Layout] = {(rest.kind, rest.group): rest.layout for rest in program.rests}
    for event, _ in events(program.body):
        if event.op is Op.ZERO:
            known.update((key(out), event.layout) for out in event.outs)
        elif event.op is Op.WGRAD:
            reads = {buf.of: known[key(buf)] for buf in event.ins[2:]}
            for out in event.outs:
                known[key(out)] = reads[out.of]
        elif event.op in (Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_REDUCE, Op.SLICE, Op.COPY, Op.UNSCALE, Op.CLIP):
            for source, out in zip(event.ins, event.outs, strict=event.op is not Op.CLIP):
                if key(source) not in known:
                    continue  # an activation
                layout = known[key(source)]
                if event.op in (Op.REDUCE_SCATTER, Op.SLICE):
                    layout = scattered(layout, event)
                elif event.op is Op.ALL_GATHER:
                    layout = gathered(layout, event)
                known.setdefault(key(out), layout)
    return known
