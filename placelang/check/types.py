"""What a buffer is to the checker: a formal sum of value ids with coefficients, and a layout ("semantics", section 3).

A coefficient assigns a rational to each set of *partial* axes: those on which a rank holds its own summand only. So
`{{}: 1}` is complete, `{{dp}: 1}` partial over `dp`, `{{}: n}` counted n times, whatever the other axes of the mesh.
Not for: which operation may do what (`rules`), or the numbers of one rank (`simulate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

import attrs

from placelang.program.event import Label, Layout

ValueId = int
"""An index into a `values.Values` table."""

_NONE: frozenset[str] = frozenset()


@attrs.frozen
class Coefficient:
    """A polynomial in I (identity) and J (all-ones) of each axis: {axes with I: factor}; every other axis has J."""

    terms: frozenset[tuple[frozenset[str], Fraction]]

    @staticmethod
    def of(terms: Mapping[frozenset[str], Fraction]) -> Coefficient:
        return Coefficient(frozenset((partial, q) for partial, q in terms.items() if q))

    @property
    def partial(self) -> frozenset[str]:
        """The axes on which any part of it is partial."""
        return _NONE.union(*(partial for partial, _ in self.terms))

    def summed(self, axis: str, size: int) -> Coefficient:
        """J_axis times this: `J J = n J` where it is complete, `J I = J` where it is partial."""
        out: dict[frozenset[str], Fraction] = {}
        for partial, q in self.terms:
            key, factor = (partial - {axis}, q) if axis in partial else (partial, q * size)
            out[key] = out.get(key, Fraction(0)) + factor
        return Coefficient.of(out)

    def scaled(self, factor: Fraction) -> Coefficient:
        return Coefficient(frozenset((partial, q * factor) for partial, q in self.terms)) if factor else NOTHING

    def plus(self, other: Coefficient) -> Coefficient:
        out = dict(self.terms)
        for partial, q in other.terms:
            out[partial] = out.get(partial, Fraction(0)) + q
        return Coefficient.of(out)

    def widest(self, axes: Iterable[str] = ()) -> Coefficient:
        """Of a maximum, after one over `axes`: what is known everywhere needs nothing that is known on fewer ranks."""
        gone = frozenset(axes)
        left = {(partial - gone, q) for partial, q in self.terms}
        return Coefficient(frozenset((p, q) for p, q in left if not any(other < p for other, _ in left)))

    def contracted(self, axes: Iterable[str]) -> Coefficient:
        """After a sum over a dim that `axes` split: each rank has summed its own part only."""
        dropped = frozenset(axes)
        return Coefficient(frozenset((partial | dropped, q) for partial, q in self.terms)) if dropped else self

    def multiplicity(self, differ: frozenset[str]) -> Fraction:
        """How often a rank holds the contribution of a rank whose coordinates differ on exactly the axes `differ`."""
        return sum((q for partial, q in self.terms if not partial & differ), Fraction(0))


NOTHING = Coefficient(frozenset())
COMPLETE = Coefficient(frozenset({(_NONE, Fraction(1))}))

ACTIVATION_DIMS = ("batch", "seq", "hidden", "heads", "ffn", "vocab", "expert")
"""The dims of activations that a layout may split."""


def canonical(layout: Iterable[tuple[str, Label]]) -> Layout:
    """Axes grouped by dim, each dim's outer first: equal layouts become equal values. `flat` runs stay in order."""
    pairs = tuple(layout)
    if any(label.dim == "flat" for _, label in pairs):
        return pairs
    return tuple(sorted(pairs, key=lambda pair: pair[1].dim))


@attrs.frozen
class Type:
    """< layout, sum of coefficient x value >. No terms: the empty sum, what a fresh accumulator holds."""

    layout: Layout
    terms: tuple[tuple[ValueId, Coefficient], ...]  # by ascending value id; no coefficient is zero
    kept: tuple[Layout, ...] = ()  # of a stash: how each operand of its operation lay

    @staticmethod
    def of(layout: Iterable[tuple[str, Label]], terms: Mapping[ValueId, Coefficient]) -> Type:
        kept = tuple(sorted((v, c) for v, c in terms.items() if c.terms))
        return Type(canonical(layout), kept)

    @staticmethod
    def clean(layout: Layout, value: ValueId) -> Type:
        """One value, complete on every rank."""
        return Type(canonical(layout), ((value, COMPLETE),))

    @property
    def value(self) -> ValueId | None:
        """The value of a clean type; None of any other."""
        if len(self.terms) == 1 and self.terms[0][1] == COMPLETE:
            return self.terms[0][0]
        return None

    @property
    def partial(self) -> frozenset[str]:
        return _NONE.union(*(c.partial for _, c in self.terms))

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that split it."""
        return tuple(axis for axis, _ in self.layout)

    def summed(self, axes: Iterable[str], sizes: Mapping[str, int], mean: bool) -> Type:
        terms = dict(self.terms)
        for axis in axes:
            n = sizes[axis]
            terms = {v: c.summed(axis, n) for v, c in terms.items()}
            if mean:
                terms = {v: c.scaled(Fraction(1, n)) for v, c in terms.items()}
        return Type.of(self.layout, terms)

    def largest(self, axes: Iterable[str]) -> Type:
        """The maximum over axes: idempotent."""
        return Type.of(self.layout, {v: c.widest(axes) for v, c in self.terms})

    def joined(self, other: Type) -> Type:
        """The maximum of two."""
        terms = dict(self.terms)
        for v, c in other.terms:
            terms[v] = Coefficient(terms[v].terms | c.terms).widest() if v in terms else c
        return Type.of(self.layout, terms)

    def plus(self, other: Type) -> Type:
        """The sum of two types of one layout."""
        terms = dict(self.terms)
        for v, c in other.terms:
            terms[v] = terms[v].plus(c) if v in terms else c
        return Type.of(self.layout, terms)

    def split(self, axes: Iterable[str], label: Label) -> Type:
        """Cut along `label` over `axes`, innermost of what splits that dim."""
        return Type.of((*self.layout, *((axis, label) for axis in axes)), dict(self.terms))

    def gathered(self, axes: Iterable[str]) -> Type:
        gone = frozenset(axes)
        return Type.of((pair for pair in self.layout if pair[0] not in gone), dict(self.terms))
