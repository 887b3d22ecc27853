"""Models of the `transformers` library as models of ours: the same tensors under other names.

With it the inside of their layers is known, so that tensor and sequence axes can split it. Their code runs unchanged:
parameters are split, and moves stand at the boundaries of their modules and in their attention function. The library is
not imported before one of its models is there. Not for: models whose blocks only data axes split (`read` suffices).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
from torch import nn

from placelang.backend.errors import failed, unsupported
from placelang.model.huggingface import from_config
from placelang.model.model import Model, ModelError, Stack, Tensor


@attrs.frozen
class Names:
    """Where the tensors of a model are in a module. `transposed`: tensors that the module stores as (in, out)."""

    names: Mapping[str, str] = attrs.field(factory=dict)
    stacks: Mapping[str, str] = attrs.field(factory=dict)
    transposed: frozenset[str] = frozenset()

    def tensor(self, name: str) -> str:
        return self.names.get(name, name)

    def block(self, stack: Stack, layer: int) -> str:
        return f"{self.stacks.get(stack.name, stack.name)}.{stack.first + layer}"

    def shape(self, name: str, tensor: Tensor) -> tuple[int, ...]:
        return tensor.shape[::-1] if name in self.transposed else tensor.shape


SAME: Final = Names()
"""The module has the model's own names."""

_LLAMA: Final[Mapping[str, str]] = {
    "embed.tokens": "model.embed_tokens",
    "layers": "model.layers",
    "attn_norm": "input_layernorm",
    "attn.wq": "self_attn.q_proj",
    "attn.wk": "self_attn.k_proj",
    "attn.wv": "self_attn.v_proj",
    "attn.wo": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
    "norm": "model.norm",
    "head": "lm_head",
}
_GPT2: Final[Mapping[str, str]] = {
    "embed.tokens": "transformer.wte",
    "embed.positions": "transformer.wpe",
    "layers": "transformer.h",
    "attn_norm": "ln_1",
    "attn.wqkv": "attn.c_attn",
    "attn.wo": "attn.c_proj",
    "mlp_norm": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
    "norm": "transformer.ln_f",
    "head": "lm_head",
}
_KNOWN: Final[Mapping[str, Mapping[str, str]]] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gpt2": _GPT2,
}


def is_pretrained(module: nn.Module) -> bool:
    return isinstance(getattr(getattr(module, "config", None), "model_type", None), str)


def described(module: nn.Module) -> tuple[Model, Names]:
    """The model that such a module is, with its names there.

    Raises BackendError (E501) for an architecture that is not known here, and for what its forward does beside the
    model: dropout, windows of attention.
    """
    config: Any = module.config
    kind = config.model_type
    known = _KNOWN.get(kind)
    if known is None:
        raise unsupported(
            f"the inside of `{kind}` models of transformers", f"known inside: {', '.join(_KNOWN)}; others: data axes"
        )
    model = from_config(config.to_dict(), name=type(module).__name__)
    if isinstance(model, ModelError):
        raise unsupported(f"this `{kind}` model: {model.message}", model.suggestion or "another config")
    for name, part in module.named_modules():
        if isinstance(part, nn.Dropout) and part.p > 0:
            raise unsupported(f"dropout in `{name}` ({part.p:g})", "a config whose dropout rates are 0")
        if getattr(part, "attention_dropout", 0.0):
            raise unsupported(f"dropout of attention in `{name}`", "`attention_dropout = 0` in its config")
    if (window := getattr(config, "sliding_window", None)) and window < config.max_position_embeddings:
        raise unsupported(f"attention with a window of {window:,} tokens", "a config without sliding windows")
    names: dict[str, str] = {}
    transposed: set[str] = set()
    for stack in model.stacks:
        for layer in range(stack.count):
            for tensor in stack.tensors:
                full = stack.fqn(tensor, layer)
                path, _, leaf = tensor.name.rpartition(".")
                inner = f"{known[path]}.{leaf}"
                names[full] = f"{known[stack.name]}.{stack.first + layer}.{inner}" if stack.indexed else inner
                if kind == "gpt2" and len(tensor.shape) == 2 and stack.block:
                    transposed.add(full)
    return model, Names(names, {"layers": known["layers"]}, frozenset(transposed))


def prepare(module: nn.Module) -> None:
    """Once its parameters are split: attention is ours, which sees the causal order and no other mask."""
    from transformers import AttentionInterface

    from placelang.backend.attention import pretrained

    config: Any = module.config
    AttentionInterface.register("placelang", pretrained)
    config._attn_implementation = "placelang"

    def refuse(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if len(args) > 1 or kwargs.get("attention_mask") is not None:
            raise failed("E501", "a mask beside the causal one", "no `attention_mask`; targets of -100 do not count")
        if kwargs.get("labels") is not None:
            raise failed("E501", "a loss inside a model that is split", "`p.loss(p.model(tokens), targets)`")

    module.register_forward_pre_hook(refuse, with_kwargs=True)


def narrow(attention: nn.Module, ranks: int) -> None:
    """What a module of theirs remembers of a width that is split now."""
    size: Any = getattr(attention, "split_size", None)
    if isinstance(size, int):
        attention.split_size = size // ranks  # type: ignore[assignment]
