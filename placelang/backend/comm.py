"""Collectives of torch.distributed under one set of names, and the process groups of mesh axes.

torch 2.13 renames `all_gather_into_tensor` and `reduce_scatter_tensor`; older releases know only these. Every function
starts its collective and returns; `wait` on what it returns. Not for: which collective a strategy needs.
"""

from __future__ import annotations

from typing import Any, cast

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from placelang.plan.mesh import Mesh

_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def all_reduce(tensor: Tensor, group: dist.ProcessGroup, *, mean: bool = False) -> dist.Work:
    return cast(dist.Work, dist.all_reduce(tensor, op=_op(mean), group=group, async_op=True))


def all_gather(output: Tensor, piece: Tensor, group: dist.ProcessGroup) -> dist.Work:
    """`output` becomes the concatenation of every rank's `piece`, in the order of ranks."""
    return cast(dist.Work, _gather(output, piece, group=group, async_op=True))


def reduce_scatter(piece: Tensor, whole: Tensor, group: dist.ProcessGroup, *, mean: bool = False) -> dist.Work:
    """`piece` becomes this rank's part of the sum (or mean) of every rank's `whole`."""
    return cast(dist.Work, _scatter(piece, whole, op=_op(mean), group=group, async_op=True))


def _op(mean: bool) -> Any:
    return dist.ReduceOp.AVG if mean else dist.ReduceOp.SUM


class Groups:
    """The torch mesh of a Mesh whose sizes are numbers, and the group of any of its axes.

    Every rank makes it, and asks it for groups, in the same order: a group is made by all ranks together.
    """

    def __init__(self, mesh: Mesh, device: str) -> None:
        self.names = mesh.names or ("rank",)  # a strategy without a mesh runs on one device
        sizes = tuple(axis.size or 1 for axis in mesh.axes) or (1,)
        self.mesh: DeviceMesh = init_device_mesh(device, sizes, mesh_dim_names=self.names)

    def over(self, axes: tuple[str, ...]) -> DeviceMesh:
        """A mesh of one dim: the ranks that differ from this one along `axes` only."""
        if not axes:
            axes = self.names[:1]
        if len(axes) == 1:
            return self.mesh[axes[0]]
        return self.mesh[axes]._flatten("*".join(axes))

    def group(self, axes: tuple[str, ...]) -> dist.ProcessGroup:
        return self.over(axes).get_group()

    def size(self, axes: tuple[str, ...]) -> int:
        return self.over(axes).size() if axes else 1

    def place(self, axes: tuple[str, ...]) -> int:
        """The position of this rank among those along `axes`."""
        return self.over(axes).get_local_rank() if axes else 0
