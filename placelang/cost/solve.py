"""Answers to "the smallest tp that fits" and "the bandwidth at which dp hides", by search over exact evaluations.

Not an equation solver: `ceil` and `max` have no inverse, but a condition can be tested exactly anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Literal

from placelang.cost.evaluate import holds
from placelang.cost.exact import ExprError, Number, Rational, exact, magnitude, whole
from placelang.cost.nodes import Condition, Symbol
from placelang.cost.transform import substitute_condition

Want = Literal["smallest", "largest"]


def solve(
    condition: Condition,
    unknown: Symbol | str,
    candidates: Sequence[int],
    given: Mapping[str, Number] | None = None,
    want: Want = "smallest",
    monotone: bool = False,
) -> int | None:
    """The smallest (or largest) candidate at which the condition holds, or None.

    Example: `solve(memory <= 80 * 2**30 * byte, tp, divisors(64), given)`. Candidates come in any order and every one
    may be tried; with `monotone` they must ascend, and the caller vouches that the condition changes at most once,
    from false to true for the smallest and from true to false for the largest: then only about log2(n) are tried, and
    a `range` may be huge. Float values in `given` are fine, but only exact ones give an answer beyond doubt at
    equality. Raises as `evaluate`.
    """
    test = _test(condition, unknown, given)
    if not monotone:
        ordered = sorted(candidates, reverse=want == "largest")
        return next((candidate for candidate in ordered if test(candidate)), None)
    below, above = 0, len(candidates)  # the first position in the wanted direction where the test holds
    while below < above:
        middle = (below + above) // 2
        if test(candidates[middle if want == "smallest" else -1 - middle]):
            above = middle
        else:
            below = middle + 1
    return None if below == len(candidates) else candidates[below if want == "smallest" else -1 - below]


def threshold(
    condition: Condition,
    unknown: Symbol | str,
    low: Number,
    high: Number,
    given: Mapping[str, Number] | None = None,
    want: Want = "smallest",
    tolerance: float = 1e-12,
) -> Fraction | None:
    """The smallest (or largest) real number in [low, high] at which the condition holds, or None if it doesn't at the
    far end.

    The condition must be monotone there: for the smallest false then true, for the largest true then false.
    Bisection, down to the relative tolerance; the condition holds at the returned number, which is exact if it is a
    whole number or an end of the interval. Raises as `evaluate`.
    """
    test = _test(condition, unknown, given)
    bad, good = exact(low), exact(high)
    if bad > good:
        raise ExprError(f"empty interval from {low} to {high}")
    if want == "largest":
        bad, good = good, bad
    if not test(good):
        return None
    if test(bad):
        return Fraction(bad)
    while magnitude(good - bad) > tolerance * max(magnitude(good), magnitude(bad)):
        middle = _middle(bad, good)
        if middle in (bad, good):
            break
        bad, good = (bad, middle) if test(middle) else (middle, good)
    near = round(good)
    inside = min(bad, good) < near < max(bad, good)
    return Fraction(near if inside and test(near) else good)


def _middle(a: Rational, b: Rational) -> Rational:
    # A rate may lie anywhere between kilobytes and terabytes per second: halve the ratio while it is large.
    small, large = min(magnitude(a), magnitude(b)), max(magnitude(a), magnitude(b))
    if a * b > 0 and large > 4 * small:
        return whole(Fraction(math.copysign(math.sqrt(float(small)) * math.sqrt(float(large)), a)))
    return whole(Fraction((float(a) + float(b)) / 2))


def _test(condition: Condition, unknown: Symbol | str, given: Mapping[str, Number] | None) -> Callable[[Number], bool]:
    name = unknown if isinstance(unknown, str) else unknown.name
    fixed = {key: value for key, value in (given or {}).items() if key != name}
    rational = {key: value for key, value in fixed.items() if not isinstance(value, float)}
    left_to_test = substitute_condition(condition, rational)
    return lambda candidate: holds(left_to_test, {**fixed, name: candidate})


def divisors(n: int) -> tuple[int, ...]:
    """The positive divisors of a positive number, ascending: the sizes that a mesh axis can have."""
    if n < 1:
        raise ExprError(f"{n} has no divisors to try")
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return (*small, *(n // d for d in reversed(small) if d * d != n))
