"""Values of the language and their evaluation: numbers, quantities, words, axis products.

Evaluation is total: no loops, environment, network or clock; it ends in a value or in a refusal with a span.
Not for: journeys, which are not values (`journeys`).
"""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Protocol

import attrs

from placelang.diagnostics.problems import every, refuse
from placelang.frozen import Frozen
from placelang.quantity import Quantity, out_of_range
from placelang.quantity import quantity as in_base_units
from placelang.source import Span
from placelang.syntax import ast


@attrs.frozen(eq=False, repr=False)
class Axes(Frozen):
    """A product of axes, outer first. `size`, where arithmetic needs it, is None while one of them is a symbol."""

    names: tuple[str, ...]
    size: int | None = attrs.field(default=None, eq=False)


@attrs.frozen(eq=False, repr=False)
class Word(Frozen):
    """A name that means itself, such as `adamw` or `full`, with arguments if it was called."""

    name: str
    args: tuple[tuple[str | None, Value], ...] = ()


@attrs.frozen(eq=False, repr=False)
class Unknown(Frozen):
    """An `arg` without a value: a symbol. `dimension`: its unit, where that is known."""

    name: str
    dimension: str | None = None


Value = Fraction | bool | str | Quantity | Axes | Word | Unknown | tuple["Value", ...]


def quantity(number: ast.Number) -> Fraction | Quantity:
    """A written number in base units."""
    found = in_base_units(number.value, number.unit)
    if found is None:  # the parser knows every unit, so only a tree that was built by hand comes here
        raise refuse("E005", f"no unit is called `{number.unit}`", number.span)
    return found


def kind(value: Value) -> str:
    """What a value is, in words for a message."""
    match value:
        case bool():
            return "`true`" if value else "`false`"
        case Fraction():
            return f"the number {_shown(value)}"
        case str():
            return "a text"
        case Quantity(dimension=d):
            return f"a quantity in {d}"
        case Axes():
            return "an axis"
        case Word(name=n):
            return f"the word `{n}`"
        case Unknown(name=n):
            return f"`{n}`, which has no value yet"
        case _:
            return "a list"


