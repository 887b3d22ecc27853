"""From an expression of a text to the machine that it says: `dgx_a100(nodes = 128)`, `node(devices = 8, ...)`.

Knows names by what the caller hands in. Every name is read once, so that reading ends soon whatever the text. Not for:
the files of the catalogue (`catalogue`), or expressions that are not hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

import attrs

from placelang.hardware.constructors import CONSTRUCTORS, build
from placelang.hardware.facts import Given, Refused, Value, describe
from placelang.hardware.hardware import Device, Hardware, HardwareError, Node, Part
from placelang.quantity import Quantity, out_of_range, quantity
from placelang.source import Span
from placelang.syntax import ast

DEEPEST: Final = 100  # names within names, parentheses within parentheses


@attrs.frozen
class Declared:
    """What a name outside the text stands for. Names in `value` are looked up outside the text too."""

    name: str
    value: ast.Expr
    source: str = ""


Elsewhere = Callable[[str], "Declared | HardwareError"]
"""Finds a name that no `let` of the text binds."""


def hardware_of(
    expr: ast.Expr,
    lets: Mapping[str, ast.Expr],
    elsewhere: Elsewhere,
    given: Mapping[str, Value] | None = None,
) -> Hardware | HardwareError:
    """The machine that `expr` says, where `lets` binds names. A device alone is a node of one.

    A name that is called, `dgx_a100(nodes = 4)`, is the machine of that name with those arguments replaced. `given`
    replaces arguments of the whole in the same way.
    """
    part = part_of(expr, lets, elsewhere, given)
    if isinstance(part, Device):
        return Hardware(Node(1, part, part.link), 1, part.name, part.source)
    if isinstance(part, Hardware | HardwareError):
        return part
    node = "`node(devices = 8, device = h100_sxm, ...)` is a machine"
    return HardwareError(f"this is {describe(part)}, not a machine", node, span=expr.span)


def part_of(
    expr: ast.Expr,
    lets: Mapping[str, ast.Expr],
    elsewhere: Elsewhere,
    given: Mapping[str, Value] | None = None,
) -> Part | HardwareError:
    """As `hardware_of`, for whatever part of a machine `expr` says."""
    reader = _Reader(lets, elsewhere)
    try:
        found = reader.read(expr, True, [Given(name, value) for name, value in (given or {}).items()])
        if isinstance(found, bool | str | tuple | Fraction | Quantity):
            raise Refused("this is not hardware", "a name such as `dgx_h100`, or `node(...)`", span=expr.span)
    except Refused as refused:
        return refused.error
    return found


@attrs.define
class _Reader:
    """One reading of one text. `ours` says whether names are those of the text, or those of the catalogue alone."""

    lets: Mapping[str, ast.Expr]
    elsewhere: Elsewhere
    known: dict[tuple[bool, str], Value] = attrs.field(factory=dict)
    open: list[tuple[bool, str]] = attrs.field(factory=list)
    depth: int = 0

    def read(self, expr: ast.Expr, ours: bool, given: list[Given] | None = None) -> Value:
        """The value of an expression; `given` replaces arguments of the call that it is. Raises Refused."""
        if self.depth >= DEEPEST:
            raise Refused("this is nested too deeply", "give the parts names with `let`", span=expr.span)
        self.depth += 1
        try:
            match expr:
                case ast.Group(inner):
                    return self.read(inner, ours, given)
                case ast.Name() | ast.Call():
                    return self._called(expr, ours, given or [])
                case _ if given:
                    raise Refused(f"this takes no argument `{given[0].name}`", span=expr.span)
                case ast.Number(value, unit):
                    return self._quantity(expr, value, unit)
                case ast.String(text):
                    return text
                case ast.List(items):
                    return tuple(self.read(item, ours) for item in items)
                case ast.Unary("-", operand):
                    return _binary("-", Fraction(0), self.read(operand, ours), expr.span)
                case ast.Binary("+" | "-" | "*" | "/" as op, left, right):
                    return _binary(op, self.read(left, ours), self.read(right, ours), expr.span)
            raise Refused("no machine has such a value", "a number with a unit, or a name", span=expr.span)
        finally:
            self.depth -= 1

    def _quantity(self, expr: ast.Expr, value: Fraction, unit: str) -> Value:
        found = quantity(value, unit)
        if found is None:
            raise Refused(f"`{unit}` is no unit", span=expr.span)
        return found

    def _called(self, expr: ast.Expr, ours: bool, given: list[Given]) -> Value:
        """Follow a name, called or not, to the constructor or the plain value that it stands for."""
        first = (ours, expr.text) if isinstance(expr, ast.Name) and not given else None
        if first in self.known:
            return self.known[first]
        levels, name, source, varied, opened = [given], "", "", False, len(self.open)
        while True:
            match expr:
                case ast.Group(inner):
                    expr = inner
                    continue
                case ast.Call(called):
                    levels.append(self._arguments(expr, ours))
                    varied = varied or bool(name)
                case ast.Name():
                    called = expr
                case _:
                    replaced = next((one for level in levels for one in level), None)
                    if replaced is not None:
                        raise Refused(f"`{name}` takes no arguments", span=replaced.span)
                    value = self.read(expr, ours)
                    break
            word = called.text
            if word in ("true", "false"):
                value = word == "true"
                break
            if not (ours and word in self.lets) and word in CONSTRUCTORS:
                value = self._built(word, levels, name or word, source, called.span)
                break
            self._enter(ours, called)
            if ours and word in self.lets:
                declared = Declared(word, self.lets[word])
            else:
                declared, ours = self._outside(called), False
            expr, source = declared.value, source or declared.source
            name = name if varied else declared.name  # an alias is what it stands for, a variant is not
        del self.open[opened:]
        if first is not None:
            self.known[first] = value
        return value

    def _built(self, word: str, levels: list[list[Given]], name: str, source: str, span: Span) -> Value:
        try:
            return build(word, levels, name, source)
        except Refused as refused:
            raise Refused(
                refused.error.message, refused.error.suggestion, refused.error.argument, refused.error.span or span
            ) from None

    def _enter(self, ours: bool, called: ast.Name) -> None:
        key = (ours, called.text)
        if key in self.open:
            raise Refused(f"`{called.text}` is defined by itself", span=called.span)
        if len(self.open) >= DEEPEST:
            raise Refused(f"`{called.text}` is too many names away from a value", span=called.span)
        self.open.append(key)

    def _outside(self, called: ast.Name) -> Declared:
        found = self.elsewhere(called.text)
        if isinstance(found, HardwareError):
            raise Refused(found.message, found.suggestion, found.argument, called.span)
        return found

    def _arguments(self, call: ast.Call, ours: bool) -> list[Given]:
        return [Given(arg.name, self.read(arg.value, ours), arg.value.span) for arg in call.args]


def _binary(op: str, a: Value, b: Value, span: Span) -> Value:
    """Plain arithmetic: equal units add, a unit survives one plain factor, equal units divide to a number."""
    (x, unit), (y, other) = _plain(a, span), _plain(b, span)
    if op in "+-":
        if unit != other and not (op == "-" and a == Fraction(0)):
            raise Refused(f"`{op}` needs equal units: {_units(unit)} and {_units(other)} differ", span=span)
        result, unit = (x + y if op == "+" else x - y), other
    elif op == "*":
        if unit and other:
            raise Refused(f"{unit} times {other} is nothing that a machine has", span=span)
        result, unit = x * y, unit or other
    elif not y:
        raise Refused("this divides by zero", span=span)
    elif other and other != unit:
        raise Refused(f"{_units(unit)} over {other} is nothing that a machine has", span=span)
    else:
        result, unit = x / y, "" if unit == other else unit
    if out_of_range(result):
        raise Refused("this number is out of range", span=span)
    return Quantity(result, unit) if unit else result


def _units(unit: str) -> str:
    return unit or "a number without a unit"


def _plain(value: Value, span: Span) -> tuple[Fraction, str]:
    if isinstance(value, Quantity):
        return value.value, value.dimension
    if isinstance(value, Fraction):
        return value, ""
    raise Refused(f"this computes with {describe(value)}", "numbers and quantities compute", span=span)
