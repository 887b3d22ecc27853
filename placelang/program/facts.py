"""What every part of the lowering asks of a plan and a model: layers, groups, placements, units, and stages.

Found once, never changed. Not for: events (`lower`, `views`, `reductions`, `update`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import attrs

from placelang.frozen import Frozen
from placelang.model.model import Model
from placelang.plan.dtypes import Precision
from placelang.plan.plan import Plan, State
from placelang.plan.steps import Formats
from placelang.program.event import FIRST, LAST, At, Buf, End, Var
from placelang.program.inside import Inside
from placelang.program.layers import Layer, layers_of
from placelang.program.placement import Placement, placement
from placelang.program.profile import Profile
from placelang.program.program import Group, Item, Rep
from placelang.program.stages import stages


def _precision(plan: Plan) -> Precision:
    """That of the job, with the formats that the text gives the optimizer."""
    precision = plan.train.precision
    for step in plan.journey(State.OPTIMIZER):
        if isinstance(step, Formats):
            master = {None: precision.master, "none": None}.get(step.master, step.master)
            precision = attrs.evolve(precision, master=master, moments=step.moments or precision.moments)
    return precision


@attrs.frozen(eq=False, repr=False)
class Unit(Frozen):
    """Groups that are gathered and reduced together: one block, or all that stands outside the blocks on a stage."""

    groups: tuple[str, ...]
    at: tuple[Var, ...]
    where: tuple[At, ...] = ()  # the stages that hold it
    trained: tuple[str, ...] = ()  # those of its groups that an optimizer updates

    def bufs(self, kind: str, groups: Sequence[str] | None = None) -> tuple[Buf, ...]:
        return tuple(Buf(kind, name, self.at) for name in (self.groups if groups is None else groups))


class Facts:
    """A plan and a model, seen as what their program is made of. `inside`: layers are opened to operations."""

    def __init__(self, plan: Plan, model: Model, profile: Profile, inside: bool) -> None:
        self.plan, self.profile, self.model = plan, profile, model
        self.precision = _precision(plan)
        self.layers = layers_of(model, inside, plan.train.frozen)
        self.stages = stages(plan, model, ((y.key, y.stack.count) for y in self.layers if y.looped))
        self.groups = tuple(attrs.evolve(group, where=self._held(group)) for y in self.layers for group in y.own)
        self.places: dict[str, Placement] = {
            group.name: placement(plan, model, layer.stack, group.tensors)
            for layer in self.layers
            for group in layer.own
        }
        self.inside = Inside(plan, self.layers, self.places)

    # --- stages ------------------------------------------------------------------------------------------------------

    def place(self, index: int) -> tuple[At, ...]:
        """The stage that computes a layer; () where there are no stages."""
        if self.stages is None:
            return ()
        layer = self.layers[index]
        if layer.looped:
            return (At(layer.key, *layer.at),)
        before = [other for other in self.layers[:index] if other.looped]
        if not before:
            return (FIRST,)
        if not any(other.looped for other in self.layers[index:]):
            return (LAST,)
        return (At(before[-1].key, End(before[-1].key, -1)),)

    def _held(self, group: Group) -> tuple[At, ...]:
        """The stages that hold a group: those of the layers that read it."""
        reading = (self.place(i) for i, layer in enumerate(self.layers) if group.name in layer.groups_read)
        return tuple(dict.fromkeys(at for places in reading for at in places))

    def held(self, group: str) -> tuple[At, ...]:
        return next(g.where for g in self.groups if g.name == group)

    # --- units and loops ---------------------------------------------------------------------------------------------

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Those outside the blocks first."""
        blocks = [
            self._unit(tuple(g.name for g in layer.own), layer.at, self.place(index))
            for index, layer in enumerate(self.layers)
            if layer.looped and layer.own
        ]
        outside: dict[tuple[At, ...], list[str]] = {}  # a stage has a root unit of its own
        for group in self.groups:
            if not group.indexed:
                outside.setdefault(group.where, []).append(group.name)
        roots = [
            self._unit(tuple(names), (), where)
            for where, root in outside.items()
            for names in ([root] if self.profile.root_unit else [[k] for k in root])
        ]
        return (*roots, *blocks)

    def _unit(self, names: tuple[str, ...], at: tuple[Var, ...], where: tuple[At, ...]) -> Unit:
        trained = {g.name for g in self.groups if g.trainable}
        return Unit(names, at, where, tuple(name for name in names if name in trained))

    def units_of(self, layer: Layer) -> list[Unit]:
        return [u for u in self.units if set(layer.groups_read) & set(u.groups)]

    def each(self, unit: Unit, events: Sequence[Item], reverse: bool = False) -> tuple[Item, ...]:
        """The events once, or for every layer of a block's stack, where it lies."""
        if not events:
            return ()
        events = on(unit.where, events)
        if not unit.at:
            return tuple(events)
        loop = unit.at[0].loop
        count = next(layer.stack.count for layer in self.layers if layer.key == loop)
        return (Rep(loop, count, tuple(events), reverse),)


def on(where: tuple[At, ...], items: Sequence[Item]) -> tuple[Item, ...]:
    """Events on the stages `where`, as far as they do not stand on others already."""
    if not where:
        return tuple(items)
    return tuple(
        attrs.evolve(item, body=on(where, item.body))
        if isinstance(item, Rep)
        else (item if item.where else attrs.evolve(item, where=where))
        for item in items
    )
