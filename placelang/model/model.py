"""The values that say what a model is: tensors, saved activations, stacks of equal layers, the model.

A stack is a run of equal layers and stays symbolic: 126 layers are one stack with `count = 126`. Names follow one
scheme for every family (see `layers`), so that a selector serves many models. Not for: the shape of any one family
(`constructors`), or how tensors are placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import prod

import attrs

from placelang.frozen import Frozen


@attrs.frozen(eq=False, repr=False)
class ModelError(Frozen):
    """Why there is no such model. A value, never raised: rooms to the right make a diagnostic of it."""

    message: str
    suggestion: str = ""
    argument: str = ""  # the argument at fault, so that the message can point at it


@attrs.frozen(eq=False, repr=False)
class Tensor(Frozen):
    """One parameter, dim 0 first, in torch's layout: the weight of a Linear is (out, in)."""

    name: str  # relative to its layer ("attn.wq.weight"); in a stack that is not indexed, the full name
    shape: tuple[int, ...]
    dims: tuple[str, ...]  # a name per dim: ("heads", "hidden"); "heads" here is heads x head_dim rows
    role: str  # what selectors call it: "attn.q", "mlp.up", ..., "other" where no parallel rule is known
    kind: str = "weight"  # or "bias"
    tied: str | None = None  # full name of the tensor whose storage this one shares; counted there
    frozen: bool = False  # the model says that no optimizer updates it: what adapters stand beside

    @property
    def elements(self) -> int:
        return prod(self.shape)


ROLES = (
    "embed",
    "attn.q",
    "attn.kv",
    "attn.qkv",
    "attn.out",
    "mlp.up",
    "mlp.down",
    "norm",
    "router",
    "experts.up",
    "experts.down",
    "head",
    "other",
)
"""Every role that a tensor may have. `attn.qkv` here is one fused matrix; as a selector it also takes q and kv."""


@attrs.frozen(eq=False, repr=False)
class Saved(Frozen):
    """One activation that backward needs, of one layer and one microbatch.

    Its size is the product of the sizes that `dims` names (`batch`, `seq`, or a key of `Model.sizes`; a name may come
    twice: attention scores have `seq` twice) times the bytes of `width`: "activation" (the compute format), "mask" (1
    byte) or "fp32". Dims say what splits it: `heads` and `ffn` follow tensor parallelism, `hidden` does not.
    It is kept only where every condition of `when` holds: "dropout", "eager_attention", "fused_attention".
    """

    name: str
    dims: tuple[str, ...]
    width: str = "activation"
    when: tuple[str, ...] = ()
    part: str = ""  # what made it: "attn", "attn.core" (the part that selective recompute replays), "mlp", "norm", ...


@attrs.frozen(eq=False, repr=False)
class Stack(Frozen):
    """A run of `count` equal layers, or a single module (`indexed` is False, `count` 1).

    Two stacks may share a name and follow each other in its numbering: DeepSeek's dense layers 0 to 2 and its MoE
    layers 3 to 60 are both "layers". `label` tells them apart.
    """

    name: str
    count: int
    first: int  # number of its first layer
    block: bool  # True: repeated blocks, each a gather unit of its own; False: part of the root unit
    tensors: tuple[Tensor, ...]
    saved: tuple[Saved, ...] = ()
    indexed: bool = True

    @property
    def label(self) -> str:
        """Unique within a model: "embed", or "layers.3..60"."""
        return f"{self.name}.{self.first}..{self.first + self.count - 1}" if self.indexed else self.name

    @property
    def elements(self) -> int:
        """Parameters of one layer, tied tensors left to their owner."""
        return sum(t.elements for t in self.tensors if t.tied is None)

    def fqn(self, tensor: Tensor, layer: int = 0) -> str:
        """The full name of a tensor in the `layer`-th layer of this stack, counted from 0."""
        return f"{self.name}.{self.first + layer}.{tensor.name}" if self.indexed else tensor.name

    def fqns(self, layer: int = 0) -> tuple[str, ...]:
        return tuple(self.fqn(t, layer) for t in self.tensors)

    def kept(self, *conditions: str) -> tuple[Saved, ...]:
        """The activations that one layer keeps where exactly these conditions hold."""
        return tuple(s for s in self.saved if set(s.when) <= set(conditions))


