"""Models from Hugging Face `config.json` files.

Parameter counts are those of the causal language model class of the architecture (bert: the encoder with its pooler;
t5: conditional generation; vit: image classification), measured against transformers on the meta device (see
tests/model). One difference: a T5 config that does not tie its head has a head of its own here, as in the published
checkpoints, while transformers 5 ties it all the same. Tensor names are ours, not transformers'.
Not for: weights, tokenizers, or reading a model's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import attrs

from placelang.model.constructors import build
from placelang.model.facts import Learned, Refused, hint
from placelang.model.model import Model, ModelError

LARGEST_FILE: Final = 10**7  # bytes; real ones have some thousands
Facts = dict[str, object]


@attrs.frozen
class Config:
    """Checked access to a `config.json`. Raises Refused for what is missing or of another kind."""

    values: Mapping[str, object]

    def size(self, *keys: str, default: int | None = None) -> int:
        """The whole number under the first of `keys` that is there and not null."""
        for key in keys:
            value = self.values.get(key)
            if value is not None:
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
                raise Refused(f"`{key}` of the config is not a whole number", argument=key)
        if default is None:
            raise Refused(f"the config lacks `{keys[0]}`", argument=keys[0])
        return default

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        raise Refused(f"`{key}` of the config is not true or false", argument=key)

    def refuse(self, key: str, wanted: object, why: str) -> None:
        """Refuse a config whose `key` is there and is not `wanted`."""
        value = self.values.get(key)
        if value is not None and value != wanted:
            raise Refused(f"`{key}` of the config: {why}", f"only {wanted!r} is known here", key)

    def activation(self, *keys: str, default: str, gated: bool) -> str:
        """The kind of MLP for an activation function's name."""
        key = next((k for k in keys if self.values.get(k) is not None), keys[0])
        value = str(self.values.get(key) or default)
        kinds = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu"} if gated else {"gelu": "gelu", "relu": "relu"}
        kind = kinds.get("gelu" if value.startswith("gelu") else value)
        if kind is None:
            raise Refused(f"`{key}` of the config is `{value}`", hint(value, kinds), key)
        return kind


def _decoder(c: Config) -> Facts:
    """What llama and its descendants have in common."""
    heads = c.size("num_attention_heads")
    return {
        "layers": c.size("num_hidden_layers"),
        "hidden": c.size("hidden_size"),
        "heads": heads,
        "kv_heads": c.size("num_key_value_heads", default=heads),
        "ffn": c.size("intermediate_size"),
        "vocab": c.size("vocab_size"),
        "mlp": c.activation("hidden_act", "hidden_activation", default="silu", gated=True),
        "tied": c.flag("tie_word_embeddings", False),
        **_longest(c),
    }


def _longest(c: Config) -> Facts:
    longest = c.size("max_position_embeddings", default=0)
    return {"max_seq_len": longest} if longest else {}


def _head_dim(c: Config, default: int | None = None) -> Facts:
    size = c.size("head_dim", default=default or 0)
    return {"head_dim": size} if size else {}


def _every_layer(c: Config) -> None:
    """Qwen's ways to make some layers dense: not known here."""
    c.refuse("decoder_sparse_step", 1, "dense layers between those with experts")
    c.refuse("mlp_only_layers", [], "dense layers between those with experts")


def _llama(c: Config) -> Facts:
    bias = c.flag("attention_bias", False)
    own = {"qkv_bias": bias, "out_bias": bias, "mlp_bias": c.flag("mlp_bias", False)}
    return _decoder(c) | _head_dim(c) | own


def _mistral(c: Config) -> Facts:
    return _decoder(c) | _head_dim(c)


def _mixtral(c: Config) -> Facts:
    return _mistral(c) | {"experts": c.size("num_local_experts"), "top_k": c.size("num_experts_per_tok")}


def _qwen2(c: Config) -> Facts:
    return _decoder(c) | {"qkv_bias": True}


def _qwen2_moe(c: Config) -> Facts:
    _every_layer(c)
    return _decoder(c) | {
        "qkv_bias": c.flag("qkv_bias", True),
        "experts": c.size("num_experts"),
        "top_k": c.size("num_experts_per_tok"),
        "moe_ffn": c.size("moe_intermediate_size"),
        "shared_ffn": c.size("shared_expert_intermediate_size"),
        "shared_gate": True,
    }


def _qwen3(c: Config) -> Facts:
    bias = c.flag("attention_bias", False)
    return _decoder(c) | _head_dim(c, 128) | {"qk_norm": True, "qkv_bias": bias, "out_bias": bias}


def _qwen3_moe(c: Config) -> Facts:
    _every_layer(c)
    return _qwen3(c) | {
        "experts": c.size("num_experts", "num_local_experts"),  # transformers 5 writes the second
        "top_k": c.size("num_experts_per_tok"),
        "moe_ffn": c.size("moe_intermediate_size"),
    }


