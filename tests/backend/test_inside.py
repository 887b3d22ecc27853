"""Tensor, sequence and context parallelism and their compositions on real processes, held against one device."""

from __future__ import annotations

import attrs
import pytest

from placelang.backend.errors import BackendError
from placelang.backend.verify import verify
from placelang.check.check import check_plan
from placelang.model.model import generic
from placelang.plan.plan import Selection, State
from tests.backend.texts import FOUR_NORMS, FUSED, GPT, GROUPED, NORMED, load, verified

slow = pytest.mark.slow

REPLICAS = "zero3(dp) * ulysses(cp)\noverride grads: reduce_scatter(dp) | all_reduce(cp)"
THREE_D = "dp = 2, cp = 2, tp = 2"
CASES = [
    # (mesh, strategy, model, microbatches)
    pytest.param("tp = 2", "tensor_parallel(tp)", GROUPED, 1, id="tp-grouped"),
    pytest.param("tp = 2", "tensor_parallel(tp)", FUSED, 1, id="tp-fused"),
    pytest.param("tp = 2", "megatron_sp(tp)", GPT, 2, id="sp-gpt"),
    pytest.param("tp = 2", "megatron_sp(tp)", NORMED, 1, id="sp-normed"),
    pytest.param("cp = 2", "zero1(cp) * all_gather_cp(cp)", NORMED, 1, id="cp-gather"),
    pytest.param("cp = 2", "ddp(cp) * ulysses(cp)", FUSED, 2, id="ulysses-fused"),
    pytest.param("dp = 2, tp = 2", "zero3(dp) * megatron_sp(tp)", NORMED, 2, id="zero3-sp"),
    pytest.param("dp = 2, tp = 2", "zero1(dp) * tensor_parallel(tp)", GPT, 1, id="zero1-tp"),
    pytest.param(THREE_D, "zero2(dp * cp) * all_gather_cp(cp) * megatron_sp(tp)", NORMED, 1, id="3d"),
    pytest.param("cp = 2", "zero1(cp) * ring(cp)", NORMED, 1, id="ring"),
    pytest.param("cp = 4", "zero2(cp) * ring(cp)", GPT, 2, id="ring-4", marks=slow),
    pytest.param("cp = 2", "ddp(cp) * ring(cp, balance = contiguous)", GROUPED, 1, id="ring-in-order", marks=slow),
    pytest.param(THREE_D, "zero3(dp * cp) * ring(cp) * megatron_sp(tp)", NORMED, 1, id="3d-ring", marks=slow),
    pytest.param("tp = 4", "tensor_parallel(tp)", FUSED, 1, id="tp-4-fused", marks=slow),
    pytest.param("tp = 4", "megatron_sp(tp)", GPT, 1, id="sp-4", marks=slow),
    pytest.param("tp = 2", "tensor_parallel(tp)", GPT, 1, id="tp-gpt", marks=slow),
    pytest.param("tp = 2", "tensor_parallel(tp)", FOUR_NORMS, 2, id="tp-four-norms", marks=slow),
    pytest.param("tp = 2", "megatron_sp(tp)", FOUR_NORMS, 1, id="sp-four-norms", marks=slow),
    pytest.param("tp = 2", "megatron_sp(tp)", FUSED, 1, id="sp-fused", marks=slow),
    pytest.param("cp = 2", "ddp(cp) * ulysses(cp)", GPT, 1, id="ulysses-gpt", marks=slow),
    pytest.param("cp = 2", "ddp(cp) * ulysses(cp)", NORMED, 1, id="ulysses-normed", marks=slow),
    pytest.param("cp = 4", "zero2(cp) * all_gather_cp(cp)", GPT, 1, id="cp-4", marks=slow),
    pytest.param("dp = 2, tp = 2", "ddp(dp) * tensor_parallel(tp)", GROUPED, 2, id="ddp-tp", marks=slow),
    pytest.param("dp = 2, tp = 2", "ddp(dp) * megatron_sp(tp)", FUSED, 1, id="ddp-sp", marks=slow),
    pytest.param("dp = 2, tp = 2", "zero1(dp) * megatron_sp(tp)", NORMED, 2, id="zero1-sp", marks=slow),
    pytest.param("dp = 2, tp = 2", "zero2(dp) * megatron_sp(tp)", GPT, 2, id="zero2-sp", marks=slow),
    pytest.param("dp = 2, tp = 2", "zero3(dp) * tensor_parallel(tp)", GPT, 1, id="zero3-tp", marks=slow),
    pytest.param("dp = 2, cp = 2", "ddp(dp * cp) * all_gather_cp(cp)", GPT, 1, id="ddp-cp", marks=slow),
    pytest.param("dp = 2, cp = 2", "zero1(dp * cp) * ulysses(cp)", NORMED, 2, id="zero1-ulysses", marks=slow),
    pytest.param("dp = 2, cp = 2", "zero3(dp * cp) * all_gather_cp(cp)", NORMED, 2, id="zero3-cp", marks=slow),
    pytest.param("dp = 2, cp = 2", REPLICAS, GPT, 2, id="zero3-replicas-over-cp", marks=slow),
    pytest.param("cp = 2, tp = 2", "zero1(cp) * all_gather_cp(cp) * tensor_parallel()", GPT, 1, id="cp-tp", marks=slow),
    pytest.param("cp = 2, tp = 2", "zero2(cp) * ulysses(cp) * megatron_sp(tp)", FUSED, 2, id="ulysses-sp", marks=slow),
    pytest.param(
        "dp_replicate = 2, dp_shard = 2, tp = 2", "hsdp() * megatron_sp(tp)", GPT, 2, id="hsdp-sp", marks=slow
    ),
    pytest.param(THREE_D, "zero3(dp * cp) * ulysses(cp) * megatron_sp(tp)", FUSED, 1, id="3d-zero3", marks=slow),
    pytest.param(THREE_D, "ddp(dp * cp) * all_gather_cp(cp) * tensor_parallel()", GPT, 2, id="3d-ddp", marks=slow),
    pytest.param("dp_replicate = 2, dp_shard = 2", "hsdp()", NORMED, 2, id="hsdp"),
    pytest.param("dp_replicate = 2, dp_shard = 2", "hpz()", GROUPED, 2, id="hpz"),
]  # fmt: skip


