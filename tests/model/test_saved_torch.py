"""Saved activations against what torch's autograd keeps of a real layer."""

from __future__ import annotations

from typing import Any

import pytest

from placelang.model.constructors import build
from placelang.model.model import Model

torch = pytest.importorskip("torch")
F = torch.nn.functional
BATCH, SEQ, HIDDEN, HEADS, HEAD_DIM, FFN = 2, 48, 64, 4, 16, 96
ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu}


def kept_by_torch(kind: str, fused: bool) -> int:
    """Bytes of the storages, other than parameters, that the forward of one layer hands to autograd."""

    def linear(out: int, into: int) -> Any:
        return torch.nn.Linear(into, out, bias=False)

    norms = [torch.nn.LayerNorm(HIDDEN) for _ in range(2)]
    wq, wk, wv, wo = (linear(HIDDEN, HIDDEN) for _ in range(4))
    up, gate, down = linear(FFN, HIDDEN), linear(FFN, HIDDEN), linear(HIDDEN, FFN)
    modules = torch.nn.ModuleList([*norms, wq, wk, wv, wo, up, gate, down])
    own = {p.untyped_storage().data_ptr() for p in modules.parameters()}
    storages: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage
        return tensor

    def heads(x: Any) -> Any:
        return x.view(BATCH, SEQ, HEADS, HEAD_DIM).transpose(1, 2)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        x = torch.randn(BATCH, SEQ, HIDDEN, requires_grad=True)
        y = norms[0](x)
        q, k, v = heads(wq(y)), heads(wk(y)), heads(wv(y))
        if fused:
            core = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            core = (q * HEAD_DIM**-0.5 @ k.transpose(-1, -2)).softmax(-1) @ v
        x = x + wo(core.transpose(1, 2).reshape(BATCH, SEQ, HIDDEN))
        y = norms[1](x)
        x + down(F.silu(gate(y)) * up(y) if kind == "swiglu" else ACTIVATIONS[kind](up(y)))
    return sum(int(storage.nbytes()) for storage in storages.values())


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "eager"])
@pytest.mark.parametrize("kind", ["gelu", "relu", "swiglu"])
def test_a_layer_keeps_what_we_say(kind: str, fused: bool) -> None:
    facts = {"layers": 1, "hidden": HIDDEN, "heads": HEADS, "ffn": FFN, "vocab": 8, "mlp": kind, "norm": "layernorm"}
    model = build("transformer", facts)
    assert isinstance(model, Model)
    sizes = {**dict(model.sizes), "batch": BATCH, "seq": SEQ}
    total = 0
    for saved in model.blocks[0].kept("fused_attention" if fused else "eager_attention"):
        elements = 4  # bytes of fp32, in which this layer computes
        for dim in saved.dims:
            elements *= sizes[dim]
        total += elements
    statistics = 2 * 2 * BATCH * SEQ * 4  # mean and deviation of a token, of two norms, in fp32: left out of the count
    assert kept_by_torch(kind, fused) == total + statistics
