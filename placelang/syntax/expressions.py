"""Expressions and the lists around them as documents of `layout`: the lower half of the formatter.

Not for: statements (`formatter`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from placelang.syntax import ast
from placelang.syntax.comments import Comments
from placelang.syntax.layout import HARD, SOFT, SPACE, Choice, Doc, Suffix, group, nest
from placelang.syntax.words import is_decimal, quote, spelling

Element = ast.Arg | ast.AxisDecl | ast.Param | ast.Selector | ast.Import | ast.Expr

# How tightly each construct binds, loosest first, as in the grammar.
_WITH, _THEN, _AS, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _MINUS, _ATOM = range(11)
_BINARY = {"or": _OR, "and": _AND, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}


def _level(node: ast.Expr) -> int:
    match node:
        case ast.With():
            return _WITH
        case ast.Then():
            return _THEN
        case ast.As():
            return _AS
        case ast.Binary():
            return _BINARY.get(node.op, _COMPARE)
        case ast.Unary():
            return _NOT if node.op == "not" else _MINUS
        case ast.Number() if not is_decimal(node.value):
            return _PRODUCT  # it is written as a division
    return _ATOM


class Expressions(ABC):
    def __init__(self, comments: Comments) -> None:
        self.comments = comments

    @abstractmethod
    def block(self, body: tuple[ast.Statement, ...], start: int, end: int) -> tuple[Doc, ...]:
        """The block of a `with`: statements are the upper half's."""

    def expr(self, node: ast.Expr, least: int = _WITH) -> tuple[Doc, ...]:
        """An expression where one that binds at least so tightly may stand; a looser one gets parentheses."""
        if _level(node) < least:
            return self.expr(ast.Group(node, span=node.span))
        match node:
            case ast.Name():
                return (node.text,)
            case ast.Number():
                return (spelling(node.span.text, node.value, node.unit),)
            case ast.String():
                return (quote(node.value),)
            case ast.Star():
                return ("*",)
            case ast.List():
                return self.listed("[", node.items, "]", node.span.start, node.span.end)
            case ast.Call():
                return (node.func.text, *self.listed("(", node.args, ")", node.func.span.end, node.span.end))
            case ast.Group():
                return (group("(", nest(SOFT, *self.expr(node.inner)), SOFT, ")"),)
            case ast.Unary():
                return ("not " if node.op == "not" else "-", *self.expr(node.operand, _level(node)))
            case ast.Binary():
                return self._chain(*_operands(node, _level(node)), _level(node))
            case ast.Then():
                return self._chain(node.steps, ("|",) * (len(node.steps) - 1), _THEN)
            case ast.As():
                form = (*self.expr(node.form, _OR), " ") if node.form is not None else ()
                return (*form, "as ", *self._dtypes(node))
            case ast.With():
                base = self.expr(node.base)
                return (*base, " with ", *self.block(node.body, node.base.span.end, node.span.end))

    def _dtypes(self, node: ast.As) -> tuple[Doc, ...]:
        if isinstance(node.dtypes, ast.Name):
            return (node.dtypes.text,)
        start = node.form.span.end if node.form is not None else node.span.start
        return self.listed("(", node.dtypes, ")", start, node.span.end)

    def _chain(self, operands: Sequence[ast.Expr], marks: Sequence[str], level: int) -> tuple[Doc, ...]:
        """Operands joined by marks; broken, each mark begins a line."""
        parts: list[Doc] = []
        for i, operand in enumerate(operands):
            tighter = level + 1 if i or level in (_THEN, _COMPARE) else level
            if i:
                before, own = self._between(operands[i - 1].span.end, operand.span.start)
                parts += before
                for comment in own:
                    parts += (HARD, comment)
                parts += (SPACE, f"{marks[i - 1]} ")
            parts += self.expr(operand, tighter)
        return (group(nest(*parts)),)

    def _between(self, end: int, start: int) -> tuple[list[Doc], list[str]]:
        """The comments between two neighbours: those beside the first, and those in lines of their own."""
        beside: list[Doc] = []
        own: list[str] = []
        for comment in self.comments.take(end, start):
            if self.comments.beside(end, comment):
                beside.append(Suffix(f"  {comment.text}"))
            else:
                own.append(comment.text)
        return beside, own

    def listed(self, opening: str, nodes: Sequence[Element], closing: str, start: int, end: int) -> tuple[Doc, ...]:
        """A bracketed list: in one line, or its elements in one line of their own, or one element a line.

        `start` and `end` are offsets around its comments.
        """
        head: list[Doc] = []
        parts: list[Doc] = []
        before = start
        for i, node in enumerate(nodes):
            beside, own = self._between(before, node.span.start)
            (parts if i else head).extend((",", *beside, SPACE) if i else beside)
            for comment in own:
                parts += (comment, HARD)
            parts += self.element(node)
            before = node.span.end
        beside, own = self._between(before, end)
        if not nodes:
            lines = [part for comment in own for part in (HARD, comment)]
            return (opening, *beside, nest(*lines), HARD, closing) if own or beside else (f"{opening}{closing}",)
        parts += (Choice(",", ""), *beside)
        for comment in own:
            parts += (HARD, comment)
        return (group(opening, *head, nest(SOFT, group(*parts)), SOFT, closing),)

    def element(self, node: Element) -> tuple[Doc, ...]:
        match node:
            case ast.Arg():
                return (f"{node.name} = ", *self.expr(node.value)) if node.name else self.expr(node.value)
            case ast.AxisDecl():
                return self.binding(node.name, node.role, node.size)
            case ast.Param():
                return self.binding(node.name, node.kind, node.default)
            case ast.Selector():
                return self.expr(node.value)
            case ast.Import():
                return (f"{node.name.text} as {node.alias.text}" if node.alias else node.name.text,)
        return self.expr(node)

    def binding(self, name: ast.Name, kind: ast.Name | None, value: ast.Expr | None) -> tuple[Doc, ...]:
        """`name: kind = value`."""
        head = f"{name.text}: {kind.text}" if kind else name.text
        return (f"{head} = ", *self.expr(value)) if value is not None else (head,)


def _operands(node: ast.Expr, level: int) -> tuple[list[ast.Expr], list[str]]:
    """The operands of a chain of operators that bind equally, from the left, and the operators."""
    operands: list[ast.Expr] = []
    marks: list[str] = []
    while isinstance(node, ast.Binary) and _level(node) == level and (level != _COMPARE or not operands):
        operands.append(node.right)
        marks.append(node.op)
        node = node.left
    return [node, *reversed(operands)], list(reversed(marks))
