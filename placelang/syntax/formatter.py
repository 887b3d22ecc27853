"""The one way to write a syntax tree: `format_file` for texts of users, `print_node` for trees of any origin.

Canonical and idempotent; `parse(format_file(file))` is the same tree with every comment. What the author decides: the
spelling of numbers, blank lines (one at most), and whether a short block stands in one line. Comments stay where they
are between statements, between the elements of a list and between the steps of a journey; one from any other place
moves before its statement. Not for: changing what a text says.
"""

from __future__ import annotations

import re

from placelang.syntax import ast
from placelang.syntax.comments import Comments
from placelang.syntax.expressions import Expressions
from placelang.syntax.layout import HARD, SPACE, Choice, Doc, Suffix, group, join, lay_out, must_break, nest
from placelang.syntax.words import quote

WIDTH = 100

_WIDEST_HEAD = 24  # of those whose journeys are aligned
_BLANK = re.compile(r"\n[ \t]*\n")


def format_file(file: ast.File) -> str:
    """The canonical text of a file with its comments; it ends in a newline unless it is empty."""
    return _text(_Statements(Comments(file.source.text, file.comments)).file(file))


def print_node(node: ast.Node) -> str:
    """The canonical text of any node, without comments and final newline."""
    printer = _Statements(Comments("", ()))
    match node:
        case ast.File():
            return _text(printer.file(node)).rstrip("\n")
        case ast.Comment():
            return node.text
        case ast.Arg() | ast.AxisDecl() | ast.Param() | ast.Selector() | ast.Import():
            return _text(printer.element(node))
        case _ if isinstance(node, ast.Expr):
            return _text(printer.expr(node))
    assert isinstance(node, ast.Statement), node
    return _text(printer.documented(node))


def _pads(statements: tuple[ast.Statement, ...], source: str) -> list[int]:
    """What each placement needs after its colon so that the journeys of neighbours begin in one column."""
    pads = [0] * len(statements)
    run: list[tuple[int, int]] = []  # index and width of the heads of neighbours
    for i, node in enumerate((*statements, None)):
        width = len(_text(_BARE.head(node))) if isinstance(node, ast.Placement) else _WIDEST_HEAD + 1
        apart = i > 0 and node is not None and _BLANK.search(source, statements[i - 1].span.end, node.span.start)
        if run and (apart or width > _WIDEST_HEAD):
            widest = max(w for _, w in run)
            for j, w in run:
                pads[j] = widest - w
            run = []
        if width <= _WIDEST_HEAD:
            run.append((i, width))
    return pads


def _text(parts: tuple[Doc, ...]) -> str:
    return lay_out(parts, WIDTH)


