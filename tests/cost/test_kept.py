"""What ranks keep for backward where attention fetches tokens, and where runs of layers share a name."""

from __future__ import annotations

from fractions import Fraction

import pytest

from placelang import api
from placelang.cost.expr import evaluate

SIZES = {"b": 1, "s": 8192}


def activations(text: str, model: str) -> Fraction:
    job = "train (precision = bf16_fp32_grads, seq = 8192, micro_batch = 1)\n"
    strategy = api.load(job + text, model=model)
    assert strategy.ok, strategy.diagnostics
    cost = strategy.cost()
    assert cost.memory.activations is not None
    return Fraction(evaluate(cost.memory.activations, {**cost.values, **SIZES}))


def test_gathered_keys_and_values_are_kept_whole():
    """2 X_kv (1 - 1/c) a layer more than a ring keeps, or an all_to_all, whose ranks have whole heads."""
    mesh = "mesh (dp = 2, cp = 4)\napply zero1(dp * cp) * "
    ring, dealt, whole = (
        activations(f"{mesh}{name}(cp)", "llama3_8b") for name in ("ring", "ulysses", "all_gather_cp")
    )
    layers, width = 32, 1024
    assert ring == dealt
    assert whole - ring == layers * 2 * 8192 * width * 2 * Fraction(3, 4)


@pytest.mark.parametrize("model", ["deepseek_v2_lite", "deepseek_v3"])
def test_layers_of_every_run_are_split(model):
    """Dense layers and those with experts have one name: what heads split is a quarter in both."""
    alone = activations("mesh (dp = 2)\napply zero1(dp)", model)
    split = activations("mesh (dp = 2, tp = 4)\napply zero1(dp) * tensor_parallel(tp)", model)
    found = api.load("mesh (dp = 2)\napply zero1(dp)", model=model).model
    sizes = dict(found.sizes)
    heads = sizes["heads"] * (2 * sizes["qk_head_dim"] + 2 * sizes["v_head_dim"])  # queries, keys, values, results
    assert alone - split >= Fraction(3, 4) * sizes["layers"] * 8192 * heads * 2
