"""A decoder-only transformer in plain torch, one that every catalogue decoder without experts is an instance of.

Not for: choosing sizes or initial values (`build`), or speed records: attention is torch's fused one, nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placelang.backend.attention import attend

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": F.gelu,
    "gelu": F.gelu,
    "relu": F.relu,
}


@attrs.frozen
class Shape:
    """What the names and shapes of parameters leave open."""

    heads: int
    kv_heads: int
    head_dim: int
    activation: str
    rope: bool
    parallel: bool


class Attention(nn.Module):
    """Causal attention with grouped keys and values; projections are set by `build`."""

    wqkv: nn.Module
    wq: nn.Module
    wk: nn.Module
    wv: nn.Module
    wo: nn.Module
    q_norm: nn.Module
    k_norm: nn.Module

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.core: Callable[[Tensor, Tensor, Tensor], Tensor] = attend

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        s = self.shape
        batch, seq, _ = x.shape
        if hasattr(self, "wqkv"):
            fused, group = self.wqkv(x), s.heads // s.kv_heads
            kv = fused.shape[-1] // (group + 2)  # of the heads that are here
            q, k, v = fused.split((group * kv, kv, kv), dim=-1)
        else:
            q, k, v = self.wq(x), self.wk(x), self.wv(x)
        q, k, v = (t.view(batch, seq, -1, s.head_dim) for t in (q, k, v))
        if hasattr(self, "q_norm"):
            q, k = self.q_norm(q), self.k_norm(k)
        if s.rope:
            q, k = rotate(q, positions), rotate(k, positions)
        core = self.core(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        out: Tensor = self.wo(core.transpose(1, 2).reshape(batch, seq, -1))
        return out


def rotate(x: Tensor, positions: Tensor, base: float = 10_000.0) -> Tensor:
    """Rotary positions (RoFormer, arXiv 2104.09864, section 3.2.2) of x (batch, seq, heads, head_dim), halves
    paired. `positions`: (1 or batch, seq)."""
    wide = torch.promote_types(x.dtype, torch.float32)
    half = x.shape[-1] // 2
    speed = base ** (-torch.arange(half, device=x.device, dtype=wide) / half)
    angle = positions.to(wide)[:, :, None, None] * speed
    a, b = x.to(wide).chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Mlp(nn.Module):
    """Two matrices, or three where one gates."""

    gate: nn.Module
    up: nn.Module
    down: nn.Module

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[shape.activation]

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.gate(x)) * self.up(x) if hasattr(self, "gate") else self.activation(self.up(x))
        out: Tensor = self.down(inner)
        return out


class Block(nn.Module):
    """Attention and MLP, one after the other or side by side; norms before them, and after them where there are
    four."""

    norm: nn.Module
    attn_norm: nn.Module
    mlp_norm: nn.Module

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.parallel = shape.parallel
        self.attn = Attention(shape)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        if self.parallel:
            shared = self.norm(x) if hasattr(self, "norm") else None
            first = shared if shared is not None else self.attn_norm(x)
            second = shared if shared is not None else self.mlp_norm(x)
            return x + self._after("attn", self.attn(first, positions)) + self._after("mlp", self.mlp(second))
        x = x + self._after("attn", self.attn(self.attn_norm(x), positions))
        return x + self._after("mlp", self.mlp(self.mlp_norm(x)))

    def _after(self, part: str, y: Tensor) -> Tensor:
        norm = getattr(self, f"{part}_post_norm", None)
        out: Tensor = y if norm is None else norm(y)
        return out


class Embedding(nn.Module):
    """Token rows, and position rows and a norm where the model has them."""

    tokens: nn.Module
    positions: nn.Module
    norm: nn.Module

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x: Tensor = self.tokens(tokens)
        if hasattr(self, "positions"):
            x = x + self.positions(positions)
        if hasattr(self, "norm"):
            x = self.norm(x)
        return x


class Decoder(nn.Module):
    """Tokens (batch, seq) to logits (batch, seq, vocab). `position_ids` (1 or batch, seq): where they stand in their
    samples; from 0 up when left out."""

    norm: nn.Module
    head: nn.Module

    def __init__(self, shape: Shape, blocks: int) -> None:
        super().__init__()
        self.embed = Embedding()
        self.layers = nn.ModuleList(Block(shape) for _ in range(blocks))

    def forward(self, tokens: Tensor, position_ids: Tensor | None = None) -> Tensor:
        if position_ids is None:
            position_ids = torch.arange(tokens.shape[1], device=tokens.device)[None]
        x = self.embed(tokens, position_ids)
        for block in self.layers:
            x = block(x, position_ids)
        logits: Tensor = self.head(self.norm(x))
        return logits
