"""Causal attention with the moves that bring it its heads and positions. Tensors are (batch, heads, seq, head_dim).

A rank that has some positions masks by where these stand. Not for: the rotation of queries and keys, which stands
before (`layers`, or a module of a user's own).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placelang.backend.comm import Groups
from placelang.backend.dealt import Dealt
from placelang.backend.moves import Bound, bind, follow
from placelang.backend.ring import ring_attention
from placelang.backend.wiring import Move

DIMS: Mapping[str, int] = {"batch": 0, "seq": 2, "heads": 1, "hidden": 1}


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, seen: Tensor | None = None) -> Tensor:
    """Attention on one device; fewer heads of k and v serve groups of those of q. `seen`: (queries, keys), whether one
    sees the other; causal when left out."""
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=seen is None, scale=scale)


class Core:
    """Attention between moves: `ins` of queries, keys and values (or of one fused operand), `out` of the result.

    Moves of keys and values that hop are no move before attention but a ring in it.
    """

    def __init__(
        self,
        ins: Sequence[Sequence[Move]],
        out: Sequence[Move],
        groups: Groups,
        deal: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._ins = [bind([m for m in moves if not m.hops], groups, DIMS) for moves in ins]
        self._out = bind(out, groups, DIMS)
        self._dealt = Dealt(deal, groups)
        self._queries, *rest = [tuple(a for m in moves if not m.hops for a in m.axes) for moves in ins]
        self._keys = rest[0] if rest else self._queries
        hops = {m.axes for moves in ins for m in moves if m.hops and groups.size(m.axes) > 1}
        self._ring = next(iter(hops), None)
        self._group = groups.group(self._ring) if self._ring else None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
        tokens = q.shape[2]
        if len(self._ins) == 1:
            q, k, v = _fused(q, k, v, self._ins[0])
        else:
            q, k, v = (follow(t, moves) for t, moves in zip((q, k, v), self._ins, strict=True))
        return follow(self._attend(q, k, v, tokens, scale), self._out)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, tokens: int, scale: float | None) -> Tensor:
        """`tokens`: how many this rank has where moves have brought no others."""
        dealt = self._dealt
        if self._ring and self._group:
            (axis,) = self._ring
            places = [dealt.joined(tokens, self._keys, {axis: r}) for r in range(self._group.size())]
            return ring_attention(q, k, v, self._group, places, scale)
        mine, theirs = dealt.joined(tokens, self._queries), dealt.joined(tokens, self._keys)
        if len(mine) == len(theirs) and bool((mine[1:] > mine[:-1]).all()):
            return attend(q, k, v, scale)
        return attend(q, k, v, scale, (mine[:, None] >= theirs).to(q.device))


def _fused(q: Tensor, k: Tensor, v: Tensor, moves: Sequence[Bound]) -> tuple[Tensor, Tensor, Tensor]:
    """One move of all three: a head of keys and values with its queries travels as one."""
    if not moves:
        return q, k, v
    batch, kv, seq, width = k.shape
    group = q.shape[1] // kv

    def beside(t: Tensor, each: int) -> Tensor:
        return t.reshape(batch, kv, each, seq, width).transpose(2, 3).reshape(batch, kv, seq, each * width)

    x = follow(torch.cat((beside(q, group), k, v), dim=-1), moves)
    q, k, v = torch.split(x, [group * width, width, width], dim=-1)
    batch, kv, seq, _ = k.shape
    q = q.reshape(batch, kv, seq, group, width).transpose(2, 3).reshape(batch, kv * group, seq, width)
    return q, k, v


def pretrained(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The attention function of a module of `transformers`; there is no mask but the causal one (`prepare`)."""
    core: Any = module.core
    return core(query, key, value, options.get("scaling")).transpose(1, 2), None