class _Statements(Expressions):
    """Statements as documents. One for each text: comments are taken from `comments` as they are met."""

    def file(self, file: ast.File) -> tuple[Doc, ...]:
        lines = self._lines(file.statements, 0, len(self.comments.source))
        return (*join((HARD,), lines), HARD) if lines else ()

    def _lines(self, statements: tuple[ast.Statement, ...], start: int, end: int) -> list[tuple[Doc, ...]]:
        """Statements and the comments between them from one offset to another, an empty line where there was one."""
        lines: list[tuple[Doc, ...]] = []
        before = start

        def add(doc: tuple[Doc, ...], at: int, until: int) -> None:
            nonlocal before
            if lines and _BLANK.search(self.comments.source, before, at):
                lines.append(())
            lines.append(doc)
            before = until

        pads = _pads(statements, self.comments.source)
        for statement, pad in zip((*statements, None), (*pads, 0), strict=True):
            at = end if statement is None else statement.span.start
            for comment in self.comments.take(before, at):
                if lines and self.comments.beside(before, comment):
                    lines[-1] = (*lines[-1], Suffix(f"  {comment.text}"))
                    before = comment.span.end
                else:
                    add((comment.text,), comment.span.start, comment.span.end)
            if statement is not None:
                doc = self.documented(statement, pad)
                add(doc, at, statement.span.end)
        return lines

    def documented(self, statement: ast.Statement, pad: int = 0) -> tuple[Doc, ...]:
        text = self.statement(statement, pad)
        doc = statement.doc if isinstance(statement, ast.Documented) else ""
        left = self.comments.take(statement.span.start, statement.span.end)
        above = [_aside(comment) for comment in left]
        above += [f"## {line}".rstrip() for line in doc.split("\n")] if doc else []
        return (*(part for line in above for part in (line, HARD)), *text)

    def statement(self, node: ast.Statement, pad: int = 0) -> tuple[Doc, ...]:
        """A statement; a placement has `pad` more spaces after its colon, but for a block in one line."""
        match node:
            case ast.Edition():
                return (f"place {node.number}",)
            case ast.Use():
                names = self._names(node.names, node.span.end)
                return (f"use {quote(node.path)}", *((" ", *names) if node.names else ()))
            case ast.Mesh():
                axes = self.listed("(", node.axes, ")", node.span.start, node.span.end)
                over = (" over ", *self._names(node.over, node.span.end)) if node.over else ()
                return ("mesh ", *((f"{node.name.text} ",) if node.name else ()), *axes, *over)
            case ast.FoldedAxis():
                return (f"axis {node.name.text} = ", *self.expr(node.value))
            case ast.ArgDecl():
                return ("arg ", *self.binding(node.name, node.kind, node.default))
            case ast.Let():
                return ("let ", *self.binding(node.name, node.kind, node.value))
            case ast.Strategy():
                return self._strategy(node)
            case ast.Apply():
                return ("apply ", *self.expr(node.value))
            case ast.Placement():
                return (*self.head(node), ":", Choice(" " * (pad + 1), " "), *self.expr(node.journey))
            case ast.On():
                selectors = join((", ",), [self.element(selector) for selector in node.selectors])
                head = node.selectors[-1].span.end if node.selectors else node.span.start
                return ("on ", *selectors, " ", *self.block(node.body, head, node.span.end))
            case ast.Fact():
                return (f"{node.kind} ", *self.expr(node.value))
            case ast.Train():
                return ("train ", *self.listed("(", node.args, ")", node.span.start, node.span.end))
            case ast.Claim():
                message = (", ", *self.expr(node.message)) if node.message else ()
                return (f"{node.kind} ", *self.expr(node.condition), *message)
            case ast.Backend():
                if not node.args:
                    return (f"backend {node.name.text}",)
                return (
                    f"backend {node.name.text} ",
                    *self.listed("(", node.args, ")", node.name.span.end, node.span.end),
                )

    def head(self, node: ast.Placement) -> tuple[Doc, ...]:
        head = f"override {node.head.text}" if node.override else node.head.text
        if not node.selectors:
            return (head,)
        return (head, *self.listed("[", node.selectors, "]", node.head.span.end, node.journey.span.start))

    def _strategy(self, node: ast.Strategy) -> tuple[Doc, ...]:
        head: tuple[Doc, ...] = (f"strategy {node.name.text}",)
        start = node.name.span.end
        if node.params:
            until = node.params[-1].span.end
            head += self.listed("(", node.params, ")", start, until)
            start = until
        if node.value is not None:
            return (*head, " = ", *self.expr(node.value))
        return (*head, " ", *self.block(node.body or (), start, node.span.end))

    def block(self, body: tuple[ast.Statement, ...], start: int, end: int) -> tuple[Doc, ...]:
        """`{ ... }`. `start` is the end of what stands before the brace: a comment in its line stays in it."""
        short = self._in_one_line(body, start, end)
        beside = [c for c in self.comments.peek(start, end) if self.comments.beside(start, c)]
        beside = [c for c in beside if not body or c.span.start < body[0].span.start]
        for comment in beside:
            self.comments.take(comment.span.start, comment.span.end)
        brace = self._brace(start, end)
        lines: list[tuple[Doc, ...]] = [(_aside(comment),) for comment in self.comments.take(start, brace)]
        lines += self._lines(body, max(brace, beside[-1].span.end) if beside else brace, end)
        header = tuple(Suffix(f"  {comment.text}") for comment in beside)
        if not lines:
            return ("{", *header, HARD, "}") if header else ("{}",)
        if short and not header and not any(must_break(part) for line in lines for part in line):
            inner = join((Choice("", ";"), SPACE), lines)
            return (group("{", nest(SPACE, *inner), SPACE, "}"),)
        return ("{", *header, nest(HARD, *join((HARD,), lines)), HARD, "}")

    def _brace(self, start: int, end: int) -> int:
        """Where the block opens that stands after `start`: the first brace outside of comments."""
        for comment in self.comments.peek(start, end):
            at = self.comments.source.find("{", start, comment.span.start)
            if at >= 0:
                return at
            start = comment.span.end
        return max(self.comments.source.find("{", start, end), start)

    def _in_one_line(self, body: tuple[ast.Statement, ...], start: int, end: int) -> bool:
        if not self.comments.source:
            return len(body) <= 1
        return "\n" not in self.comments.source[self.comments.source.find("{", start, end) : end]

    def _names(self, names: tuple[ast.Name, ...] | tuple[ast.Import, ...], end: int) -> tuple[Doc, ...]:
        return self.listed("(", names, ")", names[0].span.start if names else end, end)


def _aside(comment: ast.Comment) -> str:
    """A comment that stood where none is kept. It must not become documentation, which `##` would."""
    return f"# {comment.text.lstrip('#').strip()}".rstrip()


_BARE = _Statements(Comments("", ()))  # prints without comments
