"""Tiny transformers, and plans from text that split their layers inside, for simulator and checker."""

from __future__ import annotations

from functools import cache

from placelang.model import catalogue
from placelang.model.model import Model
from placelang.plan.elaborate import elaborate
from placelang.plan.plan import Plan
from placelang.program.lower import lower, single_device
from placelang.program.program import Program
from placelang.simulate import shrink
from placelang.source import Source
from placelang.syntax.parser import parse

MODELS = {
    "gqa": "llama3_8b",  # fewer key-value heads, gated MLP
    "qk_norm": "qwen3_8b",
    "fused": "gpt2_124m",  # one matrix for q, k, v; learned positions, biases, tied embedding
    "biased": "qwen2_5_0_5b",  # biases of q, k, v alone; tied
    "four_norms": "gemma2_2b",
    "embedding_norm": "bloom_560m",
    "one_kv_head": "gemma_2b",
    "parallel": "phi_2",  # attention and MLP read one norm
    "experts": "mixtral_8x7b",
    "latent": "deepseek_v3",  # latent attention, dense layers before those with experts, a shared expert
}
"""What is special about it -> a model of the catalogue that has it."""


@cache
def small(name: str) -> Model:
    model = catalogue.lookup(MODELS[name])
    assert isinstance(model, Model)
    return shrink(model)


def read(text: str, model: Model) -> Plan | None:
    """The plan of a text; None where the language refuses it."""
    file, faults = parse(Source(text))
    assert not faults, text
    return elaborate(file, model=model)[0]


def opened(plan: Plan, model: Model) -> Program:
    return lower(plan, model, inside=True)


def alone(plan: Plan, model: Model) -> Program:
    """The same job on one device."""
    return lower(single_device(plan), model, inside=True)
