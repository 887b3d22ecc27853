"""A value as the expression that says it: `16`, `80GiB`, `dp * tp`, `[mlp, attn]`. The inverse of `values.evaluate`.

Not for: options of steps (`text`), or the spelling of single numbers (`syntax.words`).
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce

from placelang.plan.values import Axes, Unknown, Value, Word
from placelang.quantity import Quantity, quantity
from placelang.syntax import ast
from placelang.syntax.words import UNITS, is_decimal, spell


def literal(value: Value) -> ast.Expr:
    """The expression of a value; evaluated where the same axes and symbols are declared, it is the value again."""
    match value:
        case bool():
            return ast.Name("true" if value else "false")
        case Fraction():
            return _number(value, "")
        case Quantity():
            return _number(*_plainest(value))
        case str():
            return ast.String(value)
        case Axes(names=names):
            named: list[ast.Expr] = [ast.Name(name) for name in names]
            product = reduce(lambda a, b: ast.Binary("*", a, b), named)
            return product if len(named) == 1 else ast.Group(product)
        case Word(name=name, args=()) | Unknown(name=name):
            return ast.Name(name)
        case Word(name=name, args=args):
            return ast.Call(ast.Name(name), tuple(ast.Arg(literal(v), n) for n, v in args))
        case _:
            return ast.List(tuple(literal(v) for v in value))


def _number(value: Fraction, unit: str) -> ast.Expr:
    if value < 0:
        return ast.Group(ast.Unary("-", _number(-value, unit)))
    if is_decimal(value):
        return ast.Number(value, unit)
    over = ast.Number(Fraction(value.denominator))
    return ast.Group(ast.Binary("/", ast.Number(Fraction(value.numerator), unit), over))


def _plainest(value: Quantity) -> tuple[Fraction, str]:
    """The quantity in the unit that makes it shortest to write."""
    units = {unit: worth for unit in sorted(UNITS) if isinstance(worth := quantity(Fraction(1), unit), Quantity)}
    same = [(value.value / w.value, unit) for unit, w in units.items() if w.dimension == value.dimension]
    return min(same, key=lambda one: (not is_decimal(one[0]), len(spell(*one))))
