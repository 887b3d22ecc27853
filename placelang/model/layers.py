"""The parts a layer is made of, as tensors and saved activations: norm, attention, MLA, MLP, mixture of experts.

Names, the same in every family:

    embed.tokens.weight  embed.positions.weight  embed.norm.weight
    layers.<i>.attn_norm.weight
    layers.<i>.attn.{wq,wk,wv,wo}.weight            (or attn.wqkv.weight, one fused matrix)
    layers.<i>.attn.{wq_a,q_norm,wq_b,wkv_a,kv_norm,wkv_b}.weight       (latent attention, with wo)
    layers.<i>.mlp_norm.weight
    layers.<i>.mlp.{gate,up,down}.weight            (or mlp.router, mlp.experts.{gate,up,down}, mlp.shared.{...})
    norm.weight  head.weight

Saved activations generalise Korthikanti et al. 2022 (arXiv 2205.05198), section 4.1: a GPT layer with dropout and eager
attention keeps 34sbh + 5as^2b bytes at 16 bits, where attention has 11sbh + 5as^2b, MLP 19sbh, norms 4sbh. As there,
per-token statistics of norms (fp32, 2 of every `hidden`) are left out. Activations counted are those that eager torch
keeps (a test compares): SwiGLU keeps four ffn-sized tensors (gate, up, silu(gate), product) where a fused kernel keeps
fewer. Norms are taken as fused: torch's composite rmsnorm on CPU keeps one more hidden-sized tensor, its masks are not
of one byte, and an eager grouped-query attention that expands k and v keeps those.
Not for: how parts are joined into a family (`decoder`, `encoders`).
"""

from __future__ import annotations

import attrs

from placelang.model.model import Saved, Tensor

GATED = frozenset({"swiglu", "geglu"})


@attrs.frozen
class Part:
    """Tensors and saved activations of a piece of a layer; parts add up in order."""

    tensors: tuple[Tensor, ...] = ()
    saved: tuple[Saved, ...] = ()

    def __add__(self, other: Part) -> Part:
        return Part(self.tensors + other.tensors, self.saved + other.saved)


Dim = tuple[str, int]
"""A named dim with its size."""


def weight(name: str, role: str, *dims: Dim, kind: str = "weight", tied: str | None = None) -> Tensor:
    return Tensor(name, tuple(size for _, size in dims), tuple(dim for dim, _ in dims), role, kind, tied)


def linear(name: str, role: str, out: Dim, into: Dim, bias: bool = False) -> tuple[Tensor, ...]:
    """The weight (out, in) of a Linear, and its bias (out)."""
    matrix = weight(f"{name}.weight", role, out, into)
    return (matrix, weight(f"{name}.bias", role, out, kind="bias")) if bias else (matrix,)


def scale(name: str, dim: Dim, bias: bool) -> tuple[Tensor, ...]:
    """The parameters of a norm."""
    gain = weight(f"{name}.weight", "norm", dim)
    return (gain, weight(f"{name}.bias", "norm", dim, kind="bias")) if bias else (gain,)


def norm(name: str, hidden: int, bias: bool, seq: str = "seq") -> Part:
    """A norm over the hidden dim; it keeps its input (2sbh at 16 bits)."""
    return Part(
        scale(name, ("hidden", hidden), bias),
        (Saved(f"{name}.input", ("batch", seq, "hidden"), part="norm"),),
    )


def dropout(name: str, part: str, seq: str = "seq") -> Part:
    """Dropout of a part's output; it keeps a mask of one byte an element (sbh)."""
    return Part(saved=(Saved(f"{name}.dropout_mask", ("batch", seq, "hidden"), "mask", ("dropout",), part),))


def _input(name: str, part: str, seq: str) -> tuple[Saved, ...]:
    return (Saved(f"{name}.input", ("batch", seq, "hidden"), part=part),)


