"""What each kind of operation inside a layer means on numbers, and its exact gradients, from a rank's own pieces alone.

Letters and kinds are those of `model.graph`. Where a kind leaves a function open one is chosen that tells operands
apart: the summands of "add" and the input of "bias" are weighed unequally, so that swapping them, or taking a gradient
for the other's, shows. All gradients are linear in `dy`. Not for: attention (`attention`), the loss, or opaque layers
(`units`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from placelang.program.event import Compute
from placelang.simulate import attention
from placelang.simulate.arrays import Array, NoDenotation
from placelang.simulate.forms import Held

SHARES = (0.9, 0.6)
"""What the summands of "add" are multiplied with."""

KEPT = 0.75
"""What "bias" leaves of its input."""

TOP_K = 2
"""Experts that a token goes to."""

EPSILON = 0.1
"""Added to the mean square of a norm."""

Pieces = Sequence[Held]

_Result = TypeVar("_Result")


def forward(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    """The result, laid as the operands are."""
    return _checked(c, xs, ws, lambda kind: kind.forward(c, xs, ws))


def backward(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> Array:
    """dL/dx of the activation `c.wrt`, as far as this rank's pieces contribute."""
    if not 0 <= c.wrt < len(xs):
        raise NoDenotation(f"{c.kind} has no operand {c.wrt}")
    return _checked(c, xs, ws, lambda kind: kind.backward(c, dy, xs, ws))


