"""Quantities: exact numbers in the base unit of their dimension, and what each written unit is worth in it.

Dimensions are `bytes`, `flops` and `seconds`, and their rates `bytes/s` and `flops/s`. A bit is an eighth of a byte, so
400Gb/s is 50GB/s; GiB is 1024^3 bytes and GB is 1000^3. Not for: how units are spelt (`syntax.words`), or products of
units in formulas (`cost.units`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import attrs


@attrs.frozen
class Quantity:
    """A number with a unit; `value` is in the base unit of its `dimension`."""

    value: Fraction
    dimension: str


LONGEST: Final = 512  # bits: no machine, model or job needs more, and products of products stay small


def out_of_range(value: Fraction) -> bool:
    """Whether a number is longer than any that means something; arithmetic refuses it before it grows further."""
    return max(value.numerator.bit_length(), value.denominator.bit_length()) > LONGEST


_BASES: Final[Mapping[str, tuple[str, Fraction]]] = {
    **{f"{p}B": ("bytes", Fraction(1000**i)) for i, p in enumerate(("", "K", "M", "G", "T", "P"))},
    **{f"{p}iB": ("bytes", Fraction(1024**i)) for i, p in enumerate("KMGTP", start=1)},
    **{f"{p}b": ("bytes", Fraction(1000**i, 8)) for i, p in enumerate(("", "K", "M", "G", "T"))},
    **{f"{p}FLOP": ("flops", Fraction(1000**i)) for i, p in enumerate(("", "K", "M", "G", "T", "P", "E"))},
    "ns": ("seconds", Fraction(1, 10**9)),
    "us": ("seconds", Fraction(1, 10**6)),
    "ms": ("seconds", Fraction(1, 1000)),
    "s": ("seconds", Fraction(1)),
    "min": ("seconds", Fraction(60)),
    "h": ("seconds", Fraction(3600)),
}


def quantity(value: Fraction, unit: str) -> Fraction | Quantity | None:
    """`value` of the written `unit` in base units; without a unit a plain number; None for a unit that is none."""
    if not unit:
        return value
    base, slash, per = unit.partition("/")
    if base not in _BASES or (slash and per != "s"):
        return None
    dimension, worth = _BASES[base]
    if slash and dimension == "seconds":
        return None
    return Quantity(value * worth, dimension + ("/s" if slash else ""))
