"""A model and a plan small enough to simulate: the same structure, tiny shapes that divide by nothing.

Row counts are odd and few, so that padding and empty shards occur at two ranks already. Not for: costs.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from placelang.model.model import Model, Stack, Tensor
from placelang.plan.mesh import Axis, Mesh
from placelang.plan.plan import Plan

ROWS = (5, 7, 3, 2)
COLUMNS = 3
LAYERS = 2


def shrink(model: Model) -> Model:
    """The same stacks, groups and ties with at most two layers a stack and tensors of a few rows."""
    shapes: dict[str, tuple[int, ...]] = {}
    stacks = []
    for stack in model.stacks:
        tensors = tuple(_shrink_tensor(stack, t, len(shapes) + i, shapes) for i, t in enumerate(stack.tensors))
        for tensor in tensors:
            shapes[stack.fqn(tensor)] = tensor.shape
        stacks.append(attrs.evolve(stack, count=min(stack.count, LAYERS), tensors=tensors))
    return attrs.evolve(model, stacks=tuple(stacks))


def _shrink_tensor(stack: Stack, tensor: Tensor, ordinal: int, shapes: Mapping[str, tuple[int, ...]]) -> Tensor:
    shape = (ROWS[ordinal % len(ROWS)], *(COLUMNS for _ in tensor.shape[1:])) if tensor.shape else ()
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
