"""The sizes of simulated data and models: few and uneven, so that padding and empty shards occur at two ranks already.

Dims that text may only split evenly (heads, positions) divide by two and four; the others need not. Not for: shapes of
real models.
"""

from __future__ import annotations

WIDTH = 4
"""The hidden dim of every activation."""

SEQ = 8
"""Positions of one row."""

HEAD = 2
"""Width of one attention head."""

LAYERS = 2

SIZES = {
    "layers": LAYERS,
    "hidden": WIDTH,
    "heads": 4,
    "head_dim": HEAD,
    "ffn": 6,
    "vocab": 7,
    "positions": 9,
    "experts": 4,
    "expert": 4,
    "top_k": 2,
    "moe_ffn": 2,
    "shared_ffn": 2,
    "shared": 1,
    "q_lora_rank": 4,
    "kv_lora_rank": 3,
    "kv_latent": 5,
}
"""Named sizes of a shrunk transformer; `heads` counts heads."""
