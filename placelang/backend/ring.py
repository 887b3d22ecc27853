"""Ring attention: keys and values pass around the ranks of a group, and each rank attends to what is with it.

Liu et al., "Ring Attention" (arXiv 2310.01889), section 3, with the softmax put together from blocks as in
"FlashAttention" (arXiv 2205.14135, section 3.1). Forward has n - 1 hops of keys and values; in backward their gradients
travel with them and need one hop more to come home. Tensors are (batch, heads, seq, head_dim). Not for: which ranks
have which tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from placelang.backend import comm


def ring_attention(
    q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup, places: Sequence[Tensor], scale: float | None = None
) -> Tensor:
    """Causal attention of this rank's queries to all keys. `places`: the positions that each rank of the group has."""
    found: Tensor = _Ring.apply(q, k, v, group, tuple(places), scale or q.shape[-1] ** -0.5)  # type: ignore[no-untyped-call]
    return found


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup, places: tuple[Tensor, ...], scale: float
    ) -> Tensor:
        n, rank = group.size(), group.rank()
        wide, kv = _grouped(q, k), torch.stack((k, v))
        total = torch.zeros_like(wide)
        lse = wide.new_full((*wide.shape[:-1], 1), float("-inf"))
        for i in range(n):
            coming = comm.hop(kv.unbind(), group) if i < n - 1 else None
            source = (rank - i) % n
            if _sees(places[rank], places[source]):
                keys, values = kv.to(wide.dtype)
                scores = _scores(wide, keys, places[rank], places[source], scale)
                both = torch.logaddexp(lse, scores.logsumexp(-1, keepdim=True))
                safe = both.clamp_min(torch.finfo(wide.dtype).min)  # a row that has seen nothing yet
                total = total * (lse - safe).exp() + (scores - safe).exp() @ values
                lse = both
            if coming:
                kv = torch.stack(coming())
        ctx.save_for_backward(q, k, v, total, lse)
        ctx.args = group, places, scale
        return total.view(q.shape).to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        (q, k, v, total, lse), (group, places, scale) = ctx.saved_tensors, ctx.args
        n, rank = group.size(), group.rank()
        wide, dout = _grouped(q, k), _grouped(grads[0], k)
        rows = (dout * total).sum(-1, keepdim=True)
        dq, kv = torch.zeros_like(wide), torch.stack((k, v))
        dkv = torch.zeros_like(kv)
        for i in range(n):
            coming = comm.hop(kv.unbind(), group) if i < n - 1 else None
            source = (rank - i) % n
            if _sees(places[rank], places[source]):
                keys, values = kv.to(wide.dtype)
                weights = (_scores(wide, keys, places[rank], places[source], scale) - lse).exp()
                dscores = weights * (dout @ values.transpose(-1, -2) - rows) * scale
                dq += dscores @ keys
                dkeys, dvalues = dscores.transpose(-1, -2) @ wide, weights.transpose(-1, -2) @ dout
                dkv = (dkv + torch.stack((dkeys, dvalues))).to(kv.dtype)
            dkv = torch.stack(comm.hop(dkv.unbind(), group)())
            if coming:
                kv = torch.stack(coming())
        return dq.view(q.shape).to(q.dtype), dkv[0], dkv[1], None, None, None


def _grouped(q: Tensor, k: Tensor) -> Tensor:
    """The query heads that share a head of keys, one after the other, in float32 at least."""
    wide = torch.promote_types(q.dtype, torch.float32)
    return q.reshape(*k.shape[:2], -1, q.shape[-1]).to(wide)


def _sees(mine: Tensor, theirs: Tensor) -> bool:
    return bool(theirs.min() <= mine.max())


def _scores(q: Tensor, k: Tensor, mine: Tensor, theirs: Tensor, scale: float) -> Tensor:
    seen = (mine[:, None] >= theirs).repeat(q.shape[2] // len(mine), 1).to(q.device)
    return (q @ k.transpose(-1, -2) * scale).masked_fill(~seen, float("-inf"))
