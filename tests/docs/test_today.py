"""The table of what there is today, in the README: each row is tried, so that it can't say more or less than is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from placelang import api
from placelang.backend.errors import BackendError
from placelang.backend.recipe import recipe
from placelang.backend.sound import step_program
from placelang.diagnostics.codes import Verdict

README = Path(__file__).parents[2] / "README.md"
JOB = "train (seq = 1024, micro_batch = 1, microbatches = 8{})\n"
DATA = "mesh (dp = 4)\nmodel llama3_8b\n"

ROWS: dict[str, tuple[str, ...]] = {
    "data parallelism, ZeRO 1 to 3, FSDP": tuple(
        f"{DATA}{JOB.format('')}apply {name}(dp)" for name in ("ddp", "zero1", "zero2", "zero3", "fsdp")
    ),
    "HSDP, hpZ": (
        f"mesh (dp_replicate = 2, dp_shard = 2)\nmodel llama3_8b\n{JOB.format('')}apply hsdp(dp_replicate, dp_shard)",
    ),
    "tensor and sequence parallelism": tuple(
        f"mesh (dp = 2, tp = 4)\nmodel llama3_8b\n{JOB.format('')}apply zero1(dp) * {name}(tp)"
        for name in ("tensor_parallel", "megatron_sp")
    ),
    "context parallelism: Ulysses, gathered keys and values, rings": tuple(
        f"mesh (dp = 2, cp = 2)\nmodel llama3_8b\n{JOB.format('')}apply zero2(dp * cp) * {name}(cp)"
        for name in ("ulysses", "all_gather_cp", "ring")
    ),
    "full recomputation": (f"{DATA}{JOB.format('')}apply fsdp(dp) * recompute_full",),
    "clipping by the global norm": (f"{DATA}{JOB.format(', clip = 1.0')}apply zero1(dp)",),
    "selective recomputation": (
        f"mesh (dp = 2, tp = 4)\nmodel llama3_8b\n{JOB.format('')}"
        "apply zero1(dp) * megatron_sp(tp) * recompute_selective",
    ),
    "pipelines under every schedule": tuple(
        f"mesh (pp = 4, dp = 2)\nmodel llama3_8b\n{JOB.format('')}apply zero1(dp) * pipelined(pp, schedule = {name})"
        for name in ("gpipe", "1f1b", "interleaved_1f1b(chunks = 2)", "zb_h1", "zb_h2", "zbv", "dualpipev")
    ),
    "experts, on axes of their own and on folded meshes": (
        f"mesh (dp = 2, ep = 4)\nmodel mixtral_8x7b\n{JOB.format('')}apply zero1(dp * ep) * expert_parallel(ep)",
        "mesh (dp = 8)\nmesh moe (efsdp = 2, ep = 4) over (dp)\nmodel deepseek_v2_lite\n"
        f"{JOB.format('')}apply fsdp(dp) * experts_folded(ep, efsdp)",
    ),
    "frozen parameters, LoRA": (f"mesh (dp = 4)\nmodel llama3_8b(lora = 16)\n{JOB.format('')}apply fsdp(dp)",),
    "loss scaling": (f"{DATA}{JOB.format(', loss_scale = 1024')}apply zero1(dp)",),
    "offload to host or disk": (f"{DATA}{JOB.format('')}apply zero_offload(dp)",),
    "compressed, delayed or rare reductions": (f"{DATA}{JOB.format('')}apply onebit(dp)",),
    "shards along `flat` or whole tensors": (
        f"{DATA}{JOB.format('')}params: shard(dp, dim = flat) ; grads: reduce_scatter",
    ),
}
"""What stands in the first column, and texts that need it."""


def shown() -> dict[str, tuple[str, str]]:
    found = re.findall(r"^\| (.+?) \| (yes|no) \| (yes|no) \|$", README.read_text("utf-8"), re.M)
    return {name: (checked, run) for name, checked, run in found}


def test_the_table_has_every_row() -> None:
    assert list(shown()) == list(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    checked, run = set(), set()
    for text in ROWS[row]:
        strategy = api.load(text)
        assert strategy.plan, strategy.diagnostics
        sound = strategy.verdict is Verdict.SOUND
        checked.add(sound)
        run.add(sound and _runs(strategy))
        if sound:
            assert strategy.cost().number(strategy.cost().memory.peak)
        else:
            assert strategy.verdict in (Verdict.NOT_SUPPORTED, Verdict.INEXACT), strategy.diagnostics
    assert {"yes" if c else "no" for c in checked} == {shown()[row][0]}, "checked and costed"
    assert {"yes" if r else "no" for r in run} == {shown()[row][1]}, "run and verified"


def _runs(strategy: api.Strategy) -> bool:
    assert strategy.plan is not None
    try:
        recipe(step_program(strategy.plan, strategy.model))
    except BackendError:
        return False
    return True
