"""The parameters of a module in the units in which they travel: one for each block, one for all that stands outside.

Also the packing of tensors whose rows are split evenly over ranks, padded as FSDP2 pads. Not for: collectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import attrs
import torch
from torch import Tensor, nn

from placelang.backend.errors import failed, unsupported
from placelang.backend.pretrained import SAME, Names
from placelang.model.model import Model
from placelang.program.layers import layers_of


@attrs.frozen(eq=False)
class Unit:
    """`module` is the block, or the whole for the unit of everything else; parameters by their full name in the module,
    none twice. `groups`: the group of the program that each belongs to."""

    name: str
    module: nn.Module
    params: Mapping[str, nn.Parameter]
    groups: Mapping[str, str] = attrs.field(factory=dict)


def units(module: nn.Module, model: Model, names: Names = SAME, inside: bool = False) -> tuple[Unit, ...]:
    """The root unit, then the blocks in order. `inside`: the program's groups are single operations.

    Raises BackendError where `module` is not what `model` describes.
    """
    named = dict(module.named_parameters())
    described = {names.tensor(name): names.shape(name, t) for name, t in model.named() if t.tied is None}
    real = {name: tuple(p.shape) for name, p in named.items()}
    if real != described:
        odd = sorted(name for name in {*real, *described} if real.get(name) != described.get(name))
        few = ", ".join(odd[:3]) + (f" and {len(odd) - 3} more" if len(odd) > 3 else "")
        raise failed(
            "E501", f"the module is not the model `{model.name}`: {few} differ", "give the model that the module is"
        )
    frozen = [name for name, p in named.items() if not p.requires_grad]
    if frozen:
        raise unsupported(f"frozen parameters: {', '.join(frozen[:3])}", "modules whose parameters all train")
    for name, t in model.named():
        if t.tied is not None and _at(module, names.tensor(name)) is not named[names.tensor(t.tied)]:
            raise failed("E501", f"`{names.tensor(name)}` is not tied in the module, as it is in `{model.name}`")
    root: dict[str, nn.Parameter] = {}
    groups: dict[str, str] = {}
    blocks: list[Unit] = []
    for layer in layers_of(model, inside):
        stack = layer.stack
        for k in range(stack.count):
            owned = {names.tensor(stack.fqn(t, k)): g.name for g in layer.own for t in g.tensors}
            if not stack.block:
                root |= {name: named[name] for name in owned}
                groups |= owned
            elif owned:
                path = names.block(stack, k)
                blocks.append(Unit(path, module.get_submodule(path), {name: named[name] for name in owned}, owned))
    return (*([Unit("root", module, root, groups)] if root else []), *blocks)


def _at(module: nn.Module, name: str) -> object:
    path, _, leaf = name.rpartition(".")
    return getattr(module.get_submodule(path), leaf, None)


@attrs.frozen
class Rows:
    """One tensor's place in a packed buffer of `parts` equal pieces: rows of dim 0, the last ones short or empty."""

    shape: tuple[int, ...]
    parts: int
    offset: int  # in each piece, in elements

    @property
    def per_part(self) -> int:
        return -(-self.shape[0] // self.parts)

    @property
    def width(self) -> int:
        return prod(self.shape[1:])

    @property
    def elements(self) -> int:
        """Of one piece, padding included."""
        return self.per_part * self.width

    def span(self, part: int) -> tuple[int, int]:
        """The first row of a part and how many rows it really has."""
        first = min(part * self.per_part, self.shape[0])
        return first, min(self.per_part, self.shape[0] - first)

    def of_piece(self, piece: Tensor, part: int) -> Tensor:
        """The real rows of this tensor in the piece of `part`: a view."""
        _, rows = self.span(part)
        return piece[self.offset :][: rows * self.width].view(rows, *self.shape[1:])

    def of_whole(self, whole: Tensor, part: int) -> Tensor:
        """The rows of `part` in the whole tensor: a view."""
        first, rows = self.span(part)
        return whole.view(self.shape).narrow(0, first, rows)


def rows(shapes: Sequence[tuple[int, ...]], parts: int) -> tuple[Rows, ...]:
    """Tensors one after the other in each piece. Scalars count as one row."""
    found: list[Rows] = []
    for shape in shapes:
        offset = found[-1].offset + found[-1].elements if found else 0
        found.append(Rows(shape or (1,), parts, offset))
    return tuple(found)


def pack(tensors: Sequence[Tensor], places: Sequence[Rows], dtype: torch.dtype) -> Tensor:
    """Whole tensors as one buffer (parts * piece), piece after piece; padding is zero."""
    parts, last = places[0].parts, places[-1]
    buffer = tensors[0].new_zeros((parts, last.offset + last.elements), dtype=dtype)
    for tensor, place in zip(tensors, places, strict=True):
        whole = tensor.view(place.shape)
        for part in range(parts):
            place.of_piece(buffer[part], part).copy_(place.of_whole(whole, part))
    return buffer.view(-1)


def unpack(buffer: Tensor, tensors: Sequence[Tensor], places: Sequence[Rows]) -> None:
    """The inverse of `pack`, into `tensors`."""
    pieces = buffer.view(places[0].parts, -1)
    for tensor, place in zip(tensors, places, strict=True):
        whole = tensor.view(place.shape)
        for part in range(place.parts):
            place.of_whole(whole, part).copy_(place.of_piece(pieces[part], part))
