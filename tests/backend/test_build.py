"""Modules of catalogue models, and models of modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from placelang.backend.build import build
from placelang.backend.errors import BackendError
from placelang.backend.read import read
from placelang.model.constructors import build as described
from placelang.model.facts import Learned
from placelang.model.model import Model
from tests.backend.plans import tiny

FAMILIES = {
    "llama": {},
    "tied": {"tied": True},
    "gpt2": {
        "mlp": "gelu",
        "norm": "layernorm",
        "bias": True,
        "kv_heads": 4,
        "positions": Learned(64),
        "tied": True,
    },
    "parallel": {"norms": 1, "parallel_block": True, "bias": True},
    "parallel, two norms": {"parallel_block": True, "mlp": "relu"},
    "four norms": {"norms": 4, "qk_norm": True, "mlp": "geglu"},
    "fused": {"fused_qkv": True, "embedding_norm": True, "positions": "none", "head_bias": True},
}


@pytest.mark.parametrize("facts", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_built_module_is_what_the_model_says_and_reads_back_as_it(facts: dict[str, object]) -> None:
    model = tiny(**facts)
    module = build(model)
    assert sum(p.numel() for p in module.parameters()) == model.params
    names = {name: (t.shape, t.tied) for name, t in model.named()}
    assert {name: (t.shape, t.tied) for name, t in read(module).named()} == names
    assert [(s.name, s.count) for s in read(module).blocks] == [("layers", 2)]
    logits = module(torch.zeros(2, 8, dtype=torch.int64))
    assert logits.shape == (2, 8, 257)
    assert torch.isfinite(logits).all()


def test_attention_is_causal() -> None:
    module = build(tiny(), dtype="fp64")
    tokens = torch.arange(12)[None]
    changed = tokens.clone()
    changed[0, 8:] = 200
    before, after = module(tokens), module(changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.equal(before[:, 8:], after[:, 8:])


def test_values_depend_on_seed_and_name_only() -> None:
    wide, narrow = build(tiny(), dtype="fp64"), build(tiny(), dtype="bf16")
    for (name, a), (_, b) in zip(wide.named_parameters(), narrow.named_parameters(), strict=True):
        assert torch.equal(a.to(torch.bfloat16), b), name
    deeper = build(tiny(layers=3), dtype="fp64")
    assert torch.equal(wide.get_parameter("layers.1.attn.wq.weight"), deeper.get_parameter("layers.1.attn.wq.weight"))
    other = build(tiny(), seed=1, dtype="fp64")
    assert not torch.equal(wide.get_parameter("head.weight"), other.get_parameter("head.weight"))
    assert not torch.equal(wide.get_parameter("head.weight"), wide.get_parameter("embed.tokens.weight"))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (tiny(experts=4, top_k=2), "experts"),
        (tiny(positions="alibi"), "alibi"),
        (tiny(sinks=True), "attention sinks"),
        (
            described(
                "encoder", {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "vocab": 100, "positions": Learned(32)}
            ),
            "no decoder",
        ),
    ],
    ids=["experts", "alibi", "sinks", "encoder"],
)
def test_what_cannot_be_built_is_refused(model: object, words: str) -> None:
    assert isinstance(model, Model), model
    with pytest.raises(BackendError, match=words) as error:
        build(model, device="meta")
    assert error.value.diagnostic.code == "E501"
    assert "decoder-only" in error.value.diagnostic.help


class Own(nn.Module):
    """A user's module: a parameter at the top, blocks in a Sequential, a run of two inside five, a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.tokens = nn.Embedding(256, 8)
        self.body = nn.Sequential(
            nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        )
        self.heads = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))] * 1)
        self.odd = nn.Bilinear(8, 8, 8)
        self.out = nn.Linear(8, 256, bias=False)
        self.out.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.body(self.tokens(tokens)) * self.scale
        for head in self.heads:
            x = head(x)
        out: torch.Tensor = self.out(self.odd(x, x))
        return out


def test_any_module_reads_as_a_model() -> None:
    model = read(Own())
    assert {(s.name, s.first, s.count) for s in model.blocks} == {("body", 2, 2)}
    named = dict(model.named())
    assert named["out.weight"].tied == "tokens.weight"
    assert named["odd.weight"].role == "other"
    assert named["odd.weight"].dims == ("0", "1", "2")
    assert named["scale"].shape == ()
    assert model.params == sum(p.numel() for p in Own().parameters())
    assert {n for n, t in named.items() if t.tied is None} == dict(Own().named_parameters()).keys()


def test_reading_needs_no_memory() -> None:
    with torch.device("meta"):
        module = nn.Sequential(*(nn.Linear(100_000, 100_000) for _ in range(50)))
    assert read(module).params == 50 * (10**10 + 10**5)
