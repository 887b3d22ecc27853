"""Parameters that compute reads split: this rank's part of a tensor, and the whole of it again.

Rows of a fused query-key-value matrix are queries, then keys, then values: each part is split by itself, so that a rank
has whole heads of all three. Not for: shards that are gathered for use (`gathered`), or of an optimizer (`replicated`).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from placelang.backend import comm
from placelang.backend.comm import Groups


@attrs.frozen
class Split:
    """`axes` split dim `dim`, outer first. `parts`: sizes along it that are split one by one."""

    axes: tuple[str, ...]
    dim: int
    parts: tuple[int, ...]


def take(tensor: Tensor, split: Split, groups: Groups) -> Tensor:
    """This rank's part, in memory of its own. Sizes divide (`recipe.divides`)."""
    parts = split.parts
    for axis in split.axes:
        n, place = groups.size((axis,)), groups.place((axis,))
        tensor = torch.cat(
            [part.chunk(n, split.dim)[place] for part in torch.split(tensor, list(parts), split.dim)], split.dim
        )
        parts = tuple(size // n for size in parts)
    return tensor.clone(memory_format=torch.contiguous_format)


def join(tensor: Tensor, split: Split, groups: Groups) -> Tensor:
    """The whole, from every rank's part. All ranks call it together."""
    for k in reversed(range(len(split.axes))):
        n = groups.size((split.axes[k],))
        outer = 1
        for axis in split.axes[: k + 1]:
            outer *= groups.size((axis,))
        mine = tensor.contiguous()
        everyone = mine.new_empty((n * mine.shape[0], *mine.shape[1:]))
        comm.all_gather(everyone, mine, groups.group((split.axes[k],))).wait()
        tensor = _interleaved(everyone.chunk(n), [size // outer for size in split.parts], split.dim)
    return tensor


def _interleaved(pieces: Sequence[Tensor], sizes: Sequence[int], dim: int) -> Tensor:
    """Part by part, what the ranks have of it."""
    parts = [torch.split(piece, list(sizes), dim) for piece in pieces]
    return torch.cat([part[k] for k in range(len(sizes)) for part in parts], dim)
