"""Which activations a block keeps under recomputation, and which it makes again.

A saved activation is what some operation made: it is kept where that operation does not run again or its results are
saved, or where a linear layer that is kept as it is reads it. Not for: which events run again (`program.recompute`).
"""

from __future__ import annotations

from placelang.model.model import Saved, Stack
from placelang.program.recompute import Policy, results

_MAKERS = {
    "q": "linear",
    "k": "linear",
    "v": "linear",
    "up": "linear",
    "gate": "linear",
    "output": "linear",
    "softmax": "attention",
    "softmax_mask": "attention",
    "softmax_dropped": "attention",
    "logsumexp": "attention",
    "dropout_mask": "add",
}
"""The kind of operation that makes a saved activation, by the last word of its name; others are elementwise. A mask
of what is dropped from a layer's result comes with its addition to the residual stream."""

_READ_BY = {"wo": "attention", "attn": "norm", "mlp": "norm", "wq_b": "norm", "wkv_b": "norm"}
"""The kind of operation that makes what a linear layer reads, by the layer's name."""


def split(stack: Stack, policy: Policy, *conditions: str) -> tuple[tuple[Saved, ...], tuple[Saved, ...]]:
    """What one layer keeps, and what it makes again in backward."""
    saved = stack.kept(*conditions)
    kept = tuple(s for k, s in enumerate(saved) if k == 0 or _kept(s, policy))
    again = tuple(s for s in saved if s not in kept)
    if "matmul" in (policy.of_block or ()):  # the results of a layer's two last products, which it adds
        hidden = ("batch", "seq", "hidden")
        kept += (Saved("attn.wo", hidden, part="attn"), Saved("mlp.down", hidden, part="mlp"))
    return kept, again


def _kept(saved: Saved, policy: Policy) -> bool:
    kind = _maker(saved.name)
    save = policy.saved("norm" if kind == "norm" else saved.part.replace(".core", ""), kind)
    if save is None:
        return True
    if kind == "attention" and not saved.name.endswith((".input", "logsumexp")):
        return False  # scores live inside attention, whatever is kept of it
    reads = saved.name.endswith(".input") and "norm" not in saved.name
    return ("linear" in save and reads) or results(save, kind)


def _maker(name: str) -> str:
    """The kind of operation that made a saved activation."""
    if not name.endswith(".input"):
        return _MAKERS.get(name.rpartition(".")[2], "mul")
    reader = name.removesuffix(".input").rpartition(".")[2]
    if reader in ("q_norm", "k_norm", "kv_norm"):
        return "linear"
    return _READ_BY.get(reader, "linear" if reader.startswith("lora") else "add" if reader.endswith("norm") else "mul")
