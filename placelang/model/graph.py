"""The inside of a layer as a small graph of operations over named dims: what tensor and sequence axes may split.

One letter a dim, as in an einsum: b samples, s positions, t positions that attention looks at, h hidden, a heads, d
the inside of a head, f the width of an MLP, v vocabulary, p rows of a position table. From the letters alone follows
where a split survives, where it makes a partial sum, and where it has no meaning; no rule looks at names. A layer whose
inside is not known is one opaque operation. Not for: what operations compute (`simulate`), or keep (`Saved`).
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from placelang.frozen import Frozen
from placelang.model.model import Model, Stack, Tensor

INPUT = ""
"""The name of a layer's input among its operations."""


@attrs.frozen(eq=False, repr=False)
class Operation(Frozen):
    """`out = kind(ins, tensors)`. `letters` has one word an operand, activations first, then tensors.

    kinds: "linear" (a product summed over letters that the output lacks), "bias", "add", "mul" (elementwise product
    and nonlinearity), "norm", "attention", "embed", "opaque". `whole`: letters over which the function is no sum and
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


LETTERS = {"batch": "b", "seq": "s", "hidden": "h", "heads": "a", "ffn": "f", "vocab": "v"}
"""The letter of each dim that a layout of activations may name."""


def opens(model: Model) -> bool:
    """Whether the inside of every layer is known."""
    return all(o.kind != "opaque" for stack in model.stacks for o in operations(model, stack))


def operations(model: Model, stack: Stack) -> tuple[Operation, ...]:
    """The operations of one layer in order; the last one is what the layer returns."""
    known = model.trait("constructor") == "transformer" and model.trait("attention") != "mla"
    strange = any(t.role.startswith(("experts", "router")) or t.name.endswith(".sinks") for t in stack.tensors)
    adapted = any(t.frozen for t in stack.tensors)
    if not known or model.trait("block") == "parallel" or strange or adapted:
        return (opaque(stack),)
    return tuple(_Wiring(stack).all())


def opaque(stack: Stack) -> Operation:
    """A layer as one function of its input and all its tensors; only samples are independent."""
    return Operation(stack.name, "opaque", (INPUT,), stack.tensors, ("bsh",), "bsh", "sh")


class _Wiring:
    """Chains operations in the order of the tensors of a decoder's layer."""

    def __init__(self, stack: Stack) -> None:
        self.tensors = {t.name: t for t in stack.tensors}
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

    def _linear(self, name: str, into: str, letters: str) -> Iterator[Operation]:
        """A product, and its bias as an operation of its own: it is added once, after any reduction."""
        matrix = self._tensor(f"{name}.weight")
        x, w, out = letters.split(",")
        yield Operation(name, "linear", (into,), (matrix,), (x, w), out, role=matrix.role)
        if f"{name}.bias" in self.tensors:
            bias = self._tensor(f"{name}.bias")
            yield Operation(f"{name}.bias", "bias", (name,), (bias,), (out, out[-1]), out, role=matrix.role)

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
        yield from self._norm("attn_norm", INPUT)
        if "attn.wqkv.weight" in self.tensors:
            yield from self._linear("attn.wqkv", "attn_norm", "bsh,ah,bsa")
            end = self._end("attn.wqkv")
            yield Operation("attn.core", "attention", (end,), (), ("bsa",), "bsa", "s", role="attn")
        else:
            yield from self._heads()
        yield from self._linear("attn.wo", "attn.core", "bsa,ha,bsh")
        out = self._end("attn.wo")
        if "attn_post_norm.weight" in self.tensors:
            yield from self._norm("attn_post_norm", out)
            out = "attn_post_norm"
        yield self._add("attn.add", INPUT, out)
        yield from self._norm("mlp_norm", "attn.add")
        yield from self._linear("mlp.up", "mlp_norm", "bsh,fh,bsf")
        inner: tuple[str, ...] = (self._end("mlp.up"),)
        if "mlp.gate.weight" in self.tensors:
            yield from self._linear("mlp.gate", "mlp_norm", "bsh,fh,bsf")
            inner = (*inner, self._end("mlp.gate"))
        yield Operation("mlp.act", "mul", inner, (), ("bsf",) * len(inner), "bsf")
        yield from self._linear("mlp.down", "mlp.act", "bsf,hf,bsh")
        out = self._end("mlp.down")
        if "mlp_post_norm.weight" in self.tensors:
            yield from self._norm("mlp_post_norm", out)
            out = "mlp_post_norm"
        yield self._add("mlp.add", "attn.add", out)

    def _heads(self) -> Iterator[Operation]:
        """Queries, keys and values apart; each position looks at all: `t` must be whole, `s` need not be."""
        for matrix in ("wq", "wk", "wv"):
            yield from self._linear(f"attn.{matrix}", "attn_norm", "bsh,ah,bsa")
        q, k, v = (self._end(f"attn.{m}") for m in ("wq", "wk", "wv"))
        if "attn.q_norm.weight" in self.tensors:
            yield from self._norm("attn.q_norm", q, "bsa", "d")
            yield from self._norm("attn.k_norm", k, "bsa", "d")
            q, k = "attn.q_norm", "attn.k_norm"
        letters = ("bsa", "bta", "bta")
        yield Operation("attn.core", "attention", (q, k, v), (), letters, "bsa", "t", shares=(1, 2), role="attn")

    def _head(self) -> Iterator[Operation]:
        yield from self._norm("norm", INPUT)
        yield from self._linear("head", "norm", "bsh,vh,bsv")
