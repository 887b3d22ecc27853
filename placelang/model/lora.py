"""`lora = 16`: low-rank adapters beside the linear layers of a model whose own parameters are frozen.

Source: LoRA (Hu et al. 2021, arXiv 2106.09685, section 4.1): W + B A, where A is (rank, in) and B is (out, rank), and
only these are trained. Names are torchtune's: `attn.wq.lora_a.weight`. Works on any model of `constructors`. Not for:
frozen parameters that the job chooses (`train (frozen = ...)`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from placelang.model.facts import LARGEST, Arg, Lora, Refused, hint
from placelang.model.model import ROLES, Model, Saved, Stack, Tensor

ARGS: Final[Mapping[str, Arg]] = {
    "lora": Arg("lora", "rank of adapters beside each linear layer, or `lora(rank = 16, on = [attn.q, attn.kv])`"),
}

_NEVER: Final = ("embed", "norm", "router", "head", "other")
ON: Final = tuple(dict.fromkeys(w for r in ROLES if r not in _NEVER for w in (r.split(".")[0], r)))
"""Where adapters may stand: roles of linear layers in blocks, `attn` for all of `attn.q` to `attn.out`."""


def adapted(model: Model, said: object) -> Model:
    """The model with its tensors frozen and adapters beside its linear layers; `said`: a rank, or `Lora`.

    Every linear layer is counted to keep its input for backward, and an adapter what A returns beside it: with an `on`
    that leaves layers out this is more than torch keeps. Raises Refused.
    """
    lora = said if isinstance(said, Lora) else Lora(said)
    rank = _rank(lora.rank)
    roles = ("attn", "mlp", "experts") if lora.on is None else tuple(_role(role) for role in lora.on)
    stacks = tuple(_stack(stack, rank, roles) for stack in model.stacks)
    if stacks == tuple(_stack(stack, rank, ()) for stack in model.stacks):
        raise Refused(f"no layer of {model.name} is {' or '.join(roles) or 'named'}", "leave `on` out", "lora")
    return attrs.evolve(model, stacks=stacks, sizes=(*model.sizes, ("lora_rank", rank)))


def _rank(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST:
        return value
    raise Refused("`lora` needs the rank of its adapters, a whole number", "`lora = 16`", "lora")


def _role(value: object) -> str:
    if value in ON:
        return str(value)
    raise Refused(f"`lora` stands on no layer called `{value}`", hint(value, ON), "lora")


def _stack(stack: Stack, rank: int, roles: tuple[str, ...]) -> Stack:
    tensors: list[Tensor] = []
    saved = [s for s in stack.saved if s.name != "head.input"]  # which only the gradient of the frozen head needs
    for tensor in stack.tensors:
        tensors.append(attrs.evolve(tensor, frozen=True))
        if stack.block and tensor.kind == "weight" and any(_is(role, tensor) for role in roles):
            tensors += _adapter(tensor, rank)
            saved.append(_kept(tensor, stack))
    return attrs.evolve(stack, tensors=tuple(tensors), saved=tuple(saved))


def _is(role: str, tensor: Tensor) -> bool:
    """Whether a tensor is the matrix of a linear layer of that role; latent attention's have names, but no role."""
    name = tensor.name if tensor.role == "other" else tensor.role
    wide = role == "attn.qkv" and tensor.role in ("attn.q", "attn.kv")
    return len(tensor.shape) >= 2 and (wide or name == role or name.startswith(f"{role}."))


def _adapter(tensor: Tensor, rank: int) -> Iterator[Tensor]:
    """A and B of one matrix. Experts, which stand in one tensor, have one of each an expert, and the role of experts:
    whole experts are what that role places. No parallel rule is known for the others."""
    *outer, out, into = tensor.shape
    *outer_dims, out_dim, in_dim = tensor.dims
    module = tensor.name.removesuffix(".weight")
    role = tensor.role if outer else "other"
    yield Tensor(f"{module}.lora_a.weight", (*outer, rank, into), (*outer_dims, "lora_rank", in_dim), role)
    yield Tensor(f"{module}.lora_b.weight", (*outer, out, rank), (*outer_dims, out_dim, "lora_rank"), role)


def _kept(tensor: Tensor, stack: Stack) -> Saved:
    """What A returns, which B's gradient needs."""
    seq = next((d for s in stack.saved for d in s.dims if d in ("seq", "tokens")), "seq")
    tokens = ("batch", seq, "top_k") if tensor.role.startswith("experts.") else ("batch", seq)
    module = tensor.name.removesuffix(".weight")
    return Saved(f"{module}.lora_b.input", (*tokens, "lora_rank"), part=module.split(".")[0])
