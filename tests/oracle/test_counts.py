"""Bytes counted from the arrays that simulated events move, against those that the cost formulas predict.

Two readings of one program that share no code. Row counts are uneven, so padding is in both.
"""

from __future__ import annotations

import pytest

from placelang.backend.predicted import rest_bytes
from placelang.backend.predicted import traffic as predicted
from placelang.plan.steps import Keep, When
from placelang.program.event import Phase
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
    assert counted == {(t.kind, t.axis, t.phase): (t.count, t.bytes) for t in predicted(program, tiny())}


@pytest.mark.parametrize("name", PLANS)
def test_memory_at_rest(name):
    program, _ = both(PLANS[name])
    assert simulate(program).rest == sum(rest_bytes(program).values())
