"""A step program: events and loops, the groups of tensors they move, and the states that live between steps.

Layers and microbatches are loops, never unrolled: the program of 126 layers on 16,384 ranks is as small as that of 2
on 2. `flatten` unrolls a bounded number of trips for those who fold over events. Not for: making programs (`lower`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from placelang.frozen import Frozen
from placelang.model.model import Tensor
from placelang.plan.mesh import Mesh
from placelang.plan.plan import State, Train
from placelang.program.event import At, Buf, End, Event, Index, Layout, Var
from placelang.program.profile import Profile
from placelang.program.stages import Stages


@attrs.frozen(eq=False, repr=False)
class Rep(Frozen):
    """`trips` runs of `body`; the loop's index goes up from 0, or down to 0 when `reverse`. None: not known."""

    loop: str
    trips: int | None
    body: tuple[Item, ...]
    reverse: bool = False


Item = Event | Rep


@attrs.frozen(eq=False, repr=False)
class Group(Frozen):
    """Parameters that travel together: of one stack, or of one operation in it. `count` layers have one each."""

    name: str
    count: int
    loop: str | None  # the loop whose index its buffers carry; None: a single module
    tensors: tuple[Tensor, ...]  # owned here; tied tensors stand where their owner does
    where: tuple[At, ...] = ()  # the stages that hold them, where there are stages
    trainable: bool = True  # an optimizer updates them

    @property
    def indexed(self) -> bool:
        return self.loop is not None


@attrs.frozen(eq=False, repr=False)
class Rest(Frozen):
    """A state that lives between steps: buffers of `kind` of `group`, their layout, format and tier at rest."""

    state: State
    kind: str
    group: str
    layout: Layout
    dtype: str
    copies: int = 1  # moments an optimizer keeps
    tier: str = "device"


@attrs.frozen(eq=False, repr=False)
class Activation(Frozen):
    """A value inside or between layers: the size of each dim (a named size of the model or job, or a number), and how
    it lies. Its gradient has the same."""

    sizes: tuple[tuple[str, str | int], ...]  # (dim, size), in order
    layout: Layout


@attrs.frozen(eq=False, repr=False)
class Program(Frozen):
    """One training step for every rank. `tokens` is the layout of the data: which axes split batch and sequence."""

    mesh: Mesh
    groups: tuple[Group, ...]
    rests: tuple[Rest, ...]
    setup: tuple[Event, ...]
    body: tuple[Item, ...]
    loops: Mapping[str, int | None]
    tokens: Layout
    train: Train
    profile: Profile
    activations: Mapping[str, Activation] = attrs.field(factory=dict)  # by the name that their buffers are `of`
    stages: Stages | None = None

    def group(self, name: str) -> Group:
        return next(g for g in self.groups if g.name == name)


LIMIT = 3
"""Trips of each loop that a sample holds: the first, a middle and the last."""


@attrs.frozen(eq=False, repr=False)
class Sample(Frozen):
    """How often each loop runs in a flattened program, and how its layers lie over stages."""

    trips: Mapping[str, int]
    stages: Stages | None = None

    @property
    def coordinates(self) -> tuple[int, ...]:
        """Those of the stage axis; one where there are no stages."""
        return self.stages.coordinates if self.stages else (0,)

    def where(self, places: tuple[At | int, ...]) -> tuple[int, ...]:
        return self.stages.all_of(places) if self.stages else (0,)


def sample(program: Program) -> Sample:
    """A few trips of each loop that stand for all: bodies are uniform in their index and reach only to neighbours, so a
    fault of any trip shows in the first, a middle or the last of three (docs/design/loops.md)."""
    trips = {name: LIMIT if count is None else min(LIMIT, count) for name, count in program.loops.items()}
    if program.stages is None:
        return Sample(trips)
    stages = program.stages.sampled()
    return Sample({**trips, **dict(stages.runs)}, stages)


def whole(program: Program) -> Sample:
    """Every trip of every loop. Raises ValueError where a count is not known."""
    trips = {}
    for name, count in program.loops.items():
        if count is None:
            raise ValueError(f"loop {name} has no trip count: take a sample")
        trips[name] = count
    return Sample(trips, program.stages)


def flatten(program: Program, of: Sample | None = None) -> Iterator[Event]:
    """The events of one step in order, with numbers for indices and stages; of all trips, or of a sample's."""
    of = of or whole(program)
    trips, stages = of.trips, of.stages

    def index(i: Index, at: Mapping[str, int]) -> Index:
        if isinstance(i, Var):
            # Outside its loop an index names nothing: it stays, and so does the buffer apart from all others.
            return at[i.loop] + i.offset if i.loop in at else i
        if isinstance(i, End):
            return trips[i.loop] + i.offset
        return i

    def places(where: tuple[At | int, ...], at: Mapping[str, int]) -> tuple[int, ...]:
        assert stages is not None
        return stages.all_of(w if isinstance(w, int) else At(w.loop, index(w.index, at)) for w in where)

    def bufs(these: tuple[Buf, ...], at: Mapping[str, int]) -> tuple[Buf, ...]:
        if not any(b.index for b in these):
            return these
        return tuple(Buf(b.kind, b.of, tuple(index(i, at) for i in b.index)) if b.index else b for b in these)

    def walk(items: tuple[Item, ...], at: Mapping[str, int]) -> Iterator[Event]:
        for item in items:
            if isinstance(item, Event):
                ins, outs = bufs(item.ins, at), bufs(item.outs, at)
                where, target = item.where, item.target
                if stages is not None:
                    where = places(where, at) if where else where
                    target = places((target,), at)[0] if target is not None else None
                # Most events of a step are inside loops: a copy by hand is what makes the checker fast.
                same = ins is item.ins and outs is item.outs and where is item.where and target is item.target
                yield item if same else _with(item, ins, outs, where, target)
            else:
                count = trips[item.loop]
                for k in reversed(range(count)) if item.reverse else range(count):
                    yield from walk(item.body, {**at, item.loop: k})

    yield from walk(program.body, {})


_OTHER_FIELDS = tuple(f.name for f in attrs.fields(Event) if f.name not in ("ins", "outs", "where", "target"))


def _with(
    event: Event, ins: tuple[Buf, ...], outs: tuple[Buf, ...], where: tuple[At | int, ...], target: At | int | None
) -> Event:
    """The event on other buffers and stages: `attrs.evolve`, at a third of its price."""
    made = object.__new__(Event)
    put = object.__setattr__
    put(made, "ins", ins)
    put(made, "outs", outs)
    put(made, "where", where)
    put(made, "target", target)
    for name in _OTHER_FIELDS:
        put(made, name, getattr(event, name))
    return made
