"""Sizes that fit, against brute force over small ones; and every size that a message suggests does fit."""

from __future__ import annotations

import re
from itertools import product

import pytest

from placelang import api
from placelang.plan.capacity import divisors

SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b(chunks = 2)", "zb_h1", "zb_h2", "zbv", "dualpipev")


def faults(text: str) -> list[str]:
    return [d.code for d in api.load(text).diagnostics if d.code.startswith("E4")]


def helps(text: str) -> str:
    return " ".join(d.help for d in api.load(text).diagnostics if d.code.startswith("E4"))


def model(layers: int = 8, heads: int = 8, kv_heads: int | None = None) -> str:
    kv = "" if kv_heads is None else f", kv_heads = {kv_heads}"
    return f"model transformer(layers = {layers}, hidden = {heads * 8}, heads = {heads}{kv}, ffn = 64, vocab = 100)\n"


@pytest.mark.parametrize("n", range(1, 65))
def test_divisors(n: int) -> None:
    assert divisors(n) == [d for d in range(1, n + 1) if n % d == 0]


def pipelined(layers: int, stages: int, count: int, schedule: str, split: str = "") -> str:
    return (
        f"{model(layers)}mesh (pp = {stages}, dp = 2)\ntrain (micro_batch = 1, microbatches = {count})\n"
        f"params: shard(pp, dim = layer{split})\nschedule: {schedule}"
    )


def test_microbatches_by_schedule() -> None:
    """docs/design/semantics, section 7, in its own words."""
    for schedule, p, m in product(SCHEDULES, (1, 2, 3, 4), range(1, 10)):
        valid = {
            "gpipe": True,
            "1f1b": True,
            "interleaved_1f1b(chunks = 2)": m % p == 0,
            "zb_h1": m >= p,
            "zb_h2": m >= 2 * p - 1,
            "zbv": m >= p,
            "dualpipev": m >= 2 * p and (p == 1 or p % 2 == 0),
        }[schedule]
        found = faults(pipelined(24, p, m, schedule))
        assert (not found) == valid, (schedule, p, m, found)


def test_suggested_numbers_of_microbatches_fit() -> None:
    for schedule, p, m in product(SCHEDULES, (2, 4), range(1, 9)):
        for n in re.findall(r"`microbatches = (\d+)`", helps(pipelined(24, p, m, schedule))):
            assert not faults(pipelined(24, p, int(n), schedule))


def test_layers_over_stages() -> None:
    for layers, p, (schedule, chunks) in product(range(1, 13), range(1, 5), (("1f1b", 1), ("zbv", 2))):
        found = faults(pipelined(layers, p, 16, schedule))
        assert (not found) == (layers % (p * chunks) == 0), (layers, p, schedule)
        text = helps(pipelined(layers, p, 16, schedule))
        for sizes in re.findall(r"pp in \{([^}]*)\}", text):
            for size in sizes.split(", "):
                assert not faults(pipelined(layers, int(size), 16 * int(size), schedule))
        for split in re.findall(r"split = (\[[^]]*\])", text):
            assert not faults(pipelined(layers, p, 16, schedule, f", split = {split}"))


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("[3, 3, 2, 2]", []),
        ("[10, 0, 0, 0]", []),
        ("[3, 3, 2]", ["E424"]),
        ("[3, 3, 2, 1]", ["E424"]),
        ("balanced(first_less = 1, last_less = 1)", []),
        ("balanced(first_less = 1)", ["E421"]),
    ],
)
def test_written_splits(split: str, expected: list[str]) -> None:
    assert faults(pipelined(10, 4, 8, "1f1b", f", split = {split}")) == expected


def tensor(heads: int, kv: int, t: int) -> str:
    return f"{model(4, heads, kv)}mesh (dp = 2, tp = {t})\nparams: shard(dp)\nparams[attn.qkv]: colwise(tp)"


def test_heads_over_tensor_ranks() -> None:
    for heads, kv, t in product((4, 6, 12), (1, 2, 3, 4, 6, 12), range(1, 13)):
        if heads % kv:
            continue
        found = faults(tensor(heads, kv, t))
        assert (not found) == (heads % t == 0 and kv % t == 0), (heads, kv, t, found)
        assert found in ([], ["E420"], ["E423"])
        if found == ["E420"]:
            assert heads % t
        for sizes in re.findall(r"tp in \{([^}]*)\}", helps(tensor(heads, kv, t))):
            assert all(heads % int(size) == 0 for size in sizes.split(", "))


def test_few_key_value_heads_take_the_view_that_the_help_writes() -> None:
    text = tensor(16, 2, 8)
    view, statements = re.findall(r"`([^`]*)`", helps(text))
    fixed = text.replace("params[attn.qkv]: colwise(tp)", statements).replace("params: shard", f"{view}\nparams: shard")
    assert not faults(fixed)


@pytest.mark.parametrize("n", range(1, 13))
def test_experts_sequence_and_smaller_shards(n: int) -> None:
    experts = (
        f"model mixtral_8x7b\nmesh (dp = 2, ep = {n})\nparams: shard(dp)\nparams[experts]: shard(ep, dim = expert)"
    )
    assert faults(experts) == ([] if 8 % n == 0 else ["E422"])
    sequence = f"mesh (dp = 2, cp = {n})\ntrain (seq = 24)\nparams: shard(dp)"
    assert faults(sequence) == ([] if 24 % n == 0 else ["E422"])
    if 24 % n:
        (fix,) = re.findall(r"`seq = (\d+)`", helps(sequence))
        assert not faults(sequence.replace("seq = 24", f"seq = {fix}"))
    smaller = f"mesh (dp = 12)\nparams: shard(dp) | gather(reshard_after_forward = {n})"
    assert faults(smaller) == ([] if 12 % n == 0 else ["E422"])


def test_symbolic_sizes_decide_nothing() -> None:
    assert faults(f"{model(7, 7)}params: shard(pp, dim = layer)\nparams[attn.qkv]: colwise(tp)\nschedule: 1f1b") == []


@pytest.mark.parametrize(
    ("heads", "kv", "t", "c", "expected"),
    [(8, 8, 2, 2, []), (8, 4, 2, 2, []), (8, 2, 2, 2, ["E423"]), (8, 1, 1, 2, ["E423"]), (6, 6, 2, 2, ["E420"])],
)
def test_all_to_all_attention_deals_out_whole_heads(heads: int, kv: int, t: int, c: int, expected: list[str]) -> None:
    split = "params[attn.qkv]: colwise(tp)\nparams[attn.out]: rowwise(tp)\n"
    split += "activations[attn.out]: partial(tp) | all_reduce(tp)\n"
    text = f"{model(4, heads, kv)}mesh (dp = 2, cp = {c}, tp = {t})\n{split}activations[attn]: ulysses(cp)\n"
    assert faults(text) == expected
