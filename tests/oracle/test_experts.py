"""Checker and oracle agree on experts over ranks. Run with -s to see the counts."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from tests.oracle.agreement import agree, all_sound
from tests.oracle.experts import bases, judge_cases, turned


def test_well_known_cases():
    all_sound(judge_cases(islice(bases(), 0, None, 3)), "experts, every third", 5)


@pytest.mark.slow
def test_every_well_known_case():
    all_sound(judge_cases(bases()), "experts", 5)


@pytest.mark.parametrize("seed", range(2))
def test_turned(seed):
    agree(judge_cases(turned(15, Random(seed))), f"experts, seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_turned(seed):
    agree(judge_cases(turned(150, Random(seed))), f"experts, seed {seed}")
