"""Saved activations: the published closed forms, and what each variation changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.model.constructors import build
from placelang.model.facts import Learned
from placelang.model.model import Model, Saved, Stack

BYTES = {"activation": 2, "mask": 1, "fp32": 4}  # 16-bit activations


def model_of(**facts: Any) -> Model:
    model = build("transformer", facts)
    assert isinstance(model, Model), model
    return model


def gpt(heads: int = 4, head_dim: int = 8, **more: Any) -> Model:
    hidden = heads * head_dim
    facts: dict[str, Any] = {"layers": 3, "hidden": hidden, "heads": heads, "ffn": 4 * hidden, "vocab": 50}
    gpt_like = {"mlp": "gelu", "norm": "layernorm", "positions": Learned(512), "bias": True, "tied": True}
    return model_of(**{**facts, **gpt_like, **more})


def block(model: Model) -> Stack:
    return next(s for s in model.stacks if s.block)


def size(saved: Saved, model: Model, seq: int, batch: int) -> int:
    sizes = {**dict(model.sizes), "seq": seq, "batch": batch}
    product = BYTES[saved.width]
    for dim in saved.dims:
        product *= sizes[dim]
    return product


def total(stack: Stack, model: Model, seq: int, batch: int, *conditions: str, part: str = "") -> int:
    return sum(size(s, model, seq, batch) for s in stack.kept(*conditions) if s.part.startswith(part))


shapes = {
    "heads": st.integers(1, 12),
    "head_dim": st.integers(1, 64),
    "seq": st.integers(1, 512),
    "batch": st.integers(1, 8),
}


@given(**shapes)
def test_a_gpt_layer_keeps_34sbh_and_5as2b(heads: int, head_dim: int, seq: int, batch: int) -> None:
    """Korthikanti et al. 2022, equation 1, and its three parts."""
    model = gpt(heads, head_dim)
    sbh, scores = seq * batch * heads * head_dim, heads * seq * seq * batch

    def kept(part: str) -> int:
        return total(block(model), model, seq, batch, "dropout", "eager_attention", part=part)

    assert kept("attn") == 11 * sbh + 5 * scores
    assert kept("attn.core") == 5 * scores
    assert kept("mlp") == 19 * sbh
    assert kept("norm") == 4 * sbh
    assert kept("") == 34 * sbh + 5 * scores


@given(**shapes)
def test_tensor_parallelism_splits_24_of_34(heads: int, head_dim: int, seq: int, batch: int) -> None:
    """Equation 2: 10sbh is not split, 24sbh + 5as^2b is; the dims say which."""
    model = gpt(heads, head_dim)
    whole = [s for s in block(model).kept("dropout", "eager_attention") if "hidden" in s.dims]
    assert sum(size(s, model, seq, batch) for s in whole) == 10 * seq * batch * heads * head_dim


def test_fused_attention_keeps_no_square_terms() -> None:
    model = gpt()
    kept = block(model).kept("dropout", "fused_attention")
    assert all(s.dims.count("seq") == 1 for s in kept)
    rows = [s for s in kept if s.part == "attn.core"]
    assert [(s.dims, s.width) for s in rows] == [(("batch", "heads", "seq"), "fp32")]


def test_without_dropout_no_mask_is_kept() -> None:
    model = gpt()
    kept = block(model).kept("eager_attention")
    assert all(s.width != "mask" for s in kept)
    sbh, scores = 16 * 2 * 32, 4 * 16 * 16 * 2
    assert total(block(model), model, 16, 2, "eager_attention") == 32 * sbh + 2 * scores


def test_head_keeps_its_norm_its_input_and_fp32_logits() -> None:
    """Section 4.3: 4sbh(1 + v/h), and sbh for the mask after the embedding."""
    model = gpt()
    sb, h, v = 16 * 2, 32, 50
    assert total(model.stacks[-1], model, 16, 2, "dropout") == 4 * sb * h + 4 * sb * v
    assert total(model.stacks[0], model, 16, 2, "dropout") == sb * h


def test_fewer_kv_heads_keep_smaller_keys_and_values() -> None:
    full, grouped = gpt(), gpt(kv_heads=1)
    less = total(block(full), full, 16, 2) - total(block(grouped), grouped, 16, 2)
    assert less == 2 * 2 * (4 - 1) * 8 * 16 * 2  # k and v, 2 bytes, 3 heads of 8, 32 tokens


@pytest.mark.parametrize(("kind", "tensors"), [("relu", 1), ("gelu", 2), ("geglu", 4), ("swiglu", 4)])
def test_the_middle_of_an_mlp(kind: str, tensors: int) -> None:
    model = gpt(mlp=kind)
    assert sum("ffn" in s.dims for s in block(model).kept()) == tensors


def test_a_parallel_block_with_one_norm_keeps_one_input_for_both() -> None:
    sequential, parallel = gpt(), gpt(parallel_block=True, norms=1)
    less = total(block(sequential), sequential, 16, 2) - total(block(parallel), parallel, 16, 2)
    assert less == 2 * 2 * 16 * 2 * 32  # a norm's input and the MLP's


def test_experts_keep_a_copy_of_each_token_for_each_that_it_meets() -> None:
    model = gpt(mlp="swiglu", experts=8, top_k=2, moe_ffn=16, bias=False)
    routed = [s for s in block(model).kept() if "top_k" in s.dims]
    tokens = 16 * 2 * 2
    assert sum(size(s, model, 16, 2) for s in routed) == tokens * 2 * (2 * 32 + 4 * 16)
