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

OCCUR = ((True, Outcome.EQUAL), (False, Outcome.DIFFERS), (False, Outcome.NO_DENOTATION))


def agree(table: Table, title: str) -> None:
    print(table.show(title, lambda _: "unexplained"))
    assert not table.wrongly_accepted, table.wrongly_accepted[0]
    assert not table.equal_refused, table.equal_refused[0]


def all_sound(table: Table, title: str) -> None:
    agree(table, title)
    assert table.counts[True, Outcome.EQUAL] == sum(table.counts.values()) > 20


@pytest.mark.parametrize("start", range(2))
def test_well_known_strategies(start):
    all_sound(judge_recipes(islice(bases(), start * 3, None, 7)), f"well-known, from {start * 3}")


@pytest.mark.parametrize("seed", range(2))
def test_knobs(seed):
    table = judge_recipes(recipes(80, Random(seed)))
    agree(table, f"knobs, seed {seed}")
    assert all(table.counts[cell] for cell in OCCUR), "a family of one kind shows nothing"


@pytest.mark.slow
def test_every_well_known_strategy():
    all_sound(judge_recipes(bases()), "well-known, all")


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
    assert len(table.equal_refused) <= 0.05 * count


@pytest.mark.parametrize("seed", range(2))
def test_mutants(seed):
    mutants(120, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_mutants(seed):
    mutants(1_500, seed)