def _gemma(c: Config) -> Facts:
    bias = c.flag("attention_bias", False)
    own = {"tied": c.flag("tie_word_embeddings", True), "qkv_bias": bias, "out_bias": bias}
    kind = c.activation("hidden_activation", "hidden_act", default="gelu", gated=True)
    return _decoder(c) | _head_dim(c, 256) | own | {"mlp": kind}


def _gemma2(c: Config) -> Facts:
    return _gemma(c) | {"norms": 4}


def _gpt2(c: Config) -> Facts:
    hidden = c.size("n_embd", "hidden_size")
    return {
        "layers": c.size("n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "heads": c.size("n_head", "num_attention_heads"),
        "ffn": c.size("n_inner", default=4 * hidden),
        "vocab": c.size("vocab_size"),
        "positions": Learned(c.size("n_positions", "max_position_embeddings")),
        "mlp": c.activation("activation_function", default="gelu", gated=False),
        "norm": "layernorm",
        "tied": c.flag("tie_word_embeddings", True),
        "bias": True,
        "fused_qkv": True,
    }


def _gpt_neox(c: Config) -> Facts:
    bias = c.flag("attention_bias", True)
    return {
        "layers": c.size("num_hidden_layers"),
        "hidden": c.size("hidden_size"),
        "heads": c.size("num_attention_heads"),
        "ffn": c.size("intermediate_size"),
        "vocab": c.size("vocab_size"),
        "mlp": c.activation("hidden_act", default="gelu", gated=False),
        "norm": "layernorm",
        "parallel_block": c.flag("use_parallel_residual", True),
        "norms": 2,
        "tied": c.flag("tie_word_embeddings", False),
        "mlp_bias": True,
        "qkv_bias": bias,
        "out_bias": bias,
        "fused_qkv": True,
        **_longest(c),
    }


def _phi(c: Config) -> Facts:
    c.refuse("qk_layernorm", False, "norms over heads with a shift")
    own = {"norm": "layernorm", "parallel_block": True, "norms": 1, "bias": True, "head_bias": True}
    return _decoder(c) | own | {"mlp": c.activation("hidden_act", default="gelu", gated=False)}


def _falcon(c: Config) -> Facts:
    hidden, heads = c.size("hidden_size", "n_embed"), c.size("num_attention_heads", "n_head")
    new = c.flag("new_decoder_architecture", False)
    parallel = new or c.flag("parallel_attn", True)
    kv_heads = c.size("num_kv_heads", default=heads) if new else 1 if c.flag("multi_query", True) else heads
    return {
        "layers": c.size("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn": c.size("ffn_hidden_size", default=4 * hidden),
        "vocab": c.size("vocab_size"),
        "mlp": c.activation("activation", default="gelu", gated=False),
        "norm": "layernorm",
        "positions": "alibi" if c.flag("alibi", False) else "rope",
        "parallel_block": parallel,
        "norms": c.size("num_ln_in_parallel_attn", default=2) if new else 1 if parallel else 2,
        "bias": c.flag("bias", False),
        "tied": c.flag("tie_word_embeddings", True),
        "fused_qkv": True,
    }


def _bloom(c: Config) -> Facts:
    hidden = c.size("hidden_size", "n_embed")
    return {
        "layers": c.size("n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "heads": c.size("n_head", "num_attention_heads"),
        "ffn": 4 * hidden,
        "vocab": c.size("vocab_size"),
        "mlp": "gelu",
        "norm": "layernorm",
        "positions": "alibi",
        "embedding_norm": True,
        "tied": c.flag("tie_word_embeddings", True),
        "bias": True,
        "fused_qkv": True,
    }


def _deepseek(c: Config) -> Facts:
    c.refuse("attention_bias", False, "biases in latent attention")
    c.refuse("moe_layer_freq", 1, "dense layers between those with experts")
    shared, moe_ffn = c.size("n_shared_experts", default=0), c.size("moe_intermediate_size")
    facts = _decoder(c)
    del facts["kv_heads"]  # config.json repeats the heads here; latent attention has none of its own
    return facts | {
        "attention": "mla",
        "q_lora_rank": c.size("q_lora_rank", default=0),
        "kv_lora_rank": c.size("kv_lora_rank"),
        "qk_nope_head_dim": c.size("qk_nope_head_dim"),
        "qk_rope_head_dim": c.size("qk_rope_head_dim"),
        "v_head_dim": c.size("v_head_dim"),
        "experts": c.size("n_routed_experts"),
        "top_k": c.size("num_experts_per_tok"),
        "moe_ffn": moe_ffn,
        "shared_experts": shared,
        "dense_layers": c.size("first_k_dense_replace", default=0),
    }


def _gpt_oss(c: Config) -> Facts:
    bias = c.flag("attention_bias", True)
    own = {"sinks": True, "router_bias": True, "expert_bias": True, "qkv_bias": bias, "out_bias": bias}
    counts = {"experts": c.size("num_local_experts"), "top_k": c.size("num_experts_per_tok", "experts_per_token")}
    return _decoder(c) | _head_dim(c) | own | counts


def _bert(c: Config) -> Facts:
    return {
        "layers": c.size("num_hidden_layers"),
        "hidden": c.size("hidden_size"),
        "heads": c.size("num_attention_heads"),
        "ffn": c.size("intermediate_size"),
        "vocab": c.size("vocab_size"),
        "positions": Learned(c.size("max_position_embeddings")),
        "types": c.size("type_vocab_size", default=2),
        "mlp": c.activation("hidden_act", default="gelu", gated=False),
    }


def _t5(c: Config) -> Facts:
    feed = str(c.values.get("feed_forward_proj") or "relu")
    kind = {"relu": "relu", "gelu": "gelu", "gated-gelu": "geglu"}.get(feed)
    if kind is None:
        raise Refused(f"`feed_forward_proj` of the config is `{feed}`", "relu, gelu or gated-gelu", "feed_forward_proj")
    layers = c.size("num_layers")
    return {
        "layers": layers,
        "decoder_layers": c.size("num_decoder_layers", default=layers),
        "hidden": c.size("d_model"),
        "heads": c.size("num_heads"),
        "head_dim": c.size("d_kv"),
        "ffn": c.size("d_ff"),
        "vocab": c.size("vocab_size"),
        "relative_buckets": c.size("relative_attention_num_buckets", default=32),
        "mlp": kind,
        "tied": c.flag("tie_word_embeddings", True),
    }


def _vit(c: Config) -> Facts:
    c.refuse("qkv_bias", True, "attention without biases")
    labels = c.values.get("id2label")
    return {
        "layers": c.size("num_hidden_layers"),
        "hidden": c.size("hidden_size"),
        "heads": c.size("num_attention_heads"),
        "ffn": c.size("intermediate_size"),
        "image_size": c.size("image_size"),
        "patch_size": c.size("patch_size"),
        "channels": c.size("num_channels", default=3),
        "classes": len(labels) if isinstance(labels, dict) and labels else c.size("num_labels", default=2),
        "mlp": c.activation("hidden_act", default="gelu", gated=False),
    }


ARCHITECTURES: Final[Mapping[str, tuple[str, Callable[[Config], Facts]]]] = {
    "llama": ("transformer", _llama),
    "mistral": ("transformer", _mistral),
    "mixtral": ("transformer", _mixtral),
    "qwen2": ("transformer", _qwen2),
    "qwen2_moe": ("transformer", _qwen2_moe),
    "qwen3": ("transformer", _qwen3),
    "qwen3_moe": ("transformer", _qwen3_moe),
    "gemma": ("transformer", _gemma),
    "gemma2": ("transformer", _gemma2),
    "gpt2": ("transformer", _gpt2),
    "gpt_neox": ("transformer", _gpt_neox),
    "gpt_oss": ("transformer", _gpt_oss),
    "phi": ("transformer", _phi),
    "falcon": ("transformer", _falcon),
    "bloom": ("transformer", _bloom),
    "deepseek_v2": ("transformer", _deepseek),
    "deepseek_v3": ("transformer", _deepseek),
    "bert": ("encoder", _bert),
    "t5": ("encoder_decoder", _t5),
    "vit": ("vision", _vit),
}
"""`model_type` of each architecture that is known, with the constructor that builds it."""


def from_config(config: Mapping[str, object], name: str = "") -> Model | ModelError:
    """The model of a parsed `config.json`."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        return ModelError("the config has no `model_type`", "is this the config.json of a Hugging Face model?")
    if kind not in ARCHITECTURES:
        return ModelError(f"no architecture is named `{kind}` here", hint(kind, ARCHITECTURES), "model_type")
    constructor, translate = ARCHITECTURES[kind]
    try:
        facts = translate(Config(config))
    except Refused as refused:
        return refused.error
    source = f"config.json, model_type {kind}"
    return build(constructor, facts, name=name or kind, family=kind, source=source)


def load(path: Path) -> Model | ModelError:
    """The model of a `config.json` file, or of the folder that holds one."""
    import json

    file = path
    try:
        file = path / "config.json" if path.is_dir() else path
        if not file.is_file():  # a device or a pipe might never end
            return ModelError(f"`{file}` is not a file" if file.exists() else f"there is no file `{file}`")
        if file.stat().st_size > LARGEST_FILE:
            return ModelError(f"`{file}` is too large to be a config.json")
        config = json.loads(file.read_bytes())
    except OSError as error:
        return ModelError(f"cannot read `{file}`: {error.strerror}")
    except (ValueError, RecursionError):
        return ModelError(f"`{file}` is not JSON")
    if not isinstance(config, dict):
        return ModelError(f"`{file}` is not a Hugging Face config", "a JSON object with a `model_type`")
    return from_config(config, name=file.parent.name)
