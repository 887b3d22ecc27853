"""The coefficient algebra against matrices, layouts, sizes and counterexamples."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from placelang.check.counterexample import counterexample, wrong
from placelang.check.sizes import Sizes
from placelang.check.types import COMPLETE, Coefficient, canonical
from placelang.plan.mesh import Axis, Mesh, Role
from placelang.program.event import Label

SIZES = {"a": 2, "b": 3}
RANKS = tuple(product(range(2), range(3)))


@st.composite
def coefficients(draw: st.DrawFn) -> Coefficient:
    partial = st.frozensets(st.sampled_from(["a", "b"]))
    return Coefficient.of(draw(st.dictionaries(partial, st.fractions(0, 3, max_denominator=4), max_size=3)))


def matrix(c: Coefficient) -> dict[tuple[tuple[int, int], tuple[int, int]], Fraction]:
    """How often each rank holds the contribution of each rank."""
    return {
        (u, w): c.multiplicity(frozenset(axis for axis, x, y in zip("ab", u, w, strict=True) if x != y))
        for u in RANKS
        for w in RANKS
    }


@given(coefficients(), st.sampled_from(["a", "b"]))
def test_summed_is_the_sum_over_the_group(c: Coefficient, axis: str) -> None:
    before, after = matrix(c), matrix(c.summed(axis, SIZES[axis]))
    k = "ab".index(axis)
    for u, w in after:
        group = [r for r in RANKS if r[1 - k] == w[1 - k]]
        assert after[u, w] == sum(before[u, r] for r in group)


@given(coefficients(), coefficients(), st.fractions(0, 3))
def test_plus_and_scaled(c: Coefficient, d: Coefficient, q: Fraction) -> None:
    assert matrix(c.plus(d)) == {k: v + matrix(d)[k] for k, v in matrix(c).items()}
    assert matrix(c.scaled(q)) == {k: q * v for k, v in matrix(c).items()}


@given(coefficients())
def test_wrong_finds_exactly_what_is_not_one(c: Coefficient) -> None:
    found = wrong(c, ("a", "b"), ())
    assert (found is None) == (set(matrix(c).values()) == {1})
    if found:
        assert found.multiplicity in matrix(c).values()
        assert (found.code == "E201") == (0 in matrix(c).values())


def test_counterexample_words() -> None:
    sizes = Sizes.of(Mesh((Axis("dp", Role.DATA), Axis("tp", Role.TENSOR, 2))))

    def words(c: Coefficient) -> str:
        bad = wrong(c, ("dp", "tp"), ("dp",))
        assert bad is not None
        return counterexample(bad, sizes, "embed", (), 0, "embed").text

    own = Coefficient.of({frozenset({"dp", "tp"}): Fraction(1)})
    assert words(own) == "rank (dp=0, tp=0) lacks the contribution of (dp=1, tp=0)"
    assert words(COMPLETE.summed("dp", sizes.numbers["dp"])) == "rank (dp=0) holds dp x the contribution of (dp=1)"
    twice = own.plus(COMPLETE)
    assert words(twice) == "rank (dp=0, tp=0) holds 2 x its own contribution"
    n = sizes.numbers["dp"]
    assert words(COMPLETE.scaled(Fraction(1, 2 * n))) == "rank (dp=0) holds 1/(2 * dp) x the contribution of (dp=1)"
    assert words(COMPLETE.scaled(Fraction(n + 1))) == "rank (dp=0) holds several x the contribution of (dp=1)"


def test_a_mesh_of_many_unknown_sizes_gives_each_its_own() -> None:
    sizes = Sizes.of(Mesh(tuple(Axis(f"x{k}", Role.DATA) for k in range(20))))
    assert len(set(sizes.numbers.values())) == 20


def test_layouts_are_equal_when_each_dim_is_split_alike() -> None:
    rows, columns, flat = Label("0"), Label("1"), Label("flat")
    assert canonical((("a", columns), ("b", rows))) == canonical((("b", rows), ("a", columns)))
    assert canonical((("a", rows), ("b", rows))) != canonical((("b", rows), ("a", rows)))
    assert canonical((("a", columns), ("b", flat))) != canonical((("b", flat), ("a", columns)))
