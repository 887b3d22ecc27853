"""Checker and oracle agree on strategies that split layers inside, and on mutants of their programs.

Theorems T1 and T2 of the semantics for tensor, sequence and context parallelism with and over ZeRO. Run with -s to see
the counts.
"""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from placelang.simulate import Outcome
from tests.oracle.families import Judge, Table
from tests.oracle.mutants import Mutant, mutant, opened_bases, reason
from tests.oracle.splits import bases, judge_recipes, recipes


def agree(table: Table, title: str, broken: bool = True) -> None:
    """No disagreement, and programs on both sides (on one, where none is `broken`)."""
    print(table.show(title, lambda _: "unexplained"))
    assert not table.wrongly_accepted, table.wrongly_accepted[0]
    assert not table.equal_refused, table.equal_refused[0]
    assert table.counts[True, Outcome.EQUAL] and bool(table.counts[False, Outcome.DIFFERS]) is broken


@pytest.mark.parametrize("start", range(2))
def test_well_known_strategies(start):
    agree(judge_recipes(islice(bases(), start * 3, None, 7)), f"well-known, from {start * 3}", broken=False)


@pytest.mark.parametrize("seed", range(2))
def test_knobs(seed):
    agree(judge_recipes(recipes(80, Random(seed))), f"knobs, seed {seed}")


@pytest.mark.slow
def test_every_well_known_strategy():
    agree(judge_recipes(bases()), "well-known, all", broken=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_knobs(seed):
    agree(judge_recipes(recipes(1_500, Random(seed))), f"knobs, seed {seed}")


def mutants(count: int, seed: int) -> None:
    judge, table, random = Judge(), Table(), Random(seed)
    for k in range(count):
        m = mutant(random, unrolled=k % 2 == 1, sound=opened_bases)
        checked, outcome = judge.verdicts(m.program, id(m.reference), lambda m=m: m.reference)
        table.add(m, checked.ok, outcome)
    print(table.show(f"mutants, seed {seed}", reason))
    assert not table.wrongly_accepted, [(str(m), o) for m, o in table.wrongly_accepted]
    unexplained = [str(m) for m in table.equal_refused if isinstance(m, Mutant) and not reason(m)]
    assert not unexplained, unexplained
    assert len(table.equal_refused) <= 0.02 * count


@pytest.mark.parametrize("seed", range(2))
def test_mutants(seed):
    mutants(120, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_mutants(seed):
    mutants(1_500, seed)
