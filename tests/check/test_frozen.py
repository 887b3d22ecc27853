"""Frozen parameters: no gradient, no optimizer state, no update, here and on one device alike."""

from __future__ import annotations

import pytest

from placelang import api
from placelang.check.check import check
from placelang.plan.plan import State
from placelang.plan.steps import Keep
from placelang.program.event import Op, Phase
from placelang.program.layouts import events
from placelang.program.lower import lower, single_device
from placelang.simulate import Outcome, compare
from tests.oracle.jobs import adapted
from tests.simulate.strategies import both, ddp, mesh, tiny, zero1, zero3

FROZEN = ("blocks.*.up.*",)


def test_frozen_here_and_on_one_device():
    program, reference = both(zero3(mesh(dp=2), frozen=FROZEN))
    assert check(program, reference).ok
    assert compare(program, reference).outcome is Outcome.EQUAL


@pytest.mark.parametrize("make", [ddp, zero1, zero3])
def test_frozen_here_only(make):
    reference = lower(single_device(make(mesh(dp=2))), tiny())
    program, _ = both(make(mesh(dp=2), frozen=("blocks.**",)))
    checked = check(program, reference)
    assert [d.code for d in checked.diagnostics] == ["E301"]
    assert compare(checked.program, reference).outcome is Outcome.DIFFERS


def test_what_is_frozen_has_parameters_only():
    program, _ = both(zero3(mesh(dp=2)), adapted(tiny()))
    states = {(r.group, r.state) for r in program.rests}
    assert ("blocks.frozen", State.PARAMS) in states and ("blocks", State.OPTIMIZER) in states
    assert not {(g.name, s) for g in program.groups if not g.trainable for s in State if s is not State.PARAMS} & states


def test_backward_ends_in_front_of_the_last_that_is_trained():
    """The embedding is not gathered again, and only adapters are reduced: sets F, B and G of section 6."""
    program, _ = both(zero3(mesh(dp=2), Keep.UNIT), adapted(tiny(tied=False)))
    backward = [e for e, _ in events(program.body) if e.phase is Phase.BACKWARD]
    assert not any(b.of == "embed" for e in backward if e.compute for b in (*e.ins, *e.outs))
    reduced = [b.of for e, _ in events(program.body) if e.op is Op.REDUCE_SCATTER for b in e.ins]
    assert reduced == ["blocks"]


LORA = "model llama3_8b(lora = 16)\nmesh (dp = 8)\ntrain (precision = bf16, micro_batch = 1, seq = 512)\n"


def test_costs_of_adapters_beside_a_frozen_base():
    """ZeRO-3: everything is gathered, adapters are reduced and have optimizer state."""
    strategy = api.load(LORA + "params: shard(dp)\n")
    assert strategy.ok and strategy.plan is not None and strategy.plan.model is not None
    model, cost = strategy.plan.model, strategy.cost()
    adapters = model.params_trainable
    assert cost.number(cost.by_state["optimizer"]) == adapters * 12 // 8  # fp32 master and moments
    assert cost.number(cost.by_state["params"]) == model.params * 2 // 8
    moved = {t.kind + " " + t.phase: cost.number(t.message) for t in cost.traffic}
    assert moved["all_gather forward"] == 2 * model.params
    assert moved["reduce_scatter backward"] == 2 * adapters


def test_a_frozen_base_may_rest_in_a_format_of_its_own():
    strategy = api.load(
        LORA + "params[frozen]: shard(dp) as nf4 | gather as bf16\nparams[trainable]: replicate\n"
        "grads[trainable]: all_reduce(dp)\n"
    )
    assert strategy.ok and strategy.plan is not None and strategy.plan.model is not None
    model, cost = strategy.plan.model, strategy.cost()
    frozen = model.params - model.params_trainable
    assert cost.number(cost.by_state["params"]) == frozen // 2 // 8 + 2 * model.params_trainable
