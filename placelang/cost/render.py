"""Formulas to read: plain text such as `3·P_pad·4 B` or `ceil(50257/dp)`, and LaTeX.

A named sub-expression prints as its name, and its definition goes to a list of *where* clauses. So does, under a
made-up name, a large sub-expression that is used twice or is too long to read in place; hence the size of a formula
is proportional to the expression's, however much it shares. Terms and factors are ordered by what they look like, so
the text depends on the expression alone. Not for numbers with a unit to report: `format.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import attrs

from placelang.cost.evaluate import postorder
from placelang.cost.exact import Rational, magnitude
from placelang.cost.functions import Ceil, Extreme, Floor, Max, Named, Piecewise
from placelang.cost.interning import Node
from placelang.cost.nodes import Condition, Const, Expr, Product, Sum, Symbol
from placelang.cost.notation import ATOM, LATEX, POWER, PRODUCT, SUM, TEXT, Notation, Piece

REPEATED = 12
"""A sub-expression of at least so many parts that is used more than once gets a name."""

LONG = 60
"""A sub-expression of at least so many parts gets a name anyway."""


@attrs.frozen
class Clause:
    """`name = body`: what a name in a formula stands for. `doc` is the author's explanation, or empty."""

    name: str
    body: str
    doc: str = ""


@attrs.frozen
class Formula:
    """A formula and the definitions of the names in it, each defined after it was used."""

    body: str
    where: tuple[Clause, ...] = ()

    def __str__(self) -> str:
        if not self.where:
            return self.body
        return f"{self.body} where {', '.join(f'{clause.name} = {clause.body}' for clause in self.where)}"


def text(expr: Expr) -> Formula:
    """The expression in plain text: `·` between factors, superscript exponents, `ceil(...)`, `max(...)`."""
    return _formula(expr, TEXT)


def latex(expr: Expr) -> Formula:
    """The expression in LaTeX math mode."""
    return _formula(expr, LATEX)


def _formula(root: Expr, style: Notation) -> Formula:
    order = postorder((root,))
    uses = Counter(child for node in order for child in node.children)
    names = _labels(order)
    taken = set(names.values()) | {node.name for node in order if isinstance(node, Symbol)}
    pieces: dict[Node, Piece] = {}
    parts: dict[Node, int] = {}
    clauses: list[Clause] = []
    made = 0
    for node in order:
        piece = _piece(node, pieces, style)
        parts[node] = 1 + sum(parts[child] for child in node.children)
        if isinstance(node, Named):
            name = style.name(names[node])
            clauses.append(Clause(name, piece.text, node.symbol.doc))
        elif node is not root and _lifted(node, parts[node], uses[node]):
            made += 1
            while f"e_{made}" in taken:
                made += 1
            name = style.name(f"e_{made}")
            clauses.append(Clause(name, piece.text))
        else:
            pieces[node] = piece
            continue
        pieces[node] = Piece(name, ATOM, named=True)
        parts[node] = 1
    return Formula(pieces[root].text, tuple(reversed(clauses)))


def _lifted(node: Node, parts: int, uses: int) -> bool:
    return isinstance(node, Expr) and (parts >= LONG or (parts >= REPEATED and uses > 1))


def _labels(order: list[Node]) -> dict[Node, str]:
    """What each named sub-expression is called; a name that already means something else gets a number."""
    taken = {node.name for node in order if isinstance(node, Symbol)}
    counts: Counter[str] = Counter()
    labels: dict[Node, str] = {}
    for node in order:
        if isinstance(node, Named):
            label = stem = node.symbol.name
            while label in taken:
                counts[stem] += 1
                label = f"{stem}_{counts[stem] + 1}"
            taken.add(label)
            labels[node] = label
    return labels


def _piece(node: Node, pieces: Mapping[Node, Piece], style: Notation) -> Piece:
    if isinstance(node, Symbol):
        return Piece(style.name(node.name), ATOM)
    if isinstance(node, Const):
        return _literal(node, style)
    if isinstance(node, Sum):
        return _sum(node, pieces, style)
    if isinstance(node, Product):
        return _product(node.factor, node.powers, pieces, style)
    if isinstance(node, (Ceil, Floor)):
        wrap = style.ceil if isinstance(node, Ceil) else style.floor
        return Piece(wrap(pieces[node.argument].text), ATOM)
    if isinstance(node, Extreme):
        arguments = sorted(pieces[a].text for a in node.arguments)
        return Piece(style.call("max" if isinstance(node, Max) else "min", arguments), ATOM)
    if isinstance(node, Condition):
        return Piece(style.relation(pieces[node.left].text, node.relation, pieces[node.right].text), SUM)
    if isinstance(node, Piecewise):
        cases = [(pieces[value].text, pieces[condition].text) for condition, value in node.branches]
        return Piece(style.cases(cases, pieces[node.otherwise].text), ATOM)
    assert isinstance(node, Named)
    return pieces[node.definition]


