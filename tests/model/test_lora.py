"""Adapters: exact counts, what is frozen, and where they may stand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from placelang.model import catalogue
from placelang.model.constructors import build
from placelang.model.facts import Lora
from placelang.model.model import Model, ModelError

TINY: Mapping[str, object] = {"layers": 2, "hidden": 8, "heads": 4, "kv_heads": 2, "ffn": 12, "vocab": 16}


def tiny(**facts: object) -> Model:
    model = build("transformer", {**TINY, **facts})
    assert isinstance(model, Model), model
    return model


def refused(**facts: object) -> ModelError:
    error = build("transformer", {**TINY, **facts})
    assert isinstance(error, ModelError)
    return error


def test_counts_are_the_base_and_two_matrices_a_layer() -> None:
    base, adapted = tiny(), tiny(lora=3)
    q, kv, out = 3 * (8 + 8), 2 * 3 * (8 + 4), 3 * (8 + 8)
    gate_up_down = 3 * 3 * (8 + 12)
    assert adapted.params_trainable == 2 * (q + kv + out + gate_up_down)
    assert adapted.params == base.params + adapted.params_trainable
    assert base.params_trainable == base.params


@pytest.mark.parametrize(
    ("name", "base", "trained"),
    # r (in + out) over q, k, v, o, gate, up, down of 80 layers of 8192, 1024 kv, 28,672: 16 * 161,792 * 80
    [("llama3_70b", 70_553_706_496, 80 * 16 * (16_384 + 2 * 9216 + 16_384 + 3 * 36_864))],
)
def test_a_published_model(name: str, base: int, trained: int) -> None:
    model = catalogue.lookup(name, {"lora": 16})
    assert isinstance(model, Model)
    assert (model.params, model.params_trainable) == (base + trained, trained)


def test_names_shapes_and_what_is_frozen() -> None:
    named = dict(tiny(lora=3).named())
    a, b = named["layers.1.attn.wk.lora_a.weight"], named["layers.1.attn.wk.lora_b.weight"]
    assert (a.shape, a.dims, b.shape, b.dims) == ((3, 8), ("lora_rank", "hidden"), (4, 3), ("kv_heads", "lora_rank"))
    assert all(tensor.frozen == (".lora_" not in name) for name, tensor in named.items())


def test_chosen_layers() -> None:
    names = [name for name, _ in tiny(lora=Lora(3, ("attn.q", "mlp.down"))).named() if name.endswith("lora_a.weight")]
    assert names == [f"layers.{i}.{m}.lora_a.weight" for i in (0, 1) for m in ("attn.wq", "mlp.down")]
    fused = dict(tiny(lora=Lora(3, ("attn.qkv",)), fused_qkv=True).named())
    assert fused["layers.0.attn.wqkv.lora_b.weight"].shape == (16, 3)


def test_experts_have_an_adapter_each() -> None:
    model = tiny(lora=3, experts=5, top_k=2, moe_ffn=6)
    up = dict(model.named())["layers.0.mlp.experts.up.lora_b.weight"]
    assert (up.shape, up.role) == ((5, 6, 3), "experts.up")
    assert "layers.0.mlp.router.lora_a.weight" not in dict(model.named())
    assert model.params_active < model.params


def test_an_adapter_keeps_what_a_returns_and_a_frozen_head_no_input() -> None:
    model = tiny(lora=3)
    kept = {s.name: s.dims for stack in model.stacks for s in stack.saved}
    assert kept["attn.wq.lora_b.input"] == ("batch", "seq", "lora_rank")
    assert "head.input" not in kept
    assert model.size("lora_rank") == 3


@pytest.mark.parametrize("constructor", ["bert_base", "t5_base", "vit_b_16", "deepseek_v3", "gpt2"])
def test_every_family_takes_adapters(constructor: str) -> None:
    base, model = catalogue.lookup(constructor), catalogue.lookup(constructor, {"lora": 4})
    assert isinstance(base, Model)
    assert isinstance(model, Model)
    assert model.params - model.params_trainable == base.params
    assert model.params_trainable


@pytest.mark.parametrize(
    ("lora", "message"),
    [
        (0, "`lora` needs the rank of its adapters, a whole number"),
        (True, "`lora` needs the rank of its adapters, a whole number"),
        (Lora(None), "`lora` needs the rank of its adapters, a whole number"),
        (Lora(4, ("router",)), "`lora` stands on no layer called `router`"),
        (Lora(4, ("experts",)), "no layer of model is experts"),
        (Lora(4, ()), "no layer of model is named"),
    ],
)
def test_what_is_no_adapter_is_refused(lora: object, message: str) -> None:
    assert refused(lora=lora) == ModelError(message, refused(lora=lora).suggestion, "lora")
