"""Which positions of a sample a rank has, where sequence axes split it: equal runs, or an early and a late one.

An axis deals out what the axes before it left. What a group of ranks has together, in the order of ranks, is what a
gather over it makes. Not for: moving tokens (`moves`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import torch
from torch import Tensor

from placelang.backend.comm import Groups

HEADTAIL = "headtail"
"""Each rank has the k-th run from the start and the k-th from the end, so that all see equally many keys (Llama 3,
arXiv 2407.21783, section 3.3.2)."""


def part(x: Tensor, dim: int, partition: str, ranks: int, place: int) -> Tensor:
    """What one rank gets of equal shares along `dim`."""
    if partition != HEADTAIL:
        return x.chunk(ranks, dim)[place]
    runs = x.chunk(2 * ranks, dim)
    return torch.cat((runs[place], runs[2 * ranks - 1 - place]), dim)


class Dealt:
    """The sequence axes of a recipe with their partitions, outer first, as this rank sees them."""

    def __init__(self, deal: Sequence[tuple[str, str]], groups: Groups) -> None:
        self.deal = tuple(deal)
        self.order = tuple(name for name in groups.names if name in dict(deal))
        self.ranks = {axis: groups.size((axis,)) for axis, _ in deal}
        self.here = {axis: groups.place((axis,)) for axis, _ in deal}

    def own(self, x: Tensor, dim: int) -> Tensor:
        """This rank's part of whole samples."""
        for axis, partition in self.deal:
            x = part(x, dim, partition, self.ranks[axis], self.here[axis])
        return x

    def positions(self, tokens: int, at: Mapping[str, int] | None = None) -> Tensor:
        """Where the `tokens` tokens stand that the rank `at` these places of some axes has; else those of this one."""
        places = {**self.here, **(at or {})}
        found = torch.arange(tokens * self.parts)
        for axis, partition in self.deal:
            found = part(found, 0, partition, self.ranks[axis], places[axis])
        return found

    @property
    def parts(self) -> int:
        whole = 1
        for ranks in self.ranks.values():
            whole *= ranks
        return whole

    def joined(self, tokens: int, axes: Sequence[str], at: Mapping[str, int] | None = None) -> Tensor:
        """Where the tokens stand that the ranks along `axes` have together, in the order of ranks."""
        over = [axis for axis in self.order if axis in axes]
        each = (dict(zip(over, places, strict=True)) for places in product(*(range(self.ranks[a]) for a in over)))
        return torch.cat([self.positions(tokens, {**(at or {}), **places}) for places in each])
