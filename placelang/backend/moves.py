"""Moves of activations as autograd functions: what the program says in forward, what it says in backward.

The two need not be adjoint to each other: a sum that every rank of a group goes on with has no collective in backward.
Tensors are (batch, seq, width) unless `dims` says otherwise. Not for: where moves stand (`wiring`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
import torch.distributed as dist
from torch import Tensor

from placelang.backend import comm
from placelang.backend.comm import Groups
from placelang.backend.wiring import Move
from placelang.program.event import Op

DIMS: Mapping[str, int] = {"batch": 0, "seq": 1, "hidden": -1, "heads": -1, "ffn": -1, "vocab": -1}
"""The dim of a tensor that a named dim of an activation is."""


@attrs.frozen(eq=False)
class Bound:
    """A move with the group that carries it out, and numbers for its dims."""

    forward: Op | None
    backward: Op | None
    group: dist.ProcessGroup
    dim: int
    to: int

    def __call__(self, x: Tensor) -> Tensor:
        moved: Tensor = _Moved.apply(x, self)  # type: ignore[no-untyped-call]
        return moved


def bind(moves: Sequence[Move], groups: Groups, dims: Mapping[str, int] = DIMS) -> tuple[Bound, ...]:
    """Moves over axes of one rank do nothing and are left out."""
    return tuple(
        Bound(m.forward, m.backward, groups.group(m.axes), dims[m.dim or "seq"], dims[m.to or "seq"])
        for m in moves
        if groups.size(m.axes) > 1
    )


def follow(x: Tensor, moves: Sequence[Bound]) -> Tensor:
    for move in moves:
        x = move(x)
    return x


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, move: Bound) -> Tensor:
        ctx.move = move
        return x.view_as(x) if move.forward is None else perform(move.forward, x, move.group, move.dim, move.to)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        move, (dy,) = ctx.move, grads
        if move.backward is None:
            return dy, None
        dim, to = (move.to, move.dim) if move.backward is Op.ALL_TO_ALL else (move.dim, move.to)
        return perform(move.backward, dy, move.group, dim, to), None


def perform(op: Op, x: Tensor, group: dist.ProcessGroup, dim: int, to: int = 0) -> Tensor:
    """The result of one collective or slice, in a tensor of its own. An all_to_all turns shards of `dim` into shards of
    `to`."""
    n = group.size()
    if op is Op.ALL_REDUCE:
        x = x.clone(memory_format=torch.contiguous_format)
        comm.all_reduce(x, group).wait()
        return x
    if op is Op.SLICE:
        return x.chunk(n, dim)[group.rank()].contiguous()
    if op is Op.UNSLICE:
        zeros = torch.zeros_like(x)
        return torch.cat([x if r == group.rank() else zeros for r in range(n)], dim)
    if op is Op.ALL_GATHER:
        x = x.contiguous()
        pieces = x.new_empty((n * x.shape[0], *x.shape[1:]))
        comm.all_gather(pieces, x, group).wait()
        return torch.cat(pieces.chunk(n), dim)
    if op is Op.REDUCE_SCATTER:
        whole = torch.cat(x.chunk(n, dim))
        piece = whole.new_empty((whole.shape[0] // n, *whole.shape[1:]))
        comm.reduce_scatter(piece, whole, group).wait()
        return piece
    assert op is Op.ALL_TO_ALL, op
    dealt = torch.cat(x.chunk(n, to))
    received = torch.empty_like(dealt)
    comm.all_to_all(received, dealt, group).wait()
    return torch.cat(received.chunk(n), dim)
