"""What the opaque compute of a stack means on numbers, for any model: a small surrogate and its exact gradient.

For activations x of shape (batch, seq, width) and the tensors P_j of every group that the stack reads, each reshaped to
(rows, rest),

    f(x) = x + mean over seq of x / 2 + sum_j tanh((x R_j) P_j^T) S_j

with fixed random R_j (width, rest) and S_j (rows, width) drawn from the stack's name. So every element of every
parameter matters, batch rows are independent, and positions of one row are not (a sequence can't be split for free).
The loss is sum_t w_t |y_t - target_t|^2 / 2 over W = sum of w over the whole batch, as a run with a global normaliser
computes it. Not for: resembling a transformer; which tensors a stack reads says the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs
import numpy as np

from placelang.program.program import Group
from placelang.simulate.arrays import Array, NoDenotation, Value, draw
from placelang.simulate.sizes import WIDTH


@attrs.frozen
class _Term:
    """One tensor's part of f: where it is, and its projections."""

    group: str
    tensor: str
    matrix: Array  # (rows, rest)
    into: Array  # R: (width, rest)
    out: Array  # S: (rows, width)

    @property
    def key(self) -> str:
        return f"{self.group}/{self.tensor}"


def _terms(site: str, groups: Mapping[str, Group], views: Mapping[str, Value]) -> Iterator[_Term]:
    for name, view in views.items():
        if {t.name for t in groups[name].tensors} != set(view):
            raise NoDenotation(f"{site} reads the tensors {sorted(view)} as those of {name}")
        for tensor in groups[name].tensors:
            array = view[tensor.name]
            if array.shape != tensor.shape:
                raise NoDenotation(f"{site} reads {name}.{tensor.name} of shape {array.shape}, not {tensor.shape}")
            matrix = array.reshape(tensor.shape[0] if tensor.shape else 1, -1)
            key = (site, name, tensor.name)
            into = draw((*key, "R"), (WIDTH, matrix.shape[1])) / np.sqrt(WIDTH * matrix.shape[1])
            out = draw((*key, "S"), (matrix.shape[0], WIDTH)) / np.sqrt(WIDTH)
            yield _Term(name, tensor.name, matrix, into, out)


def forward(site: str, groups: Mapping[str, Group], x: Array, views: Mapping[str, Value]) -> tuple[Array, Value]:
    """f(x), and what backward needs: x and each tanh."""
    _activation(site, x)
    y = x + x.mean(axis=1, keepdims=True) / 2
    stash = {"x": x}
    for term in _terms(site, groups, views):
        u = np.tanh(x @ term.into @ term.matrix.T)
        stash[term.key] = u
        y = y + u @ term.out
    return y, stash


def backward(site: str, groups: Mapping[str, Group], dy: Array, stash: Value, views: Mapping[str, Value]) -> Array:
    """dL/dx from dL/dy: linear in dy."""
    dx: Array = dy + dy.mean(axis=1, keepdims=True) / 2
    for term in _terms(site, groups, views):
        dx = dx + _before_tanh(site, term, dy, stash) @ term.matrix @ term.into.T
    return dx


def wgrad(
    site: str, groups: Mapping[str, Group], dy: Array, stash: Value, views: Mapping[str, Value]
) -> dict[str, dict[str, Array]]:
    """dL/dP of every tensor read, by group: linear in dy, summed over tokens."""
    grads: dict[str, dict[str, Array]] = {name: {} for name in views}
    for term in _terms(site, groups, views):
        dz = _before_tanh(site, term, dy, stash)
        inputs = stash["x"] @ term.into
        matrix = dz.reshape(-1, dz.shape[-1]).T @ inputs.reshape(-1, inputs.shape[-1])
        grads[term.group][term.tensor] = matrix.reshape(views[term.group][term.tensor].shape)
    return grads


def loss_gradient(logits: Array, target: Array, weight: Array, total: float) -> Array:
    """d(loss)/d(logits)."""
    if logits.shape != target.shape:
        raise NoDenotation(f"logits of shape {logits.shape} meet targets of shape {target.shape}")
    return weight[..., None] * (logits - target) / total


def _before_tanh(site: str, term: _Term, dy: Array, stash: Value) -> Array:
    """dL/d(x R P^T)."""
    _activation(site, dy)
    u = stash.get(term.key)
    if u is None or dy.shape != stash["x"].shape:
        raise NoDenotation(f"backward of {site} reads a stash that its forward did not make")
    # tanh' = 1 - u^2, one u from the stash and one made again, so that a wrong view or a wrong stash both show.
    dz: Array = (dy @ term.out.T) * (1 - u * np.tanh(stash["x"] @ term.into @ term.matrix.T))
    return dz


def _activation(site: str, x: Array) -> None:
    if x.ndim != 3 or x.shape[-1] != WIDTH:
        raise NoDenotation(f"{site} reads something of shape {x.shape} as an activation")
