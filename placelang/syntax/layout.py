"""A pretty printer: documents with places where a line may break, laid out in a given width.

After Wadler, "A prettier printer" (2003), in the imperative form of Oppen (1980): a group is written in one line if it
fits, else each break that is its own (not that of an inner group) becomes a newline. Linear but for look-ahead, which
the width bounds. Not for: what is written (`formatter`).
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from placelang.frozen import Frozen

INDENT = 2


@attrs.frozen(eq=False, repr=False)
class Break(Frozen):
    """A newline where its group is broken, else `flat`; None: always a newline, and every group around is broken."""

    flat: str | None = ""


@attrs.frozen(eq=False, repr=False)
class Choice(Frozen):
    """`broken` where its group is broken, else `flat`."""

    broken: str
    flat: str


@attrs.frozen(eq=False, repr=False)
class Suffix(Frozen):
    """Written at the end of the line that it is met in, and breaks every group around: a comment."""

    text: str


@attrs.frozen(eq=False, repr=False)
class Group(Frozen):
    parts: tuple[Doc, ...]
    broken: bool


@attrs.frozen(eq=False, repr=False)
class Nest(Frozen):
    """Lines that begin in here are indented by one step more."""

    parts: tuple[Doc, ...]
    broken: bool


Doc = str | Break | Choice | Suffix | Group | Nest

SOFT, SPACE, HARD = Break(""), Break(" "), Break(None)


def group(*parts: Doc) -> Group:
    return Group(parts, any(map(must_break, parts)))


def nest(*parts: Doc) -> Nest:
    return Nest(parts, any(map(must_break, parts)))


def must_break(doc: Doc) -> bool:
    """Whether there is a newline in it, whatever the width."""
    match doc:
        case Group() | Nest():
            return doc.broken
        case Break():
            return doc.flat is None
    return isinstance(doc, Suffix)


def join(separator: tuple[Doc, ...], docs: Iterable[tuple[Doc, ...]]) -> tuple[Doc, ...]:
    joined: list[Doc] = []
    for i, doc in enumerate(docs):
        joined += (*separator, *doc) if i else doc
    return tuple(joined)


def lay_out(parts: tuple[Doc, ...], width: int) -> str:
    """The text, without trailing spaces. Breaks outside of all groups are newlines."""
    out: list[str] = []
    suffixes: list[str] = []
    column = 0
    todo: list[tuple[int, bool, Doc]] = [(0, False, part) for part in reversed(parts)]
    while todo:
        indent, flat, doc = todo.pop()
        match doc:
            case str():
                out.append(doc)
                column += len(doc)
            case Choice():
                text = doc.flat if flat else doc.broken
                out.append(text)
                column += len(text)
            case Suffix():
                suffixes.append(doc.text)
            case Nest():
                todo += [(indent + INDENT, flat, part) for part in reversed(doc.parts)]
            case Group():
                flat = flat or (not doc.broken and _fits(doc, width - column, todo))
                todo += [(indent, flat, part) for part in reversed(doc.parts)]
            case Break() if flat and doc.flat is not None:
                out.append(doc.flat)
                column += len(doc.flat)
            case Break():
                out += (*suffixes, "\n", " " * indent)
                suffixes.clear()
                column = indent
    lines = "".join((*out, *suffixes)).split("\n")
    return "\n".join(line.rstrip() for line in lines)


def _fits(first: Group, room: int, rest: list[tuple[int, bool, Doc]]) -> bool:
    """Whether the group, in one line, and what follows it up to the next possible newline fit into the room."""
    todo: list[tuple[bool, Doc]] = [(True, first)]
    following = len(rest)
    while room >= 0:
        if not todo:
            if following == 0:
                return True
            following -= 1
            _, flat, doc = rest[following]
            todo.append((flat, doc))
            continue
        flat, doc = todo.pop()
        match doc:
            case str():
                room -= len(doc)
            case Choice():
                room -= len(doc.flat if flat else doc.broken)
            case Group() | Nest():
                inner = flat and not (isinstance(doc, Group) and doc.broken)
                todo += [(inner, part) for part in reversed(doc.parts)]
            case Break():
                if not flat or doc.flat is None:
                    return True
                room -= len(doc.flat)
    return False
