"""Well-typed means equal to one device, and ill-typed means different or without denotation: by brute force.

Theorems T1 and T2 of the semantics on whole strategies. Run with -s to see the counts.
"""

from __future__ import annotations

from random import Random

import pytest

from placelang.simulate import Outcome
from tests.oracle.families import Table, judge_knobs, one_axis, two_axes


def agree(table: Table, title: str) -> None:
    print(table.show(title))
    assert not table.wrongly_accepted
    assert not table.equal_refused
    assert all(table.counts[accepted, outcome] for accepted, outcome in OCCUR), "a family of one kind shows nothing"


OCCUR = ((True, Outcome.EQUAL), (False, Outcome.DIFFERS), (False, Outcome.NO_DENOTATION))


@pytest.mark.parametrize("size", [2, 3])
def test_one_axis(size):
    agree(judge_knobs(Random(size).sample([*one_axis(size)], 250)), f"one axis of {size}, sampled")


def test_two_axes():
    agree(judge_knobs(two_axes(500, Random(0))), "two axes, sampled")


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_every_strategy_on_one_axis(size):
    agree(judge_knobs(one_axis(size)), f"one axis of {size}, all")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_strategies_on_two_axes(seed):
    agree(judge_knobs(two_axes(10_000, Random(seed))), f"two axes, seed {seed}")
