"""Evaluation: units, arithmetic, comparisons, words; every refusal with its code."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.diagnostics.problems import Refused
from placelang.plan.mesh import Axis, Role
from placelang.plan.scope import Scope
from placelang.plan.values import Axes, Unknown, Value, Word, evaluate
from placelang.quantity import Quantity
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.parser import parse


def scope() -> Scope:
    """dp = 8, tp = 2, a symbolic pp, and `n`, an argument without a value."""
    axes = {name: Axis(name, Role.DATA, size) for name, size in (("dp", 8), ("tp", 2), ("pp", None))}
    args = {"n": ast.ArgDecl(ast.Name("n"))}
    return Scope({}, axes=axes, args=args, declared_mesh=True)


def value(text: str) -> Value:
    file, problems = parse(Source(f"let x = {text}"))
    assert not problems, problems
    (let,) = file.statements
    assert isinstance(let, ast.Let)
    return evaluate(let.value, scope().lookup)


def code(text: str) -> str:
    with pytest.raises(Refused) as refused:
        value(text)
    return refused.value.diagnostic.code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 % 4", 3),
        ("-2 + 5", 3),
        ("7 / 2", Fraction(7, 2)),
        ("16_384", 16384),
        ("1e-3", Fraction(1, 1000)),
        ("ceil(7 / 2)", 4),
        ("ceil(-7 / 2)", -3),
        ("min(3, 1, 2)", 1),
        ("max(3, dp, 2)", 8),
        ("dp + 1", 9),
        ("dp / tp", 4),
        ("-tp", -2),
    ],
)
def test_numbers(text: str, expected: Fraction) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1KB", Quantity(Fraction(1000), "bytes")),
        ("1KiB", Quantity(Fraction(1024), "bytes")),
        ("8b", Quantity(Fraction(1), "bytes")),
        ("400Gb/s", Quantity(Fraction(50 * 10**9), "bytes/s")),
        ("50GB/s", Quantity(Fraction(50 * 10**9), "bytes/s")),
        ("989TFLOP/s", Quantity(Fraction(989 * 10**12), "flops/s")),
        ("90us", Quantity(Fraction(9, 10**5), "seconds")),
        ("2min", Quantity(Fraction(120), "seconds")),
        ("3GB * 2", Quantity(Fraction(6 * 10**9), "bytes")),
        ("3GB / 2", Quantity(Fraction(15 * 10**8), "bytes")),
        ("100GB / 50GB/s", Quantity(Fraction(2), "seconds")),
        ("100GB / 2s", Quantity(Fraction(50 * 10**9), "bytes/s")),
        ("1GB + 24MB", Quantity(Fraction(1024 * 10**6), "bytes")),
        ("25MB % 10MB", Quantity(Fraction(5 * 10**6), "bytes")),
    ],
)
def test_quantities(text: str, expected: Quantity) -> None:
    assert value(text) == expected


def test_a_quotient_of_equal_units_is_a_number() -> None:
    assert value("3GiB / 1GB") == Fraction(3 * 2**30, 10**9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("400Gb/s == 50GB/s", True),
        ("400Gb/s < 400GB/s", True),
        ("1GiB == 1GB", False),
        ("1GiB > 1GB", True),
        ("1 <= 1", True),
        ("1 != 1", False),
        ("dp * tp == 16", True),
        ("dp % 3 == 0", False),
        ("true and not false", True),
        ("false or 1 < 2", True),
        ("fast == fast", True),
        ("fast == slow", False),
        ('"a" == "a"', True),
        ("true == true", True),
    ],
)
def test_comparisons(text: str, expected: bool) -> None:
    assert value(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3GB + 2s", "E111"),
        ("3GB == 3", "E111"),
        ("3GB < 3s", "E111"),
        ("3GB/s == 3GB", "E111"),
        ("3GB * 2GB", "E111"),
        ("3s / 2GB", "E111"),
        ("n + 1GB < 3s", "E111"),
        ("1 / 0", "E105"),
        ("1GB / 0", "E105"),
        ("1 % 0", "E105"),
        ("1 and 2", "E105"),
        ("not 1", "E105"),
        ('-"a"', "E105"),
        ('1 + "a"', "E105"),
        ("1 + true", "E105"),
        ("[1] + 1", "E105"),
        ("min(1, true)", "E105"),
        ("ceil(1, 2)", "E105"),
        ("dp < fast", "E101"),
        ("dp * fast", "E101"),
        ("min(fast, 2)", "E101"),
        ("sp", "E114"),
    ],
)
def test_refusals(text: str, expected: str) -> None:
    assert code(text) == expected


def test_words_mean_themselves() -> None:
    assert value("adamw") == Word("adamw")
    assert value("balanced(first_less = 1)") == Word("balanced", (("first_less", Fraction(1)),))
    assert value("[matmul, sdpa]") == (Word("matmul"), Word("sdpa"))
    assert value("true") is True


def test_products_of_axes_are_axes() -> None:
    assert value("dp * tp") == Axes(("dp", "tp"))
    assert value("(dp * tp)") == Axes(("dp", "tp"))
    assert value("dp * 2") == 16


@pytest.mark.parametrize(
    "text", ["n", "n + 1", "2 * n", "n < 3", "ceil(n)", "min(n, 3)", "pp + 1", "-n", "pp % 2 == 0"]
)
def test_what_depends_on_a_symbol_is_one(text: str) -> None:
    assert isinstance(value(text), Unknown)


numbers = st.fractions(min_value=-100, max_value=100, max_denominator=8).filter(lambda f: f.denominator in (1, 2, 4, 8))


@given(numbers, numbers, st.sampled_from("+-*"), st.sampled_from(("", "GB", "s", "TFLOP/s")))
def test_arithmetic_is_that_of_fractions(a: Fraction, b: Fraction, op: str, unit: str) -> None:
    x, y = (f"({n.numerator}{unit} / {n.denominator})" for n in (abs(a), abs(b)))
    if op == "*" and unit:
        y = f"({abs(b).numerator} / {abs(b).denominator})"
    plain = {"+": abs(a) + abs(b), "-": abs(a) - abs(b), "*": abs(a) * abs(b)}[op]
    one = value(f"1{unit}")
    scale = one.value if isinstance(one, Quantity) else one
    found = value(f"{x} {op} {y}")
    assert (found.value if isinstance(found, Quantity) else found) == plain * scale
