"""A program as compact text, one event a line, loops indented: what the goldens of `test_lower` hold."""

from __future__ import annotations

from collections.abc import Iterator

from placelang.program.event import Event, Layout
from placelang.program.program import Item, Program, Rep


def listing(program: Program) -> str:
    """Rests, then the events of one step."""
    rests = (
        f"rest {r.kind}:{r.group} {r.dtype}{f' x{r.copies}' if r.copies != 1 else ''} {shown(r.layout)}".rstrip()
        for r in program.rests
    )
    return "\n".join((*rests, "", *lines(program.body))) + "\n"


def lines(items: tuple[Item, ...], depth: int = 0) -> Iterator[str]:
    pad = "  " * depth
    for item in items:
        if isinstance(item, Rep):
            yield f"{pad}for {item.loop} in {item.trips}{', down' if item.reverse else ''}:"
            yield from lines(item.body, depth + 1)
        else:
            yield pad + event(item)


def event(e: Event) -> str:
    """`all_gather(dp) w:layers[layers] -> view:layers[layers] bf16`."""
    axes = f"({' * '.join(e.axes)}{', mean' if e.mean else ''})" if e.axes else ""
    ins, outs = (" ".join(map(str, bufs)) for bufs in (e.ins, e.outs))
    arrow = f" -> {outs}" if e.outs else ""
    layout = f" {shown(e.layout)}" if e.layout else ""
    return f"{e.op.value}{axes}{f' {ins}' if ins else ''}{arrow} {e.dtype}{layout}"


def shown(layout: Layout) -> str:
    return " ".join(f"{axis}/{label.dim}" for axis, label in layout)


def count(items: tuple[Item, ...]) -> int:
    """Items of the text of a program, each loop's body once."""
    return sum(1 + (count(i.body) if isinstance(i, Rep) else 0) for i in items)
