"""An `nn.Module` of a catalogue model: the parameters have exactly the names and shapes that the Model says.

Initial values depend on (seed, name of the tensor) alone and are drawn in float64, so every rank, every layout and
every dtype starts from the same model. Not for: loading trained weights, or models with experts, encoders or latent
attention.
"""

from __future__ import annotations

import zlib
from math import sqrt

import torch
from torch import Tensor, nn

from placelang.backend.errors import unsupported
from placelang.backend.layers import Decoder, Shape
from placelang.model.model import Model
from placelang.model.model import Tensor as Described

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_STD = 0.02  # GPT-2's
_BUILT = "decoder-only models with multi-head attention and dense MLPs: gpt2, llama, qwen, mistral and the like"


def build(model: Model, *, seed: int = 0, dtype: str = "fp32", device: str = "cpu") -> Decoder:
    """The module of `model` with initial values of `seed`. On "meta" it has shapes only.

    Raises BackendError (E501) for models that this version cannot build.
    """
    _check(model)
    shape = Shape(
        heads=model.size("heads") or 1,
        kv_heads=model.size("kv_heads") or model.size("heads") or 1,
        head_dim=model.size("head_dim") or 1,
        activation=model.trait("mlp") or "gelu",
        rope=model.trait("positions") == "rope",
        parallel=model.trait("block") == "parallel",
    )
    blocks = sum(s.count for s in model.blocks)
    with torch.device("meta"):
        module = Decoder(shape, blocks)
        by_module: dict[str, dict[str, Described]] = {}
        for name, tensor in model.named():
            path, _, leaf = name.rpartition(".")
            by_module.setdefault(path, {})[leaf] = tensor
        for path, tensors in by_module.items():
            parent, _, leaf = path.rpartition(".")
            setattr(module.get_submodule(parent), leaf, _leaf(model, tensors))
    module = module.to(DTYPES[dtype])
    if device != "meta":
        module.to_empty(device=device)
        with torch.no_grad():
            for name, tensor in model.named():
                if tensor.tied is None:
                    module.get_parameter(name).copy_(_draw(name, tensor, seed, blocks))
    for name, tensor in model.named():
        if tensor.tied is not None:
            path, _, leaf = name.rpartition(".")
            setattr(module.get_submodule(path), leaf, module.get_parameter(tensor.tied))
    described = {name: t.shape for name, t in model.named() if t.tied is None}
    real = {name: tuple(p.shape) for name, p in module.named_parameters()}
    assert real == described, sorted(set(real.items()) ^ set(described.items()))
    return module


def _check(model: Model) -> None:
    if model.trait("constructor") != "transformer":
        raise unsupported(f"no module is built for {model.name}: it is no decoder-only transformer", _BUILT)
    refused = {
        "latent attention": model.trait("attention") == "mla",
        "experts": bool(model.size("experts")),
        "alibi positions": model.trait("positions") == "alibi",
        "adapters": bool(model.size("lora_rank")),
        "attention sinks": any(t.name.endswith("sinks") for s in model.stacks for t in s.tensors),
    }
    for what, has in refused.items():
        if has:
            raise unsupported(f"no module is built for {model.name}: it has {what}", _BUILT)


def _leaf(model: Model, tensors: dict[str, Described]) -> nn.Module:
    """The layer that holds these tensors ("weight", and "bias" if there is one)."""
    weight, bias = tensors["weight"], "bias" in tensors
    if weight.role == "norm":
        if model.trait("norm") == "rmsnorm":
            return nn.RMSNorm(weight.shape[0], eps=1e-6)
        return nn.LayerNorm(weight.shape[0], bias=bias)
    rows, width = weight.shape
    if weight.role == "embed" or "positions" in weight.dims:
        return nn.Embedding(rows, width)
    return nn.Linear(width, rows, bias=bias)


def _draw(name: str, tensor: Described, seed: int, blocks: int) -> Tensor:
    """GPT-2's initial values: normal with deviation 0.02, smaller on the residual path, norms at one, biases at
    zero."""
    if tensor.kind == "bias":
        return torch.zeros(tensor.shape, dtype=torch.float64)
    if tensor.role == "norm":
        return torch.ones(tensor.shape, dtype=torch.float64)
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))  # torch uses 32 bits of a seed
    scale = _STD / sqrt(2 * blocks) if tensor.role in ("attn.out", "mlp.down") else _STD
    return torch.randn(tensor.shape, dtype=torch.float64, generator=generator) * scale
