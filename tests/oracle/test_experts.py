"""Checker and oracle agree on experts over ranks. Run with -s to see the counts."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from placelang.simulate import Outcome
from tests.oracle.experts import bases, judge_cases, turned
from tests.oracle.families import Table


def agree(table: Table, title: str) -> None:
    print(table.show(title, lambda _: "unexplained"))
    assert not table.wrongly_accepted, table.wrongly_accepted[0]
    assert not table.equal_refused, table.equal_refused[0]


def all_sound(table: Table, title: str) -> None:
    agree(table, title)
    assert table.counts[True, Outcome.EQUAL] == sum(table.counts.values()) > 5, table.counts


def test_well_known_cases():
    all_sound(judge_cases(islice(bases(), 0, None, 3)), "experts, every third")


@pytest.mark.slow
def test_every_well_known_case():
    all_sound(judge_cases(bases()), "experts")


@pytest.mark.parametrize("seed", range(2))
def test_turned(seed):
    agree(judge_cases(turned(15, Random(seed))), f"experts, seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_turned(seed):
    agree(judge_cases(turned(150, Random(seed))), f"experts, seed {seed}")
