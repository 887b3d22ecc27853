"""Modules whose inside is split: their parameters cut to this rank's part, and moves put where the program has them.

The code of a module runs as it is. A product runs without its bias where its sum is not complete yet; an embedding
that has some rows only gives zeros for the others; attention goes through `attention.Core`; all else are hooks.
Not for: data axes, which act on whole units (`replicated`, `gathered`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from placelang.backend import pretrained
from placelang.backend.attention import Core
from placelang.backend.comm import Groups
from placelang.backend.dealt import Dealt
from placelang.backend.errors import unsupported
from placelang.backend.moves import Bound, bind, follow
from placelang.backend.pretrained import Names
from placelang.backend.recipe import Recipe
from placelang.backend.splits import Split, take
from placelang.backend.wiring import Move
from placelang.model.graph import Operation
from placelang.model.model import Model, Stack
from placelang.model.model import Tensor as Described
from placelang.program.layers import Layer, layers_of


class Inside:
    """Applies the splits and moves of a recipe to a module, once."""

    def __init__(self, module: nn.Module, model: Model, names: Names, recipe: Recipe, groups: Groups) -> None:
        self.module, self.model, self.names, self.recipe, self.groups = module, model, names, recipe, groups
        self.splits: dict[str, Split] = {}  # by name in the module
        self.layers = layers_of(model, True)

    def apply(self) -> Mapping[str, Split]:
        """The split of each parameter that has one. Raises BackendError (E501) for what no boundary of a module has a
        place for."""
        for layer in self.layers:
            for group in layer.own:
                for k in range(layer.stack.count):
                    for tensor in group.tensors:
                        self._split(group.name, layer.stack.fqn(tensor, k), tensor)
        for layer in self.layers:
            for k in range(layer.stack.count):
                self._layer(layer, k)
        theirs = pretrained.is_pretrained(self.module)
        if self.recipe.sequence or theirs:
            self._positions()
        if theirs:
            pretrained.prepare(self.module)
        return self.splits

    # --- parameters --------------------------------------------------------------------------------------------------

    def _split(self, group: str, full: str, tensor: Described) -> None:
        pairs = self.recipe.splits[group]
        if not pairs:
            return
        dims = {dim for _, dim in pairs}
        if len(dims) > 1:
            raise unsupported(f"`{full}` split along two dims", "one dim a tensor")
        (dim,) = dims
        parts: tuple[int, ...] = (tensor.shape[dim],)
        if dim == 0 and tensor.role == "attn.qkv" and ".wqkv." in f".{tensor.name}":
            heads, kv, width = (self.model.size(s) or 1 for s in ("heads", "kv_heads", "head_dim"))
            parts = (heads * width, kv * width, kv * width)
        name = self.names.tensor(full)
        if full in self.names.transposed:
            dim = 1 - dim
        split = Split(tuple(axis for axis, _ in pairs), dim, parts)
        param = self.module.get_parameter(name)
        param.data = take(param.data, split, self.groups)
        self.splits[name] = split

    # --- modules -----------------------------------------------------------------------------------------------------

    def _layer(self, layer: Layer, k: int) -> None:
        operations = {o.name: o for o in layer.operations}
        for o in layer.operations:
            if o.kind == "attention":
                self._attention(layer, k, o, operations)
            elif o.kind == "linear":
                self._linear(layer, k, o, operations.get(f"{o.name}.bias"))
            elif o.kind == "embed":
                self._embed(layer, k, o)
            elif o.kind == "norm":
                _hook(self._module(layer.stack, k, o), self._before(layer, o), self._after(layer, o))
            elif o.kind != "bias" and (self._after(layer, o) or any(self._before(layer, o, n) for n in (0, 1))):
                raise unsupported(
                    f"a collective beside `{layer.key}/{o.name}`, which is no module", "one behind a norm"
                )

    def _module(self, stack: Stack, k: int, o: Operation) -> nn.Module:
        return self.module.get_submodule(self._path(stack, k, o))

    def _path(self, stack: Stack, k: int, o: Operation) -> str:
        return self.names.tensor(stack.fqn(o.tensors[0], k)).rpartition(".")[0]

    def _before(self, layer: Layer, o: Operation, operand: int = 0) -> tuple[Bound, ...]:
        return bind(self._moves(layer, o, operand), self.groups)

    def _moves(self, layer: Layer, o: Operation, operand: int) -> tuple[Move, ...]:
        return self.recipe.wiring.before.get((f"{layer.key}/{o.name}", operand), ())

    def _after(self, layer: Layer, o: Operation) -> tuple[Bound, ...]:
        return bind(self.recipe.wiring.after.get(f"{layer.key}/{o.name}", ()), self.groups)

    def _is_split(self, stack: Stack, k: int, o: Operation, letter: str) -> bool:
        """Whether the tensor of an operation is split along a letter of it."""
        tensor = o.tensors[0]
        name = self.names.tensor(tensor.tied or stack.fqn(tensor, k))
        return name in self.splits and any(
            o.letters[len(o.ins)][dim] == letter for g in self._groups(stack, o) for _, dim in self.recipe.splits[g]
        )

    def _groups(self, stack: Stack, o: Operation) -> tuple[str, ...]:
        layer = next(y for y in self.layers if y.stack is stack)
        return layer.reads[o.name]

    def _linear(self, layer: Layer, k: int, o: Operation, bias: Operation | None) -> None:
        module: Any = self._module(layer.stack, k, o)
        before, after = self._before(layer, o), self._after(layer, o)
        end = (*self._before(layer, bias), *self._after(layer, bias)) if bias else ()
        transposed = layer.stack.fqn(o.tensors[0], k) in self.names.transposed
        name = self._path(layer.stack, k, o) + ".weight"
        if before or after or end or (transposed and name in self.splits):
            module.forward = _product(module, before, after, end, transposed)

    def _size(self, axes: tuple[str, ...]) -> int:
        return self.groups.size(axes)

    def _embed(self, layer: Layer, k: int, o: Operation) -> None:
        module: Any = self._module(layer.stack, k, o)
        rows = o.letters[1][0]  # v of tokens, p of positions
        if self._is_split(layer.stack, k, o, rows):
            axes = tuple(a for g in self._groups(layer.stack, o) for a, _ in self.recipe.splits[g])
            module.forward = _some_rows(module, self.groups.place(axes))
        _hook(module, (), self._after(layer, o))

    def _attention(self, layer: Layer, k: int, o: Operation, operations: Mapping[str, Operation]) -> None:
        product = next(operations[n.removesuffix(".bias")] for n in _sources(o, operations) if "attn.w" in n)
        path = self._path(layer.stack, k, product).rpartition(".")[0]
        module: Any = self.module.get_submodule(path)
        ins = [self._moves(layer, o, n) for n in range(len(o.ins))]
        out = self.recipe.wiring.after.get(f"{layer.key}/{o.name}", ())
        module.core = Core(ins, out, self.groups, self.recipe.deal)
        if len(o.ins) == 1 and (pairs := self.recipe.splits[f"{layer.key}/{product.name}"]):
            pretrained.narrow(module, self._size(tuple(axis for axis, _ in pairs)))

    def _positions(self) -> None:
        """A rank that has some tokens of each sample says where they stand; models of transformers would count those of
        a hidden state, which may be fewer."""
        if "position_ids" not in inspect.signature(self.module.forward).parameters:
            raise unsupported(
                f"a split sequence with {type(self.module).__name__}, whose forward takes no `position_ids`",
                "a `forward(tokens, position_ids)`",
            )
        dealt = Dealt(self.recipe.deal, self.groups)

        def given(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
            tokens = args[0] if args else kwargs.get("input_ids")
            if tokens is None:
                raise unsupported("a split model without its tokens (`inputs_embeds`)", "`p.model(tokens)`")
            kwargs.setdefault("position_ids", dealt.positions(tokens.shape[1])[None].to(tokens.device))
            return args, kwargs

        self.module.register_forward_pre_hook(given, with_kwargs=True)


def _sources(o: Operation, operations: Mapping[str, Operation]) -> list[str]:
    """What attention reads, through the norms of queries and keys."""
    found = []
    for name in o.ins:
        behind = name
        while operations[behind].kind == "norm":
            (behind,) = operations[behind].ins
        found.append(behind)
    return found


def recomputed(block: nn.Module) -> None:
    """Let a block keep only what it is given, and run again in backward."""
    run = block.forward
    block.forward = lambda *args, **kwargs: checkpoint(run, *args, use_reentrant=False, **kwargs)


def _hook(module: nn.Module, before: tuple[Bound, ...], after: tuple[Bound, ...]) -> None:
    if before:
        module.register_forward_pre_hook(lambda _module, args: (follow(args[0], before), *args[1:]))
    if after:
        module.register_forward_hook(lambda _module, _args, y: follow(y, after))


def _product(
    module: Any, before: tuple[Bound, ...], after: tuple[Bound, ...], end: tuple[Bound, ...], transposed: bool
) -> Callable[[Tensor], Tensor]:
    """A Linear (or a Conv1D of transformers, whose weight is transposed) whose bias follows its moves."""

    def forward(x: Tensor) -> Tensor:
        x = follow(x, before)
        weight, bias = module.weight, module.bias
        if not after and bias is not None:
            y = F.linear(x, weight.t() if transposed else weight, bias)
        else:
            y = follow(F.linear(x, weight.t() if transposed else weight), after)
            y = y if bias is None else y + bias
        return follow(y, end)

    return forward


def _some_rows(module: Any, place: int) -> Callable[[Tensor], Tensor]:
    """An embedding of the rows of one rank: zeros for tokens of the others, so that the sum over ranks is whole."""

    def forward(tokens: Tensor) -> Tensor:
        rows = module.weight.shape[0]
        own = tokens - place * rows
        mine = (own >= 0) & (own < rows)
        padding = module.padding_idx  # a row that does not train, if it is here
        padding = padding - place * rows if padding is not None and 0 <= padding - place * rows < rows else None
        found: Tensor = F.embedding(own.clamp(0, rows - 1), module.weight, padding)
        return torch.where(mine[..., None], found, 0.0)

    return forward
