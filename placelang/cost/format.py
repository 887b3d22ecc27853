"""Numbers as people read them: bytes in binary units with the exact count beside, counts in groups of three, durations.

Not for formulas: `render.py`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from placelang.cost.exact import Number
from placelang.cost.units import BYTES, SECONDS, Unit

_BINARY: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIMES: Final = ((1, "s"), (Fraction(1, 1000), "ms"), (Fraction(1, 10**6), "µs"), (Fraction(1, 10**9), "ns"))


def count_text(value: Number) -> str:
    """`1,234,567`; what is not whole keeps up to three decimals: `1,234.5`."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{float(value):,.3f}".rstrip("0").rstrip(".")


def bytes_text(value: Number, exact: bool = False) -> str:
    """`1.50 GiB`, and with `exact` `1.50 GiB (1,610,612,736 B)`. Below 1 KiB always the plain count: `512 B`."""
    plain, number = f"{count_text(value)} B", Fraction(value)
    for size, name in _BINARY:
        # Compared as it will be printed, so that one byte less than 1 MiB is 1.00 MiB and not 1024.00 KiB.
        if round(abs(number) / size, 2) >= 1:
            text = f"{float(number / size):,.2f} {name}"
            return f"{text} ({plain})" if exact else text
    return plain


def seconds_text(value: Number) -> str:
    """At least four significant digits in the unit that fits: `1.234 s`, `12.35 ms`, `700 µs`."""
    if value == 0:
        return "0 s"
    for size, name in _TIMES:
        scaled = float(Fraction(value) / size)
        if abs(scaled) >= 0.99995 or name == "ns":
            return f"{scaled:,.0f} {name}" if abs(scaled) >= 1000 else f"{scaled:.4g} {name}"
    raise AssertionError("the last unit takes every duration")


def quantity_text(value: Number, unit: Unit) -> str:
    """The value with its unit, in the way that suits the unit."""
    if unit is BYTES:
        return bytes_text(value)
    if unit is SECONDS:
        return seconds_text(value)
    return f"{count_text(value)} {unit.symbol}".rstrip()