def wgrad(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> list[Array]:
    """dL/dw of every tensor, as far as this rank's pieces contribute."""
    return _checked(c, xs, ws, lambda kind: kind.wgrad(c, dy, xs, ws))


@attrs.frozen
class _Kind:
    forward: Callable[[Compute, Pieces, Pieces], Array]
    backward: Callable[[Compute, Array, Pieces, Pieces], Array]
    wgrad: Callable[[Compute, Array, Pieces, Pieces], list[Array]]
    activations: tuple[int, ...]  # how many it may read
    tensors: tuple[int, ...]


def _checked(c: Compute, xs: Pieces, ws: Pieces, run: Callable[[_Kind], _Result]) -> _Result:
    kind = _KINDS.get(c.kind)
    if kind is None or len(xs) not in kind.activations or len(ws) not in kind.tensors:
        raise NoDenotation(f"nothing says what {c.kind} of {len(xs)} activations and {len(ws)} tensors computes")
    try:
        return run(kind)
    except ValueError as error:
        raise NoDenotation(f"{c.kind}: {error}") from None


def _fit(c: Compute, xs: Pieces, ws: Pieces, dy: Array | None = None, free: str = "") -> None:
    """Every letter has one size, whoever has it; those in `free` may differ."""
    if len(xs) + len(ws) != len(c.letters):
        raise NoDenotation(f"{c.kind} reads {len(xs)} activations and {len(ws)} tensors")
    sizes: dict[str, int] = {}
    arrays = [*(h.array for h in (*xs, *ws)), *([] if dy is None else [dy])]
    for array, letters in zip(arrays, (*c.letters, c.out), strict=False):
        if array.ndim != len(letters):
            raise NoDenotation(f"{c.kind} reads something of shape {array.shape} as {letters}")
        for letter, size in zip(letters, array.shape, strict=True):
            if letter not in free and sizes.setdefault(letter, size) != size:
                raise NoDenotation(f"{c.kind}: {letter} is {size} here and {sizes[letter]} there")


def _contract(into: str, *factors: tuple[str, Array]) -> Array:
    words = ",".join(letters for letters, _ in factors)
    found: Array = np.einsum(f"{words}->{into}", *(array for _, array in factors))
    return found


def _sum_to(letters: str, into: str, array: Array) -> Array:
    return _contract(into, (letters, array))


# --- linear, bias, add, mul ------------------------------------------------------------------------------------------


def _linear(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws)
    return _contract(c.out, *zip(c.letters, (h.array for h in (*xs, *ws)), strict=True))


def _linear_dx(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws, dy)
    return _contract(c.letters[0], (c.out, dy), (c.letters[1], ws[0].array))


def _linear_dw(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> list[Array]:
    _fit(c, xs, ws, dy)
    return [_contract(c.letters[1], (c.out, dy), (c.letters[0], xs[0].array))]


def _bias(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws)
    return KEPT * xs[0].array + _spread(ws[0].array, c.letters[1], c.out)


def _bias_dx(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws, dy)
    return KEPT * dy


def _bias_dw(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> list[Array]:
    _fit(c, xs, ws, dy)
    return [_sum_to(c.out, c.letters[1], dy)]


def _product(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws)
    return _contract(c.out, *zip(c.letters, (h.array for h in xs), strict=True))


def _product_dx(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws, dy)
    other = 1 - c.wrt
    return _contract(c.letters[c.wrt], (c.out, dy), (c.letters[other], xs[other].array))


def _add(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws)
    return SHARES[0] * xs[0].array + SHARES[1] * xs[1].array


def _add_dx(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws, dy)
    return SHARES[c.wrt] * dy


def _mul(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws)
    active: Array = np.tanh(xs[0].array)
    return active * xs[1].array if len(xs) > 1 else active


def _mul_dx(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws, dy)
    active = np.tanh(xs[0].array)
    if c.wrt == 1:
        return np.asarray(dy * active)
    slope: Array = dy * (1 - active**2)
    return slope * xs[1].array if len(xs) > 1 else slope


def _none(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> list[Array]:
    return []


# --- experts ---------------------------------------------------------------------------------------------------------


def _spread(array: Array, letters: str, into: str) -> Array:
    """With a dim of size 1 for each letter that it lacks."""
    order = [letters.index(letter) for letter in into if letter in letters]
    found: Array = array.transpose(order)[tuple(slice(None) if letter in letters else None for letter in into)]
    return found


def _softmax(x: Array) -> Array:
    """Of the TOP_K largest logits of each token; the others are 0."""
    least = np.sort(x, axis=-1)[..., max(0, x.shape[-1] - TOP_K), None] if x.shape[-1] else x
    powers = np.where(x >= least, np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf)), 0.0)
    found: Array = powers / powers.sum(axis=-1, keepdims=True)
    return found


def _gates(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws)
    return _softmax(xs[0].array)


def _gates_dx(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws, dy)
    g = _softmax(xs[0].array)
    return np.asarray(g * (dy - (dy * g).sum(axis=-1, keepdims=True)))


def _wanted(c: Compute, xs: Pieces, ws: Pieces, dy: Array | None = None) -> Array:
    """1 where a token goes to an expert."""
    _fit(c, xs, ws, dy)
    return _contract("ebs", (c.letters[1], (xs[1].array > 0).astype(np.float64)))


def _dispatch(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    return _contract(c.out, ("ebs", _wanted(c, xs, ws)), (c.letters[0], xs[0].array))


def _dispatch_dx(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> Array:
    wanted = _wanted(c, xs, ws, dy)
    if c.wrt == 1:  # where a token goes has no gradient
        return np.zeros(xs[1].array.shape)
    return _contract(c.letters[0], (c.out, dy), ("ebs", wanted))


# --- norm ------------------------------------------------------------------------------------------------------------


def _runs(c: Compute, array: Array, ws: Pieces) -> Array:
    """The last dim as runs that are normalised together: all of it, or each head where the tensors are of one head."""
    width = array.shape[-1] if not ws or c.letters[1] in c.out else ws[0].array.shape[0]
    if not width or array.shape[-1] % width:
        raise NoDenotation(f"a norm of {array.shape[-1]} elements in runs of {width}")
    return array.reshape(*array.shape[:-1], array.shape[-1] // width, width)


def _normed(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    """What a norm reads of its operand: all of it, or as many of its first columns as it has gains for."""
    x: Array = xs[0].array
    if ws and c.out[-1] == c.letters[1] != c.letters[0][-1]:
        if ws[0].array.shape[0] > x.shape[-1]:
            raise NoDenotation(f"a norm of {ws[0].array.shape[0]} columns reads {x.shape[-1]}")
        return x[..., : ws[0].array.shape[0]]
    return x


def _norm_parts(c: Compute, xs: Pieces, ws: Pieces, dy: Array | None = None) -> tuple[Array, Array, Array]:
    """x in runs, 1 / its root mean square, and the gain."""
    _fit(c, xs, ws, dy)
    x = _runs(c, _normed(c, xs, ws), ws)
    scale = 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPSILON)
    return x, scale, ws[0].array if ws else np.ones(x.shape[-1])


def _norm(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    x, scale, gain = _norm_parts(c, xs, ws)
    y: Array = x * scale * gain + (ws[1].array if len(ws) > 1 else 0)
    return y.reshape(_normed(c, xs, ws).shape)


def _norm_dx(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> Array:
    x, scale, gain = _norm_parts(c, xs, ws, dy)
    u = _runs(c, dy, ws) * gain
    dx = scale * (u - x * scale**2 * (u * x).mean(axis=-1, keepdims=True))
    dx = dx.reshape(_normed(c, xs, ws).shape)
    rest = xs[0].array.shape[-1] - dx.shape[-1]
    return np.pad(dx, (*((0, 0) for _ in dx.shape[:-1]), (0, rest)))


def _norm_dw(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> list[Array]:
    x, scale, _ = _norm_parts(c, xs, ws, dy)
    runs = _runs(c, dy, ws)
    axes = tuple(range(runs.ndim - 1))
    return [(runs * x * scale).sum(axis=axes), runs.sum(axis=axes)][: len(ws)]


# --- embed -----------------------------------------------------------------------------------------------------------


def _rows(c: Compute, xs: Pieces, ws: Pieces) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """For each token the local row of the table that it looks up, and whether this rank has that row."""
    _fit(c, xs, ws)
    table = ws[0]
    if c.letters[1][0] == "p":
        wanted = np.broadcast_to(xs[0].indices(1), xs[0].array.shape)
    else:
        wanted = xs[0].array.astype(np.int64)
    if np.any((wanted < 0) | (wanted >= table.size(0))):
        raise NoDenotation(f"a table of {table.size(0)} rows is asked for another")
    local = np.full(table.size(0), -1)
    local[table.indices(0)] = np.arange(table.array.shape[0])
    return local[wanted], local[wanted] >= 0


def _embed(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    at, here = _rows(c, xs, ws)
    found = np.zeros((*at.shape, ws[0].array.shape[1]))
    found[here] = ws[0].array[at[here]]
    return found


def _embed_dx(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> Array:
    raise NoDenotation("tokens have no gradient")


def _embed_dw(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> list[Array]:
    at, here = _rows(c, xs, ws)
    _fit(c, xs, ws, dy)
    found = np.zeros(ws[0].array.shape)
    np.add.at(found, at[here], dy[here])
    return [found]


# --- attention -------------------------------------------------------------------------------------------------------


def _attention(c: Compute, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws, free="a")
    return attention.forward(attention.operands(xs))


def _attention_dx(c: Compute, dy: Array, xs: Pieces, ws: Pieces) -> Array:
    _fit(c, xs, ws, dy, free="a")
    return attention.backward(attention.operands(xs), dy)[c.wrt]


_KINDS: Mapping[str, _Kind] = {
    "linear": _Kind(_linear, _linear_dx, _linear_dw, (1,), (1,)),
    "bias": _Kind(_bias, _bias_dx, _bias_dw, (1,), (1,)),
    "add": _Kind(_add, _add_dx, _none, (2,), (0,)),
    "mul": _Kind(_mul, _mul_dx, _none, (1, 2), (0,)),
    "product": _Kind(_product, _product_dx, _none, (2,), (0,)),
    "gates": _Kind(_gates, _gates_dx, _none, (1,), (0,)),
    "dispatch": _Kind(_dispatch, _dispatch_dx, _none, (2,), (0,)),
    "norm": _Kind(_norm, _norm_dx, _norm_dw, (1,), (0, 1, 2)),
    "embed": _Kind(_embed, _embed_dx, _embed_dw, (1,), (1,)),
    "attention": _Kind(_attention, _attention_dx, _none, (1, 3), (0,)),
}
