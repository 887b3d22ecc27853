"""The multiplicity that a counterexample names is what one-hot probing measures."""

from __future__ import annotations

from random import Random

import pytest

from placelang.check.check import check
from placelang.check.counterexample import Counterexample
from placelang.program.lower import lower, single_device
from placelang.simulate import Coefficient, NoDenotation, probe
from tests.oracle.families import Knobs, one_axis, two_axes
from tests.simulate.strategies import tiny


def rank_of(knobs: Knobs, point: tuple[tuple[str, int], ...]) -> int:
    at = dict(point)
    rank = 0
    for axis, size in knobs.sizes:
        rank = rank * size + at.get(axis, 0)
    return rank


def measured(knobs: Knobs, found: Counterexample, probed: tuple[Coefficient, ...]) -> Coefficient:
    (coefficient,) = (
        c
        for c in probed
        if (c.rank, c.group, c.index, c.microbatch)
        == (rank_of(knobs, found.rank), found.group, found.index, found.microbatch)
        and rank_of(knobs, found.contribution) in c.source
    )
    return coefficient


def confirm(family: list[Knobs]) -> int:
    confirmed = 0
    for knobs in family:
        plan = knobs.plan()
        reference = lower(single_device(plan), tiny())
        checked = check(lower(plan, tiny()), reference, plan)
        shown = [f.counterexample for f in checked.faults if f.counterexample]
        if not shown:
            continue
        try:
            probed = probe(checked.program, reference)
        except NoDenotation:
            continue  # it stops before an optimizer reads anything
        for found in shown:
            coefficient = measured(knobs, found, probed)
            assert coefficient.value == pytest.approx(float(found.multiplicity), abs=1e-9), (knobs, found)
            assert coefficient.residual < 1e-9
            confirmed += 1
    return confirmed


def test_counterexamples_are_measured():
    assert confirm([*Random(0).sample([*one_axis(3)], 150), *two_axes(150, Random(0))]) > 50


@pytest.mark.slow
def test_every_counterexample_is_measured():
    confirmed = confirm([*one_axis(2), *two_axes(3_000, Random(1))])
    print(f"\n{confirmed} counterexamples confirmed by probing")
    assert confirmed > 1_000
