"""One-hot probing: how often each contribution counts in the gradient that each rank's optimizer reads.

A gradient is linear in the tokens' weights in the loss. With the weights of all tokens but one data shard's of one
microbatch set to zero, what an optimizer reads is c times the gradient of those tokens alone, and c is the coefficient
that the checker's counterexample names (semantics, section 12, point 5). Not for: programs whose gradients are of the
wrong kind: there no c fits, which `residual` shows.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from placelang.program.event import Buf
from placelang.program.program import Program
from placelang.simulate.arrays import NoDenotation, Ranks, Value, piece
from placelang.simulate.machine import Machine, Source
from placelang.simulate.run import rows_for, run_step, start


@attrs.frozen
class Coefficient:
    """How often the tokens that `source` has of `microbatch` count in the gradient that `rank` updates `group` with.

    1 is right, 0 missing, 2 counted twice. `index`: the layer. `residual`: how far the gradient is from any multiple of
    the contribution, relative to it.
    """

    rank: int
    group: str
    index: tuple[int, ...]
    microbatch: int
    source: tuple[int, ...]  # the ranks that read these tokens
    value: float
    residual: float


def probe(program: Program, reference: Program, seed: int = 0) -> tuple[Coefficient, ...]:
    """Every coefficient of the first step's gradients. Raises NoDenotation."""
    return tuple(_probe(program, reference, seed))


def _probe(program: Program, reference: Program, seed: int) -> Iterator[Coefficient]:
    batch = rows_for(program, reference)
    for source in start(program, seed, batch).sources():
        machine = start(program, seed, batch, source)
        alone = start(reference, seed, batch, source)
        for m in (machine, alone):
            run_step(m, 0)
        unit = {(b.of, b.index): grad for (rank, b), grad in alone.read.items() if rank == 0}
        for (rank, buf), grad in machine.read.items():
            yield from _coefficient(machine, source, rank, buf, grad, unit.get((buf.of, buf.index)))


def _coefficient(
    machine: Machine, source: Source, rank: int, buf: Buf, grad: Value, unit: Value | None
) -> Iterator[Coefficient]:
    """The least-squares multiple of the contribution, on the rows that this rank updates."""
    if unit is None:
        raise NoDenotation(f"the reference updates no {buf.of}")
    layout = next(r.layout for r in machine.program.rests if r.kind == "o" and r.group == buf.of)
    ranks: Ranks = machine.ranks
    want = {k: piece(a, layout, ranks, rank, machine.dims(buf, k)) for k, a in unit.items()}
    if {k: a.shape for k, a in want.items()} != {k: a.shape for k, a in grad.items()}:
        raise NoDenotation(f"rank {rank} updates {buf} with other rows than its optimizer state has")
    g, v = (np.concatenate([x[k].ravel() for k in want]) for x in (grad, want))
    if not v.size:
        return
    norm = float(v @ v)
    value = float(g @ v) / norm
    residual = float(np.linalg.norm(g - value * v)) / norm**0.5
    index = tuple(i for i in buf.index if isinstance(i, int))
    yield Coefficient(rank, buf.of, index, source.microbatch, source.ranks, value, residual)