@attrs.frozen(kw_only=True)
class Attention:
    """Multi-head attention; fewer kv_heads than heads is grouped-query, one is multi-query."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    fused_qkv: bool = False
    qk_norm: bool = False
    sinks: bool = False
    seq: str = "seq"


def _core(name: str, seq: str) -> tuple[Saved, ...]:
    """Scores and their softmax: s^2 terms where every score is kept, one logsumexp a row where a kernel fuses them.

    Eager with dropout: softmax 2as^2b, mask as^2b, dropped scores 2as^2b. A fused kernel keeps the state of its
    random numbers in place of a mask.
    """
    scores = ("batch", "heads", seq, seq)
    return (
        Saved(f"{name}.softmax", scores, "activation", ("eager_attention",), "attn.core"),
        Saved(f"{name}.softmax_mask", scores, "mask", ("eager_attention", "dropout"), "attn.core"),
        Saved(f"{name}.softmax_dropped", scores, "activation", ("eager_attention", "dropout"), "attn.core"),
        Saved(f"{name}.logsumexp", ("batch", "heads", seq), "fp32", ("fused_attention",), "attn.core"),
    )


def attention(name: str, a: Attention) -> Part:
    """Projections and core. Keeps input, q, k, v, the core, and the input of the output projection: 10sbh + core."""
    hidden, q, kv = ("hidden", a.hidden), ("heads", a.heads * a.head_dim), ("kv_heads", a.kv_heads * a.head_dim)
    if a.fused_qkv:
        projections = linear(f"{name}.wqkv", "attn.qkv", ("qkv", q[1] + 2 * kv[1]), hidden, a.qkv_bias)
    else:
        projections = (
            *linear(f"{name}.wq", "attn.q", q, hidden, a.qkv_bias),
            *linear(f"{name}.wk", "attn.kv", kv, hidden, a.qkv_bias),
            *linear(f"{name}.wv", "attn.kv", kv, hidden, a.qkv_bias),
        )
    per_q, per_kv = ("batch", a.seq, "heads", "head_dim"), ("batch", a.seq, "kv_heads", "head_dim")
    saved = _input(name, "attn", a.seq)
    if a.qk_norm:
        head = ("head_dim", a.head_dim)
        projections += (*scale(f"{name}.q_norm", head, False), *scale(f"{name}.k_norm", head, False))
        saved += (
            Saved(f"{name}.q_norm.input", per_q, part="norm"),
            Saved(f"{name}.k_norm.input", per_kv, part="norm"),
        )
    if a.sinks:  # one logit a query head, split with the heads
        projections += (weight(f"{name}.sinks", "attn.q", ("heads", a.heads)),)
    saved += (
        Saved(f"{name}.q", per_q, part="attn"),
        Saved(f"{name}.k", per_kv, part="attn"),
        Saved(f"{name}.v", per_kv, part="attn"),
        *_core(name, a.seq),
        Saved(f"{name}.wo.input", per_q, part="attn"),
    )
    return Part(projections + linear(f"{name}.wo", "attn.out", hidden, q, a.out_bias), saved)


@attrs.frozen(kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1). `q_rank` 0: queries not compressed."""

    hidden: int
    heads: int
    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int


def latent_attention(name: str, a: Latent) -> Part:
    """The down-projections are shared by all heads: role "other", nothing splits them; the up-projections have heads.

    Keeps the compressed vectors before and after their norms, and q, k, v in full, as training computes them.
    """
    hidden, tokens = ("hidden", a.hidden), ("batch", "seq")
    q: Dim = ("heads", a.heads * (a.nope + a.rope))
    kv: Dim = ("heads", a.heads * (a.nope + a.value))
    tensors: tuple[Tensor, ...]
    saved = _input(name, "attn", "seq")
    if a.q_rank:
        rank: Dim = ("q_lora_rank", a.q_rank)
        tensors = (
            *linear(f"{name}.wq_a", "other", rank, hidden),
            *scale(f"{name}.q_norm", rank, False),
            *linear(f"{name}.wq_b", "attn.q", q, rank),
        )
        saved += (
            Saved(f"{name}.q_norm.input", (*tokens, "q_lora_rank"), part="norm"),
            Saved(f"{name}.wq_b.input", (*tokens, "q_lora_rank"), part="attn"),
        )
    else:
        tensors = linear(f"{name}.wq", "attn.q", q, hidden)
    rank = ("kv_lora_rank", a.kv_rank)
    tensors += (
        *linear(f"{name}.wkv_a", "other", ("kv_latent", a.kv_rank + a.rope), hidden),
        *scale(f"{name}.kv_norm", rank, False),
        *linear(f"{name}.wkv_b", "attn.kv", kv, rank),
        *linear(f"{name}.wo", "attn.out", hidden, ("heads", a.heads * a.value)),
    )
    saved += (
        Saved(f"{name}.kv_norm.input", (*tokens, "kv_lora_rank"), part="norm"),
        Saved(f"{name}.wkv_b.input", (*tokens, "kv_lora_rank"), part="attn"),
        Saved(f"{name}.q", (*tokens, "heads", "qk_head_dim"), part="attn"),
        Saved(f"{name}.k", (*tokens, "heads", "qk_head_dim"), part="attn"),
        Saved(f"{name}.v", (*tokens, "heads", "v_head_dim"), part="attn"),
        *_core(name, "seq"),
        Saved(f"{name}.wo.input", (*tokens, "heads", "v_head_dim"), part="attn"),
    )
    return Part(tensors, saved)


