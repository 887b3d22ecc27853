"""Exact numbers, and the errors of the expression algebra.

A whole number is always an `int` here, never a `Fraction` with denominator 1: most sizes are whole, and ints are
faster. Floats appear only where a caller's input is a float or a root is irrational.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, TypeAlias

Rational: TypeAlias = int | Fraction
Number: TypeAlias = int | Fraction | float

MAX_BITS: Final = 1 << 20
"""An exact power of more bits than this is refused: it lies beyond any size or rate, and would take long to compute."""


class ExprError(Exception):
    """Anything that can be wrong with an expression or with the numbers given to it."""


class MissingSymbolsError(ExprError):
    """An evaluation needs symbols that were given no value; `names` lists all of them, sorted."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        super().__init__(f"no value given for {', '.join(names)}")


class DomainError(ExprError):
    """The expression has no finite real value here: division by zero, root of a negative number, overflow."""


def whole(value: Rational) -> Rational:
    """The same number, as an `int` if it is one."""
    return value.numerator if value.denominator == 1 else value


def magnitude(value: Rational) -> Rational:
    """The number without its sign; `abs` of a union has no type."""
    return -value if value < 0 else value


def exact(number: Number) -> Rational:
    """The number as an exact rational; a float counts as the shortest decimal that prints it. Raises ExprError."""
    if isinstance(number, float):
        if not math.isfinite(number):
            raise DomainError(f"not a finite number: {number!r}")
        return whole(Fraction(repr(float(number))))
    if isinstance(number, bool) or not isinstance(number, (int, Fraction)):
        raise ExprError(f"not a number: {number!r}")
    return whole(number)


def raised(value: Number, exponent: Rational) -> Number:
    """`value ** exponent`, exact if the value is and the result is rational. Raises DomainError if it isn't real."""
    if exponent < 0:
        if not value:
            raise DomainError("division by zero")
        value, exponent = (1 / value if isinstance(value, float) else Fraction(1, value)), -exponent
    if exponent == 1:
        return value
    if isinstance(value, float):
        return _float_power(value, exponent)
    if exponent.denominator == 1:
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        if bits * exponent > MAX_BITS:
            raise DomainError("a power is too large to compute exactly")
        return whole(value ** int(exponent))
    above, below = _root(value.numerator, exponent.denominator), _root(value.denominator, exponent.denominator)
    if above is None or below is None:
        return _float_power(float(value), exponent)
    return raised(whole(Fraction(above, below)), exponent.numerator)


def _float_power(value: float, exponent: Rational) -> float:
    if value < 0 and exponent.denominator != 1:
        raise DomainError("root of a negative number")
    return float(value ** (int(exponent) if exponent.denominator == 1 else float(exponent)))


def _root(value: int, degree: int) -> int | None:
    """The exact root, if it is whole and small enough to be found through a float."""
    if value < 0 or value.bit_length() > 1000:
        return None
    guess = math.isqrt(value) if degree == 2 else round(value ** (1 / degree))
    return guess if guess**degree == value else None
