"""Expressions made from expressions: partial evaluation and derivatives. Sharing is kept, and walks are iterative.

Not for numbers: `evaluate.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from placelang.cost.evaluate import postorder
from placelang.cost.exact import Number
from placelang.cost.functions import (
    Ceil,
    Extreme,
    Floor,
    Max,
    Named,
    Piecewise,
    ceil,
    floor,
    maximum,
    minimum,
    named,
    piecewise,
)
from placelang.cost.nodes import (
    Condition,
    Const,
    Expr,
    Product,
    Sum,
    Symbol,
    compare,
    constant,
    is_zero,
    power,
    product,
    total,
)
from placelang.cost.units import UnitError


def substitute(expr: Expr, values: Mapping[str, Expr | Number]) -> Expr:
    """The expression with symbols replaced by numbers (in the symbol's unit) or by expressions of the same unit.

    A named sub-expression keeps its name while symbols are left in it, and becomes a plain number when none is.

    Raises:
        UnitError: a replacement's unit is not its symbol's.
        DomainError: the replacement makes a division by zero.
    """
    done: dict[Expr, Expr] = {}
    for node in postorder((expr,)):
        if isinstance(node, Symbol):
            done[node] = _replacement(node, values[node.name]) if node.name in values else node
        elif isinstance(node, Expr):
            done[node] = _rebuilt(node, done)
    return done[expr]


def substitute_condition(condition: Condition, values: Mapping[str, Expr | Number]) -> Condition:
    """The same for both sides of a condition."""
    return compare(substitute(condition.left, values), condition.relation, substitute(condition.right, values))


def _replacement(symbol: Symbol, value: Expr | Number) -> Expr:
    if not isinstance(value, Expr):
        return constant(value, symbol.unit)
    if value.unit is not symbol.unit:
        if is_zero(value):
            return constant(0, symbol.unit)
        raise UnitError(f"substitution for {symbol.name}", symbol.unit, value.unit)
    return value


def _rebuilt(node: Expr, done: Mapping[Expr, Expr]) -> Expr:
    if all(done[part] is part for part in _quantities(node)):
        return node
    if isinstance(node, Sum):
        return total((constant(node.const, node.unit), *(weight * done[term] for term, weight in node.terms)))
    if isinstance(node, Product):
        return product((node.factor, *(power(done[base], exponent) for base, exponent in node.powers)))
    if isinstance(node, (Ceil, Floor)):
        return (ceil if isinstance(node, Ceil) else floor)(done[node.argument])
    if isinstance(node, Extreme):
        return (maximum if isinstance(node, Max) else minimum)(*(done[a] for a in node.arguments))
    if isinstance(node, Piecewise):
        cases = [(compare(done[c.left], c.relation, done[c.right]), done[value]) for c, value in node.branches]
        return piecewise(*cases, otherwise=done[node.otherwise])
    assert isinstance(node, Named)
    definition = done[node.definition]
    return definition if isinstance(definition, Const) else named(node.symbol, definition)


def _quantities(node: Expr) -> list[Expr]:
    """The expressions that a node is built from, looking through conditions."""
    found: list[Expr] = []
    for child in node.children:
        if isinstance(child, Expr):
            found.append(child)
        elif isinstance(child, Condition):
            found += (child.left, child.right)
    return found


def derivative(expr: Expr, by: Symbol | str) -> Expr:
    """The derivative with respect to one symbol, in the expression's unit over the symbol's.

    Steps (`ceil`, `floor`) are flat almost everywhere and count as 0; at a kink of `max` or `min` it is one of the
    one-sided derivatives, and a case distinction is differentiated case by case, its jumps ignored.
    """
    name = by if isinstance(by, str) else by.name
    order = postorder((expr,))
    units = [node.unit for node in order if isinstance(node, Symbol) and node.name == name]
    if not units:
        return constant(0, expr.unit / by.unit if isinstance(by, Symbol) else expr.unit)
    done: dict[Expr, Expr] = {}
    for node in order:
        if isinstance(node, Symbol):
            done[node] = constant(1 if node.name == name else 0, node.unit / units[0])
        elif isinstance(node, Expr):
            slope = _slope(node, done)
            done[node] = constant(0, node.unit / units[0]) if is_zero(slope) else slope
    return done[expr]


def _slope(node: Expr, done: Mapping[Expr, Expr]) -> Expr:
    if isinstance(node, Sum):
        return total(weight * done[term] for term, weight in node.terms)
    if isinstance(node, Product):
        return _product_slope(node, done)
    if isinstance(node, Extreme):
        *cases, (_, last) = [(compare(a, "==", node), done[a]) for a in node.arguments]
        return piecewise(*cases, otherwise=last)
    if isinstance(node, Piecewise):
        return piecewise(*((c, done[value]) for c, value in node.branches), otherwise=done[node.otherwise])
    return done[node.definition] if isinstance(node, Named) else constant(0)


def _product_slope(node: Product, done: Mapping[Expr, Expr]) -> Expr:
    terms = []
    for base, exponent in node.powers:
        slope = done[base]
        if not (isinstance(slope, Const) and slope.value == 0):
            others = (power(b, e) for b, e in node.powers if b is not base)
            terms.append(product((node.factor * exponent, power(base, exponent - 1), slope, *others)))
    return total(terms)
