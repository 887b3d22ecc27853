"""Clipping by the norm of the whole gradient, of which each rank has parts: what torch's function does on one device.

The square of a part counts once, however many ranks have it: it is summed over the axes that split its tensor and no
others. Clipping before the reductions, or by the norm of what one rank has, trains the wrong thing without a word. Not
for: when it happens (`parallel`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from placelang.backend import comm
from placelang.backend.comm import Groups
from placelang.backend.recipe import Recipe
from placelang.backend.runtime import local
from placelang.backend.units import Unit

EPSILON = 1e-6  # torch's: keeps a gradient of zeros as it is


def clip_(
    gradients: Mapping[str, Tensor], split: Mapping[str, tuple[str, ...]], groups: Groups, limit: float
) -> Tensor:
    """Scale finished gradients in place to a norm of at most `limit`; the norm that they had, in float32 at least.

    `split`: the axes that split each gradient (`parts`). One all-reduce of one number for each set of
    axes; all ranks call it together. Infinite or undefined gradients stay so, as with torch.
    """
    sums: dict[tuple[str, ...], Tensor] = {}
    for name, gradient in gradients.items():
        axes = tuple(a for a in groups.names if a in split.get(name, ()) and groups.size((a,)) > 1)
        part = local(gradient)
        wide = torch.promote_types(part.dtype, torch.float32)
        square = torch.linalg.vector_norm(part, dtype=wide) ** 2
        sums[axes] = sums[axes] + square if axes in sums else square
    for axes in sorted(sums):
        if axes:
            comm.all_reduce(sums[axes], groups.group(axes)).wait()
    norm = torch.stack(list(sums.values())).sum().sqrt()
    factor = (limit / (norm + EPSILON)).clamp(max=1.0)
    for gradient in gradients.values():
        part = local(gradient)
        part.mul_(factor.to(part.dtype))
    return norm


def parts(units: Sequence[Unit], recipe: Recipe) -> Mapping[str, tuple[str, ...]]:
    """By parameter, the axes that split the gradient which its optimizer is given."""
    return {
        name: (*(axis for axis, _ in recipe.splits[group]), *recipe.optimizer)
        for unit in units
        for name, group in unit.groups.items()
    }
