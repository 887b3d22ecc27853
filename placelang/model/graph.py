"""The inside of a layer as a small graph of operations over named dims: what tensor and sequence axes may split.

One letter a dim, as in an einsum: b samples, s positions, t positions that attention looks at, h hidden, a heads, d
the inside of a head, f the width of an MLP, e experts, v vocabulary, p rows of a position table; of latent attention l
and k the compressed queries and keys, c the part of k that is normalised; g a gate of one column. From the letters
alone follows where a split survives, where it makes a partial sum, and where it has no meaning; no rule looks at names.
A layer whose inside is not known is one opaque operation.

Experts: a token goes to those that its router chose, so `y = sum over e of gate_e * MLP_e(x)` where most gates are
zero: "gates" makes them, "dispatch" gives each expert the tokens that want it, and the sum over e is a "product" of
what experts return with the gates (Shazeer et al., arXiv 1701.06538, equation 1). Not for: what operations compute
(`simulate`), or keep (`Saved`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import attrs

from placelang.frozen import Frozen
from placelang.model.model import Model, Stack, Tensor

INPUT = ""
"""The name of a layer's input among its operations."""


@attrs.frozen(eq=False, repr=False)
class Operation(Frozen):
    """`out = kind(ins, tensors)`. `letters` has one word an operand, activations first, then tensors.

    kinds: "linear" (a product summed over letters that the output lacks), "product" (the same of two activations),
    "bias", "add", "mul" (elementwise product and nonlinearity), "norm", "attention", "embed", "gates", "dispatch",
    "opaque". `whole`: letters over which the function is no sum and
    no map, so that no axis may split them. `shares`: operands (by index) that one axis may leave whole although it
    splits the letter elsewhere: keys and values of fewer heads.
    """

    name: str
    kind: str
    ins: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    letters: tuple[str, ...]
    out: str
    whole: str = ""
    shares: tuple[int, ...] = ()
    role: str = "other"


LETTERS = {"batch": "b", "seq": "s", "hidden": "h", "heads": "a", "ffn": "f", "vocab": "v", "expert": "e"}
"""The letter of each dim that a layout of activations may name."""

DIMS = {letter: name for name, letter in LETTERS.items()} | {"t": "seq"}
"""The dim that a letter of an activation stands for."""


def opens(model: Model) -> bool:
    """Whether the inside of every layer is known."""
    return all(o.kind != "opaque" for stack in model.stacks for o in operations(model, stack))


def operations(model: Model, stack: Stack) -> tuple[Operation, ...]:
    """The operations of one layer in order; the last one is what the layer returns."""
    known = model.trait("constructor") == "transformer"
    strange = any(t.name.endswith(".sinks") for t in stack.tensors)
    fused = any(t.name == "attn.wqkv.weight" for t in stack.tensors) and model.size("kv_heads") != model.size("heads")
    adapted = any(t.frozen for t in stack.tensors)
    if not known or strange or adapted or fused:
        return (opaque(stack),)
    return tuple(_Wiring(stack, model.trait("block") == "parallel").all())


def opaque(stack: Stack) -> Operation:
    """A layer as one function of its input and all its tensors; only samples are independent."""
    return Operation(stack.name, "opaque", (INPUT,), stack.tensors, ("bsh",), "bsh", "sh")


