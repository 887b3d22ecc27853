"""Sizes of axes for exact arithmetic, with generic numbers where none is given.

An unknown size is a large prime of its own, so that no two of them cancel and every verdict holds for all sizes but
those that happen to satisfy an equation between them. Axes of size 1 are inert. Not for: padding or divisibility.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

import attrs

from placelang.frozen import Frozen
from placelang.plan.mesh import Mesh

_PRIMES = (1000003, 1000033, 1000037, 1000039, 1000081, 1000099, 1000117, 1000121, 1000133, 1000151, 1000159, 1000171)


def _prime(k: int) -> int:
    """The k-th prime above a million."""
    if k < len(_PRIMES):
        return _PRIMES[k]
    candidate = _prime(k - 1) + 2
    while any(candidate % d == 0 for d in range(3, int(candidate**0.5) + 1, 2)):
        candidate += 2
    return candidate


@attrs.frozen(eq=False, repr=False)
class Sizes(Frozen):
    """`numbers` of every axis; `symbols` maps the primes that stand for unknown sizes, and the loss scale, to names."""

    numbers: Mapping[str, int]
    symbols: Mapping[int, str]
    scale: Fraction = Fraction(1)  # of the loss: generic, as a run may change it from step to step

    @staticmethod
    def of(mesh: Mesh, scaled: bool = False) -> Sizes:
        unknown = [axis.name for axis in mesh.axes if axis.size is None]
        generic = {name: _prime(k) for k, name in enumerate(unknown)}
        numbers = {axis.name: generic[axis.name] if axis.size is None else axis.size for axis in mesh.axes}
        scale = _prime(len(unknown))
        symbols = {prime: name for name, prime in generic.items()} | ({scale: "loss_scale"} if scaled else {})
        return Sizes(numbers, symbols, Fraction(scale if scaled else 1))

    def active(self, axes: Iterable[str]) -> tuple[str, ...]:
        """The axes that have more than one rank."""
        return tuple(axis for axis in axes if self.numbers[axis] != 1)

    @property
    def exact(self) -> bool:
        return not self.symbols

    def text(self, q: Fraction) -> str:
        """A multiplicity to read: `2`, `1/4`, `dp`, `1/(2 * dp)`."""
        above, below = self._factors(q.numerator), self._factors(q.denominator)
        if above is None or below is None:
            return "several" if q > 1 else "a fraction of"
        if below == "1":
            return above
        return f"{above}/{f'({below})' if '*' in below else below}"

    def _factors(self, number: int) -> str | None:
        """`2 * dp * tp`; None of what is no product of small numbers and sizes."""
        names = []
        for prime, name in self.symbols.items():
            while number % prime == 0:
                number //= prime
                names.append(name)
        if self.symbols and number > _PRIMES[0] // 2:
            return None
        return " * ".join([str(number), *names] if number != 1 or not names else names)
