"""Values as expressions: what is printed is the value again."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.plan.literal import literal
from placelang.plan.mesh import Axis, Role
from placelang.plan.scope import Scope
from placelang.plan.values import Axes, Value, Word, evaluate
from placelang.quantity import Quantity
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.formatter import print_node
from placelang.syntax.parser import parse

AXES = ("dp", "tp", "pp")
SCOPE = Scope({}, axes={name: Axis(name, Role.DATA, 2) for name in AXES}, declared_mesh=True)
DIMENSIONS = ("bytes", "bytes/s", "flops/s", "seconds")

numbers = st.fractions(max_denominator=1000).filter(lambda x: abs(x) < 10**12)
plain: st.SearchStrategy[Value] = st.one_of(
    st.booleans(),
    numbers,
    st.builds(Quantity, numbers.filter(bool), st.sampled_from(DIMENSIONS)),
    st.text('ab "\\\n', max_size=4),
    st.builds(Axes, st.lists(st.sampled_from(AXES), min_size=1, unique=True).map(tuple)),
    st.sampled_from(["adamw", "full"]).map(Word),
)
nested: st.SearchStrategy[Value] = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.lists(st.tuples(st.none() | st.just("x"), inner), min_size=1, max_size=3).map(lambda a: Word("f", tuple(a))),
    ),
    max_leaves=5,
)


@given(nested)
def test_a_literal_evaluates_to_its_value(value: Value) -> None:
    (let,) = (parse(Source(f"let x = {print_node(literal(value))}"))[0]).statements
    assert isinstance(let, ast.Let)
    assert evaluate(let.value, SCOPE.lookup) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Quantity(Fraction(80 * 2**30), "bytes"), "80GiB"),
        (Quantity(Fraction(10**9), "bytes"), "1GB"),
        (Quantity(Fraction(450 * 10**9), "bytes/s"), "450GB/s"),
        (Quantity(Fraction(1, 200_000), "seconds"), "5us"),
        (Fraction(1, 3), "(1 / 3)"),
        (Axes(("dp", "tp")), "(dp * tp)"),
    ],
)
def test_the_plainest_spelling(value: Value, text: str) -> None:
    assert print_node(literal(value)) == text
