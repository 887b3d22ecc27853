"""Checker and oracle agree on pipelines, and on mutants of their programs; and the cost of each stage is what it moves.

Run with -s to see the counts.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest

from placelang.cost.cost import cost
from placelang.cost.expr import evaluate
from placelang.program.event import Phase
from placelang.simulate import simulate
from placelang.simulate.run import BATCH
from placelang.simulate.sizes import SEQ
from tests.oracle.agreement import agree, all_sound, judged, mutants_agree
from tests.oracle.mutants import staged_bases
from tests.oracle.stages import Line, bases, judge_lines, lines, lowered


def test_well_known_lines():
    all_sound(judge_lines(islice(bases(), 0, None, 4)), "pipelines, every fourth", 10)


@pytest.mark.slow
def test_every_well_known_line():
    all_sound(judge_lines(bases()), "pipelines", 10)


@pytest.mark.parametrize("seed", range(2))
def test_knobs(seed):
    agree(judge_lines(lines(40, Random(seed))), f"pipelines, seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_knobs(seed):
    agree(judge_lines(lines(500, Random(seed))), f"pipelines, seed {seed}")


@pytest.mark.parametrize("seed", range(2))
def test_mutants(seed):
    mutants_agree(judged(staged_bases, 60, seed), f"mutants of pipelines, seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_mutants(seed):
    mutants_agree(judged(staged_bases, 1_000, seed), f"mutants of pipelines, seed {seed}")


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
        for t in said.traffic:
            values = {**said.values, **known}
            predicted[t.kind, t.axes, t.phase, "calls"] += evaluate(t.count, values)
            predicted[t.kind, t.axes, t.phase, "bytes"] += evaluate(t.message, values)
        assert counted == predicted, stage
