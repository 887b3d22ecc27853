"""What a written unit is worth."""

from __future__ import annotations

from fractions import Fraction

import pytest

from placelang.quantity import Quantity, quantity
from placelang.syntax.words import UNITS


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_every_unit_of_the_language_is_worth_something(unit: str) -> None:
    found = quantity(Fraction(3), unit)
    assert isinstance(found, Quantity)
    assert found.value > 0
    assert found.dimension.endswith("/s") == ("/" in unit)


@pytest.mark.parametrize(
    ("value", "unit", "worth", "dimension"),
    [
        (1, "GiB", 2**30, "bytes"),
        (1, "GB", 10**9, "bytes"),
        (400, "Gb/s", 50 * 10**9, "bytes/s"),
        (5, "us", Fraction(1, 200_000), "seconds"),
        (989, "TFLOP/s", 989 * 10**12, "flops/s"),
    ],
)
def test_values_are_exact(value: int, unit: str, worth: Fraction, dimension: str) -> None:
    assert quantity(Fraction(value), unit) == Quantity(Fraction(worth), dimension)


def test_no_unit_is_a_number_and_an_unknown_one_nothing() -> None:
    assert quantity(Fraction(5, 2), "") == Fraction(5, 2)
    assert quantity(Fraction(1), "parsec") is None
    assert quantity(Fraction(1), "GB/h") is None
    assert quantity(Fraction(1), "s/s") is None
