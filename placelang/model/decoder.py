"""`transformer(...)`: decoder-only language models, dense or with experts, from GPT-2 to DeepSeek-V3.

Not for: encoders, encoder-decoders and vision (`encoders`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from placelang.model.facts import Arg, Facts, Learned, Refused, divides, flag, ratio, read, size, word
from placelang.model.layers import (
    Attention,
    Experts,
    Latent,
    Part,
    attention,
    dropout,
    experts,
    last,
    latent_attention,
    mlp,
    norm,
    weight,
)
from placelang.model.model import Model, Routing, Stack

ARGS: Final[Mapping[str, Arg]] = {
    "layers": size("number of blocks", required=True),
    "hidden": size("width of the residual stream", required=True),
    "heads": size("query heads", required=True),
    "kv_heads": size("key and value heads; heads when left out"),
    "head_dim": size("width of a head; hidden / heads when left out"),
    "ffn": size("inner width of a dense MLP", required=True),
    "vocab": size("rows of the embedding", required=True),
    "max_seq_len": size("longest sequence; the position table's length when it has one"),
    "mlp": word("activation of the MLP", "swiglu", "geglu", "gelu", "relu"),
    "norm": word("kind of norm", "rmsnorm", "layernorm"),
    "norms": size("norms in a block: 1 (parallel), 2, or 4 (also after attention and MLP); 2 when left out"),
    "norm_bias": flag("shift in each norm; true for layernorm when left out"),
    "positions": Arg("positions", "rope, alibi, none or learned(length)", "rope"),
    "tied": flag("head and embedding share one matrix", False),
    "embedding_norm": flag("a norm after the embedding", False),
    "bias": flag("biases in attention and MLP", False),
    "qkv_bias": flag("bias of q, k, v; as `bias` when left out"),
    "out_bias": flag("bias of the output projection; as `bias` when left out"),
    "mlp_bias": flag("bias of the dense MLP; as `bias` when left out"),
    "head_bias": flag("bias of the head", False),
    "fused_qkv": flag("q, k, v in one matrix", False),
    "qk_norm": flag("a norm over each head of q and k", False),
    "sinks": flag("a learned attention sink for each head", False),
    "parallel_block": flag("attention and MLP side by side on one residual", False),
    "experts": size("routed experts in a block; 0: none", 0, least=0),
    "top_k": size("experts that a token meets"),
    "moe_ffn": size("inner width of an expert; ffn when left out"),
    "shared_experts": size("experts that every token meets", 0, least=0),
    "shared_ffn": size("inner width of all shared experts together; shared_experts * moe_ffn when left out"),
    "shared_gate": flag("a gate on the shared experts", False),
    "router_bias": flag("bias of the router", False),
    "expert_bias": flag("bias of each expert's matrices", False),
    "capacity": ratio("an expert takes at most capacity * top_k / experts of a group's tokens, and drops the rest"),
    "balance": ratio("weight of a load-balance loss; none when left out"),
    "group": Arg("group", "axes whose ranks route on their own, or `global`: what `capacity` and `balance` count over"),
    "dense_layers": size("first blocks that have a dense MLP in place of experts", 0, least=0),
    "window": size("tokens before its own that a token sees; all when left out"),
    "attention": word("multi-head (grouped by kv_heads) or latent", "mha", "mla"),
    "q_lora_rank": size("mla: width of compressed queries; 0: not compressed", least=0),
    "kv_lora_rank": size("mla: width of compressed keys and values"),
    "qk_nope_head_dim": size("mla: width of a head without positions"),
    "qk_rope_head_dim": size("mla: width of a head's rotary part"),
    "v_head_dim": size("mla: width of a value head"),
}

_MLA: Final = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_MOE: Final = ("top_k", "moe_ffn", "shared_ffn", "capacity", "balance", "group")


def transformer(name: str, family: str, given: Mapping[str, object], source: str) -> Model:
    """A decoder-only model. Raises Refused for arguments that make no model."""
    f = read("transformer", ARGS, given)
    sizes = _sizes(f)
    positions = f.values["positions"]
    norm_bias = f.flag("norm_bias", f.word("norm") == "layernorm")
    hidden, vocab, layers, dense = sizes["hidden"], sizes["vocab"], sizes["layers"], f.size("dense_layers")

    embed = Part((weight("embed.tokens.weight", "embed", ("vocab", vocab), ("hidden", hidden)),))
    if isinstance(positions, Learned):
        table = weight("embed.positions.weight", "other", ("positions", positions.length), ("hidden", hidden))
        embed += Part((table,))
    if f.flag("embedding_norm"):
        embed += norm("embed.norm", hidden, norm_bias)
    embed += dropout("embed", "embed")
    owner = "embed.tokens.weight" if f.flag("tied") else None
    head = last(hidden, vocab, bias=f.flag("head_bias"), norm_bias=norm_bias, tied=owner)

    def blocks(count: int, first: int, routed: bool) -> Stack:
        part = _block(f, sizes, norm_bias, routed)
        return Stack("layers", count, first, True, part.tensors, part.saved)

    if not f.size("experts"):
        middle = [blocks(layers, 0, False)]
    else:
        middle = [blocks(dense, 0, False)] if dense else []
        middle += [blocks(layers - dense, dense, True)] if layers > dense else []
    return Model(
        name=name,
        family=family,
        stacks=(
            Stack("embed", 1, 0, False, embed.tensors, embed.saved, indexed=False),
            *middle,
            Stack("head", 1, 0, False, head.tensors, head.saved, indexed=False),
        ),
        sizes=tuple((k, v) for k, v in sizes.items() if v),
        traits=(
            ("constructor", "transformer"),
            ("mlp", f.word("mlp")),
            ("norm", f.word("norm")),
            ("positions", "learned" if isinstance(positions, Learned) else str(positions)),
            ("attention", f.word("attention")),
            ("block", "parallel" if f.flag("parallel_block") else "sequential"),
        ),
        source=source,
        routing=Routing(f.ratio("capacity"), f.ratio("balance"), _group(f)),
    )


def _group(f: Facts) -> tuple[str, ...] | None:
    """What `group` says. Raises Refused where nothing is counted over a group."""
    group = f.values["group"]
    if isinstance(group, tuple) and not (f.given("capacity") or f.given("balance")):
        raise Refused("`group` says nothing without `capacity` or `balance`", "add `capacity = 1.25`", "group")
    return group if isinstance(group, tuple) else None


def _sizes(f: Facts) -> dict[str, int]:
    """The named sizes, derived ones filled in; 0 where the model has no such thing. Raises Refused."""
    hidden, heads, layers = f.size("hidden"), f.size("heads"), f.size("layers")
    mla, count = f.word("attention") == "mla", f.size("experts")
    kv_heads = f.size("kv_heads", heads)
    divides("kv_heads", kv_heads, "heads", heads)
    if not mla and not f.given("head_dim"):
        divides("heads", heads, "hidden", hidden)
    _check_latent(f, mla, kv_heads == heads)
    _check_experts(f, count, layers)
    if f.size("norms", 2) not in (1, 2, 4):
        raise Refused(f"`norms` is {f.size('norms')}", "1, 2 or 4 norms in a block", "norms")
    if f.size("norms", 2) == 1 and not f.flag("parallel_block"):
        raise Refused("one norm serves attention and MLP only side by side", "add `parallel_block = true`", "norms")
    positions = f.values["positions"]
    length = positions.length if isinstance(positions, Learned) else 0
    if length and f.size("max_seq_len") > length:
        longest = f.size("max_seq_len")
        raise Refused(f"max_seq_len = {longest:,} is longer than the table", f"at most {length:,}", "max_seq_len")
    moe_ffn = f.size("moe_ffn", f.size("ffn")) if count else 0
    sizes = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": 0 if mla else f.size("head_dim", hidden // heads),
        "ffn": f.size("ffn"),
        "vocab": f.size("vocab"),
        "max_seq_len": f.size("max_seq_len", length),
        "positions": length,
        "window": f.size("window"),
        "experts": count,
        "top_k": f.size("top_k"),
        "moe_ffn": moe_ffn,
        "shared_ffn": f.size("shared_ffn", f.size("shared_experts") * moe_ffn),
        "dense_layers": f.size("dense_layers"),
    }
    if mla:
        sizes |= {k: f.size(k) for k in _MLA} | {"qk_head_dim": f.size("qk_nope_head_dim") + f.size("qk_rope_head_dim")}
    return sizes


def _check_latent(f: Facts, mla: bool, all_heads: bool) -> None:
    if not mla:
        for name in _MLA:
            if f.given(name):
                raise Refused(f"`{name}` belongs to latent attention", "add `attention = mla`", name)
        return
    for name in _MLA[1:]:
        if not f.given(name):
            raise Refused(f"`attention = mla` needs `{name}`: {ARGS[name].doc}", f"add `{name} = ...`")
    if not all_heads:
        raise Refused("latent attention has as many key and value heads as heads", "leave `kv_heads` out", "kv_heads")
    for name in ("qkv_bias", "out_bias", "bias", "fused_qkv", "qk_norm", "sinks"):
        if f.flag(name):
            raise Refused(f"latent attention has no `{name}`", f"leave `{name}` out", name)
    if f.given("head_dim"):
        widths = "`qk_nope_head_dim`, `qk_rope_head_dim` and `v_head_dim`"
        raise Refused("latent attention has other head widths", f"give {widths}", "head_dim")


def _check_experts(f: Facts, count: int, layers: int) -> None:
    if not count:
        named = [n for n in _MOE if f.given(n)]
        named += [n for n in ("shared_experts", "dense_layers") if f.size(n)]
        named += [n for n in ("shared_gate", "router_bias", "expert_bias") if f.flag(n)]
        if named:
            raise Refused(f"`{named[0]}` says nothing without experts", "add `experts = ...`", named[0])
        return
    if not f.given("top_k"):
        raise Refused("`experts` needs `top_k`: experts that a token meets", "add `top_k = 2`")
    if f.size("top_k") > count:
        raise Refused(f"top_k = {f.size('top_k'):,} of {count:,} experts", f"top_k up to {count:,}", "top_k")
    dense = f.size("dense_layers")
    if dense > layers:
        raise Refused(f"dense_layers = {dense:,} of {layers:,} layers", f"up to {layers:,}", "dense_layers")
    if f.flag("parallel_block"):
        raise Refused("a parallel block has no experts", "leave `parallel_block` out", "parallel_block")
    if f.flag("shared_gate") and not (f.size("shared_experts") or f.given("shared_ffn")):
        raise Refused("`shared_gate` says nothing without shared experts", "add `shared_experts = 1`", "shared_gate")


def _block(f: Facts, sizes: Mapping[str, int], norm_bias: bool, routed: bool) -> Part:
    """One layer: norm, attention, norm, MLP; in a parallel block with one norm both read the same normed input."""
    hidden, bias, norms = sizes["hidden"], f.flag("bias"), f.size("norms", 2)
    one = norms == 1
    part = norm("norm" if one else "attn_norm", hidden, norm_bias)
    part += _attention(f, sizes, bias) + dropout("attn", "attn")
    if norms == 4:
        part += norm("attn_post_norm", hidden, norm_bias)
    if not one:
        part += norm("mlp_norm", hidden, norm_bias)
    part += (
        _experts(f, sizes)
        if routed
        else mlp("mlp", f.word("mlp"), hidden, sizes["ffn"], f.flag("mlp_bias", bias), shares_input=one)
    )
    part += dropout("mlp", "mlp")
    return part + norm("mlp_post_norm", hidden, norm_bias) if norms == 4 else part


def _attention(f: Facts, sizes: Mapping[str, int], bias: bool) -> Part:
    if f.word("attention") == "mla":
        return latent_attention(
            "attn",
            Latent(
                hidden=sizes["hidden"],
                heads=sizes["heads"],
                q_rank=sizes["q_lora_rank"],
                kv_rank=sizes["kv_lora_rank"],
                nope=sizes["qk_nope_head_dim"],
                rope=sizes["qk_rope_head_dim"],
                value=sizes["v_head_dim"],
            ),
        )
    return attention(
        "attn",
        Attention(
            hidden=sizes["hidden"],
            heads=sizes["heads"],
            kv_heads=sizes["kv_heads"],
            head_dim=sizes["head_dim"],
            qkv_bias=f.flag("qkv_bias", bias),
            out_bias=f.flag("out_bias", bias),
            fused_qkv=f.flag("fused_qkv"),
            qk_norm=f.flag("qk_norm"),
            sinks=f.flag("sinks"),
        ),
    )


def _experts(f: Facts, sizes: Mapping[str, int]) -> Part:
    return experts(
        "mlp",
        Experts(
            kind=f.word("mlp"),
            hidden=sizes["hidden"],
            count=sizes["experts"],
            ffn=sizes["moe_ffn"],
            top_k=sizes["top_k"],
            shared_ffn=sizes["shared_ffn"],
            shared_gate=f.flag("shared_gate"),
            router_bias=f.flag("router_bias"),
            expert_bias=f.flag("expert_bias"),
        ),
    )
