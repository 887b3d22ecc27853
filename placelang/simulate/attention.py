"""Causal softmax attention with capped scores on a rank's own heads and positions, and its gradients.

Positions and heads are those of the whole: a rank that holds a part of the queries masks by their places in the row,
and a query head looks at the key and value head of its group. Scores are capped by tanh, as in Gemma 2: without a cap a
bias of keys would shift all scores of a row alike and have no gradient, and an error there would not show. A fused
operand holds query, key and value of each head side by side, so that a split by heads keeps them together. Not for:
what splits them.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from placelang.simulate.arrays import Array, NoDenotation
from placelang.simulate.forms import Held
from placelang.simulate.sizes import HEAD


@attrs.frozen
class Operands:
    """q: (batch, s, heads, HEAD); k, v: (batch, t, kv heads, HEAD). `group`: of each query head, its row of k and v.
    `seen`: (s, t), whether a query may look at a key."""

    q: Array
    k: Array
    v: Array
    group: tuple[int, ...]
    seen: npt.NDArray[np.bool_]
    fused: bool = False
    shared: int = 0  # columns of what all heads share a part of


def operands(xs: Sequence[Held]) -> Operands:
    """From one fused activation, or from queries, keys and values."""
    if len(xs) == 1:
        heads = _heads(xs[0], 3 * HEAD)
        q, k, v = np.moveaxis(_split(xs[0].array, 3 * HEAD).reshape(*xs[0].array.shape[:2], len(heads), 3, HEAD), 3, 0)
        position = xs[0].indices(1)
        return Operands(q, k, v, tuple(range(len(heads))), position[:, None] >= position, True)
    if len(xs) != 3:
        raise NoDenotation(f"attention reads {len(xs)} activations")
    if xs[2].form.names[-1:] == ("k",):
        return _latent(*xs)
    queries, keys, values = xs
    mine, theirs = _heads(queries, HEAD), _heads(keys, HEAD)
    if theirs != _heads(values, HEAD) or keys.array.shape != values.array.shape:
        raise NoDenotation("keys and values are of other heads or positions")
    many, few = queries.size(2) // HEAD, keys.size(2) // HEAD
    if not few or many % few:
        raise NoDenotation(f"{many} query heads share {few} key heads")
    wanted = [head // (many // few) for head in mine]
    if not set(wanted) <= set(theirs):
        raise NoDenotation(f"query heads {mine} find key heads {theirs} only")
    return Operands(
        _split(queries.array, HEAD),
        _split(keys.array, HEAD),
        _split(values.array, HEAD),
        tuple(theirs.index(head) for head in wanted),
        queries.indices(1)[:, None] >= keys.indices(1),
    )


def _latent(queries: Held, latent: Held, shared: Held) -> Operands:
    """Keys and values of each head are one part of a latent vector; all heads add the last columns of a shared part to
    their keys."""
    mine = _heads(queries, HEAD)
    if mine != _heads(latent, HEAD):
        raise NoDenotation("keys and values are of other heads")
    if shared.array.shape[2] < HEAD or shared.array.shape[:2] != latent.array.shape[:2]:
        raise NoDenotation("the part of keys that heads share is of another shape")
    v = _split(latent.array, HEAD)
    k = v + shared.array[:, :, None, -HEAD:]
    seen = queries.indices(1)[:, None] >= latent.indices(1)
    return Operands(_split(queries.array, HEAD), k, v, tuple(range(len(mine))), seen, shared=shared.array.shape[2])


def _split(array: Array, width: int) -> Array:
    return array.reshape(*array.shape[:2], -1, width) if array.shape[2] else np.zeros((*array.shape[:2], 0, width))


def _heads(x: Held, width: int) -> list[int]:
    """The heads of the whole that a piece holds."""
    index = x.indices(2)
    if len(index) % width:
        raise NoDenotation(f"{len(index)} rows are no whole heads of {width}")
    runs = index.reshape(-1, width)
    if np.any(runs % width != np.arange(width)) or np.any(runs // width != runs[:, :1] // width):
        raise NoDenotation("a head is cut in two")
    return [int(head) for head in runs[:, 0] // width]


def _weights(o: Operands) -> tuple[Array, Array]:
    """(batch, heads, s, t): each query's softmax over the keys that it sees, and the capped scores."""
    capped: Array = np.tanh(np.einsum("bsad,btad->bast", o.q, o.k[:, :, o.group]) / np.sqrt(HEAD))
    powers = np.where(o.seen, np.exp(capped), 0.0)  # between 1/e and e: no need to shift
    return powers / powers.sum(axis=-1, keepdims=True), capped


def forward(o: Operands) -> Array:
    y: Array = np.einsum("bast,btad->bsad", _weights(o)[0], o.v[:, :, o.group])
    return y.reshape(*y.shape[:2], -1)


def backward(o: Operands, dy: Array) -> tuple[Array, ...]:
    """The gradients of queries, keys and values, or of the fused operand, as far as the own query heads go."""
    if dy.shape != (*o.q.shape[:2], o.q.shape[2] * HEAD):
        raise NoDenotation(f"a gradient of shape {dy.shape} meets attention of shape {o.q.shape}")
    (p, capped), dout = _weights(o), dy.reshape(o.q.shape)
    dp = np.einsum("bsad,btad->bast", dout, o.v[:, :, o.group])
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) * (1 - capped**2) / np.sqrt(HEAD)
    dq = np.einsum("bast,btad->bsad", ds, o.k[:, :, o.group])
    dk, dv = np.zeros(o.k.shape), np.zeros(o.v.shape)
    for head, shared in enumerate(o.group):
        dk[:, :, shared] += np.einsum("bst,bsd->btd", ds[:, head], o.q[:, :, head])
        dv[:, :, shared] += np.einsum("bst,bsd->btd", p[:, head], dout[:, :, head])
    if o.fused:
        return (np.stack([dq, dk, dv], axis=3).reshape(*dq.shape[:2], -1),)
    if o.shared:
        rope = np.zeros((*dk.shape[:2], o.shared))
        rope[..., -HEAD:] = dk.sum(axis=2)
        return tuple(d.reshape(*d.shape[:2], -1) for d in (dq, dk + dv, rope))
    return tuple(d.reshape(*d.shape[:2], -1) for d in (dq, dk, dv))
