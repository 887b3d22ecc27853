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
from placelang.program.event import Buf, End, Event, Index, Layout, Var
from placelang.program.profile import Profile


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

    def group(self, name: str) -> Group:
        return next(g for g in self.groups if g.name == name)


def flatten(program: Program, limit: int | None = None) -> Iterator[Event]:
    """The events of one step in order, with numbers for indices.

    `limit` bounds each loop's trips: bodies are uniform in their index and reach only to neighbours, so a fault of any
    trip shows in the first, a middle or the last of three (docs/design/loops.md). Unknown trip counts count as `limit`.
    """
    trips = {
        name: count if limit is None else min(limit if count is None else count, limit)
        for name, count in program.loops.items()
    }

    def index(i: Index, at: Mapping[str, int]) -> Index:
        if isinstance(i, Var):
            # Outside its loop an index names nothing: it stays, and so does the buffer apart from all others.
            return at[i.loop] + i.offset if i.loop in at else i
        if isinstance(i, End):
            count = trips[i.loop]
            assert count is not None, f"loop {i.loop} has no trip count: flatten with a limit"
            return count + i.offset
        return i

    def bufs(these: tuple[Buf, ...], at: Mapping[str, int]) -> tuple[Buf, ...]:
        if not any(b.index for b in these):
            return these
        return tuple(Buf(b.kind, b.of, tuple(index(i, at) for i in b.index)) if b.index else b for b in these)

    def walk(items: tuple[Item, ...], at: Mapping[str, int]) -> Iterator[Event]:
        for item in items:
            if isinstance(item, Event):
                ins, outs = bufs(item.ins, at), bufs(item.outs, at)
                # Most events of a step are inside loops: a copy by hand is what makes the checker fast.
                yield item if ins is item.ins and outs is item.outs else _with(item, ins, outs)
            else:
                count = trips[item.loop]
                assert count is not None, f"loop {item.loop} has no trip count: flatten with a limit"
                for k in reversed(range(count)) if item.reverse else range(count):
                    yield from walk(item.body, {**at, item.loop: k})

    yield from walk(program.body, {})


_OTHER_FIELDS = tuple(f.name for f in attrs.fields(Event) if f.name not in ("ins", "outs"))


def _with(event: Event, ins: tuple[Buf, ...], outs: tuple[Buf, ...]) -> Event:
    """The event on other buffers: `attrs.evolve`, at a third of its price."""
    made = object.__new__(Event)
    put = object.__setattr__
    put(made, "ins", ins)
    put(made, "outs", outs)
    for name in _OTHER_FIELDS:
        put(made, name, getattr(event, name))
    return made
