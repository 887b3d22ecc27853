"""What papers say of traffic, memory and pipelines beside their tables: of the tool's numbers it is exactly true.

Not for: rows of benchmarks/facts (`test_published_identities`).
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from placelang.cost.cost import Cost
from tests.cost.published import FACTS, alg, at_rest, cost, formula, model, pipelined, table, wire, zero

PSI = 7_500_000_000


@pytest.mark.parametrize("ranks", [2, 4, 8, 64, 256])
def test_model_states_are_the_formulas_of_the_zero_paper(ranks: int) -> None:
    """arXiv 1910.02054, section 5, with K = 12 bytes of optimizer a parameter."""
    published = table(FACTS / "zero-2020.toml")["source"]["formulas"][1:]
    for stage, text in enumerate(published, start=1):
        expected = formula(text.partition(" = ")[2], Psi=PSI, K=12, Nd=ranks)
        assert at_rest(zero(stage, PSI, ranks)) == expected


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_stage_3_takes_n_times_less_memory_at_half_as_much_traffic_again(ranks: int) -> None:
    """So 8 times less at 1.5 times the traffic is exact at N = 8, one format and one microbatch, and only there."""
    plain, sharded = (zero(stage, PSI, ranks, precision="fp32") for stage in (0, 3))
    assert at_rest(plain) / at_rest(sharded) == ranks
    assert alg(sharded) / alg(plain) == Fraction(3, 2)
    assert wire(sharded, sharded.traffic) / wire(plain, plain.traffic) == Fraction(3, 2)


@pytest.mark.parametrize("many", [1, 2, 8])
def test_what_the_ratio_is_elsewhere(many: int) -> None:
    """With M microbatches, against data parallelism that reduces once a step."""

    def ratio(stage: int, precision: str) -> Fraction:
        stages = (zero(s, PSI, 8, precision=precision, microbatches=many) for s in (stage, 0))
        return Fraction(*(alg(found) for found in stages))

    assert ratio(3, "fp32") == ratio(3, "bf16") == Fraction(3 * many, 2)
    assert ratio(2, "fp32") == Fraction(many + 1, 2)
    assert ratio(1, "fp32") == 1
    assert ratio(3, "bf16_fp32_grads") == many  # gathers of 2 bytes, reductions of 4
    assert ratio(1, "bf16_fp32_grads") == Fraction(3, 4)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(ranks: int) -> None:
    whole, halves = zero(0, PSI, ranks), zero(1, PSI, ranks)
    assert [t.kind for t in whole.traffic] == ["all_reduce"]
    assert {t.kind for t in halves.traffic} == {"reduce_scatter", "all_gather"}
    assert alg(whole) == alg(halves)
    assert wire(whole, whole.traffic) == wire(halves, halves.traffic) == 2 * Fraction(ranks - 1, ranks) * 2 * PSI


def hybrid(strategy: str, inner: int, outer: int) -> Cost:
    train = "train (precision = bf16, seq = 1024, micro_batch = 1)"
    mesh = f"mesh (dp_replicate = {outer}, dp_shard = {inner})"
    return cost(f"{model(PSI)}\n{train}\n{mesh}\napply {strategy}(dp_shard, dp_replicate)")


def test_hpz_gathers_across_nodes_once_and_inside_once() -> None:
    """arXiv 2306.10209, section 3.2: of ZeRO-3's 3 M between nodes, hpz takes the backward gather away, for a second
    copy of the parameters over each node."""
    found, plain = hybrid("hpz", 8, 4), zero(3, PSI, 32, precision="bf16")
    between = [t for t in found.traffic if "dp_replicate" in t.axes]
    assert {(t.kind, t.phase): alg(found, (t,)) for t in between} == {
        ("all_gather", "forward"): 2 * PSI,
        ("reduce_scatter", "backward"): 2 * PSI,
    }
    inside = found.on(("dp_shard",))
    assert [(t.kind, t.phase) for t in inside] == [("all_gather", "backward")]
    assert alg(found, inside) == 2 * PSI
    assert alg(found) == alg(plain) == 3 * 2 * PSI
    assert at_rest(found) == at_rest(plain)


@pytest.mark.parametrize(("inner", "outer"), [(8, 4), (4, 16)])
def test_hybrid_sharding_reduces_a_shard_over_its_replicas(inner: int, outer: int) -> None:
    """arXiv 2304.11277, section 3.2.2, with the replicas counted instead of all ranks."""
    found = hybrid("hsdp", inner, outer)
    across = found.on(("dp_replicate",))
    assert wire(found, across) == 2 * Fraction(2 * PSI, inner) * Fraction(outer - 1, outer)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_experts_receive_and_return_their_tokens_twice(ranks: int) -> None:
    """4 (e-1)/e of the routed tokens of a rank, a layer and microbatch (docs/design/semantics, section 6)."""
    seq, batch, many, layers, hidden, top = 2048, 2, 3, 32, 4096, 2
    found = cost(
        f"model mixtral_8x7b\ntrain (precision = bf16, seq = {seq}, micro_batch = {batch}, microbatches = {many})\n"
        f"mesh (dp = 8)\nmesh moe (edp = *, ep = {ranks}) over (dp)\napply zero1(dp) * expert_parallel(ep)"
    )
    routed = 2 * seq * batch * top * hidden
    assert wire(found, found.on(("ep",))) == 4 * Fraction(ranks - 1, ranks) * routed * layers * many


LONG = """
model llama3_8b
train (precision = bf16, seq = 8192, micro_batch = 1, microbatches = 3)
mesh (dp = 2, cp = {c})
apply zero1(dp * cp) * {strategy}(cp)
"""


@pytest.mark.parametrize("c", [2, 4, 8])
def test_context_parallelism_moves_keys_and_values(c: int) -> None:
    """Of X, keys or values of the whole sequence in one layer: a ring sends 2(c-1)/c X in forward (arXiv 2310.01889)
    and (4c-2)/c X in backward, a gather as much in forward as the ring, Ulysses deals queries and outputs too
    (arXiv 2309.14509)."""
    layers, many, heads, kv_heads = 32, 3, 32, 8
    x = 2 * 8192 * 1024

    def sent(strategy: str, phase: str) -> Fraction:
        found = cost(LONG.format(c=c, strategy=strategy))
        return wire(found, tuple(t for t in found.on(("cp",)) if t.phase == phase)) / layers / many

    assert sent("ring", "forward") == sent("all_gather_cp", "forward") == 2 * Fraction(c - 1, c) * x
    assert sent("ring", "backward") == Fraction(4 * c - 2, c) * x
    queries = x * Fraction(heads, kv_heads)
    dealt = 2 * (queries + x) / c * Fraction(c - 1, c)
    assert sent("ulysses", "forward") == sent("ulysses", "backward") == dealt


@pytest.mark.parametrize("t", [2, 4, 8])
def test_tensor_parallelism_moves_as_much_with_sequence_parallelism_as_without(t: int) -> None:
    """8 (t-1)/t of 2sbh bytes a layer (arXiv 2205.05198, section 4.2.2), as what two layers have more than one."""
    seq, batch, hidden = 2048, 2, 6144
    for strategy in ("tensor_parallel", "megatron_sp"):
        sent = []
        for layers in (1, 2):
            found = cost(
                f"model megatron_22b(layers = {layers})\ntrain (precision = bf16, seq = {seq}, micro_batch = {batch})\n"
                f"mesh (tp = {t})\napply {strategy}(tp)"
            )
            small = ("all_reduce",) if strategy == "megatron_sp" else ()  # gradients of norms and row biases
            sent.append(wire(found, tuple(row for row in found.on(("tp",)) if row.kind not in small)))
        assert sent[1] - sent[0] == 8 * Fraction(t - 1, t) * 2 * seq * batch * hidden


@pytest.mark.parametrize(
    ("schedule", "boundaries"), [("1f1b", 3), ("zb_h1", 3), ("interleaved_1f1b(3)", 11), ("zbv", 6)]
)
def test_each_boundary_between_ranks_is_crossed_twice(schedule: str, boundaries: int) -> None:
    """p v - 1 boundaries in loops, 2(p - 1) in a V, whose turn lies on one rank; p = 4."""
    sent = pipelined(schedule, 4, 8).sent
    assert sent == boundaries * 2 * 8 * 2 * 128 * 64