def _shown(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 and abs(value) < 10**15 else f"{float(value):.6g}"


class Lookup(Protocol):
    def __call__(self, name: str, span: Span, needed: bool = False, /) -> Value | None:
        """The value of a declared name; None when there is none, and the name then means itself. Where that makes no
        sense, as in a sum, it is `needed`. Raises Refused."""


_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def evaluate(expr: ast.Expr, lookup: Lookup) -> Value:
    """The value of an expression. Raises Refused with the span of the part that has none."""
    match expr:
        case ast.Number():
            return quantity(expr)
        case ast.String(value=text):
            return text
        case ast.Group(inner=inner):
            return evaluate(inner, lookup)
        case ast.List(items=items):
            return _bounded(tuple(every(lambda item: evaluate(item, lookup), items)), expr.span)
        case ast.Name(text="true"):
            return True
        case ast.Name(text="false"):
            return False
        case ast.Name(text=text, span=span):
            found = lookup(text, span)
            return Word(text) if found is None else found
        case ast.Call(func=ast.Name(text="min" | "max" | "ceil") as func, args=args):
            return _function(func, every(lambda a: _operand(a.value, lookup), args), expr.span)
        case ast.Call(func=func, args=args):
            written = ",".join("".join(a.value.span.text.split()) for a in args)
            if "." in func.text and (known := lookup(f"{func.text}({written})", func.span)) is not None:
                return known  # a cost over axes: `comm.bytes(dp)`
            values = every(lambda a: (a.name, evaluate(a.value, lookup)), args)
            return _bounded(Word(func.text, tuple(values)), expr.span)
        case ast.Unary(op=op, operand=operand):
            return _unary(op, _operand(operand, lookup), expr.span)
        case ast.Binary(op="==" | "!=" as op, left=left, right=right):
            a, b = every(lambda side: evaluate(side, lookup), (left, right))
            return _bounded(_binary(op, a, b, expr.span), expr.span)
        case ast.Binary(op=op, left=left, right=right):
            a, b = every(lambda side: _operand(side, lookup), (left, right))
            return _bounded(_binary(op, a, b, expr.span, _with_unit(left, b) or _with_unit(right, a)), expr.span)
        case _:
            raise refuse("E105", "a value is expected here, this is part of a journey", expr.span)


_MOST = 10_000  # parts of one value: no list or call needs more


def _bounded(value: Value, span: Span) -> Value:
    """Refuse what grows past any use: names that are used again and again double a value with every line."""
    number = value.value if isinstance(value, Quantity) else value
    if isinstance(number, Fraction) and out_of_range(number):
        raise refuse("E105", "this number is out of range", span, help="numbers have at most 154 digits")
    parts: list[Value] = [value]
    count = 0
    while parts and count <= _MOST:
        part = parts.pop()
        count += len(part.names) if isinstance(part, Axes) else 1
        if isinstance(part, tuple):
            parts += part
        elif isinstance(part, Word):
            parts += [v for _, v in part.args]
    if count > _MOST:
        raise refuse("E105", f"this value has more than {_MOST:,} parts", span)
    return value


def _operand(expr: ast.Expr, lookup: Lookup) -> Value:
    """A value to compute with: a name must be declared."""
    if isinstance(expr, ast.Name) and expr.text not in ("true", "false"):
        lookup(expr.text, expr.span, True)
    return evaluate(expr, lookup)


def _unary(op: str, value: Value, span: Span) -> Value:
    value = _sized(value) if op == "-" else value
    if op == "not" and isinstance(value, bool):
        return not value
    if op == "-" and isinstance(value, Fraction) and not isinstance(value, bool):
        return -value
    if op == "-" and isinstance(value, Quantity):
        return Quantity(-value.value, value.dimension)
    if isinstance(value, Unknown):
        return value
    raise refuse("E105", f"`{op}` does not apply to {kind(value)}", span)


def _function(func: ast.Name, values: list[Value], span: Span) -> Value:
    values = [_sized(v) for v in values]
    if open_ := next((v for v in values if isinstance(v, Unknown)), None):
        return Unknown(open_.name)
    if func.text != "ceil" and values and all(isinstance(v, Quantity) for v in values):
        sizes = [v for v in values if isinstance(v, Quantity)]
        if len({v.dimension for v in sizes}) > 1:
            raise refuse("E111", f"`{func.text}` of quantities of different units", span)
        return (min if func.text == "min" else max)(sizes, key=lambda v: v.value)
    numbers = [v for v in values if isinstance(v, Fraction)]
    if len(numbers) != len(values) or not numbers or (func.text == "ceil" and len(numbers) != 1):
        odd = next((v for v in values if not isinstance(v, Fraction) or isinstance(v, bool)), None)
        takes = "one number" if func.text == "ceil" else "numbers"
        given = "" if odd is None else f", not {kind(odd)}"
        raise refuse("E105", f"`{func.text}` takes {takes}{given}", span)
    if func.text == "ceil":
        return Fraction(-(-numbers[0].numerator // numbers[0].denominator))
    return min(numbers) if func.text == "min" else max(numbers)


def _with_unit(expr: ast.Expr, other: Value) -> str:
    """How a bare number is written beside a size or a time, for a help."""
    dimension = other.dimension if isinstance(other, Quantity | Unknown) else None
    if not isinstance(expr, ast.Number) or expr.unit or dimension not in _USUAL:
        return ""
    return " or ".join(f"`{expr.span.text}{unit}`" for unit in _USUAL[dimension])


_USUAL = {"bytes": ("GB", "GiB"), "seconds": ("s", "ms")}


def _binary(op: str, a: Value, b: Value, span: Span, help_: str = "") -> Value:
    if op == "*" and isinstance(a, Axes) and isinstance(b, Axes):
        return Axes(a.names + b.names, None if a.size is None or b.size is None else a.size * b.size)
    a, b = _sized(a), _sized(b)
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        decides = {"and": False, "or": True}.get(op)  # whatever the symbol is
        return decides if decides is not None and decides in (a, b) else _symbol(op, a, b, span, help_)
    if op in ("and", "or"):
        if isinstance(a, bool) and isinstance(b, bool):
            return (a and b) if op == "and" else (a or b)
        raise refuse("E105", f"`{op}` joins truth values, not {kind(a)} and {kind(b)}", span)
    if op in ("==", "!=") and isinstance(a, (Word, str, bool)) and type(a) is type(b):
        return (a == b) is (op == "==")
    x, y = _plain(a), _plain(b)
    if x is None or y is None:
        raise refuse("E105", f"`{op}` does not apply to {kind(a)} and {kind(b)}", span)
    (p, unit), (q, other) = x, y
    if op in _COMPARE or op in "+-%":
        if unit != other:
            raise refuse("E111", f"{kind(a)} and {kind(b)} do not mix", span, f"`{op}` needs equal units", help=help_)
        if op in _COMPARE:
            return bool(_COMPARE[op](p, q))
        if op == "%" and q == 0:
            raise refuse("E105", "division by zero", span)
        return _quantity(p + q if op == "+" else p - q if op == "-" else p % q, unit)
    if op == "*":
        if unit and other:
            raise refuse("E111", f"{kind(a)} times {kind(b)} has no unit of ours", span)
        return _quantity(p * q, unit or other)
    if q == 0:
        raise refuse("E105", "division by zero", span)
    if unit == other:
        return p / q
    if not other:
        return _quantity(p / q, unit)
    if other == f"{unit}/s":
        return Quantity(p / q, "seconds")
    if other == "seconds" and not unit.endswith("/s"):
        return Quantity(p / q, f"{unit}/s")
    raise refuse("E111", f"{kind(a)} over {kind(b)} has no unit of ours", span)


def _symbol(op: str, a: Value, b: Value, span: Span, help_: str) -> Unknown:
    """The result of computing with a symbol; the unit of a sum is that of either side."""
    unit, other = (v.dimension if isinstance(v, Unknown) else (_plain(v) or (0, None))[1] for v in (a, b))
    mixed = unit is not None and other is not None and unit != other
    if mixed and (op in _COMPARE or op in "+-%"):
        message = " and ".join(f"a quantity in {u}" if u else "a number without a unit" for u in (unit, other))
        raise refuse("E111", f"{message} do not mix", span, f"`{op}` needs equal units", help=help_)
    symbol = a if isinstance(a, Unknown) else b
    assert isinstance(symbol, Unknown)
    return Unknown(symbol.name, (other if unit is None else unit) if op in "+-%" else None)


def _sized(value: Value) -> Value:
    """An axis counts as its size."""
    if isinstance(value, Axes):
        return Unknown(" * ".join(value.names)) if value.size is None else Fraction(value.size)
    return value


def _plain(value: Value) -> tuple[Fraction, str] | None:
    if isinstance(value, Quantity):
        return value.value, value.dimension
    if isinstance(value, Fraction) and not isinstance(value, bool):
        return value, ""
    return None


def _quantity(value: Fraction, dimension: str) -> Fraction | Quantity:
    return Quantity(value, dimension) if dimension else value
