"""Checker and oracle agree on strategies that split layers inside, and on mutants of their programs.

Theorems T1 and T2 of the semantics for tensor, sequence and context parallelism with and over ZeRO. Run with -s to see
the counts.
"""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from placelang.simulate import Outcome
from tests.oracle.agreement import agree, all_sound, judged, mutants_agree
from tests.oracle.mutants import opened_bases
from tests.oracle.splits import bases, judge_recipes, recipes

OCCUR = ((True, Outcome.EQUAL), (False, Outcome.DIFFERS), (False, Outcome.NO_DENOTATION))


@pytest.mark.parametrize("start", range(2))
def test_well_known_strategies(start):
    all_sound(judge_recipes(islice(bases(), start * 3, None, 7)), f"well-known, from {start * 3}", 20)


@pytest.mark.parametrize("seed", range(2))
def test_knobs(seed):
    table = judge_recipes(recipes(80, Random(seed)))
    agree(table, f"knobs, seed {seed}")
    assert all(table.counts[cell] for cell in OCCUR), "a family of one kind shows nothing"


@pytest.mark.slow
def test_every_well_known_strategy():
    all_sound(judge_recipes(bases()), "well-known, all", 20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_knobs(seed):
    agree(judge_recipes(recipes(1_500, Random(seed))), f"knobs, seed {seed}")


@pytest.mark.parametrize("seed", range(2))
def test_mutants(seed):
    mutants_agree(judged(opened_bases, 120, seed), f"mutants, seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_mutants(seed):
    mutants_agree(judged(opened_bases, 1_500, seed), f"mutants, seed {seed}")
