"""What a simulated step moves and holds, in bytes, counted from the arrays that events really touch.

Conventions are those of a collective's caller, padding included: an all_gather counts its gathered output, a
reduce_scatter its input, an all_reduce its tensor, an all_to_all what a rank puts into it. Groups of one rank move
nothing. Not for: formulas (`cost`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod

import attrs

from placelang.plan.dtypes import BYTES
from placelang.program.event import Buf, Event, Op, Phase
from placelang.program.program import Program
from placelang.simulate.arrays import Value, dim_index


@attrs.frozen
class Traffic:
    """The calls of one kind over one group of axes in one phase of a step, and their bytes on a rank."""

    op: Op
    axes: tuple[str, ...]
    phase: Phase
    count: int
    bytes: Fraction


@attrs.define
class Meter:
    """Counts of one step; `begin` starts the next one."""

    program: Program
    _moved: dict[tuple[Op, tuple[str, ...], Phase], tuple[int, Fraction]] = attrs.field(factory=dict)
    _events: list[tuple[tuple[Buf, ...], tuple[Buf, ...]]] = attrs.field(factory=list)  # buffers read, written
    _sizes: list[dict[Buf, Fraction]] = attrs.field(factory=list)  # of both, by event
    _size: dict[Buf, Fraction] = attrs.field(factory=dict)  # of what each buffer holds now
    _formats: Mapping[tuple[str, str], str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._formats = {(r.kind, r.group): r.dtype for r in self.program.rests}

    def begin(self) -> None:
        self._moved, self._events, self._sizes = {}, [], []

    def moved(self, event: Event, elements: int) -> None:
        self._add((event.op, event.axes, event.phase), 1, elements * BYTES[event.dtype])

    def reduced(self, event: Event, calls: int, numbers: int) -> None:
        """Sums of fp32 numbers that another event makes on its way."""
        self._add((Op.ALL_REDUCE, event.axes, event.phase), calls, numbers * BYTES["fp32"])

    def _add(self, key: tuple[Op, tuple[str, ...], Phase], calls: int, size: Fraction) -> None:
        count, total = self._moved.get(key, (0, Fraction(0)))
        self._moved[key] = (count + calls, total + size)

    def ran(self, event: Event, written: Mapping[Buf, Value]) -> None:
        """`written`: the outputs that hold the tensors of a group, as rank 0 has them (no rank has more rows)."""
        sizes = {
            buf: sum(a.size for a in value.values()) * BYTES[self._formats.get((buf.kind, buf.of), event.dtype)]
            for buf, value in written.items()
        }
        self._size.update(sizes)
        self._sizes.append({**{b: self._size[b] for b in event.ins if b in self._size}, **sizes})
        self._events.append((event.ins, tuple(sizes)))

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        return tuple(Traffic(*key, count, size) for key, (count, size) in sorted(self._moved.items(), key=str))

    @property
    def rest(self) -> Fraction:
        """Bytes of the states that live between steps."""
        return sum((size for buf, size in self._size.items() if self._rests(buf)), Fraction(0))

    @property
    def peak(self) -> Fraction:
        """The most bytes of parameters, gradients and optimizer state that are alive at one event of the step.

        A buffer is alive from its writing to its last reader or release; a state at rest always is.
        """
        live = {buf: size for buf, size in self._size.items() if self._rests(buf)}
        most = sum(live.values(), Fraction(0))
        for (read, written), sizes in zip(reversed(self._events), reversed(self._sizes), strict=True):
            live = {**live, **sizes}
            most = max(most, sum(live.values(), Fraction(0)))
            live = {b: s for b, s in live.items() if b not in written or b in read or self._rests(b)}
        return most

    def _rests(self, buf: Buf) -> bool:
        return (buf.kind, buf.of) in self._formats


def padded(value: Value, dim: str | None, parts: int, dims: Mapping[str, Sequence[str]]) -> int:
    """Elements of a value whose `dim` is rounded up to `parts` equal blocks (None: as it is)."""
    total = 0
    for name, array in value.items():
        if dim is None:
            total += array.size
        else:
            axis = dim_index(dim, dims[name], array.ndim)
            total += parts * -(-array.shape[axis] // parts) * prod(array.shape[:axis] + array.shape[axis + 1 :])
    return total
