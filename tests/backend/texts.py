"""Strategies as texts, and small models of every shape that the inside of layers has."""

from __future__ import annotations

import placelang
from placelang.backend.verify import Report, verify
from placelang.model.model import Model
from placelang.plan.plan import Plan

JOB = "train (seq = 16, micro_batch = 2, microbatches = {})\n"

GROUPED = "transformer(layers = 2, hidden = 32, heads = 4, kv_heads = 2, ffn = 44, vocab = 256)"
NORMED = "transformer(layers = 2, hidden = 32, heads = 4, kv_heads = 2, ffn = 44, vocab = 256, qk_norm = true)"
FUSED = "transformer(layers = 2, hidden = 32, heads = 4, ffn = 44, vocab = 256, fused_qkv = true, bias = true)"
GPT = (
    "transformer(layers = 2, hidden = 32, heads = 4, ffn = 64, vocab = 256, mlp = gelu, norm = layernorm,"
    " positions = learned(64), tied = true, bias = true)"
)
FOUR_NORMS = "transformer(layers = 2, hidden = 32, heads = 4, ffn = 44, vocab = 256, norms = 4, tied = true)"


def load(text: str, model: str | Model, microbatches: int = 1) -> tuple[Plan, Model]:
    strategy = placelang.load(text + "\n" + JOB.format(microbatches), model=model)
    assert strategy.ok and strategy.plan, [d.message for d in strategy.diagnostics]
    return strategy.plan, strategy.model


def verified(text: str, model: str, ranks: int, microbatches: int = 1) -> Report:
    plan, described = load(text, model, microbatches)
    report = verify(plan, described, ranks, steps=2, limit=240)
    bad = [row for row in (*report.collectives, *report.memory, *report.parity, report.data) if not row.ok]
    assert report.ok, bad
    assert {row.optimizer for row in report.parity} == {"gradient", "sgd", "adamw"}
    return report
