"""`encoder(...)` (BERT), `encoder_decoder(...)` (T5) and `vision(...)` (ViT).

Not for: decoder-only language models (`decoder`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from placelang.model.facts import Arg, Facts, Learned, Refused, divides, flag, read, size, word
from placelang.model.layers import Attention, Part, attention, dropout, last, linear, mlp, norm, weight
from placelang.model.model import Model, Saved, Stack

ENCODER: Final[Mapping[str, Arg]] = {
    "layers": size("number of blocks", required=True),
    "hidden": size("width of the residual stream", required=True),
    "heads": size("attention heads", required=True),
    "ffn": size("inner width of the MLP", required=True),
    "vocab": size("rows of the embedding", required=True),
    "positions": Arg("positions", "learned(length)", Learned(512)),
    "types": size("token types (segments); 0: none", 2, least=0),
    "pooler": flag("a dense layer over the first token", True),
    "mlp": word("activation of the MLP", "gelu", "relu"),
}

ENCODER_DECODER: Final[Mapping[str, Arg]] = {
    "layers": size("blocks of the encoder, and of the decoder", required=True),
    "decoder_layers": size("blocks of the decoder; layers when left out"),
    "hidden": size("width of the residual stream", required=True),
    "heads": size("attention heads", required=True),
    "head_dim": size("width of a head; hidden / heads when left out"),
    "ffn": size("inner width of the MLP", required=True),
    "vocab": size("rows of the embedding", required=True),
    "relative_buckets": size("rows of each stack's relative position table", 32),
    "mlp": word("activation of the MLP", "relu", "gelu", "geglu"),
    "tied": flag("head and embedding share one matrix", True),
}

VISION: Final[Mapping[str, Arg]] = {
    "layers": size("number of blocks", required=True),
    "hidden": size("width of the residual stream", required=True),
    "heads": size("attention heads", required=True),
    "ffn": size("inner width of the MLP", required=True),
    "image_size": size("pixels of a side", required=True),
    "patch_size": size("pixels of a patch's side", required=True),
    "channels": size("colours", 3),
    "classes": size("rows of the classifier", required=True),
    "mlp": word("activation of the MLP", "gelu", "relu"),
}


def _single(label: str, part: Part) -> Stack:
    return Stack(label, 1, 0, False, part.tensors, part.saved, indexed=False)


def _layers(name: str, count: int, part: Part) -> Stack:
    return Stack(name, count, 0, True, part.tensors, part.saved)


def _heads(f: Facts, *, bias: bool, seq: str = "seq") -> Attention:
    """The attention of all three families: every head its own keys and values."""
    hidden, heads = f.size("hidden"), f.size("heads")
    own = "head_dim" in f.values and f.given("head_dim")
    if not own:
        divides("heads", heads, "hidden", hidden)
    head_dim = f.size("head_dim") if own else hidden // heads
    return Attention(
        hidden=hidden, heads=heads, kv_heads=heads, head_dim=head_dim, qkv_bias=bias, out_bias=bias, seq=seq
    )


def _common(f: Facts, head_dim: int) -> tuple[tuple[str, int], ...]:
    heads = f.size("heads")
    return (
        ("layers", f.size("layers")),
        ("hidden", f.size("hidden")),
        ("heads", heads),
        ("kv_heads", heads),
        ("head_dim", head_dim),
        ("ffn", f.size("ffn")),
    )


def encoder(name: str, family: str, given: Mapping[str, object], source: str) -> Model:
    """BERT (arXiv 1810.04805): norms after each residual sum, biases everywhere. Raises Refused."""
    f = read("encoder", ENCODER, given)
    positions = f.values["positions"]
    if not isinstance(positions, Learned):
        raise Refused("an encoder has a table of positions", "`positions = learned(512)`", "positions")
    hidden, vocab, types = ("hidden", f.size("hidden")), f.size("vocab"), f.size("types")
    a = _heads(f, bias=True)
    tables = (
        weight("embed.tokens.weight", "embed", ("vocab", vocab), hidden),
        weight("embed.positions.weight", "other", ("positions", positions.length), hidden),
        *((weight("embed.types.weight", "other", ("types", types), hidden),) if types else ()),
    )
    embed = Part(tables) + norm("embed.norm", hidden[1], True) + dropout("embed", "embed")
    block = attention("attn", a) + dropout("attn", "attn") + norm("attn_norm", hidden[1], True)
    block += mlp("mlp", f.word("mlp"), hidden[1], f.size("ffn"), True) + dropout("mlp", "mlp")
    block += norm("mlp_norm", hidden[1], True)
    pooler = Part(
        linear("pooler", "other", ("pooled", hidden[1]), hidden, True),
        (
            Saved("pooler.input", ("batch", "hidden"), part="head"),  # the first token's vector
            Saved("pooler.output", ("batch", "hidden"), part="head"),  # of tanh
        ),
    )
    return Model(
        name=name,
        family=family,
        stacks=(
            _single("embed", embed),
            _layers("layers", f.size("layers"), block),
            *((_single("pooler", pooler),) if f.flag("pooler") else ()),
        ),
        sizes=(*_common(f, a.head_dim), ("vocab", vocab), ("max_seq_len", positions.length)),
        traits=(("constructor", "encoder"), ("mlp", f.word("mlp")), ("norm", "layernorm"), ("positions", "learned")),
        source=source,
    )


def encoder_decoder(name: str, family: str, given: Mapping[str, object], source: str) -> Model:
    """T5 (arXiv 1910.10683): rmsnorm, no biases, one relative position table for each of the two stacks.

    Activations take both sequences to be `seq` long. Raises Refused.
    """
    f = read("encoder_decoder", ENCODER_DECODER, given)
    width, vocab, buckets, kind = f.size("hidden"), f.size("vocab"), f.size("relative_buckets"), f.word("mlp")
    a = _heads(f, bias=False)

    def table(stack: str) -> Part:
        return Part((weight(f"{stack}.positions.weight", "other", ("buckets", buckets), ("heads", a.heads)),))

    def attend(which: str) -> Part:
        return norm(f"{which}_norm", width, False) + attention(which, a) + dropout(which, "attn")

    between = norm("encoder.norm", width, False) + dropout("decoder.embed", "embed") + table("decoder")
    feed = norm("mlp_norm", width, False) + mlp("mlp", kind, width, f.size("ffn")) + dropout("mlp", "mlp")
    tokens = weight("embed.tokens.weight", "embed", ("vocab", vocab), ("hidden", width))
    owner = "embed.tokens.weight" if f.flag("tied") else None
    head = last(width, vocab, bias=False, norm_bias=False, tied=owner)
    decoder_layers = f.size("decoder_layers", f.size("layers"))
    return Model(
        name=name,
        family=family,
        stacks=(
            _single("embed", Part((tokens,)) + dropout("embed", "embed") + table("encoder")),
            _layers("encoder.layers", f.size("layers"), attend("attn") + feed),
            _single("middle", between),
            _layers("decoder.layers", decoder_layers, attend("attn") + attend("cross") + feed),
            _single("head", head),
        ),
        sizes=(
            *_common(f, a.head_dim),
            ("decoder_layers", decoder_layers),
            ("vocab", vocab),
            ("relative_buckets", buckets),
        ),
        traits=(("constructor", "encoder_decoder"), ("mlp", kind), ("norm", "rmsnorm"), ("positions", "relative")),
        source=source,
    )


def vision(name: str, family: str, given: Mapping[str, object], source: str) -> Model:
    """ViT (arXiv 2010.11929): a convolution cuts patches, one class token is put before them. Raises Refused.

    A sample has `tokens` tokens whatever the text says of `seq`.
    """
    f = read("vision", VISION, given)
    width, patch, classes = f.size("hidden"), f.size("patch_size"), f.size("classes")
    divides("patch_size", patch, "image_size", f.size("image_size"))
    tokens = (f.size("image_size") // patch) ** 2 + 1
    hidden = ("hidden", width)
    a = _heads(f, bias=True, seq="tokens")
    colours = ("channels", f.size("channels"))
    embed = Part(
        (
            weight("embed.patches.weight", "other", hidden, colours, ("height", patch), ("width", patch)),
            weight("embed.patches.bias", "other", hidden, kind="bias"),
            weight("embed.class", "other", ("one", 1), ("one", 1), hidden),
            weight("embed.positions", "other", ("one", 1), ("tokens", tokens), hidden),
        )
    ) + dropout("embed", "embed", "tokens")
    block = norm("attn_norm", width, True, "tokens") + attention("attn", a) + dropout("attn", "attn", "tokens")
    block += norm("mlp_norm", width, True, "tokens")
    block += mlp("mlp", f.word("mlp"), width, f.size("ffn"), True, seq="tokens") + dropout("mlp", "mlp", "tokens")
    head = norm("norm", width, True, "tokens") + Part(
        linear("head", "head", ("classes", classes), hidden, True),
        (
            Saved("head.input", ("batch", "hidden"), part="head"),
            Saved("head.logits", ("batch", "classes"), "fp32", part="head"),
        ),
    )
    return Model(
        name=name,
        family=family,
        stacks=(_single("embed", embed), _layers("layers", f.size("layers"), block), _single("head", head)),
        sizes=(*_common(f, a.head_dim), ("tokens", tokens), ("classes", classes), ("patch_size", patch)),
        traits=(("constructor", "vision"), ("mlp", f.word("mlp")), ("norm", "layernorm"), ("positions", "learned")),
        source=source,
    )
