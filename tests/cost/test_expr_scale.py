"""Units, sharing and depth: what keeps a large expression right and cheap."""

from __future__ import annotations

import pickle
import subprocess
import sys
from fractions import Fraction

import pytest

from placelang.cost.expr import (
    BYTES,
    ELEMENTS,
    SCALAR,
    SECONDS,
    DomainError,
    Expr,
    UnitError,
    ceil,
    compile_exprs,
    constant,
    derivative,
    evaluate,
    evaluate_all,
    free,
    maximum,
    named,
    piecewise,
    postorder,
    substitute,
    symbol,
    text,
    total,
    unit,
)

x, y, z = (symbol(name) for name in ("x", "y", "z"))


def test_units() -> None:
    size, time, rate = symbol("size", "", BYTES), symbol("time", "", SECONDS), symbol("rate", "", BYTES / SECONDS)
    assert (size / rate).unit is SECONDS
    assert (size / rate + time).unit is SECONDS
    assert (size / size).unit is SCALAR
    assert (size * size).unit is unit(bytes=2)
    assert ((size * size) ** 0.5).unit is BYTES
    assert (constant(4, BYTES / ELEMENTS) * symbol("P", "", ELEMENTS)).unit is BYTES
    assert maximum(0, size).unit is BYTES
    assert (0 + size) is size
    assert (size * 0).unit is BYTES
    assert total([size * 0, 0]).unit is BYTES
    assert pickle.loads(pickle.dumps(BYTES / SECONDS)) is BYTES / SECONDS
    assert substitute(size, {"size": 4}) is constant(4, BYTES)


@pytest.mark.parametrize(
    "mix",
    [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a + 1,
        lambda a, b: a <= b,
        maximum,
        lambda a, b: piecewise((a <= a * 2, a), otherwise=b),
        lambda a, b: total([a, a * 0, b]),
        lambda a, b: a * 0 + b,
        lambda a, b: substitute(a, {"size": b}),
    ],
)
def test_unit_errors(mix: object) -> None:
    with pytest.raises(UnitError) as caught:
        mix(symbol("size", "", BYTES), symbol("time", "", SECONDS))  # type: ignore[operator]
    assert caught.value.left is BYTES
    assert "bytes does not go with" in str(caught.value)


def test_sharing_counts_nodes() -> None:
    e: Expr = x
    for k in range(200):
        e = (e + y) * (e + k)
    assert len(postorder((e,))) == 3 * 200 + 2 - 1  # two sums and a product a step; e + 0 is e
    assert len(postorder((substitute(e, {"y": z}),))) == len(postorder((e,)))


@pytest.mark.parametrize(
    "grow",
    [
        lambda e, k: ceil(e / 2) + y,
        lambda e, k: maximum(e + y, k),
        lambda e, k: named("t", e + 1),
        lambda e, k: piecewise((e <= k, e + 1), otherwise=e),
        lambda e, k: (e + y) / 2,
    ],
)
def test_deep_expressions(grow: object) -> None:
    e: Expr = x
    for k in range(3_000):
        e = grow(e, k)  # type: ignore[operator]
    at = {"x": 1.0, "y": 1.0}
    value = evaluate(e, at)
    assert compile_exprs([e])(at)[0] == pytest.approx(value)
    assert evaluate(substitute(e, {"y": 1}), at) == pytest.approx(value)
    assert free(e) <= {"x", "y"}
    assert len(str(text(e))) < 10_000_000
    derivative(e, x)


def test_fifty_thousand_nodes() -> None:
    e: Expr = x
    for _ in range(25_000):
        e = ceil((e + y) / 2)
    assert len(postorder((e,))) > 50_000
    assert evaluate(e, {"x": 0, "y": 10}) == 10
    running: Expr = constant(0)
    for k in range(50_000):
        running = running + symbol(f"s{k}")
    assert evaluate(running, {f"s{k}": 1 for k in range(50_000)}) == 50_000
    assert evaluate(total(symbol(f"s{k}") for k in range(50_000)), {f"s{k}": 1 for k in range(50_000)}) == 50_000


def test_several_at_once() -> None:
    shared = named("t", (x + y) ** 2)
    assert evaluate_all([shared, shared / 2], {"x": 1, "y": 2}) == (9, Fraction(9, 2))
    square, half = compile_exprs([shared, shared / 2])({"x": [[1], [2]], "y": [1, 2, 3]})
    assert square.shape == half.shape == (2, 3)
    assert square.tolist() == [[4, 9, 16], [9, 16, 25]]
    large = compile_exprs([x + 1])({"x": range(20_001)})[0]
    assert large[0] == 1 and large[-1] == 20_001
    assert compile_exprs([constant(3)])({})[0] == 3
    assert compile_exprs([x])({"x": []})[0].shape == (0,)
    with pytest.raises(DomainError):
        compile_exprs([x + 10**400])


def test_numpy_is_imported_only_to_compile() -> None:
    code = "import sys, placelang.cost.expr; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
