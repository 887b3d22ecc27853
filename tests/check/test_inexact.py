"""What is sent in formats too small to hold it: allowed, said, counted in its own bytes, and never run otherwise."""

from __future__ import annotations

import pytest

from placelang.api import Strategy, load
from placelang.backend.errors import BackendError
from placelang.backend.recipe import recipe
from placelang.diagnostics.codes import Verdict

MESH = "mesh (dp = 2)\ntrain (precision = fsdp_mixed)\n"
SENT = {
    "params: shard(dp) | gather(dp, wire = fp8) ; grads: reduce_scatter(dp)": "parameters",
    "params: shard(dp) | gather(dp) ; grads: reduce_scatter(dp, wire = int8)": "gradients",
    "params: replicate ; grads: all_reduce(dp, wire = int4)": "gradients",
}


def of(line: str) -> Strategy:
    return load(f"{MESH}{line}\n", model="gpt2_124m", seq=1024, micro_batch=1)


@pytest.mark.parametrize("line", SENT)
def test_a_small_format_is_inexact_and_says_what_it_rounds(line: str) -> None:
    strategy = of(line)
    assert strategy.verdict is Verdict.INEXACT and strategy.ok
    (d,) = strategy.diagnostics
    assert d.code == "W201" and d.message.startswith(SENT[line])
    assert d.primary is not None and "wire" in d.primary.span.text


@pytest.mark.parametrize("line", SENT)
def test_half_precision_on_the_wire_is_no_news(line: str) -> None:
    for word in ("fp8", "int8", "int4"):
        line = line.replace(word, "bf16")
    assert of(line).verdict is Verdict.SOUND


def test_tokens_dispatched_in_fp8() -> None:
    mesh = "mesh (dp = 8)\nmesh moe (edp = 2, ep = 4) over (dp)\n"
    text = f"{mesh}model mixtral_8x7b\napply zero1(dp) * expert_parallel(ep)\n"
    exact = load(text)
    lossy = load(text + "override activations[experts]: all_to_all(ep, wire = fp8)\n")
    assert (exact.verdict, lossy.verdict) == (Verdict.SOUND, Verdict.INEXACT)
    assert exact.program is not None and lossy.program is not None


def test_a_gather_counts_in_the_format_of_the_wire() -> None:
    def sent(wire: str) -> int:
        cost = of(f"params: shard(dp) | gather(dp, wire = {wire}) ; grads: reduce_scatter(dp)").cost()
        return sum(cost.number(t.message) or 0 for t in cost.traffic if t.kind == "all_gather")

    assert sent("bf16") == 2 * sent("fp8") == 4 * sent("int4") > 0


@pytest.mark.parametrize("line", SENT)
def test_torch_refuses_what_it_would_send_otherwise(line: str) -> None:
    program = of(line).program
    assert program is not None
    with pytest.raises(BackendError, match="sent as"):
        recipe(program)