class _Wiring:
    """Chains operations in the order of the tensors of a decoder's layer."""

    def __init__(self, stack: Stack, parallel: bool) -> None:
        self.tensors, self.parallel = {t.name: t for t in stack.tensors}, parallel
        self.stack = stack

    def all(self) -> Iterator[Operation]:
        if "embed.tokens.weight" in self.tensors:
            yield from self._embed()
        elif self.stack.block:
            yield from self._block()
        else:
            yield from self._head()

    def _tensor(self, name: str) -> Tensor:
        return self.tensors[name]

    def _norm(self, name: str, into: str, letters: str = "bsh", over: str = "h") -> Iterator[Operation]:
        tensors = tuple(self.tensors[f"{name}.{k}"] for k in ("weight", "bias") if f"{name}.{k}" in self.tensors)
        yield Operation(
            name,
            "norm",
            (into,),
            tensors,
            (letters, *(over for _ in tensors)),
            letters,
            over if over in letters else "",
            role="norm",
        )

    def _linear(self, name: str, into: str, letters: str, bias_letters: str = "") -> Iterator[Operation]:
        """A product, and its bias as an operation of its own: it is added once, after any reduction."""
        matrix = self._tensor(f"{name}.weight")
        x, w, out = letters.split(",")
        yield Operation(name, "linear", (into,), (matrix,), (x, w), out, role=matrix.role)
        if f"{name}.bias" in self.tensors:
            bias = self._tensor(f"{name}.bias")
            yield Operation(
                f"{name}.bias", "bias", (name,), (bias,), (out, bias_letters or out[-1]), out, role=matrix.role
            )

    def _end(self, name: str) -> str:
        return f"{name}.bias" if f"{name}.bias" in self.tensors else name

    def _add(self, name: str, a: str, b: str, letters: str = "bsh") -> Operation:
        return Operation(name, "add", (a, b), (), (letters, letters), letters)

    def _embed(self) -> Iterator[Operation]:
        tokens = self._tensor("embed.tokens.weight")
        yield Operation("embed.tokens", "embed", (INPUT,), (tokens,), ("bs", "vh"), "bsh", role="embed")
        last = "embed.tokens"
        if "embed.positions.weight" in self.tensors:
            table = self._tensor("embed.positions.weight")
            yield Operation("embed.positions", "embed", (INPUT,), (table,), ("bs", "ph"), "bsh")
            yield self._add("embed.add", last, "embed.positions")
            last = "embed.add"
        if "embed.norm.weight" in self.tensors:
            yield from self._norm("embed.norm", last)

    def _block(self) -> Iterator[Operation]:
        """Attention and then the MLP, each added to what it read; or both of the same input (Wang and Komatsuzaki,
        "GPT-J-6B", 2021), added at once."""
        if "attn_norm.weight" in self.tensors and "mlp_norm.weight" in self.tensors:
            first, second = "attn_norm", "mlp_norm"
        else:
            first = second = next(n for n in ("norm", "attn_norm") if f"{n}.weight" in self.tensors)
        yield from self._norm(first, INPUT)
        yield from self._attention(first)
        out = self._end("attn.wo")
        if "attn_post_norm.weight" in self.tensors:
            yield from self._norm("attn_post_norm", out)
            out = "attn_post_norm"
        if self.parallel:
            if second != first:
                yield from self._norm(second, INPUT)
            mlp = yield from self._mlp(second)
            yield self._add("attn.add", out, mlp)
            yield self._add("mlp.add", INPUT, "attn.add")
            return
        yield self._add("attn.add", INPUT, out)
        yield from self._norm(second, "attn.add")
        mlp = yield from self._mlp(second)
        if "mlp_post_norm.weight" in self.tensors:
            yield from self._norm("mlp_post_norm", mlp)
            mlp = "mlp_post_norm"
        yield self._add("mlp.add", "attn.add", mlp)

    # --- attention ---------------------------------------------------------------------------------------------------

    def _attention(self, into: str) -> Iterator[Operation]:
        if "attn.wqkv.weight" in self.tensors:
            yield from self._linear("attn.wqkv", into, "bsh,ah,bsa")
            end = self._end("attn.wqkv")
            yield Operation("attn.core", "attention", (end,), (), ("bsa",), "bsa", "s", role="attn")
        elif "attn.wkv_a.weight" in self.tensors:
            yield from self._latent(into)
        else:
            yield from self._heads(into)
        yield from self._linear("attn.wo", "attn.core", "bsa,ha,bsh")

    def _heads(self, into: str) -> Iterator[Operation]:
        """Queries, keys and values apart; each position looks at all: `t` must be whole, `s` need not be."""
        for matrix in ("wq", "wk", "wv"):
            yield from self._linear(f"attn.{matrix}", into, "bsh,ah,bsa")
        q, k, v = (self._end(f"attn.{m}") for m in ("wq", "wk", "wv"))
        if "attn.q_norm.weight" in self.tensors:
            yield from self._norm("attn.q_norm", q, "bsa", "d")
            yield from self._norm("attn.k_norm", k, "bsa", "d")
            q, k = "attn.q_norm", "attn.k_norm"
        letters = ("bsa", "bta", "bta")
        yield Operation("attn.core", "attention", (q, k, v), (), letters, "bsa", "t", shares=(1, 2), role="attn")

    def _latent(self, into: str) -> Iterator[Operation]:
        """Keys and values from a small vector a token, part of which all heads share (DeepSeek-V2, arXiv 2405.04434,
        section 2.1)."""
        if "attn.wq_a.weight" in self.tensors:
            yield from self._linear("attn.wq_a", into, "bsh,lh,bsl")
            yield from self._norm("attn.q_norm", self._end("attn.wq_a"), "bsl", "l")
            yield from self._linear("attn.wq_b", "attn.q_norm", "bsl,al,bsa")
            q = self._end("attn.wq_b")
        else:
            yield from self._linear("attn.wq", into, "bsh,ah,bsa")
            q = self._end("attn.wq")
        yield from self._linear("attn.wkv_a", into, "bsh,kh,bsk")
        latent, gain = self._end("attn.wkv_a"), self.tensors["attn.kv_norm.weight"]
        yield Operation("attn.kv_norm", "norm", (latent,), (gain,), ("bsk", "c"), "bsc", "kc", role="norm")
        yield from self._linear("attn.wkv_b", "attn.kv_norm", "bsc,ac,bsa")
        ins = (q, self._end("attn.wkv_b"), latent)
        letters = ("bsa", "bta", "btk")
        yield Operation("attn.core", "attention", ins, (), letters, "bsa", "tk", shares=(1, 2), role="attn")

    # --- MLP ---------------------------------------------------------------------------------------------------------

    def _mlp(self, into: str) -> Generator[Operation, None, str]:
        """The operations of a layer's MLP or experts; returns the name of the last."""
        if "mlp.router.weight" in self.tensors:
            return (yield from self._experts(into))
        return (yield from self._dense("mlp", into))

    def _dense(self, name: str, into: str) -> Generator[Operation, None, str]:
        yield from self._linear(f"{name}.up", into, "bsh,fh,bsf")
        inner: tuple[str, ...] = (self._end(f"{name}.up"),)
        if f"{name}.gate.weight" in self.tensors:
            yield from self._linear(f"{name}.gate", into, "bsh,fh,bsf")
            inner = (*inner, self._end(f"{name}.gate"))
        yield Operation(f"{name}.act", "mul", inner, (), ("bsf",) * len(inner), "bsf")
        yield from self._linear(f"{name}.down", f"{name}.act", "bsf,hf,bsh")
        return self._end(f"{name}.down")

    def _experts(self, into: str) -> Generator[Operation, None, str]:
        yield from self._linear("mlp.router", into, "bsh,eh,bse")
        router = self._end("mlp.router")
        yield Operation("mlp.gates", "gates", (router,), (), ("bse",), "bse", "e", role="router")
        ins = (into, "mlp.gates")
        yield Operation("mlp.dispatch", "dispatch", ins, (), ("bsh", "bse"), "ebsh", role="experts")
        inner = []
        for matrix in ("up", "gate"):
            if f"mlp.experts.{matrix}.weight" in self.tensors:
                yield from self._linear(f"mlp.experts.{matrix}", "mlp.dispatch", "ebsh,efh,ebsf", "ef")
                inner.append(self._end(f"mlp.experts.{matrix}"))
        yield Operation("mlp.experts.act", "mul", tuple(inner), (), ("ebsf",) * len(inner), "ebsf")
        yield from self._linear("mlp.experts.down", "mlp.experts.act", "ebsf,ehf,ebsh", "eh")
        ins = (self._end("mlp.experts.down"), "mlp.gates")
        yield Operation("mlp.combine", "product", ins, (), ("ebsh", "bse"), "bsh", role="experts")
        if "mlp.shared.up.weight" not in self.tensors:
            return "mlp.combine"
        shared = yield from self._dense("mlp.shared", into)
        if "mlp.shared.router.weight" in self.tensors:
            yield from self._linear("mlp.shared.router", into, "bsh,gh,bsg")
            gate = self._end("mlp.shared.router")
            yield Operation("mlp.shared.gated", "product", (shared, gate), (), ("bsh", "bsg"), "bsh", "g")
            shared = "mlp.shared.gated"
        yield self._add("mlp.sum", "mlp.combine", shared)
        return "mlp.sum"

    def _head(self) -> Iterator[Operation]:
        yield from self._norm("norm", INPUT)
        yield from self._linear("head", "norm", "bsh,vh,bsv")
