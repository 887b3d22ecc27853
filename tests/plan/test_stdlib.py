"""The shipped strategies: each documented and sourced, each elaborates on a job that it fits, as a fixed point."""

from __future__ import annotations

from pathlib import Path

import pytest

from placelang.plan import library
from placelang.plan.steps import AllGather, Gather, Offload, Reduce, Shard, When
from placelang.plan.words import SCHEDULES
from tests.plan.elaborated import ROOT, is_fixed_point, journeys, plan_of, read

DENSE = "model gpt2_124m\n"
JOBS = {
    "hsdp": "mesh (dp_replicate = 2, dp_shard = 4)\n" + DENSE,
    "hpz": "mesh (dp_replicate = 2, dp_shard = 4)\n" + DENSE,
    "zero_plus_plus": "mesh (dp_replicate = 2, dp_shard = 4)\n" + DENSE,
    "tensor_parallel": "mesh (dp = 2, tp = 4)\n" + DENSE,
    "megatron_sp": "mesh (dp = 2, tp = 4)\n" + DENSE,
    "ring": "mesh (dp = 2, cp = 4)\n" + DENSE,
    "ulysses": "mesh (dp = 2, cp = 4)\n" + DENSE,
    "all_gather_cp": "mesh (dp = 2, cp = 4)\n" + DENSE,
    "usp": "mesh (a: sequence = 2, b: sequence = 4)\n" + DENSE + "apply usp(a, b)",
    "pipelined": "mesh (pp = 4, dp = 2)\ntrain (micro_batch = 1, microbatches = 8)\n" + DENSE,
    "tied_stages": "mesh (pp = 4, dp = 2)\n" + DENSE + "apply pipelined(pp, schedule = gpipe) * tied_stages(pp)",
    "expert_parallel": "mesh (dp = 8)\nmesh moe (edp = *, ep = 4) over (dp)\nmodel mixtral_8x7b\n",
    "experts_folded": "mesh (dp_shard = 8)\nmesh moe (efsdp = *, ep = 4) over (dp_shard)\nmodel mixtral_8x7b\n",
    "shared_kv_heads": (
        "mesh (tp = 8)\nmesh kv (kv_tp: tensor = 4, kv_copy: tensor = 2) over (tp)\nmodel qwen3_30b_a3b\n"
        "apply megatron_sp(tp) * shared_kv_heads(kv_tp, kv_copy)"
    ),
    "lora": 'mesh (dp = 4)\nmodel llama3_8b\ntrain (frozen = "layers.{0..29}")\n',
    "qlora": "mesh (dp = 4)\nmodel llama3_8b(lora = 16)\n",
}
"""A job for each strategy that takes more than `dp = 4`; where it says no `apply`, the strategy alone is applied."""

