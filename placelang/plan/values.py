"""Values of the language and their evaluation: numbers, quantities, words, axis products.

Evaluation is total: no loops, environment, network or clock; it ends in a value or in a refusal with a span.
Not for: journeys, which are not values (`journeys`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction

import attrs

from placelang.diagnostics.problems import refuse
from placelang.diagnostics.suggest import did_you_mean
from placelang.source import Span
from placelang.syntax import ast


@attrs.frozen
class Quantity:
    """A number with a unit; the value is in the base unit of its `dimension` (bytes, seconds, bytes/s, flop/s)."""

    value: Fraction
    dimension: str


@attrs.frozen
class Axes:
    """A product of axes, outer first."""

    names: tuple[str, ...]


@attrs.frozen
class Word:
    """A name that means itself, such as `adamw` or `full`, with arguments if it was called."""

    name: str
    args: tuple[tuple[str | None, Value], ...] = ()


@attrs.frozen
class Unknown:
    """An `arg` without a value: a symbol."""

    name: str


Value = Fraction | bool | str | Quantity | Axes | Word | Unknown | tuple["Value", ...]

_DIMENSIONS: Mapping[str, tuple[str, Fraction]] = {
    **{f"{p}B": ("bytes", Fraction(1000**i)) for i, p in enumerate(("", "K", "M", "G", "T", "P"))},
    **{f"{p}iB": ("bytes", Fraction(1024 ** (i + 1))) for i, p in enumerate("KMGTP")},
    **{f"{p}b": ("bytes", Fraction(1000**i, 8)) for i, p in enumerate(("", "K", "M", "G", "T", "P"))},
    **{f"{p}FLOP": ("flops", Fraction(1000**i)) for i, p in enumerate(("", "K", "M", "G", "T", "P", "E"))},
    "s": ("seconds", Fraction(1)),
    "ms": ("seconds", Fraction(1, 1000)),
    "us": ("seconds", Fraction(1, 10**6)),
    "min": ("seconds", Fraction(60)),
    "h": ("seconds", Fraction(3600)),
}


def quantity(number: ast.Number) -> Fraction | Quantity:
    """A written number in base units."""
    if not number.unit:
        return number.value
    base, _, per = number.unit.partition("/")
    if base not in _DIMENSIONS or per not in ("", "s"):
        near = did_you_mean(number.unit, _DIMENSIONS)
        raise refuse(
            "E005", f"no unit is called `{number.unit}`", number.span, help=f"did you mean `{near}`?" if near else ""
        )
    dimension, factor = _DIMENSIONS[base]
    return Quantity(number.value * factor, dimension + ("/s" if per else ""))


def kind(value: Value) -> str:
    """What a value is, in words for a message."""
    match value:
        case bool():
            return "a truth value"
        case Fraction():
            return "a number"
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


Lookup = Callable[[str, Span], Value | None]
"""Finds a declared name; None when there is none, and the name then means itself."""

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
            return tuple(evaluate(item, lookup) for item in items)
        case ast.Name(text="true"):
            return True
        case ast.Name(text="false"):
            return False
        case ast.Name(text=text, span=span):
            found = lookup(text, span)
            return Word(text) if found is None else found
        case ast.Call(func=func, args=args):
            written = ",".join("".join(a.value.span.text.split()) for a in args)
            if "." in func.text and (known := lookup(f"{func.text}({written})", func.span)) is not None:
                return known  # a cost over axes: `comm.bytes(dp)`
            values = [(a.name, evaluate(a.value, lookup)) for a in args]
            if func.text in ("min", "max", "ceil"):
                return _function(func, [v for _, v in values])
            return Word(func.text, tuple(values))
        case ast.Unary(op=op, operand=operand):
            return _unary(op, evaluate(operand, lookup), expr.span)
        case ast.Binary(op=op, left=left, right=right):
            return _binary(op, evaluate(left, lookup), evaluate(right, lookup), expr.span)
        case _:
            raise refuse("E105", "a value is expected here, this is part of a journey", expr.span)


def _unary(op: str, value: Value, span: Span) -> Value:
    if op == "not" and isinstance(value, bool):
        return not value
    if op == "-" and isinstance(value, Fraction) and not isinstance(value, bool):
        return -value
    if isinstance(value, Unknown):
        return value
    raise refuse("E105", f"`{op}` does not apply to {kind(value)}", span)


def _function(func: ast.Name, values: list[Value]) -> Value:
    if any(isinstance(v, Unknown) for v in values):
        return Unknown(func.text)
    numbers = [v for v in values if isinstance(v, Fraction)]
    if len(numbers) != len(values) or not numbers or (func.text == "ceil" and len(numbers) != 1):
        raise refuse("E105", f"`{func.text}` takes numbers", func.span)
    if func.text == "ceil":
        return Fraction(-(-numbers[0].numerator // numbers[0].denominator))
    return min(numbers) if func.text == "min" else max(numbers)


def _binary(op: str, a: Value, b: Value, span: Span) -> Value:
    if op == "*" and isinstance(a, Axes) and isinstance(b, Axes):
        return Axes(a.names + b.names)
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return a if isinstance(a, Unknown) else b
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
            raise refuse("E111", f"{kind(a)} and {kind(b)} do not mix", span, f"`{op}` needs equal units")
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


def _plain(value: Value) -> tuple[Fraction, str] | None:
    if isinstance(value, Quantity):
        return value.value, value.dimension
    if isinstance(value, Fraction) and not isinstance(value, bool):
        return value, ""
    return None


def _quantity(value: Fraction, dimension: str) -> Fraction | Quantity:
    return Quantity(value, dimension) if dimension else value
