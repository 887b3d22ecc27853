"""From a coefficient to a counterexample: which rank lacks, or counts too often, whose contribution.

A coefficient depends only on the axes on which two ranks differ, so rank (0, ..., 0) against ranks with coordinates 0
and 1 shows every multiplicity there is ("semantics", section 12, step 5). Not for: where the mistake is (`explain`).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations

import attrs

from placelang.check.sizes import Sizes
from placelang.check.types import Coefficient
from placelang.frozen import Frozen

Point = tuple[tuple[str, int], ...]


@attrs.frozen(eq=False, repr=False)
class Counterexample(Frozen):
    """`rank` holds the gradient contribution that rank `contribution` makes for one use `multiplicity` times, not once.

    Coordinates name only the axes that matter; on all others the two ranks agree. The multiplicity holds the prime of
    `sizes.Sizes` where a size is unknown. `microbatch` and `site` say which use of the parameter; of an unrolled
    program they count the trips of `program.flatten`.
    """

    rank: Point
    contribution: Point
    multiplicity: Fraction
    text: str
    group: str = ""
    index: tuple[int, ...] = ()
    microbatch: int | None = None
    site: str = ""


@attrs.frozen(eq=False, repr=False)
class Wrong(Frozen):
    """The worst multiplicity of a coefficient, and on which axes the two ranks differ."""

    differ: frozenset[str]
    axes: tuple[str, ...]  # that matter, in mesh order
    multiplicity: Fraction

    @property
    def code(self) -> str:
        if self.multiplicity == 0:
            return "E201"
        return "E202" if self.multiplicity > 1 else "E203"


def wrong(coefficient: Coefficient, order: Iterable[str], data: Iterable[str]) -> Wrong | None:
    """What is first wrong with a coefficient that should be complete: missing before too often before mis-scaled.

    `order` lists all axes. Where every rank holds the same multiple, the axes that split the data (`data`) name the
    contribution.
    """
    axes = tuple(axis for axis in order if axis in coefficient.partial)
    found = [
        Wrong(frozenset(differ), axes, multiplicity)
        for k in range(len(axes) + 1)
        for differ in combinations(axes, k)
        if (multiplicity := coefficient.multiplicity(frozenset(differ))) != 1
    ]
    if not found:
        return None
    worst = min(found, key=lambda w: w.code)
    if not axes:
        return attrs.evolve(worst, differ=frozenset(data), axes=tuple(data))
    return worst


def counterexample(
    bad: Wrong, sizes: Sizes, group: str, index: tuple[int, ...], microbatch: int | None, site: str
) -> Counterexample:
    """The counterexample of a wrong multiplicity, in words too."""
    rank = tuple((axis, 0) for axis in bad.axes)
    contribution = tuple((axis, 1 if axis in bad.differ else 0) for axis in bad.axes)
    if bad.multiplicity == 0:
        text = f"rank {show(rank)} lacks the contribution of {show(contribution)}"
    elif not rank:
        text = f"every rank holds {sizes.text(bad.multiplicity)} x each contribution"
    elif rank == contribution:
        text = f"rank {show(rank)} holds {sizes.text(bad.multiplicity)} x its own contribution"
    else:
        text = f"rank {show(rank)} holds {sizes.text(bad.multiplicity)} x the contribution of {show(contribution)}"
    return Counterexample(rank, contribution, bad.multiplicity, text, group, index, microbatch, site)


def show(point: Point) -> str:
    return f"({', '.join(f'{axis}={k}' for axis, k in point)})"