NAMED = (
    *("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "hpz", "zero_offload", "zero_infinity", "tensor_parallel"),
    *("megatron_sp", "ring", "ulysses", "all_gather_cp", "expert_parallel", "pipelined"),
)
"""What the language reference promises without `use`."""


def text(name: str) -> str:
    job = JOBS.get(name, "mesh (dp = 4)\n" + DENSE)
    return job if "apply" in job else f"{job}apply {name}"


@pytest.mark.parametrize("name", library.names())
def test_each_strategy_has_a_plan_that_elaboration_leaves_alone(name: str) -> None:
    is_fixed_point(read(text(name)))


@pytest.mark.parametrize("name", library.names())
def test_each_strategy_is_documented(name: str) -> None:
    strategy = library.strategy(name)
    assert strategy is not None
    assert strategy.doc
    assert all(param.default is not None or name in ("usp", "shared_kv_heads") for param in strategy.params)


@pytest.mark.parametrize("path", sorted((ROOT / "stdlib" / "strategies").glob("**/*.place")), ids=lambda p: p.stem)
def test_each_file_names_its_sources(path: Path) -> None:
    assert "Source" in path.read_text(encoding="utf-8")


def test_the_reference_names_no_strategy_that_is_not_shipped() -> None:
    assert set(NAMED) <= set(library.names())


@pytest.mark.parametrize(
    "path", sorted((ROOT / "stdlib" / "strategies" / "published").glob("*.place")), ids=lambda p: p.stem
)
def test_published_compositions(path: Path) -> None:
    strategy = read(path.read_text(encoding="utf-8"), str(path))
    is_fixed_point(strategy)
    assert strategy.plan is not None
    plan = strategy.plan
    assert plan.model is not None
    assert plan.hardware is not None
    assert plan.mesh.world == plan.hardware.devices
    assert plan.claims


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pipelined_takes_every_schedule(schedule: str) -> None:
    said = f"{schedule}(chunks = 3)" if SCHEDULES[schedule] else schedule
    plan = plan_of(
        f"mesh (pp = 2)\ntrain (micro_batch = 1, microbatches = 8)\n{DENSE}apply pipelined(pp, schedule = {said})"
    )
    assert plan.schedule is not None
    assert plan.schedule.name == schedule


def test_fsdp_is_zero3_under_another_name() -> None:
    assert plan_of("mesh (dp = 4)\napply fsdp(dp)").placed == plan_of("mesh (dp = 4)\napply zero3(dp)").placed


def test_zero_takes_a_product_of_axes() -> None:
    plan = plan_of("mesh (dp = 2, cp = 4)\napply zero1(dp * cp) * ring(cp)")
    assert plan.update == (AllGather(axes=("dp", "cp")),)


def test_the_stages_in_their_own_words() -> None:
    def grads(name: str) -> list[tuple[bool, object]]:
        plan = plan_of(f"mesh (dp = 4)\napply {name}(dp)")
        return [(s.scatter, s.when) for p in plan.placed for s in p.journey if isinstance(s, Reduce)]

    assert grads("ddp") == grads("zero1_3p") == [(False, When.STEP)]
    assert grads("zero1") == [(True, When.STEP)]
    assert grads("zero2") == grads("zero3") == [(True, When.MICROBATCH)]


def test_offload_is_a_tier_beside_any_layout() -> None:
    plan = plan_of("mesh (dp = 4)\napply zero_infinity(dp)")
    (params,) = (p for p in plan.placed if p.state.value == "params")
    assert [type(s) for s in params.journey] == [Shard, Offload, Gather]


def test_shipped_strategies_say_nothing_of_roles_that_a_model_lacks() -> None:
    strategy = read("mesh (dp = 2, tp = 4)\nmodel mixtral_8x7b\napply zero1(dp) * megatron_sp(tp)")
    assert not [d for d in strategy.diagnostics if d.code == "N101"]


def test_expert_parallel_leaves_data_parallelism_to_the_ranks_that_remain() -> None:
    found = journeys(JOBS["expert_parallel"] + "apply zero1(dp) * expert_parallel(ep)")
    assert found["params[experts]"] == "shard(ep, dim = expert)"
    assert found["grads[experts]"] == "partial(edp) | reduce_scatter(edp, when = step)"
    assert found["optimizer[experts]"] == "shard(ep, dim = expert) * shard(edp, dim = 0, pad = even)"


def test_experts_over_every_data_rank_reduce_nothing() -> None:
    found = journeys(
        "mesh (dp = 8)\nmesh moe (ep = 8) over (dp)\nmodel mixtral_8x7b\napply ddp(dp) * expert_parallel(ep)"
    )
    assert "grads[experts]" not in found
    assert found["grads"] == "partial(dp) | all_reduce(dp, when = step)"


def test_an_expert_axis_of_the_mesh_reads_samples_of_its_own() -> None:
    found = journeys("mesh (dp = 2, ep = 4)\nmodel mixtral_8x7b\napply zero1(dp * ep) * expert_parallel(ep)")
    assert found["activations"] == "shard(dp * ep, dim = batch)"
    assert found["grads"] == "partial(dp * ep) | reduce_scatter(dp * ep, when = step)"
    assert found["grads[experts]"] == "partial(dp) | reduce_scatter(dp, when = step)"