@pytest.mark.parametrize(("mesh", "strategy", "model", "microbatches"), CASES)
def test_predicted_is_real(mesh: str, strategy: str, model: str, microbatches: int) -> None:
    plan, _ = load(f"mesh ({mesh})\napply {strategy}", model, microbatches)
    verified(f"mesh ({mesh})\napply {strategy}", model, plan.mesh.world or 1, microbatches)


@pytest.mark.parametrize(
    ("mesh", "strategy", "model"),
    [
        pytest.param("dp = 2", "zero3(dp)", GPT, id="zero3"),
        pytest.param("tp = 2", "tensor_parallel(tp)", FUSED, id="tp"),
        pytest.param("dp = 2, tp = 2", "zero3(dp) * megatron_sp(tp)", NORMED, id="zero3-sp"),
        pytest.param("dp = 2", "zero1(dp)", NORMED, id="zero1", marks=slow),
        pytest.param("tp = 2", "megatron_sp(tp)", FOUR_NORMS, id="sp-four-norms", marks=slow),
        pytest.param("cp = 2", "zero3(cp) * ulysses(cp)", FUSED, id="ulysses", marks=slow),
        pytest.param("cp = 2, tp = 2", "zero1(cp) * ring(cp) * megatron_sp(tp)", NORMED, id="ring-sp", marks=slow),
        pytest.param("cp = 2, tp = 2", "zero1(cp) * all_gather_cp(cp) * megatron_sp(tp)", GPT, id="cp-sp", marks=slow),
    ],
)
def test_recomputed_blocks_issue_their_collectives_again_but_the_last(mesh: str, strategy: str, model: str) -> None:
    text = f"mesh ({mesh})\napply {strategy}\nactivations: recompute"
    plan, _ = load(text, model)
    verified(text, model, plan.mesh.world or 1)


def test_eighteen_sums_where_megatron_has_eighteen() -> None:
    """4 a layer and 2 for embedding and head (docs/design/torch.md), and the three of the loss."""
    model = GROUPED.replace("layers = 2", "layers = 4")
    report = verified("mesh (tp = 2)\napply tensor_parallel(tp)", model, 2)
    assert {(r.kind, r.axis, r.phase): r.real_count for r in report.collectives} == {
        ("all_reduce", "tp", "forward"): 9 + 3,
        ("all_reduce", "tp", "backward"): 9,
    }
    value = 2 * 16 * 32 * 4  # batch, seq, hidden, fp32
    assert sum(r.real_bytes for r in report.collectives) == 18 * value + 3 * 2 * 16 * 4


def test_an_unsummed_norm_is_refused_and_seen_when_forced() -> None:
    """Under sequence parallelism each rank's norms see a part of the tokens; their gradients are partial sums."""
    plan, model = load("mesh (tp = 2)\napply megatron_sp(tp)", GPT)
    grads = tuple(p for p in plan.placed if not (p.state is State.GRADS and p.selections))
    wrong = attrs.evolve(plan, placed=grads)
    with pytest.raises(BackendError) as error:
        verify(wrong, model, 2)
    assert error.value.diagnostic.code.startswith("E2")
    report = verify(wrong, model, 2, steps=1, force=True, limit=120)
    assert not report.ok
    assert all(row.difference > 1e-4 for row in report.parity)


def test_heads_that_would_be_cut_in_two() -> None:
    """8 rows of one key head divide over two ranks, and the head does not."""
    single = GROUPED.replace("kv_heads = 2", "kv_heads = 1")
    plan, _ = load("mesh (tp = 2)\napply tensor_parallel(tp)", GROUPED)
    with pytest.raises(BackendError, match="1 heads do not divide over `tp` = 2") as error:
        verify(plan, load("mesh (dp = 2)\napply ddp(dp)", single)[1], 2, limit=60)
    assert error.value.diagnostic.code == "E420"


def test_a_text_without_a_model_is_checked_for_the_one_that_runs() -> None:
    """The stand-in has no biases, whose gradients this text leaves partial."""
    text = "mesh (tp = 2)\napply megatron_sp(tp)"
    plan, _ = load(text, generic())
    norms = tuple(
        attrs.evolve(p, selections=(Selection("role", "norm"),)) if p.state is State.GRADS and p.selections else p
        for p in plan.placed
    )
    only_norms = attrs.evolve(plan, placed=norms)
    assert check_plan(only_norms, generic()).ok
    with pytest.raises(BackendError, match=r"attn\.wo\.bias"):
        verify(only_norms, load(text, GPT)[1], 2)


def test_sizes_that_do_not_divide() -> None:
    plan, model = load("mesh (tp = 2)\napply tensor_parallel(tp)", GROUPED.replace("vocab = 256", "vocab = 257"))
    with pytest.raises(BackendError, match="257 rows do not divide over `tp` = 2") as error:
        verify(plan, model, 2, limit=60)
    assert error.value.diagnostic.code == "E422"
