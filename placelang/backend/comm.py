"""Collectives of torch.distributed under one set of names, and the process groups of mesh axes.

torch 2.13 renames `all_gather_into_tensor` and `reduce_scatter_tensor`; older releases know only these. Every function
starts its collective and returns; `wait` on what it returns. Not for: which collective a strategy needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from placelang.backend.ledger import kind
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


def all_to_all(output: Tensor, dealt: Tensor, group: dist.ProcessGroup) -> dist.Work:
    """The k-th of equal parts of `dealt` goes to rank k; `output` has what came, in the order of ranks."""
    return cast(dist.Work, dist.all_to_all_single(output, dealt, group=group, async_op=True))


def all_max(tensor: Tensor, group: dist.ProcessGroup) -> dist.Work:
    return cast(dist.Work, dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group, async_op=True))


def hop(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> Callable[[], list[Tensor]]:
    """Send tensors to the next rank of the group as a ring; what comes from the one before, once that is called."""
    n, rank = group.size(), group.rank()
    if n == 1:
        return lambda: list(tensors)
    sent = [tensor.contiguous() for tensor in tensors]
    received = [torch.empty_like(tensor) for tensor in sent]
    there, here = ((rank + step) % n for step in (1, -1))
    ops = [dist.P2POp(dist.isend, t, group=group, group_peer=there) for t in sent]
    ops += [dist.P2POp(dist.irecv, t, group=group, group_peer=here) for t in received]
    with kind("ring"):
        works = dist.batch_isend_irecv(ops)

    def arrived() -> list[Tensor]:
        for work in works:
            work.wait()
        return received

    return arrived


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
        """A mesh of one dim: the ranks that differ from this one along `axes` only, in the order of the whole mesh."""
        axes = tuple(name for name in self.names if name in axes) or self.names[:1]
        if len(axes) == 1:
            return self.mesh[axes[0]]
        return self.mesh[axes]._flatten("*".join(axes))

    def pair(self, outer: str, inner: str) -> DeviceMesh:
        """A mesh of two dims in this order, whatever their order in the whole mesh."""
        if self.names.index(outer) < self.names.index(inner):
            return self.mesh[outer, inner]
        names = (*(name for name in self.names if name not in (outer, inner)), outer, inner)
        ranks = self.mesh.mesh.permute([self.names.index(name) for name in names])
        return DeviceMesh(self.mesh.device_type, ranks, mesh_dim_names=names)[outer, inner]

    def group(self, axes: tuple[str, ...]) -> dist.ProcessGroup:
        return self.over(axes).get_group()

    def size(self, axes: tuple[str, ...]) -> int:
        return self.over(axes).size() if axes else 1

    def place(self, axes: tuple[str, ...]) -> int:
        """The position of this rank among those along `axes`."""
        return self.over(axes).get_local_rank() if axes else 0
