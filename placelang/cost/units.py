"""Units of cost expressions, as a small vector of exponents.

Bytes, seconds, elements (of a tensor) and flops are the four dimensions; everything else is a product of their
powers, so bytes divided by bytes/s is seconds without anyone saying so. Not for scaling: a value is always in the
base unit (bytes, never GiB), and `format.py` chooses what a person sees.
"""

from __future__ import annotations

from functools import cache

import attrs

from placelang.cost.exact import ExprError, Rational, whole


class UnitError(ExprError):
    """Two quantities of different units met where equal ones are needed, such as bytes + seconds."""

    def __init__(self, operation: str, left: Unit, right: Unit) -> None:
        self.operation, self.left, self.right = operation, left, right
        super().__init__(f"{operation}: {left.name} does not go with {right.name}")


@attrs.frozen(eq=False, repr=False)
class Unit:
    """A product of powers of the four dimensions. Interned by `unit`: equal units are the same object."""

    bytes: Rational
    seconds: Rational
    elements: Rational
    flops: Rational

    def __mul__(self, other: Unit) -> Unit:
        return _product(self, other)

    def __truediv__(self, other: Unit) -> Unit:
        return _product(self, _power(other, -1))

    def __pow__(self, exponent: Rational) -> Unit:
        return _power(self, exponent)

    def __reduce__(self) -> tuple[object, ...]:
        return unit, (self.bytes, self.seconds, self.elements, self.flops)

    def __repr__(self) -> str:
        return f"<unit {self.name}>"

    @property
    def name(self) -> str:
        """How error messages call it: `bytes/seconds`, or `scalar`."""
        return _spell(self, (("bytes", self.bytes), ("flops", self.flops), ("elements", self.elements),
                             ("seconds", self.seconds)), "scalar")  # fmt: skip

    @property
    def symbol(self) -> str:
        """How formulas write it: `B/s`. A count has no symbol, so 4 bytes an element reads `4 B`."""
        return _spell(self, (("B", self.bytes), ("flop", self.flops), ("s", self.seconds)), "")


def _spell(self: Unit, parts: tuple[tuple[str, Rational], ...], nothing: str) -> str:
    above = [name if power == 1 else f"{name}^{power}" for name, power in parts if power > 0]
    below = [name if power == -1 else f"{name}^{-power}" for name, power in parts if power < 0]
    if not above and not below:
        return nothing
    return "/".join(["·".join(above) or "1", *below])


@cache
def unit(bytes: Rational = 0, seconds: Rational = 0, elements: Rational = 0, flops: Rational = 0) -> Unit:
    """The unit with these exponents: `unit(1, -1)` and `unit(bytes=1, seconds=-1)` are bytes per second."""
    return _unit(whole(bytes), whole(seconds), whole(elements), whole(flops))


_UNITS: dict[tuple[Rational, ...], Unit] = {}


def _unit(*exponents: Rational) -> Unit:
    return _UNITS.setdefault(exponents, Unit(*exponents))  # atomic, unlike a cache: two threads get one object


@cache
def _product(a: Unit, b: Unit) -> Unit:
    return unit(a.bytes + b.bytes, a.seconds + b.seconds, a.elements + b.elements, a.flops + b.flops)


@cache
def _power(a: Unit, e: Rational) -> Unit:
    return unit(a.bytes * e, a.seconds * e, a.elements * e, a.flops * e)


SCALAR = unit()
BYTES = unit(bytes=1)
SECONDS = unit(seconds=1)
ELEMENTS = unit(elements=1)
FLOPS = unit(flops=1)
