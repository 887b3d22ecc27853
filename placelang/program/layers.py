"""The layers of a model as the lowering sees them: operations, and the groups of parameters that travel together.

Not for: what is inside an operation (`model.graph`), or where groups lie (`placement`).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from placelang.frozen import Frozen
from placelang.model.graph import Operation, opaque, operations
from placelang.model.model import Model, Stack, Tensor
from placelang.plan import selectors
from placelang.plan.plan import Selection
from placelang.program.event import Var
from placelang.program.program import Group


@attrs.frozen(eq=False, repr=False)
class Layer(Frozen):
    """A stack with its operations, and the groups of parameters that each of them reads."""

    stack: Stack
    key: str
    operations: tuple[Operation, ...]
    own: tuple[Group, ...]
    reads: Mapping[str, tuple[str, ...]]  # by operation

    @property
    def looped(self) -> bool:
        return self.stack.block

    @property
    def at(self) -> tuple[Var, ...]:
        return (Var(self.key),) if self.looped else ()

    @property
    def groups_read(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(g for groups in self.reads.values() for g in groups))


def frozen_names(model: Model, frozen: tuple[str, ...]) -> frozenset[str]:
    """The full names of the tensors that no optimizer updates: as the model and the job say, with what shares their
    storage."""
    found = selectors.matches(Selection("role", "frozen"), model, frozen)
    tied = [(s.fqn(t), t.tied) for s in model.stacks for t in s.tensors if t.tied is not None]
    owners = {owner for name, owner in tied if name in found}
    return found | owners | {name for name, owner in tied if owner in found | owners}


def layers_of(model: Model, inside: bool, frozen: tuple[str, ...] = ()) -> tuple[Layer, ...]:
    """A model's layers, opened to their operations or not. Tensors that other layers use too are groups apart, as
    stages may hold copies of them alone; so are those that are not trained beside some that are."""
    still = frozen_names(model, frozen)
    lent = {t.tied for stack in model.stacks for t in stack.tensors if t.tied is not None}
    names = [stack.name for stack in model.stacks]
    keys = [s.name if names.count(s.name) == 1 else f"{s.name}.{s.first}" for s in model.stacks]
    owner: dict[str, str] = {}  # full name of a tensor outside the blocks -> its group
    layers = []
    for stack, key in zip(model.stacks, keys, strict=True):
        inner = operations(model, stack) if inside else (opaque(stack),)
        own: list[Group] = []
        reads: dict[str, tuple[str, ...]] = {}
        for o in inner:
            mine: dict[str, list[Tensor]] = {}
            name = key if o.kind == "opaque" else f"{key}/{o.name}"
            untied = [t for t in o.tensors if t.tied is None]
            some = any(stack.fqn(t) in lent for t in untied) and not all(stack.fqn(t) in lent for t in untied)
            mixed = len({stack.fqn(t) in still for t in untied}) > 1
            for t in untied:
                group = f"{name}.shared" if some and stack.fqn(t) in lent else name
                mine.setdefault(f"{group}.frozen" if mixed and stack.fqn(t) in still else group, []).append(t)
            for group, tensors in mine.items():
                loop, trainable = key if stack.block else None, stack.fqn(tensors[0]) not in still
                own.append(Group(group, stack.count, loop, tuple(tensors), trainable=trainable))
                owner |= {stack.fqn(t): group for t in tensors if not stack.indexed}
            shared = dict.fromkeys(owner[t.tied] for t in o.tensors if t.tied is not None)
            reads[o.name] = (*mine, *(g for g in shared if g not in mine))
        layers.append(Layer(stack, key, inner, tuple(own), reads))
    return tuple(layers)
