"""The rules of elaboration, axis by axis: what is inferred beside what is written, and in which order it lies."""

from __future__ import annotations

import pytest

from tests.plan.elaborated import is_fixed_point, journeys, read

MODEL = "model gpt2_124m\n"


def test_the_card() -> None:
    assert journeys("params: shard(dp) ; grads: reduce_scatter") == {
        "params": "shard(dp, dim = 0, pad = even) | gather(dp, unit = layer, keep = unit, prefetch = 1)",
        "grads": "partial(dp) | reduce_scatter(dp, when = microbatch)",
        "optimizer": "shard(dp, dim = 0, pad = even)",
        "activations": "shard(dp, dim = batch)",
    }


def test_the_optimizer_holds_what_compute_holds_of_a_tensor() -> None:
    found = journeys(f"mesh (dp = 2, tp = 2)\n{MODEL}apply zero1(dp) * megatron_sp(tp)")
    assert found["on attn.qkv, mlp.up { optimizer"] == "colwise(tp) * shard(dp, dim = 0, pad = even)"
    found = journeys(f"mesh (dp = 2, tp = 2)\n{MODEL}apply ddp(dp) * megatron_sp(tp)")
    assert found["on attn.qkv, mlp.up { optimizer"] == "colwise(tp)"


@pytest.mark.parametrize("product", ["fsdp(dp) * megatron_sp(tp)", "megatron_sp(tp) * fsdp(dp)"])
def test_what_is_gathered_lies_inside_of_what_compute_uses(product: str) -> None:
    found = journeys(f"mesh (dp = 2, tp = 2)\n{MODEL}apply {product}")
    gathered = "shard(dp, dim = 0, pad = even) | gather(dp, unit = layer, keep = unit, prefetch = 1)"
    assert found["on attn.qkv, mlp.up { params"] == f"colwise(tp) * {gathered}"


def test_a_tied_tensor_is_a_sum_over_its_stages_beside_the_data_axes() -> None:
    found = journeys(f"mesh (pp = 2, dp = 2)\n{MODEL}apply pipelined(pp, schedule = gpipe) * tied_stages(pp)")
    assert found["grads[tied]"] == "partial(dp * pp) | all_reduce(dp, when = step) | all_reduce(pp, when = step)"


def test_activations_are_inferred_axis_by_axis() -> None:
    found = journeys("mesh (dp = 2, cp = 2)\nactivations: shard(cp, dim = seq)\ngrads: all_reduce(dp * cp)")
    assert found["activations"] == "shard(dp, dim = batch) * shard(cp, dim = seq)"
    assert found["grads"] == "partial(dp * cp) | all_reduce(dp * cp, when = step)"


def test_a_bare_gather_replaces_gathers_and_no_other_axis() -> None:
    text = (
        "mesh (pp = 2, dp_shard = 8)\nmesh moe (efsdp = *, ep = 4) over (dp_shard)\nmodel mixtral_8x7b\n"
        "schedule: gpipe\nparams: shard(pp, dim = layer) * shard(dp_shard) | gather\n"
        "params[experts]: shard(ep, dim = expert) * shard(efsdp) | gather\n"
    )
    assert journeys(text)["params[experts]"] == (
        "shard(pp, dim = layer) * shard(ep, dim = expert) * shard(efsdp, dim = 0, pad = even)"
        " | gather(efsdp, unit = layer, keep = unit, prefetch = 1)"
    )


def test_refining_a_tier_keeps_the_layout_and_its_order() -> None:
    found = journeys(f'mesh (dp = 2)\n{MODEL}apply fsdp(dp)\nparams["layers.{{0..3}}"]: offload(cpu)')
    assert found['params["layers.{0..3}"]'].split(" | ")[1].startswith("offload(cpu")


def test_a_reduction_of_each_microbatch_comes_first() -> None:
    text = (
        "mesh (dp_replicate = 2, dp_shard = 4)\nmesh moe (efsdp = 2, ep = 2) over (dp_shard)\nmodel mixtral_8x7b\n"
        "apply hsdp * experts_folded"
    )
    assert journeys(text)["grads[experts]"] == (
        "partial(dp_replicate * efsdp) | reduce_scatter(efsdp, when = microbatch)"
        " | all_reduce(dp_replicate, when = step)"
    )


def test_what_is_frozen_has_neither_gradient_nor_optimizer() -> None:
    found = journeys('mesh (dp = 2)\nmodel llama3_8b\ntrain (frozen = "layers.{0..29}")\napply qlora(dp)')
    assert not {"grads[frozen]", "optimizer[frozen]"} & set(found)


def test_an_override_overrides_what_follows_from_it() -> None:
    text = f"mesh (tp = 2)\n{MODEL}apply tensor_parallel(tp)\noverride params[embed]: shard(tp, dim = vocab, pad = 256)"
    assert journeys(text)["override optimizer[embed]"] == "shard(tp, dim = vocab, pad = 256)"


def test_formats_stand_beside_the_layout() -> None:
    found = journeys("mesh (dp = 2)\noptimizer: shard(dp) as (master = fp32, moments = bf16) | offload(cpu)")
    assert found["optimizer"].startswith("shard(dp, dim = 0, pad = even) as (master = fp32, moments = bf16) | offload")


@pytest.mark.parametrize(
    ("later", "word"),
    [
        ("params[mlp]: rowwise(tp)", "over `tp`"),
        ("activations[mlp]: recompute(none)", "in lifetime"),
        ('params["layers.0.mlp"]: offload(nvme)', "in tier"),
    ],
)
def test_two_selections_that_differ_need_override(later: str, word: str) -> None:
    first = "params[mlp.up]: colwise(tp)\nactivations[block]: recompute(full)\nparams[block]: offload(cpu)\n"
    text = f"mesh (tp = 2)\n{MODEL}{first}"
    assert read(text).plan is not None
    (found,) = (d for d in read(text + later).diagnostics if d.code == "E108")
    assert word in found.message
    assert read(f"{text}override {later}").plan is not None


def test_two_selections_on_different_axes_join() -> None:
    text = f"mesh (dp = 2, tp = 2)\n{MODEL}params[attn]: colwise(tp)\nparams[attn.qkv]: shard(dp, dim = 1) | gather(dp)"
    is_fixed_point(read(text))


def test_two_of_the_batch_numbers_give_the_third() -> None:
    plan = read("mesh (dp = 4)\ntrain (global_batch = 64, microbatches = 2)\napply ddp(dp)").plan
    assert plan is not None
    assert plan.train.micro_batch == 8


def test_the_microbatch_stays_a_symbol_where_the_ranks_are() -> None:
    plan = read("mesh (dp)\ntrain (global_batch = 64, microbatches = 2)\napply ddp(dp)").plan
    assert plan is not None
    assert (plan.train.micro_batch, plan.train.microbatches) == (None, 2)


def test_explain_keeps_model_hardware_and_claims_with_what_they_name() -> None:
    text = (
        "let wide = 2 * 512\nlet tiny = transformer(layers = 4, hidden = 256, heads = 8, ffn = 1024, vocab = 1000)\n"
        "let unused = 3\nmodel tiny\nhardware dgx_h100\nmesh (dp = *)\nparams: shard(dp)\nrequire hidden < wide\n"
    )
    said = read(text).explain()
    assert "let tiny" in said
    assert "let wide" in said
    assert "unused" not in said
    is_fixed_point(read(text))
