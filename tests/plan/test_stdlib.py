"""The shipped strategies: each says where it is from and shows one line that uses it; that line elaborates as a fixed
point, and is sound or refused by the name of what this version does not lower."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from placelang.diagnostics.diagnostic import Verdict
from placelang.plan import library
from placelang.plan.steps import AllGather, Gather, Offload, Reduce, Shard, When
from placelang.plan.words import SCHEDULES
from tests.plan.elaborated import ROOT, is_fixed_point, journeys, plan_of, read

DENSE = "model gpt2_124m\n"
MOE = "mesh (dp = 8)\nmesh moe (edp = *, ep = 4) over (dp)\nmodel mixtral_8x7b\n"

INEXACT = ("onebit", "delayed", "local_updates", "zero_plus_plus")
"""What must not be called sound: its gradient is lossy or late, or its replicas differ."""
NAMES_OF_GAPS = {
    "onebit": "`compress(onebit)`",
    "delayed": "`delay(",
    "local_updates": "when = every(50)",
    "zero_offload": "`offload(cpu)`",
    "zero_infinity": "`offload(nvme",
    "offload_activations": "`offload(cpu)`",
    "whole_tensor_owners": "dim = tensor",
    "optimizer_in_backward": "`consume`",
}
"""What a refusal names, for as long as there is one."""

NAMED = (
    *("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "hpz", "zero_offload", "zero_infinity", "tensor_parallel"),
    *("megatron_sp", "ring", "ulysses", "all_gather_cp", "expert_parallel", "pipelined"),
)
"""What the language reference promises without `use`."""


def doc_of(name: str) -> str:
    strategy = library.strategy(name)
    assert strategy is not None
    return " ".join(strategy.doc.split())


def example(name: str) -> str:
    """The line that the documentation of a strategy shows."""
    found = re.search(r"Example: `([^`]+)`$", doc_of(name))
    assert found, f"`{name}` shows no example at the end of its documentation"
    return found[1]


@pytest.mark.parametrize("name", library.names())
def test_each_strategy_says_its_source(name: str) -> None:
    assert re.search(r"\bSources?( of the schedules)?: ", doc_of(name))


@pytest.mark.parametrize("name", library.names())
def test_each_strategy_shows_a_use_of_itself_that_elaboration_leaves_alone(name: str) -> None:
    assert re.search(rf"\b{name}\b", example(name).partition("apply ")[2])
    is_fixed_point(read(example(name)))


@pytest.mark.parametrize("name", library.names())
def test_each_strategy_is_sound_or_refused_by_name(name: str) -> None:
    strategy = read(example(name))
    if name in NAMES_OF_GAPS:
        assert strategy.verdict is Verdict.NOT_SUPPORTED
        assert {d.code for d in strategy.gaps} == {"E112"}
        assert any(NAMES_OF_GAPS[name] in d.message for d in strategy.gaps)
    elif name in INEXACT:
        assert strategy.verdict is Verdict.INEXACT
    else:
        assert strategy.verdict is Verdict.SOUND, [d.message for d in strategy.diagnostics]


@pytest.mark.parametrize("name", library.names())
def test_parameters_have_defaults_where_there_is_a_well_known_name(name: str) -> None:
    strategy = library.strategy(name)
    assert strategy is not None
    assert all(param.default is not None or name in ("usp", "shared_kv_heads") for param in strategy.params)


def test_a_tied_embedding_over_stages_needs_a_sum() -> None:
    text = "mesh (pp = 4)\ntrain (micro_batch = 1, microbatches = 4)\n" + DENSE
    assert read(text + "apply pipelined(pp)").verdict is Verdict.UNSOUND


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


RUNS = {
    "bloom_176b": ({"pp": 12, "dp": 8, "tp": 4}, 2048, 2, 2048),
    "deepseek_v3": ({"pp": 16, "dp": 128}, 4096, 1, 15_360),
    "gpt3_175b": ({"pp": 12, "dp": 8, "tp": 8}, 2048, 1, 1536),
    "llama3_405b": ({"dp": 64, "pp": 16, "cp": 1, "tp": 8}, 8192, 1, 64 * 32),
    "llama3_405b_128k": ({"dp": 8, "pp": 16, "cp": 16, "tp": 8}, 131_072, 1, 8 * 16),
    "mt_nlg_530b": ({"pp": 35, "dp": 9, "tp": 8}, 2048, 1, 2520),
}
"""Degrees, sequence, microbatch and batch of each published run, typed anew from the sources that its text names."""


@pytest.mark.parametrize("name", RUNS)
def test_published_runs_have_the_degrees_and_batches_of_their_sources(name: str) -> None:
    path = ROOT / "stdlib" / "strategies" / "published" / f"{name}.place"
    plan = plan_of(path.read_text(encoding="utf-8"), str(path))
    job = plan.train
    found = {axis.name: axis.size for axis in plan.mesh.axes}
    assert (found, job.seq, job.micro_batch, job.global_batch) == RUNS[name]


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
    found = journeys(MOE + "apply zero1(dp) * expert_parallel(ep)")
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
