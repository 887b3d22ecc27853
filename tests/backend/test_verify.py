"""Every strategy on real processes: equal to one device, with exactly the traffic and bytes that were predicted."""

from __future__ import annotations

import json

import pytest

from placelang.backend.errors import BackendError
from placelang.backend.verify import verify
from placelang.program.lower import single_device
from tests.backend.plans import plan, tiny

CASES = [
    # The two strategies of the front page, at even and uneven splits, head tied and not.
    pytest.param("ddp", (2,), 1, "fp32", {"tied": True}, id="ddp-2-tied"),
    pytest.param("ddp", (3,), 2, "fp32", {}, id="ddp-3-accumulated"),
    pytest.param("zero3", (2,), 2, "fp32", {}, id="zero3-2-accumulated"),
    pytest.param("zero3", (3,), 1, "fp32", {"tied": True}, id="zero3-3-tied"),
    pytest.param(
        "zero3", (2,), 1, "fp32", {"mlp": "gelu", "norm": "layernorm", "bias": True, "kv_heads": 4}, id="gpt2"
    ),
    # One rank needs no collective; four leave some ranks without a row of the small tensors.
    pytest.param("zero3", (1,), 1, "fp32", {}, id="zero3-1"),
    pytest.param("ddp", (1,), 2, "fp32", {}, id="ddp-1"),
    pytest.param(
        "zero1", (4,), 1, "fp32", {"hidden": 6, "heads": 1, "kv_heads": 1, "ffn": 5}, id="zero1-4-empty-shards"
    ),
    pytest.param(
        "zero3", (4,), 1, "fp32", {"hidden": 6, "heads": 1, "kv_heads": 1, "ffn": 5}, id="zero3-4-empty-shards"
    ),
    # Precisions: fp32 masters of bf16 parameters, and gradients that accumulate wider than they are produced.
    pytest.param("zero3", (3,), 1, "bf16", {}, id="zero3-bf16"),
    pytest.param("zero3", (2,), 2, "fsdp_mixed", {}, id="zero3-mixed"),
    pytest.param("ddp", (2,), 2, "bf16_fp32_grads", {}, id="ddp-bf16-fp32-grads"),
    pytest.param("zero2", (3,), 2, "bf16_fp32_grads", {}, id="zero2-3-bf16-fp32-grads"),
    # The rest of the family.
    pytest.param("ddp_each", (2,), 2, "fp32", {}, id="ddp-each-microbatch"),
    pytest.param("zero1", (2,), 2, "bf16", {}, id="zero1-bf16"),
    pytest.param("zero1_3p", (2,), 1, "fp32", {}, id="zero1-with-all-reduce"),
    pytest.param("zero2", (2,), 2, "fp32", {"tied": True}, id="zero2-tied"),
    pytest.param("zero3_kept", (2,), 2, "fp32", {}, id="zero3-kept"),
    pytest.param("zero3", (2, 2), 2, "fp32", {}, id="hsdp"),
    pytest.param("zero2", (2, 2), 1, "fp32", {}, id="hierarchical-zero2"),
    pytest.param("ddp", (2, 2), 1, "fp32", {}, id="ddp-two-axes"),
]


@pytest.mark.parametrize(("name", "sizes", "microbatches", "precision", "facts"), CASES)
def test_predicted_is_real(
    name: str, sizes: tuple[int, ...], microbatches: int, precision: str, facts: dict[str, object]
) -> None:
    ranks = sizes[0] if len(sizes) == 1 else sizes[0] * sizes[1]
    strategy = plan(name, *sizes, microbatches=microbatches, precision=precision)
    report = verify(strategy, tiny(**facts), ranks, steps=2, limit=120)
    bad = [row for row in (*report.collectives, *report.memory, *report.parity, report.data) if not row.ok]
    assert report.ok, bad
    assert bool(report.collectives) == (ranks > 1)
    assert {row.optimizer for row in report.parity} == {"gradient", "sgd", "adamw"}
    assert json.loads(json.dumps(report.json_value()))["ok"] is True


def test_traffic_of_the_two_front_page_strategies_by_hand() -> None:
    """2 blocks and the root: all_reduce moves 4P once; FSDP2 4P padded three times."""
    model = tiny()
    report = verify(plan("ddp", 2), model, 2, steps=1, limit=120)
    assert [(r.kind, r.axis, r.phase, r.real_count, r.real_bytes) for r in report.collectives] == [
        ("all_reduce", "dp", "backward", 3, 4 * model.params)
    ]
    padded = 4 * (model.params + 2 * 32)  # 257 rows become 258, in the embedding and in the head
    report = verify(plan("zero3", 2), model, 2, steps=1, limit=120)
    assert [(r.kind, r.axis, r.phase, r.real_count, r.real_bytes) for r in report.collectives] == [
        ("all_gather", "dp", "backward", 3, padded),
        ("all_gather", "dp", "forward", 3, padded),
        ("reduce_scatter", "dp", "backward", 3, padded),
    ]
    assert {m.state: m.real for m in report.memory} == {
        "params": padded // 2,
        "grads": padded // 2,
        "optimizer": padded,
    }


def test_without_its_reduction_a_strategy_is_refused_before_a_process_starts() -> None:
    for name in ("none", "zero3_none"):
        with pytest.raises(BackendError) as error:
            verify(plan(name, 2), tiny(), 2)
        assert error.value.diagnostic.code == "E201"
        assert error.value.rank is None


@pytest.mark.parametrize("name", ["none", "zero3_none"])
def test_a_forced_run_differs_from_one_device(name: str) -> None:
    report = verify(plan(name, 2), tiny(), 2, steps=2, force=True, limit=120)
    assert not report.ok
    assert all(row.difference > 1e-4 for row in report.parity)
    replicas_differ = name == "none"  # with shards there is one copy, wrong on every rank alike
    assert all((row.between_ranks > 1e-4) == replicas_differ for row in report.parity)
    assert report.data.ok


def test_a_reduction_over_one_of_two_axes_is_seen() -> None:
    report = verify(plan("ddp_inner", 2, 2), tiny(), 4, steps=1, force=True, limit=120)
    assert all(row.between_ranks > 1e-4 and not row.ok for row in report.parity)


def test_a_plan_without_a_mesh_runs_on_one_device() -> None:
    assert verify(single_device(plan("zero3", 2)), tiny(), 1, steps=1, limit=60).ok