def _inner(name: str, kind: str, dims: tuple[str, ...], part: str) -> tuple[Saved, ...]:
    """What the middle of an MLP keeps: gated, gate, up, act(gate), product; gelu, input and output; relu, output."""
    names = {"swiglu": ("gate", "up", "act", "down.input"), "relu": ("down.input",)}
    names |= {"geglu": names["swiglu"], "gelu": ("up", "down.input")}
    return tuple(Saved(f"{name}.{n}", dims, part=part) for n in names[kind])


def mlp(
    name: str,
    kind: str,
    hidden: int,
    ffn: int,
    bias: bool = False,
    *,
    width: str = "ffn",
    seq: str = "seq",
    shares_input: bool = False,
) -> Part:
    """Two matrices, or three where gated. With gelu: input 2sbh, gelu's input and output 8sbh each, at ffn = 4h.

    `width` names the inner dim; `shares_input`: another part already keeps the same input.
    """
    h, f = ("hidden", hidden), (width, ffn)
    gate = linear(f"{name}.gate", "mlp.up", f, h, bias) if kind in GATED else ()
    tensors = (*gate, *linear(f"{name}.up", "mlp.up", f, h, bias), *linear(f"{name}.down", "mlp.down", h, f, bias))
    kept = () if shares_input else _input(name, "mlp", seq)
    return Part(tensors, kept + _inner(name, kind, ("batch", seq, width), "mlp"))


@attrs.frozen(kw_only=True)
class Experts:
    """A mixture of experts: a router, `count` experts of width `ffn` of which a token meets `top_k`, shared ones."""

    kind: str
    hidden: int
    count: int
    ffn: int
    top_k: int
    shared_ffn: int = 0  # width of all shared experts together
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False


def experts(name: str, e: Experts) -> Part:
    """Experts stand in one tensor a matrix, (expert, out, in).

    Activations are those of dropless routing, exact in sum over the ranks whatever the balance: each token's copy for
    each of its top_k experts, and what each expert returns, which the gradient of the combine weights needs.
    """
    count, h, f = ("expert", e.count), ("hidden", e.hidden), ("moe_ffn", e.ffn)

    def each(matrix: str, role: str, out: Dim, into: Dim) -> tuple[Tensor, ...]:
        stacked = weight(f"{name}.experts.{matrix}.weight", role, count, out, into)
        bias = weight(f"{name}.experts.{matrix}.bias", role, count, out, kind="bias")
        return (stacked, bias) if e.expert_bias else (stacked,)

    gate = each("gate", "experts.up", f, h) if e.kind in GATED else ()
    tensors = (
        *linear(f"{name}.router", "router", ("expert", e.count), h, e.router_bias),
        *gate,
        *each("up", "experts.up", f, h),
        *each("down", "experts.down", h, f),
    )
    routed = ("batch", "seq", "top_k")
    saved = (
        *_input(name, "mlp", "seq"),
        Saved(f"{name}.router.probabilities", ("batch", "seq", "experts"), "fp32", part="router"),
        Saved(f"{name}.experts.input", (*routed, "hidden"), part="experts"),
        *_inner(f"{name}.experts", e.kind, (*routed, "moe_ffn"), "experts"),
        Saved(f"{name}.experts.output", (*routed, "hidden"), part="experts"),
    )
    part = Part(tensors, saved)
    if e.shared_ffn:
        part += mlp(f"{name}.shared", e.kind, e.hidden, e.shared_ffn, width="shared_ffn", shares_input=True)
        if e.shared_gate:
            part += Part(linear(f"{name}.shared.router", "router", ("shared", 1), h))
    return part


def last(hidden: int, vocab: int, *, bias: bool, norm_bias: bool, tied: str | None) -> Part:
    """Final norm and head. Keeps the norm's input, the head's input and fp32 logits: 4sbh + 4sbv (section 4.3)."""
    matrix = weight("head.weight", "head", ("vocab", vocab), ("hidden", hidden), tied=tied)
    shift = (weight("head.bias", "head", ("vocab", vocab), kind="bias"),) if bias else ()
    logits = Saved("head.logits", ("batch", "seq", "vocab"), "fp32", part="head")
    return norm("norm", hidden, norm_bias) + Part((matrix, *shift), (*_input("head", "head", "seq"), logits))
