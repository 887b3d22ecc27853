"""Checker and oracle agree on pipelines, and on mutants of their programs; and the cost of each stage is what it moves.

Run with -s to see the counts.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest

from placelang.cost.cost import cost
from placelang.program.event import Phase
from placelang.simulate import Outcome, simulate
from placelang.simulate.run import BATCH
from placelang.simulate.sizes import SEQ
from tests.oracle.families import Judge, Table
from tests.oracle.mutants import Mutant, mutant, reason, staged_bases
from tests.oracle.stages import Line, bases, judge_lines, lines, lowered


def agree(table: Table, title: str) -> None:
    print(table.show(title, lambda _: "unexplained"))
    assert not table.wrongly_accepted, table.wrongly_accepted[0]


def all_sound(table: Table, title: str) -> None:
    agree(table, title)
    assert table.counts[True, Outcome.EQUAL] == sum(table.counts.values()) > 10, table.counts


def test_well_known_lines():
    all_sound(judge_lines(islice(bases(), 0, None, 4)), "pipelines, every fourth")


@pytest.mark.slow
def test_every_well_known_line():
    all_sound(judge_lines(bases()), "pipelines")


@pytest.mark.parametrize("seed", range(2))
def test_knobs(seed):
    agree(judge_lines(lines(40, Random(seed))), f"pipelines, seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_knobs(seed):
    agree(judge_lines(lines(500, Random(seed))), f"pipelines, seed {seed}")


def mutants(count: int, seed: int) -> None:
    judge, table, random = Judge(), Table(), Random(seed)
    for k in range(count):
        m = mutant(random, unrolled=k % 2 == 1, sound=staged_bases)
        checked, outcome = judge.verdicts(m.program, id(m.reference), lambda m=m: m.reference)
        table.add(m, checked.ok, outcome)
    print(table.show(f"mutants of pipelines, seed {seed}", reason))
    assert not table.wrongly_accepted, [(str(m), o) for m, o in table.wrongly_accepted]
    unexplained = [str(m) for m in table.equal_refused if isinstance(m, Mutant) and not reason(m)]
    assert len(unexplained) <= 0.05 * count, unexplained


@pytest.mark.parametrize("seed", range(2))
def test_mutants(seed):
    mutants(60, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_mutants(seed):
    mutants(1_000, seed)


STAGED = [line for line in bases() if line.zero in ("zero1", "zero3") and line.dp == 2]


@pytest.mark.parametrize("line", STAGED[::3], ids=lambda line: f"{line.model}-{line.schedule}-{line.split}-{line.zero}")
def test_each_stage_moves_what_its_cost_says(line: Line) -> None:
    plan, model = line.plan(), line.deep()
    assert plan is not None
    program = lowered(plan, model)
    found = cost(plan, model, program)
    known = {"b": BATCH // line.dp, "s": SEQ}
    ran = simulate(program, batch=BATCH)
    for stage, said in found.stages:
        counted: Counter[tuple[object, ...]] = Counter()
        for t in ran.meters[stage].traffic:
            if t.phase is not Phase.INIT:
                counted[t.op.value, t.axes, t.phase.value, "calls"] += t.count
                counted[t.op.value, t.axes, t.phase.value, "bytes"] += t.bytes
        predicted: Counter[tuple[object, ...]] = Counter()
        from placelang.cost.expr import evaluate

        for t in said.traffic:
            values = {**said.values, **known}
            predicted[t.kind, t.axes, t.phase, "calls"] += evaluate(t.count, values)
            predicted[t.kind, t.axes, t.phase, "bytes"] += evaluate(t.message, values)
        assert counted == predicted, stage
