"""Bytes counted from the arrays that simulated events move, against those that cost formulas and backend predict.

Three readings of one program that share no code. Row counts are uneven, so padding is in all of them.
"""

from __future__ import annotations

from collections import Counter

import pytest

from placelang.backend.predicted import rest_bytes
from placelang.backend.predicted import traffic as predicted
from placelang.cost.cost import cost
from placelang.plan.plan import Plan
from placelang.plan.steps import Keep, When
from placelang.program.event import Phase
from placelang.program.lower import lower
from placelang.simulate import simulate
from tests.simulate.strategies import both, ddp, hsdp, mesh, tiny, zero1, zero2, zero3

EACH = When.MICROBATCH
PLANS = {
    "ddp": ddp(mesh(dp=2)),
    "ddp each microbatch": ddp(mesh(dp=3), EACH),
    "zero1": zero1(mesh(dp=3)),
    "zero2": zero2(mesh(dp=2), EACH),
    "zero3": zero3(mesh(dp=3)),
    "zero3 two axes": zero3(mesh(a=2, b=2), when=EACH),
    "zero3 keep step": zero3(mesh(dp=2), Keep.STEP),
    "hsdp": hsdp(mesh(a=2, b=3)),
    "hsdp each microbatch": hsdp(mesh(a=2, b=2), EACH),
}


@pytest.mark.parametrize("name", PLANS)
def test_traffic(name):
    program, _ = both(PLANS[name])
    counted = {
        (t.op.value, "*".join(t.axes), t.phase.value): (t.count, t.bytes)
        for t in simulate(program).traffic
        if t.phase is not Phase.INIT
    }
    assert counted == {(t.kind, t.axis, t.phase): (t.count, t.bytes) for t in predicted(program)}
    assert {k: v[1] for k, v in counted.items()} == by_formula(PLANS[name])


def by_formula(plan: Plan) -> dict[tuple[str, str, str], int]:
    found = cost(plan, tiny(), lower(plan, tiny()))
    total: Counter[tuple[str, str, str]] = Counter()
    for row in found.traffic:
        number = found.number(row.message)
        assert number is not None
        total[row.kind, "*".join(row.axes), row.phase] += int(number)
    return dict(total)


@pytest.mark.parametrize("name", PLANS)
def test_memory_at_rest(name):
    program, _ = both(PLANS[name])
    assert simulate(program).rest == sum(rest_bytes(program).values())
