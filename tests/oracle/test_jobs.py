"""Checker and oracle agree on mutants of jobs that clip, scale the loss, or freeze parameters.

Theorems T1 and T2 where an update reads more than its own gradient. Run with -s to see the counts.
"""

from __future__ import annotations

import pytest

from placelang.backend.predicted import rest_bytes
from placelang.backend.predicted import traffic as predicted
from placelang.check.check import check
from placelang.plan.mesh import Role
from placelang.program.event import Phase
from placelang.simulate import Outcome, compare, simulate
from tests.oracle import jobs
from tests.oracle.agreement import judged, mutants_agree
from tests.simulate.strategies import tiny

FAMILIES = {"whole gradient": jobs.whole_gradient, "frozen": jobs.frozen}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_sound_original_is_refused(family):
    for plan, program, reference in FAMILIES[family]():
        checked = check(program, reference)
        assert not checked.diagnostics, (plan.mesh.names, checked.diagnostics)
        assert compare(checked.program, reference).outcome is Outcome.EQUAL, plan.mesh.names


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(2))
def test_mutants(family, seed):
    mutants_agree(judged(FAMILIES[family], 120, seed), f"{family}, seed {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_mutants(family, seed):
    mutants_agree(judged(FAMILIES[family], 1_500, seed), f"{family}, seed {seed}")


def test_traffic_and_memory_at_rest_are_those_of_the_formulas():
    """Bytes that simulated events move and states take, against what the cost says of them."""
    for plan, program, _ in (*jobs.whole_gradient(), *jobs.frozen()):
        if any(axis.role is not Role.DATA for axis in plan.mesh.axes):
            continue
        result = simulate(program)
        counted = {
            (t.op.value, "*".join(t.axes), t.phase.value): (t.count, t.bytes)
            for t in result.traffic
            if t.phase is not Phase.INIT
        }
        assert counted == {(t.kind, t.axis, t.phase): (t.count, t.bytes) for t in predicted(program, tiny())}, plan
        assert result.rest == sum(rest_bytes(program).values()), plan
