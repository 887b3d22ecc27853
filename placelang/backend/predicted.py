"""What a run is held against: the cost of its program, as numbers that a ledger and a look at storages can equal.

The numbers are those of the cost room, from the same formulas that `place cost` prints: one prediction, not two. Not
for: formulas or symbols (`cost`), or what really happened (`ledger`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import attrs

from placelang.cost.expr import Expr, evaluate
from placelang.cost.memory import rest
from placelang.cost.traffic import traffic as costed
from placelang.model.model import Model
from placelang.plan.plan import State
from placelang.program.program import Program


@attrs.frozen(order=True)
class Traffic:
    """Collectives of one step that share kind, axis and phase. `bytes`: all of them together, on the unsharded side."""

    kind: str
    axis: str
    phase: str
    count: int
    bytes: int


def traffic(program: Program, model: Model, batch: int = 0, seq: int = 0) -> tuple[Traffic, ...]:
    """The collectives of one step on one rank, sorted. Groups of one rank send nothing and are left out.

    `batch`: samples that a rank has in one microbatch, `seq`: tokens of a sample; activations have these sizes.
    """
    facts = {**dict(model.sizes), "b": batch, "s": seq}
    count: Counter[tuple[str, str, str]] = Counter()
    size: Counter[tuple[str, str, str]] = Counter()
    for row in costed(program):
        axes = (name for name in program.mesh.names if name in row.axes)
        kind = (row.kind, "*".join(axes), row.phase)
        count[kind] += _number(program, row.count, facts)
        size[kind] += _number(program, row.message, facts)
    return tuple(sorted(Traffic(*kind, count[kind], size[kind]) for kind in count))


def rest_bytes(program: Program) -> Mapping[State, int]:
    """Bytes that the largest rank holds of each state between steps (gradients: until the optimizer has read them)."""
    return {state: _number(program, size) for state, size in rest(program).items()}


def _number(program: Program, expr: Expr, facts: Mapping[str, int] | None = None) -> int:
    """The number of an expression over sizes of axes and the microbatches, which a program that runs all has."""
    sizes = {axis.name: axis.size for axis in program.mesh.axes if axis.size is not None}
    value = evaluate(expr, {**(facts or {}), **sizes, "M": program.train.microbatches})
    assert value == int(value), "a run moves whole bytes"
    return int(value)
