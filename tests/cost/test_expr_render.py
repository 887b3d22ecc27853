"""Formulas read as a person would write them, whatever order they were built in."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.cost.expr import (
    BYTES,
    ELEMENTS,
    FLOPS,
    SECONDS,
    Expr,
    ceil,
    compare,
    constant,
    floor,
    latex,
    maximum,
    minimum,
    named,
    piecewise,
    symbol,
    text,
    total,
)

a, b, h, s, t, L, M, N, P = (symbol(name) for name in ("a", "b", "h", "s", "t", "L", "M", "N", "P"))
dp, psi = symbol("dp"), symbol("Psi_pad")
padded = named("P_pad", dp * ceil(50257 / dp) * 768, "parameters, padded to the axis")
four = constant(4, BYTES)


@pytest.mark.parametrize(
    ("expr", "plain", "tex"),
    [
        (3 * padded * four, "3·P_pad·4 B", r"3 \cdot P_{\mathrm{pad}} \cdot 4\,\mathrm{B}"),
        (2 * M * P, "2·M·P", r"2 \cdot M \cdot P"),
        (ceil(50257 / dp), "ceil(50257/dp)", r"\left\lceil \frac{50257}{\mathrm{dp}} \right\rceil"),
        (floor(s / 2), "floor(s/2)", r"\left\lfloor \frac{s}{2} \right\rfloor"),
        (34 * s * b * h + 5 * a * b * s**2, "5·a·b·s² + 34·b·h·s", None),
        (s * b * h * (10 + 24 / t), "b·h·s·(24/t + 10)", None),
        (2 * (N - 1) / N * P, "2·P·(N - 1)/N", r"\frac{2 \cdot P \cdot \left(N - 1\right)}{N}"),
        (1 - 1 / N, "1 - 1/N", r"1 - \frac{1}{N}"),
        (-(s + b) * 3, "-3·(b + s)", None),
        (-s - b - 2, "-b - s - 2", None),
        (1 / (s * b) ** 2, "1/(b²·s²)", r"\frac{1}{b^{2} \cdot s^{2}}"),
        (3 * s / (2 * b), "3·s/(2·b)", r"\frac{3 \cdot s}{2 \cdot b}"),
        (0.83 * s, "0.83·s", None),
        (s / 3, "s/3", r"\frac{s}{3}"),
        (s**0.5, "sqrt(s)", r"\sqrt{s}"),
        ((s + b) ** 3, "(b + s)³", r"\left(b + s\right)^{3}"),
        ((s + b) ** Fraction(2, 3), "(b + s)^(2/3)", r"\left(b + s\right)^{2/3}"),
        (maximum(0, s, 3 * h), "max(0, 3·h, s)", r"\max\left(0, 3 \cdot h, s\right)"),
        (minimum(s, b), "min(b, s)", r"\min\left(b, s\right)"),
        (
            piecewise((N <= 1, 0), (compare(N, "==", 4), b), otherwise=s / N),
            "{0 if N ≤ 1; b if N = 4; s/N otherwise}",
            r"\begin{cases} 0 & \text{if } N \le 1 \\ b & \text{if } N = 4 \\ "
            r"\frac{s}{N} & \text{otherwise} \end{cases}",
        ),
        (s * four + constant(16, BYTES), "s·4 B + 16 B", None),
        (constant(4, BYTES / ELEMENTS) * symbol("P", "", ELEMENTS), "P·4 B", None),
        (s / constant(600 * 10**9, BYTES / SECONDS), "s/(600e9 B/s)", None),
        (
            s * constant(990 * 10**12, FLOPS / SECONDS),
            "s·990e12 flop/s",
            r"s \cdot 990 {\cdot} 10^{12}\,\mathrm{flop/s}",
        ),
        (constant(-4, BYTES), "-4 B", r"-4\,\mathrm{B}"),
        (constant(0), "0", "0"),
        (psi, "Psi_pad", r"\Psi_{\mathrm{pad}}"),
        (symbol("50%_a_b"), "50%_a_b", r"\mathrm{50\%}_{\mathrm{a\_b}}"),
    ],
)
def test_notation(expr: Expr, plain: str, tex: str | None) -> None:
    assert text(expr).body == plain
    if tex is not None:
        assert latex(expr).body == tex


def test_where_clauses() -> None:
    formula = text(3 * padded * four)
    assert [(c.name, c.body, c.doc) for c in formula.where] == [
        ("P_pad", "768·dp·ceil(50257/dp)", "parameters, padded to the axis")
    ]
    assert str(formula) == "3·P_pad·4 B where P_pad = 768·dp·ceil(50257/dp)"
    assert latex(padded).where[0].name == r"P_{\mathrm{pad}}"
    assert str(text(P)) == "P"


def test_a_clause_follows_its_use() -> None:
    inner = named("q", ceil(s / N))
    outer = named("r", inner * b + 1)
    formula = text(outer * inner)
    assert formula.body == "q·r"
    assert [clause.name for clause in formula.where] == ["r", "q"]


def test_one_name_means_one_thing() -> None:
    formula = text(named("P", s + 1) * P + named("P", b + 1) * named("P", s + 1))
    assert {clause.name for clause in formula.where} == {"P_2", "P_3"}
    assert text(named("e_1", s) + symbol("e_1")).body == "e_1 + e_1_2"


@given(st.permutations([s * b, 3 * h, N / 2, P**2, constant(7), -a]))
def test_the_order_of_construction_does_not_show(terms: list[Expr]) -> None:
    assert text(total(terms)).body == "P² + b·s + 3·h + N/2 - a + 7"


def test_orders_of_factors_do_not_show() -> None:
    assert {str(text(x * y * z / w)) for x, y, z, w in permutations((s, b, h, N)) if w is N} == {"b·h·s/N"}


def test_large_shared_parts_get_a_name() -> None:
    big = total(symbol(f"x{k}") * k for k in range(2, 20))
    formula = text(ceil(big) * maximum(big, s))
    assert formula.body == "ceil(e_1)·max(e_1, s)"
    assert [clause.name for clause in formula.where] == ["e_1"]


def test_text_grows_with_the_graph_not_with_the_tree() -> None:
    e: Expr = s
    for k in range(300):
        e = (e + b) * (e + k)
    assert len(str(text(e))) < 100_000
    assert len(str(latex(e))) < 200_000


@given(st.integers(1, 10**15), st.integers(1, 10**6))
def test_numbers_read_back(above: int, below: int) -> None:
    shown = text(constant(above) / below).body
    value = re.fullmatch(r"([\d.]+(?:e\d+)?)(?:/(\d+))?", shown)
    assert value is not None
    assert float(value[1]) / float(value[2] or 1) == pytest.approx(above / below)