def _sum(node: Sum, pieces: Mapping[Node, Piece], style: Notation) -> Piece:
    terms = []
    for term, weight in node.terms:
        whole = isinstance(term, Product) and not pieces[term].named
        powers = term.powers if whole and isinstance(term, Product) else ((term, 1),)
        piece = _product(magnitude(weight), powers, pieces, style)
        degree = sum(exponent for base, exponent in powers if exponent > 0 and not isinstance(base, Const))
        terms.append((weight < 0, -degree, style.grouped(piece, PRODUCT)))
    terms.sort()
    signed = [(negative, shown) for negative, _, shown in terms]
    if node.const:
        number = _number(magnitude(node.const), style)
        shown = style.literal(number.text, node.unit.symbol) if node.unit.symbol else number.text
        # A constant comes last, unless it alone is positive: 1 - x.
        position = 0 if node.const > 0 and signed[0][0] else len(signed)
        signed.insert(position, (node.const < 0, shown))
    head, *rest = signed
    body = ("-" if head[0] else "") + head[1]
    return Piece(body + "".join((" - " if negative else " + ") + shown for negative, shown in rest), SUM)


def _product(
    factor: Rational, powers: tuple[tuple[Expr, Rational], ...], pieces: Mapping[Node, Piece], style: Notation
) -> Piece:
    size = _number(magnitude(factor), style, split=True)
    above: list[Piece] = [] if factor.numerator in (1, -1) and size.text == "1" else [size]
    below = [Piece(str(factor.denominator), ATOM)] if size.split and factor.denominator != 1 else []
    literals = []
    shown: list[tuple[bool, bool, Piece]] = []
    for base, exponent in powers:
        if isinstance(base, Const) and exponent == 1:
            value, unit = base.value, base.unit
            if value.numerator == 1 and value.denominator != 1:
                below.append(_literal_piece(value.denominator, (unit**-1).symbol, style))
            else:
                literals.append(_literal_piece(value, unit.symbol, style))
            continue
        piece = pieces[base]
        size_up = magnitude(exponent)
        if size_up != 1:
            inner = style.grouped(piece, ATOM)
            piece = Piece(style.power(inner, piece.text, size_up), POWER)
        simple = isinstance(base, Symbol) or pieces[base].named
        shown.append((exponent < 0, not simple, piece))
    shown.sort(key=lambda item: (item[0], item[1], item[2].text))
    above += [piece for negative, _, piece in shown if not negative] + literals
    below += [piece for negative, _, piece in shown if negative]
    result = style.quotient(above, below)
    return Piece("-" + result.text, SUM) if factor < 0 else result


def _literal(node: Const, style: Notation) -> Piece:
    piece = _literal_piece(magnitude(node.value), node.unit.symbol, style)
    return Piece("-" + piece.text, SUM) if node.value < 0 else piece


def _literal_piece(value: Rational, unit: str, style: Notation) -> Piece:
    number = _number(value, style)
    return Piece(style.literal(number.text, unit), PRODUCT if "/" in unit else ATOM) if unit else number


def _number(value: Rational, style: Notation, split: bool = False) -> Piece:
    """A non-negative number: whole (`600e9`), a short decimal, or a quotient; `split` leaves out the denominator."""
    if value.denominator == 1:
        zeros = next((n for n in (12, 9, 6) if value and value % 10**n == 0), 0)
        return Piece(style.scaled(str(value // 10**zeros), zeros), ATOM) if zeros else Piece(str(value), ATOM)
    decimal = _decimal(value) if value.denominator > 16 else None
    if decimal is not None:
        return Piece(decimal, ATOM)
    if split:
        return Piece(str(value.numerator), ATOM, split=True)
    return style.quotient([Piece(str(value.numerator), ATOM)], [Piece(str(value.denominator), ATOM)])


def _decimal(value: Rational) -> str | None:
    """The decimal expansion, if it ends within nine digits."""
    scaled = value * 10**9
    if scaled.denominator != 1:
        return None
    digits = str(scaled).rjust(10, "0")
    return f"{digits[:-9]}.{digits[-9:]}".rstrip("0")
