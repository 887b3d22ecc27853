"""From lark's tree to the syntax tree, one method per rule of the grammar.

Also says the few errors that a grammar can't: a bad number or unit, an unknown edition, dots in a declared name,
journeys in parentheses joined by `*`. Trees are at most `scan.MAX_DEPTH` deep, so recursion is safe.
Not for: what names mean (`plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from lark import Token, Tree

from placelang.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label
from placelang.frozen import Frozen
from placelang.source import Source, Span
from placelang.syntax import ast, words

EDITIONS = (1,)


@attrs.define(eq=False, repr=False)
class Builder(Frozen):
    """Builds what it is given the tree of, and gathers what is wrong with it in `diagnostics`.

    `offset` is where in `source` the parsed text begins; `blocks` holds the statements, parsed before, of the blocks
    that were left empty in it, by the offset of their `{`.
    """

    source: Source
    docs: Mapping[int, str]
    offset: int = 0
    blocks: dict[int, tuple[ast.Statement, ...]] = attrs.field(factory=dict)
    diagnostics: list[Diagnostic] = attrs.field(factory=list)
    documented: set[int] = attrs.field(factory=set)  # offsets of `docs` that found their statement
    gaps: list[ast.Gap] = attrs.field(factory=list)  # what was left out of the tree

    def statements(self, tree: Tree[Token]) -> tuple[ast.Statement, ...]:
        """The statements of a `file` or `block`."""
        return tuple(self._node(child) for child in tree.children if child is not None)

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _node(self, tree: Any) -> Any:
        return getattr(self, tree.data)(tree.children, self._span(tree))

    def _maybe(self, tree: Any) -> Any:
        return None if tree is None else self._node(tree)

    def _all(self, trees: list[Any]) -> tuple[Any, ...]:
        return tuple(self._node(tree) for tree in trees if tree is not None)

    def _span(self, tree: Any) -> Span:
        place = tree if isinstance(tree, Token) else tree.meta
        return Span(self.source, (place.start_pos or 0) + self.offset, (place.end_pos or 0) + self.offset)

    def _doc(self, span: Span) -> str:
        doc = self.docs.get(span.start, "")
        if doc:
            self.documented.add(span.start)
        return doc

    def _name(self, token: Token) -> ast.Name:
        return ast.Name(str(token), span=self._span(token))

    def _declared(self, token: Token) -> ast.Name:
        name = self._name(token)
        if "." in name.text:
            better = name.text.replace(".", "_")
            fix = Fix(f"`{better}`", (Edit(name.span, better),))
            self._error("E001", "a declared name has no dots", name.span, f"declares `{name.text}`", (fix,))
        return name

    def _kind(self, token: Token | None) -> ast.Name | None:
        return None if token is None else self._name(token)

    def _error(
        self, code: str, message: str, span: Span, label: str = "", fixes: tuple[Fix, ...] = (), help: str = ""
    ) -> None:
        self.diagnostics.append(Diagnostic(code, message, Label(span, label), fixes=fixes, help=help))

    def _bad_word(self, error: words.BadWord, span: Span, code: str) -> None:
        fixes = (Fix(f"`{error.better}`", (Edit(span, error.better),)),) if error.better else ()
        self._error(code, error.message, span, fixes=fixes, help=error.help)

    # --- statements -------------------------------------------------------------------------------------------------

    def edition(self, children: list[Any], span: Span) -> ast.Edition:
        word = self._node(children[0])
        known = " or ".join(f"`place {edition}`" for edition in EDITIONS)
        if not isinstance(word, ast.Number) or word.unit or word.value.denominator != 1:
            self._error(
                "E001", f"`{span.text}` names no edition", word.span, "expected a whole number", help=f"write {known}"
            )
            return ast.Edition(EDITIONS[-1], span=span)
        number = word.value.numerator
        if number not in EDITIONS:
            self._error("E008", f"this version knows no edition {number}", word.span, help=f"it knows {known}")
        return ast.Edition(number, span=span)

    def misplaced_edition(self, edition: ast.Edition) -> None:
        self._error("E001", "`place` names the edition of the whole file and stands first in it", edition.span)

    def use(self, children: list[Any], span: Span) -> ast.Use:
        return ast.Use(self._node(children[0]).value, self._all(children[1:]), span=span)

    def imported(self, children: list[Any], span: Span) -> ast.Import:
        alias = None if children[1] is None else self._declared(children[1])
        return ast.Import(self._name(children[0]), alias, span=span)

    def mesh(self, children: list[Any], span: Span) -> ast.Mesh:
        name = None if children[0] is None else self._declared(children[0])
        axes = tuple(self._node(child) for child in children[1:] if isinstance(child, Tree))
        over = tuple(self._name(child) for child in children[1:] if isinstance(child, Token))
        return ast.Mesh(axes, name, over, doc=self._doc(span), span=span)

    def mesh_axis(self, children: list[Any], span: Span) -> ast.AxisDecl:
        name, role, size = children
        return ast.AxisDecl(self._declared(name), self._kind(role), self._maybe(size), span=span)

    def star(self, children: list[Any], span: Span) -> ast.Star:
        return ast.Star(span=span)

    def folded_axis(self, children: list[Any], span: Span) -> ast.FoldedAxis:
        name, value = children
        return ast.FoldedAxis(self._declared(name), self._node(value), doc=self._doc(span), span=span)

    def arg_decl(self, children: list[Any], span: Span) -> ast.ArgDecl:
        name, kind, default = children
        return ast.ArgDecl(self._declared(name), self._kind(kind), self._maybe(default), doc=self._doc(span), span=span)

    def let(self, children: list[Any], span: Span) -> ast.Let:
        name, kind, value = children
        return ast.Let(self._declared(name), self._node(value), self._kind(kind), doc=self._doc(span), span=span)

    def strategy(self, children: list[Any], span: Span) -> ast.Strategy:
        name, params, content = children
        is_block = content.data == "block"
        return ast.Strategy(
            self._declared(name),
            () if params is None else self._all(params.children),
            self._node(content) if is_block else None,
            None if is_block else self._node(content),
            doc=self._doc(span),
            span=span,
        )

    def param(self, children: list[Any], span: Span) -> ast.Param:
        name, kind, default = children
        return ast.Param(self._declared(name), self._kind(kind), self._maybe(default), span=span)

    def block(self, children: list[Any], span: Span) -> tuple[ast.Statement, ...]:
        if span.start in self.blocks:
            return self.blocks[span.start]
        body = self._all(children)
        for statement in body:
            if isinstance(statement, ast.Edition):
                self.misplaced_edition(statement)
        return body

    def apply(self, children: list[Any], span: Span) -> ast.Apply:
        return ast.Apply(self._node(children[0]), doc=self._doc(span), span=span)

    def placement(self, children: list[Any], span: Span) -> ast.Placement:
        override, head, selectors, journey = children
        return ast.Placement(
            self._name(head),
            self._node(journey),
            () if selectors is None else self._all(selectors.children),
            override is not None,
            doc=self._doc(span),
            span=span,
        )

    def on(self, children: list[Any], span: Span) -> ast.On:
        selectors, block = children
        return ast.On(self._all(selectors.children), self._node(block), doc=self._doc(span), span=span)

    def selector(self, children: list[Any], span: Span) -> ast.Selector:
        value = children[0]
        return ast.Selector(self._name(value) if isinstance(value, Token) else self._node(value), span=span)

    def fact(self, children: list[Any], span: Span) -> ast.Fact:
        return ast.Fact(str(children[0]), self._node(children[1]), doc=self._doc(span), span=span)

    def train(self, children: list[Any], span: Span) -> ast.Train:
        return ast.Train(self._all(children), doc=self._doc(span), span=span)

    def claim(self, children: list[Any], span: Span) -> ast.Claim:
        kind, condition, message = children
        return ast.Claim(str(kind), self._node(condition), self._maybe(message), doc=self._doc(span), span=span)

    def backend(self, children: list[Any], span: Span) -> ast.Backend:
        name, args = children
        return ast.Backend(self._name(name), self._maybe(args) or (), doc=self._doc(span), span=span)

    # --- expressions ------------------------------------------------------------------------------------------------

    def word(self, children: list[Any], span: Span) -> ast.Name | ast.Number:
        token = children[0]
        if token.type == "DIGITS":
            try:
                number = words.number(token)
                if number is not None:
                    return ast.Number(*number, span=span)
            except words.BadWord as error:
                self._bad_word(error, span, "E005")
        return ast.Name(str(token), span=span)

    def string(self, children: list[Any], span: Span) -> ast.String:
        try:
            return ast.String(words.unquote(children[0]), span=span)
        except words.BadWord as error:
            self._bad_word(error, span, "E006")
            return ast.String(children[0][1:-1], span=span)

    def list(self, children: Any, span: Span) -> ast.List:
        return ast.List(self._all(children), span=span)

    def group(self, children: Any, span: Span) -> ast.Group:
        return ast.Group(self._node(children[0]), span=span)

    def call(self, children: Any, span: Span) -> ast.Call:
        func = self._node(children[0])
        if isinstance(func, ast.Number):
            self._error("E001", f"`{func.span.text}` is a number and takes no arguments", func.span)
            func = ast.Name(func.span.text, span=func.span)
        return ast.Call(func, self._node(children[1]), span=span)

    def args(self, children: Any, span: Span) -> tuple[ast.Arg, ...]:
        return self._all(children)

    def argument(self, children: Any, span: Span) -> ast.Arg:
        name, value = children
        if name is None:
            bare = self._node(value)
            if isinstance(bare, ast.Binary) and bare.op == "==" and isinstance(bare.left, ast.Name):
                better = f"{bare.left.text} = {bare.right.span.text}"
                fix = Fix(f"write `{better}`", (Edit(span, better),))
                self._error("E001", f"`==` compares, `=` binds: write `{better}`", span, fixes=(fix,))
            return ast.Arg(bare, span=span)
        return ast.Arg(self._node(value), str(name), self._span(name), span=span)

    def unary(self, children: Any, span: Span) -> ast.Unary:
        return ast.Unary(str(children[0]), self._node(children[1]), span=span)

    def binary(self, children: Any, span: Span) -> ast.Binary:
        left, operator, right = self._node(children[0]), children[1], self._node(children[2])
        if operator == "*":
            for side in (left, right):
                if isinstance(side, ast.Group) and isinstance(side.inner, ast.Then | ast.As):
                    self._error(
                        "E001",
                        "`*` joins the steps of one journey, not whole journeys",
                        side.span,
                        "a journey in parentheses",
                        help="join step by step, `shard(a) * shard(b) | gather(a * b)`, or compose strategies",
                    )
                    break
        return ast.Binary(str(operator), left, right, span=span)

    def then(self, children: Any, span: Span) -> ast.Then:
        return ast.Then(self._all(children), span=span)

    def as_(self, children: Any, span: Span) -> ast.As:
        form, dtypes = children
        named = self._name(dtypes) if isinstance(dtypes, Token) else self._node(dtypes)
        return ast.As(self._maybe(form), named, span=span)

    def with_(self, children: Any, span: Span) -> ast.With:
        return ast.With(self._node(children[0]), self._node(children[1]), span=span)
