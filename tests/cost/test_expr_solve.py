"""Questions answered by search, and numbers as people read them."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.cost.expr import (
    BYTES,
    FLOPS,
    SECONDS,
    DomainError,
    ExprError,
    MissingSymbolsError,
    Number,
    UnitError,
    bytes_text,
    ceil,
    compare,
    constant,
    count_text,
    divisors,
    maximum,
    quantity_text,
    seconds_text,
    solve,
    symbol,
    threshold,
)

x, tp, P = symbol("x"), symbol("tp"), symbol("P")
GIB = 2**30
memory = 16 * P / tp * constant(1, BYTES)


def test_smallest_size_that_fits() -> None:
    fits = memory <= constant(80 * GIB, BYTES)
    assert solve(fits, tp, divisors(64), {"P": 70_000_000_000}) == 16
    assert solve(fits, tp, divisors(8), {"P": 70_000_000_000}) is None
    assert solve(fits, "tp", divisors(64), {"P": 70_000_000_000}, want="largest") == 64
    assert solve(fits, tp, [], {"P": 1}) is None


def test_exact_at_equality() -> None:
    exactly = 16 * P / tp * constant(1, BYTES) <= constant(2, BYTES)
    assert solve(exactly, tp, range(1, 100), {"P": 8}) == 64
    assert solve(exactly, tp, range(1, 10**12), {"P": 10**9}, monotone=True) == 8 * 10**9


@given(st.integers(0, 10**6), st.integers(1, 50))
def test_monotone_search_agrees_with_trying_all(bound: int, step: int) -> None:
    grows = ceil(x / step) * step >= bound
    shrinks = ceil(x / step) * step <= bound
    some = range(0, 2000, 7)
    assert solve(grows, x, some, monotone=True) == solve(grows, x, some)
    assert solve(shrinks, x, some, want="largest", monotone=True) == solve(shrinks, x, some, want="largest")


def test_any_candidates_when_not_monotone() -> None:
    assert solve(compare(x * x - 10 * x, "<=", -21), x, [9, 8, 7, 5, 3, 2]) == 3
    assert solve(compare(x, "==", 5), x, [9, 5, 7]) == 5


def test_bandwidth_at_which_communication_hides() -> None:
    bandwidth = symbol("bandwidth", "", BYTES / SECONDS)
    traffic, compute = symbol("traffic", "", BYTES), symbol("compute", "", SECONDS)
    hidden = traffic / bandwidth <= compute
    given_: dict[str, Number] = {"traffic": 25 * 10**9, "compute": Fraction(1, 2)}
    assert threshold(hidden, bandwidth, 1000, 10**13, given_) == 50 * 10**9
    assert threshold(hidden, bandwidth, 1000, 10**10, given_) is None
    assert threshold(hidden, bandwidth, 10**11, 10**12, given_) == 10**11
    assert threshold(hidden, bandwidth, 1000, 10**13, {"traffic": 25e9, "compute": 0.5}) == 50 * 10**9


def test_threshold_in_the_reals() -> None:
    root = threshold(x * x >= 2, x, 0, 10)
    assert root is not None and root * root >= 2
    assert float(root) == pytest.approx(math.sqrt(2), rel=1e-11)
    below = threshold(x * x <= 2, x, 0, 10, want="largest")
    assert below is not None and below * below <= 2
    assert threshold(maximum(x, 3) <= 5, x, -10, 10, want="largest") == 5
    assert threshold(x >= -3, x, -10, 10) == -3
    assert threshold(x >= 0, x, -10, 10) == 0


def test_questions_that_make_no_sense() -> None:
    with pytest.raises(MissingSymbolsError, match="P"):
        solve(memory <= constant(1, BYTES), tp, [1])
    with pytest.raises(UnitError):
        solve(memory <= constant(1, SECONDS), tp, [1])
    with pytest.raises(DomainError):
        solve(memory <= constant(1, BYTES), tp, [0], {"P": 1})
    with pytest.raises(ExprError, match="empty interval"):
        threshold(x >= 1, x, 3, 2)
    with pytest.raises(ExprError):
        divisors(0)


@given(st.integers(1, 5000))
def test_divisors(n: int) -> None:
    assert divisors(n) == tuple(d for d in range(1, n + 1) if n % d == 0)


@pytest.mark.parametrize(
    ("count", "short", "long"),
    [
        (0, "0 B", "0 B"),
        (512, "512 B", "512 B"),
        (1024, "1.00 KiB", "1.00 KiB (1,024 B)"),
        (1_610_612_736, "1.50 GiB", "1.50 GiB (1,610,612,736 B)"),
        (2**20 - 1, "1.00 MiB", "1.00 MiB (1,048,575 B)"),
        (3 * 2**40, "3.00 TiB", "3.00 TiB (3,298,534,883,328 B)"),
        (5 * 2**60, "5,242,880.00 TiB", "5,242,880.00 TiB (5,764,607,523,034,234,880 B)"),
        (-(2**30), "-1.00 GiB", "-1.00 GiB (-1,073,741,824 B)"),
        (Fraction(5, 2), "2.5 B", "2.5 B"),
        (1536.0, "1.50 KiB", "1.50 KiB (1,536 B)"),
    ],
)
def test_bytes(count: float, short: str, long: str) -> None:
    assert bytes_text(count) == short
    assert bytes_text(count, exact=True) == long


def test_counts_and_durations() -> None:
    assert count_text(1234567) == "1,234,567"
    assert count_text(1234.5) == "1,234.5"
    assert count_text(Fraction(1, 3)) == "0.333"
    assert count_text(10**30) == "1" + 10 * ",000"
    assert count_text(100.0) == "100"
    assert seconds_text(0) == "0 s"
    assert seconds_text(1.2344) == "1.234 s"
    assert seconds_text(12345) == "12,345 s"
    assert seconds_text(Fraction(12345, 10**6)) == "12.35 ms"
    assert seconds_text(0.0007) == "700 µs"
    assert seconds_text(0.9999999) == "1 s"
    assert seconds_text(-2e-9) == "-2 ns"
    assert quantity_text(2048, BYTES) == "2.00 KiB"
    assert quantity_text(0.25, SECONDS) == "250 ms"
    assert quantity_text(5000, BYTES / SECONDS) == "5,000 B/s"
    assert quantity_text(5000, FLOPS) == "5,000 flop"
