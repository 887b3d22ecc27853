"""Traffic of layers that are split inside, against the counts of the papers (docs/design/semantics, section 6).

L layers: tensor parallelism has 4L + 2 all_reduces of hidden size, with sequence parallelism as many pairs of gather
and scatter; the loss over a split vocabulary adds three of one number a token. Full recomputation repeats the forward
of a block but its last product's reduction, which nobody reads.
"""

from __future__ import annotations

import pytest

import placelang

L, TP = 32, 4


def counts(text: str) -> dict[tuple[str, str], int]:
    """Collectives over tp by phase and kind."""
    strategy = placelang.load(text, model="llama3_8b", tp=TP, dp=2, seq=4096, micro_batch=1)
    assert strategy.ok, strategy.diagnostics
    found: dict[tuple[str, str], int] = {}
    cost = strategy.cost()
    for t in cost.on(("tp",)):
        number = cost.number(t.count)
        assert number is not None
        key = t.phase, t.kind if t.dtype != "fp32" or t.why != "loss" else "loss"
        found[key] = found.get(key, 0) + number
    return found


def test_tensor_parallelism() -> None:
    found = counts("apply tensor_parallel(tp) * ddp(dp)")
    assert found["forward", "all_reduce"] + found["backward", "all_reduce"] - 3 == 4 * L + 2


def test_sequence_parallelism() -> None:
    found = counts("apply megatron_sp(tp) * ddp(dp)")
    for kind in ("all_gather", "reduce_scatter"):
        assert found["forward", kind] == found["backward", kind] == 2 * L + 1


@pytest.mark.parametrize(("kind", "more"), [("all_gather", 2 * L), ("reduce_scatter", L)])
def test_full_recomputation_stops_early(kind: str, more: int) -> None:
    found = counts("apply megatron_sp(tp) * ddp(dp) * recompute_full")
    assert found["backward", kind] == 2 * L + 1 + more


def test_secondary_shards_of_hpz_keep_backward_inside_the_group() -> None:
    strategy = placelang.load("apply hpz", model="llama3_8b", dp_shard=8, dp_replicate=4)
    assert strategy.ok
    gathers = {t.phase: t.axes for t in strategy.cost().traffic if t.kind == "all_gather"}
    assert gathers == {"forward": ("dp_shard", "dp_replicate"), "backward": ("dp_shard",)}
