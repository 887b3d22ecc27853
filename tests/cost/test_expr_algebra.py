"""The algebra's laws: construction changes an expression's shape and never its value."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placelang.cost.expr import (
    BYTES,
    SECONDS,
    Const,
    DomainError,
    Expr,
    ExprError,
    MissingSymbolsError,
    Number,
    ceil,
    compare,
    compile_exprs,
    constant,
    derivative,
    evaluate,
    floor,
    free,
    holds,
    maximum,
    minimum,
    named,
    piecewise,
    postorder,
    product,
    substitute,
    symbol,
    symbols,
    text,
    total,
)

NAMES = ("x", "y", "z")
x, y, z = (symbol(name) for name in NAMES)
P, N = symbol("P", "parameters"), symbol("N", "devices")


def combined(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.tuples(children, children)
    return undivided(children) | pairs.map(lambda p: p[0] / (p[1] * p[1] + 1))


def undivided(children: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.tuples(children, children)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - p[1]),
        pairs.map(lambda p: p[0] * p[1]),
        st.tuples(children, st.integers(1, 3)).map(lambda p: p[0] ** p[1]),
        children.map(ceil),
        children.map(floor),
        pairs.map(lambda p: maximum(*p)),
        pairs.map(lambda p: minimum(*p)),
        st.tuples(children, children, children).map(lambda p: piecewise((p[0] <= p[1], p[2]), otherwise=p[0])),
        children.map(lambda e: named("t", e)),
    )


rationals = st.fractions(-20, 20, max_denominator=6)
leaves = st.one_of(st.sampled_from((x, y, z)), rationals.map(constant))
exprs = st.recursive(leaves, combined, max_leaves=12)
points = st.fixed_dictionaries(dict.fromkeys(NAMES, rationals))


@given(exprs, exprs, points)
def test_evaluation_is_a_homomorphism(a: Expr, b: Expr, at: dict[str, Fraction]) -> None:
    va, vb = evaluate(a, at), evaluate(b, at)
    assert evaluate(a + b, at) == va + vb
    assert evaluate(a - b, at) == va - vb
    assert evaluate(a * b, at) == va * vb
    assert evaluate(maximum(a, b), at) == max(va, vb)
    assert evaluate(minimum(a, b), at) == min(va, vb)
    assert evaluate(ceil(a), at) == math.ceil(va)
    assert evaluate(floor(a), at) == math.floor(va)
    assert evaluate(-a, at) == -va
    assert evaluate(a**2, at) == va**2
    assert holds(a <= b, at) == (va <= vb)
    if vb:
        try:
            assert evaluate(a / b, at) == va / vb
        except DomainError:
            assert isinstance(b, Const) and not b.value


@given(exprs, exprs, exprs)
def test_commutes_and_cancels(a: Expr, b: Expr, c: Expr) -> None:
    assert a + b is b + a
    assert a * b is b * a
    assert maximum(a, b) is maximum(b, a)
    assert a - a is constant(0)
    assert total((a, b, c)) is total((c, a, b))
    assert product((a, b, c)) is product((b, c, a))
    assert evaluate((a + b) - b - a, {"x": 3, "y": Fraction(1, 2), "z": -1}) == 0


@given(exprs, points, st.sets(st.sampled_from(NAMES)))
def test_substitution_then_evaluation(e: Expr, at: dict[str, Fraction], first: set[str]) -> None:
    some = {name: at[name] for name in first}
    rest = {name: at[name] for name in NAMES if name not in first}
    partly = substitute(e, some)
    assert free(partly) <= free(e) - first
    assert evaluate(partly, rest) == evaluate(e, at)
    assert evaluate(substitute(e, {"x": y + 1}), at) == evaluate(e, at | {"x": at["y"] + 1})
    assert not free(substitute(e, at))
    assert substitute(e, {}) is e


@given(exprs)
def test_nodes_are_values(e: Expr) -> None:
    assert copy.deepcopy(e) is e
    assert copy.copy(e) is e
    assert pickle.loads(pickle.dumps(e)) is e
    assert str(text(e)) == str(text(pickle.loads(pickle.dumps(e))))


# Quarters are exact in binary, so that rounding and comparisons see the same numbers in floats.
quarters = st.integers(-80, 80).map(lambda n: Fraction(n, 4))
binary_exprs = st.recursive(st.sampled_from((x, y, z)) | quarters.map(constant), undivided, max_leaves=12)


@given(binary_exprs, st.lists(st.tuples(quarters, quarters, quarters), min_size=1, max_size=5))
def test_compiled_equals_evaluated(e: Expr, rows: list[tuple[Fraction, ...]]) -> None:
    columns = {name: [float(row[i]) for row in rows] for i, name in enumerate(NAMES)}
    (computed,) = compile_exprs([e])(columns)
    exact: list[Number] = [evaluate(e, dict(zip(NAMES, row, strict=True))) for row in rows]
    assume(all(abs(float(value)) < 2**40 for value in exact))
    wanted = [float(value) for value in exact]
    assert (computed + [0.0] * len(rows)).tolist() == pytest.approx(wanted, rel=1e-9, abs=1e-6)


smooth = st.recursive(
    leaves,
    lambda children: st.one_of(
        st.tuples(children, children).map(lambda p: p[0] + p[1]),
        st.tuples(children, children).map(lambda p: p[0] * p[1]),
        st.tuples(children, children).map(lambda p: p[0] / (p[1] * p[1] + 1)),
        children.map(lambda e: (e * e + 1) ** 0.5),
    ),
    max_leaves=6,
)


@given(smooth, st.fixed_dictionaries({name: st.fractions(-3, 3, max_denominator=4) for name in NAMES}))
def test_derivative_agrees_with_differences(e: Expr, at: dict[str, Fraction]) -> None:
    slope = float(evaluate(derivative(e, x), at))
    step = Fraction(1, 10**4)
    ahead, behind = (float(evaluate(e, at | {"x": at["x"] + d})) for d in (step, -step))
    second = float(evaluate(derivative(derivative(derivative(e, "x"), "x"), "x"), at))
    assume(max(abs(slope), abs(ahead), abs(second)) < 1e4)
    assert (ahead - behind) / float(2 * step) == pytest.approx(slope, rel=1e-4, abs=1e-3)


def test_derivative_of_steps_and_choices() -> None:
    assert derivative(ceil(P / N) * N, N) is ceil(P / N)
    assert derivative(floor(x), x) is constant(0)
    slope = derivative(maximum(3 * x, y), x)
    assert evaluate(slope, {"x": 2, "y": 1}) == 3
    assert evaluate(slope, {"x": 0, "y": 1}) == 0
    assert derivative(named("t", x * x), x) is 2 * x
    case = derivative(piecewise((x <= 1, x), otherwise=x**2), x)
    assert (evaluate(case, {"x": 1}), evaluate(case, {"x": 4})) == (1, 8)
    assert derivative(P, x) is constant(0)


def test_derivative_carries_units() -> None:
    size, rate = symbol("size", "", BYTES), symbol("rate", "", BYTES / SECONDS)
    slope = derivative(size / rate, rate)
    assert slope.unit is SECONDS**2 / BYTES
    assert evaluate(slope, {"size": 8, "rate": 2}) == -2
    assert derivative(size, rate).unit is SECONDS
    assert derivative(constant(3, BYTES), rate).unit is SECONDS


def test_folding_and_collecting() -> None:
    assert x * 0 is constant(0)
    assert x * 1 is x
    assert x + 0 is x
    assert x**0 is constant(1)
    assert x / x is constant(1)
    assert 2 * x + 3 * x is 5 * x
    assert x * x is x**2
    assert (x * y) ** 2 is x**2 * y**2
    assert x**0.5 * x**0.5 is x
    assert constant(4) ** 0.5 is constant(2)
    assert constant(2) ** 0.5 * constant(2) ** 0.5 is constant(2)
    assert x - (x + y) is -y
    assert (-(x + y)) * -1 is x + y
    assert constant(0.1) is constant(Fraction(1, 10))
    assert maximum(x, 3, maximum(5, y)) is maximum(x, y, 5)
    assert ceil(ceil(x)) is ceil(x)
    assert piecewise((constant(1) <= 2, x), otherwise=y) is x
    assert piecewise((compare(x, "<=", x), z), otherwise=y) is z
    assert piecewise((x <= y, z), otherwise=z) is z
    assert sum([x, y], start=constant(0)) is x + y


def test_products_of_sums_stay_factored() -> None:
    factored = product([x + k for k in range(1, 21)])
    assert len(postorder((factored,))) == 22


def test_padded_sizes() -> None:
    dp = symbol("dp")
    padded = dp * ceil(constant(50257) / dp) * 768
    assert evaluate(padded, {"dp": 1}) == 50257 * 768
    assert evaluate(padded, {"dp": 8}) == 50264 * 768
    assert evaluate(padded, {"dp": 64}) == 50304 * 768
    grid = list(range(1, 1025))
    (column,) = compile_exprs([padded])({"dp": grid})
    assert [int(value) for value in column] == [n * -(-50257 // n) * 768 for n in grid]


@given(st.integers(1, 2**40), st.integers(1, 2**12))
def test_rounding_a_quotient_is_exact_in_floats_too(rows: int, shards: int) -> None:
    e = ceil(x / y)
    expected = -(-rows // shards)
    assert evaluate(e, {"x": rows, "y": shards}) == expected
    assert evaluate(e, {"x": float(rows), "y": float(shards)}) == expected
    assert compile_exprs([e])({"x": rows, "y": shards})[0] == expected


def test_exact_until_a_float_enters() -> None:
    third = evaluate(x / 3, {"x": 1})
    assert third == Fraction(1, 3) and isinstance(third, Fraction)
    assert isinstance(evaluate(x / 3, {"x": 1.0}), float)
    assert evaluate(x**0.5, {"x": 9}) == 3
    assert isinstance(evaluate(x**0.5, {"x": 9}), Fraction)
    assert evaluate(x**0.5, {"x": 2}) == math.sqrt(2)
    assert isinstance(evaluate(constant(7), {}), Fraction)


def test_missing_symbols_are_all_named() -> None:
    with pytest.raises(MissingSymbolsError, match="no value given for N, P") as caught:
        evaluate(P / N + x, {"x": 1})
    assert caught.value.names == ("N", "P")
    with pytest.raises(MissingSymbolsError):
        compile_exprs([P / N])({"P": 1})
    assert [s.doc for s in symbols(P / N)] == ["devices", "parameters"]
    assert free(named("t", x)) == {"x"}


@pytest.mark.parametrize(
    ("expr", "at"),
    [
        (1 / x, {"x": 0}),
        (1 / x, {"x": 0.0}),
        (x**0.5, {"x": -1}),
        (x**0.5, {"x": -1.0}),
        (x, {"x": math.inf}),
        (x, {"x": math.nan}),
        (x**1000, {"x": 1e200}),
        (x * y, {"x": 1e300, "y": 1e300}),
        (x * y, {"x": 10**400, "y": 1.0}),
        (ceil(x * y), {"x": 1e300, "y": 1e300}),
        (named("t", x**1000) ** 1000, {"x": 2**60}),
    ],
)
def test_undefined_values_are_typed_errors(expr: Expr, at: dict[str, float]) -> None:
    with pytest.raises(DomainError):
        evaluate(expr, at)


@pytest.mark.parametrize("bad", ["3", None, True, 1j, [1]])
def test_inputs_that_are_not_numbers(bad: object) -> None:
    with pytest.raises(ExprError):
        evaluate(x, {"x": bad})  # type: ignore[dict-item]
    with pytest.raises(ExprError):
        constant(bad)  # type: ignore[arg-type]


def test_construction_refuses_nonsense() -> None:
    with pytest.raises(DomainError):
        x / 0
    with pytest.raises(DomainError):
        constant(math.inf)
    with pytest.raises(ExprError):
        x**1001
    with pytest.raises(ExprError):
        (x**1000) ** 2
    with pytest.raises(ExprError):
        symbol("")
    with pytest.raises(ExprError):
        maximum()
    with pytest.raises(ExprError):
        compare(x, "~", y)
    with pytest.raises(ExprError, match="not a condition"):
        piecewise((x == y, 1), otherwise=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        bool(x <= y)
    with pytest.raises(TypeError):
        x + "1"  # type: ignore[operator]


def test_only_the_selected_case_is_evaluated() -> None:
    e = piecewise((N <= 1, 0), (compare(N, "==", 2), P), otherwise=P / (N - 1))
    assert evaluate(e, {"N": 1}) == 0
    assert evaluate(e, {"N": 1, "P": 5}) == 0
    assert evaluate(e, {"N": 2, "P": 5}) == 5
    assert evaluate(e, {"N": 6, "P": 5}) == 1
    (column,) = compile_exprs([e])({"N": [1, 2, 6], "P": 5})
    assert column.tolist() == [0, 5, 1]
