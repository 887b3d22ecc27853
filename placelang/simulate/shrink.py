"""A model and a plan small enough to simulate: the same structure, tiny shapes that divide by little.

Row counts are odd and few, so that padding and empty shards occur at two ranks already. A transformer keeps its dims
consistent, so that its layers can be opened to their operations. Not for: costs.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from placelang.model.model import Model, Stack, Tensor
from placelang.plan.mesh import Axis, Mesh
from placelang.plan.plan import Plan
from placelang.simulate.sizes import HEAD, LAYERS, SIZES

ROWS = (5, 7, 3, 2)
COLUMNS = 3


def shrink(model: Model) -> Model:
    """The same stacks, groups and ties with at most two layers a stack and tensors of a few rows."""
    shapes: dict[str, tuple[int, ...]] = {}
    stacks = []
    sizes, dims = (_sizes(model), _dims(model)) if model.trait("constructor") == "transformer" else (model.sizes, {})
    for stack in model.stacks:
        tensors = tuple(_shrink_tensor(stack, t, len(shapes) + i, shapes, dims) for i, t in enumerate(stack.tensors))
        for tensor in tensors:
            shapes[stack.fqn(tensor)] = tensor.shape
        stacks.append(attrs.evolve(stack, count=min(stack.count, LAYERS), tensors=tensors))
    return attrs.evolve(model, stacks=tuple(stacks), sizes=sizes)


def _sizes(model: Model) -> tuple[tuple[str, int], ...]:
    """The named sizes of a shrunk transformer. Fewer key heads than query heads stay fewer, half of them or one."""
    small = SIZES | {"kv_heads": _kv_heads(model), "max_seq_len": SIZES["positions"]}
    return tuple((name, small.get(name, size)) for name, size in model.sizes)


def _kv_heads(model: Model) -> int:
    heads, few = model.size("heads"), model.size("kv_heads")
    return SIZES["heads"] if few == heads else 1 if few == 1 else SIZES["heads"] // 2


def _dims(model: Model) -> Mapping[str, int]:
    """The sizes of the dims of a transformer's tensors, where `heads` are heads times their width."""
    q, kv = SIZES["heads"] * HEAD, _kv_heads(model) * HEAD
    return SIZES | {"heads": q, "kv_heads": kv, "qkv": q + 2 * kv}


def _shrink_tensor(
    stack: Stack, tensor: Tensor, ordinal: int, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int]
) -> Tensor:
    shape = (ROWS[ordinal % len(ROWS)], *(COLUMNS for _ in tensor.shape[1:])) if tensor.shape else ()
    if all(dim in dims for dim in tensor.dims):
        shape = tuple(dims[dim] for dim in tensor.dims)
    return attrs.evolve(tensor, shape=shapes.get(tensor.tied, shape) if tensor.tied else shape)


def shrink_plan(plan: Plan) -> Plan:
    """The same strategy on axes of one to three ranks and with one to three microbatches; unknown sizes become two."""
    axes = tuple(attrs.evolve(axis, size=_few(axis)) for axis in plan.mesh.axes)
    train = attrs.evolve(plan.train, microbatches=_small(plan.train.microbatches))
    return attrs.evolve(plan, mesh=Mesh(axes), train=train)


def _few(axis: Axis) -> int:
    return 2 if axis.size is None else _small(axis.size)


def _small(number: int) -> int:
    """One, two or three, of the number's parity where it is larger."""
    return number if number <= 3 else 2 + number % 2
