"""Whether a program leaves what a reference program leaves: equal, different and where, or without denotation.

Not for: why (`probe` measures coefficients, the checker names the rule).
"""

from __future__ import annotations

from enum import Enum

import attrs
import numpy as np

from placelang.program.event import Buf
from placelang.program.program import Program, Rest
from placelang.simulate.arrays import Array, NoDenotation, Value
from placelang.simulate.run import Result, rows_for, simulate

TOLERANCE = 1e-9


class Outcome(Enum):
    EQUAL = "equal"
    DIFFERS = "differs"
    NO_DENOTATION = "no denotation"


@attrs.frozen
class Mismatch:
    """One tensor of a state that a rank holds wrong. `difference`: the largest over its elements, relative to the
    largest element of the whole tensor where that is above 1."""

    buffer: Buf
    tensor: str
    rank: int
    difference: float


@attrs.frozen
class Comparison:
    """`mismatches`: rank by rank against the reference. `diverged`: states whose replicas hold different values."""

    outcome: Outcome
    difference: float = 0.0
    mismatches: tuple[Mismatch, ...] = ()
    diverged: tuple[Buf, ...] = ()
    message: str = ""

    @property
    def worst(self) -> Mismatch | None:
        return max(self.mismatches, key=lambda m: m.difference, default=None)


def compare(
    program: Program, reference: Program, steps: int = 2, seed: int = 0, tolerance: float = TOLERANCE
) -> Comparison:
    """Run both on the same data and compare every copy of parameters and optimizer state, element by element.

    The reference must have a denotation and hold every state whole: it is the one-device program.
    """
    batch = rows_for(program, reference)
    expected = simulate(reference, steps, seed, batch)
    try:
        result = simulate(program, steps, seed, batch)
    except NoDenotation as error:
        return Comparison(Outcome.NO_DENOTATION, message=str(error))
    return difference(result, expected, tolerance)


def difference(result: Result, expected: Result, tolerance: float = TOLERANCE) -> Comparison:
    """Compare the states that two runs left."""
    known = {(rest.kind, buf): expected.full(rest, buf) for rest, buf in expected.states()}
    mismatches: list[Mismatch] = []
    diverged: list[Buf] = []
    largest = 0.0
    try:
        for rest, buf in result.states():
            if (rest.kind, buf) not in known:
                return Comparison(Outcome.NO_DENOTATION, message=f"the reference has no {buf}")
            wrong = [*_wrong(result, rest, buf, known[rest.kind, buf])]
            largest = max((largest, *(m.difference for m in wrong)))
            mismatches += [m for m in wrong if not m.difference <= tolerance]
            if any(m.difference > tolerance for m in wrong) and _diverges(result, rest, buf, tolerance):
                diverged.append(buf)
    except NoDenotation as error:
        return Comparison(Outcome.NO_DENOTATION, message=str(error))
    outcome = Outcome.DIFFERS if mismatches else Outcome.EQUAL
    return Comparison(outcome, largest, tuple(mismatches), tuple(diverged))


def _wrong(result: Result, rest: Rest, buf: Buf, reference: Value) -> list[Mismatch]:
    """How far each rank's piece of each tensor is from that piece of the reference."""
    found = []
    for rank in result.holders(buf):
        value = result.held(rank, buf)
        if set(value) != set(reference):
            raise NoDenotation(f"rank {rank} holds the tensors {sorted(value)} as {buf}")
        for name, array in value.items():
            want = result.share(rest, name, reference[name], rank)
            if array.shape != want.shape:
                message = f"rank {rank} holds {buf} {name} of shape {array.shape}, its rest form has {want.shape}"
                raise NoDenotation(message)
            scale = max(1.0, float(np.max(np.abs(reference[name]), initial=0.0)))
            found.append(Mismatch(buf, name, rank, _distance(array, want) / scale))
    return found


def _diverges(result: Result, rest: Rest, buf: Buf, tolerance: float) -> bool:
    """Whether ranks that hold the same piece hold different values."""
    axes = tuple(a for a in result.ranks.names if a not in {axis for axis, _ in rest.layout})
    holders = set(result.holders(buf))
    for alike in result.ranks.groups(axes):
        group = [r for r in alike if r in holders]
        first = result.held(group[0], buf) if group else {}
        for rank in group[1:]:
            other = result.held(rank, buf)
            if any(not _distance(first[k], other[k]) <= tolerance for k in first):
                return True
    return False


def _distance(a: Array, b: Array) -> float:
    if not a.size:
        return 0.0
    distance = float(np.max(np.abs(a - b)))
    return distance if np.isfinite(distance) else float("inf")