@attrs.frozen(eq=False, repr=False)
class Routing(Frozen):
    """What of a mixture of experts depends on other tokens than its own, so on how many meet in one place.

    `capacity`: an expert takes at most capacity * top_k / experts of a group's tokens and drops the rest (GShard, arXiv
    2006.16668, section 2.2); None: every token finds its experts. `balance`: the weight of a load-balance loss, a
    product of two means over a group's tokens (Switch Transformer, arXiv 2101.03961, equation 4); None: no such loss.
    """

    capacity: Fraction | None = None
    balance: Fraction | None = None
    group: tuple[str, ...] | None = None  # axes: the ranks that differ on them are groups of their own; (): all tokens
    # are one group; None: the text does not say

    @property
    def tokenwise(self) -> bool:
        """Whether a token's output depends on no other token's routing."""
        return self.capacity is None and self.balance is None


@attrs.frozen(eq=False, repr=False)
class Model(Frozen):
    """Stacks in order of execution, and the named sizes and traits that they were built from."""

    name: str
    family: str
    stacks: tuple[Stack, ...]
    sizes: tuple[tuple[str, int], ...] = ()  # layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_seq_len, ...
    traits: tuple[tuple[str, str], ...] = ()  # mlp, norm, positions, ...: choices that are not numbers
    source: str = ""  # where the shape comes from
    routing: Routing = Routing()

    @property
    def params(self) -> int:
        """Elements that a trainer allocates: tied tensors once."""
        return sum(s.count * s.elements for s in self.stacks)

    @property
    def params_trainable(self) -> int:
        """Elements that an optimizer updates, as far as the model says."""
        return sum(s.count * t.elements for s in self.stacks for t in s.tensors if t.tied is None and not t.frozen)

    @property
    def params_active(self) -> int:
        """Elements that one token meets: of each layer's routed experts, `top_k`; all else counts in full."""
        share = Fraction(self.size("top_k") or 1, self.size("experts") or 1)
        total = sum(
            s.count * t.elements * (share if t.role.startswith("experts.") else 1)
            for s in self.stacks
            for t in s.tensors
            if t.tied is None
        )
        return int(total)

    @property
    def blocks(self) -> tuple[Stack, ...]:
        return tuple(s for s in self.stacks if s.block)

    def size(self, name: str) -> int | None:
        return dict(self.sizes).get(name)

    def trait(self, name: str) -> str | None:
        return dict(self.traits).get(name)

    def stack(self, label: str) -> Stack:
        return next(s for s in self.stacks if s.label == label)

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor with its full name, layer by layer: as long as the model is deep."""
        for stack in self.stacks:
            for layer in range(stack.count):
                for tensor in stack.tensors:
                    yield stack.fqn(tensor, layer), tensor


def generic() -> Model:
    """The model of a text that names none: embedding, equal blocks, head. Its sizes mean nothing, its structure does.

    Four blocks, so that a first, two middle and a last one are told apart; the head is not tied.
    """

    def weight(name: str, role: str, *dims: str) -> Tensor:
        return Tensor(name, (64,) * len(dims), dims, role)

    block = (
        weight("attn_norm.weight", "norm", "hidden"),
        weight("attn.wq.weight", "attn.q", "heads", "hidden"),
        weight("attn.wk.weight", "attn.kv", "kv_heads", "hidden"),
        weight("attn.wv.weight", "attn.kv", "kv_heads", "hidden"),
        weight("attn.wo.weight", "attn.out", "hidden", "heads"),
        weight("mlp_norm.weight", "norm", "hidden"),
        weight("mlp.up.weight", "mlp.up", "ffn", "hidden"),
        weight("mlp.down.weight", "mlp.down", "hidden", "ffn"),
    )
    head = (weight("norm.weight", "norm", "hidden"), weight("head.weight", "head", "vocab", "hidden"))
    return Model(
        name="generic",
        family="generic",
        stacks=(
            Stack("embed", 1, 0, False, (weight("embed.tokens.weight", "embed", "vocab", "hidden"),), indexed=False),
            Stack("layers", 4, 0, True, block),
            Stack("head", 1, 0, False, head, indexed=False),
        ),
        traits=(("constructor", "transformer"),),
        source="assumed: the text names no model",
    )
