"""Running a program for some steps, and the states it leaves on every rank.

Not for: judging them (`compare`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import lcm

import attrs
import numpy as np

from placelang.plan.plan import State
from placelang.program.event import At, Buf, Event, Var
from placelang.program.program import Program, Rest, flatten
from placelang.simulate.arrays import Array, NoDenotation, Ranks, Value, piece, whole
from placelang.simulate.machine import Machine, Source
from placelang.simulate.meter import Meter, Traffic
from placelang.simulate.ops import execute

BATCH = 12
"""Rows of one microbatch of the whole job, unless its ranks divide no 12."""


@attrs.frozen
class Result:
    """`memory`: what each rank holds when the last step ends."""

    program: Program
    ranks: Ranks
    memory: tuple[Mapping[Buf, Value], ...] = attrs.field(repr=False)
    meters: tuple[Meter, ...] = attrs.field(repr=False)
    """What a rank of each stage moved and held; one where there are no stages."""

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """The collectives of the last step, of a rank of the first stage."""
        return self.meters[0].traffic

    @property
    def rest(self) -> Fraction:
        """Bytes of the states that live between steps, on a rank of the first stage."""
        return self.meters[0].rest

    @property
    def peak(self) -> Fraction:
        """The most bytes on a rank of the first stage of parameters, gradients and optimizer state alive at one event
        of the last step."""
        return self.meters[0].peak

    def states(self) -> Iterator[tuple[Rest, Buf]]:
        """Every buffer of parameters and optimizer state that lives between steps."""
        for rest in self.program.rests:
            if rest.state is State.GRADS:
                continue
            group = self.program.group(rest.group)
            for layer in range(group.count):
                yield rest, Buf(rest.kind, rest.group, (layer,) if group.indexed else ())

    def holders(self, buf: Buf) -> tuple[int, ...]:
        """The ranks that should hold a state: those of the stages that its group lies on."""
        group, stages = self.program.group(buf.of), self.program.stages
        if stages is None:
            return tuple(range(self.ranks.count))
        on = stages.all_of(at if not at.loop or not group.indexed else At(at.loop, buf.index[0]) for at in group.where)
        return tuple(r for r in range(self.ranks.count) if self.ranks.coordinate(r, stages.axis) in on)

    def held(self, rank: int, buf: Buf) -> Value:
        """A state of one rank. Raises NoDenotation where the rank lacks it."""
        try:
            return self.memory[rank][buf]
        except KeyError:
            raise NoDenotation(f"rank {rank} has no {buf} when the step ends") from None

    def full(self, rest: Rest, buf: Buf, rank: int = 0) -> Value:
        """A state assembled from the shards of the ranks that make up one copy with `rank`'s."""
        alike = self.program.stages.axis if self.program.stages else ""
        pieces = {
            r: self.held(r, buf)
            for r in self.holders(buf)
            if not alike or self.ranks.coordinate(r, alike) == self.ranks.coordinate(rank, alike)
        }
        dims = {t.name: t.dims for t in self.program.group(rest.group).tensors}
        return {
            name: whole({r: v[name] for r, v in pieces.items()}, rest.layout, self.ranks, rank, dims.get(name, ()))
            for name in pieces[rank]
        }

    def share(self, rest: Rest, name: str, array: Array, rank: int) -> Array:
        """What a rank should hold of one whole tensor of a state."""
        dims = next((t.dims for t in self.program.group(rest.group).tensors if t.name == name), ())
        return piece(array, rest.layout, self.ranks, rank, dims)


def simulate(program: Program, steps: int = 2, seed: int = 0, batch: int | None = None) -> Result:
    """Run `steps` steps from the same initial state and data that every program of this model gets for a seed.

    `batch`: rows of a microbatch of the whole job; two programs see the same data only if it is the same. Raises
    NoDenotation.
    """
    machine = start(program, seed, batch)
    for step in range(steps):
        run_step(machine, step)
    return Result(program, machine.ranks, tuple(machine.memory), machine.meters)


def rows_for(*programs: Program) -> int:
    """The smallest batch from 12 rows up that the ranks of every program divide."""
    return lcm(BATCH, *(Ranks.of(p.mesh).count for p in programs))


def start(program: Program, seed: int = 0, batch: int | None = None, only: Source | None = None) -> Machine:
    """Ranks with their states initialised."""
    machine = Machine(program, seed, batch or rows_for(program), only)
    for event in _setup(program):
        execute(machine, event)
    return machine


def run_step(machine: Machine, step: int) -> None:
    """One step of every rank."""
    machine.step = step
    for meter in machine.meters:
        meter.begin()
    machine.load()
    with np.errstate(all="ignore"):
        for event in flatten(machine.program):
            execute(machine, event)


def _setup(program: Program) -> Iterator[Event]:
    """The events before the first step, once for every layer of a repeated group."""
    for event in program.setup:
        loops = {i.loop for b in (*event.ins, *event.outs) for i in b.index if isinstance(i, Var)}
        if not loops:
            yield event
            continue
        for layer in range(program.loops[min(loops)] or 0):

            def at(bufs: tuple[Buf, ...], layer: int = layer) -> tuple[Buf, ...]:
                return tuple(
                    attrs.evolve(b, index=tuple(layer + i.offset if isinstance(i, Var) else i for i in b.index))
                    for b in bufs
                )

            where = tuple(w if isinstance(w, int) or not w.loop else At(w.loop, layer) for w in event.where)
            yield attrs.evolve(event, ins=at(event.ins), outs=at(event.outs), where=where)
