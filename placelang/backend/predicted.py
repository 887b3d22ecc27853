"""What a step program says a run will do, as tables that a run can be held against: collectives and bytes at rest.

Sizes are padded as the program's labels say: a tensor whose dim 0 is split over n ranks counts n * ceil(d0 / n) rows.
Not for: formulas or symbols (`cost`); this is the same reading with numbers, made apart so that each can test the
other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

import attrs

from placelang.model.model import Tensor
from placelang.plan.dtypes import BYTES
from placelang.plan.plan import State
from placelang.program.event import COLLECTIVES, Buf, Event, Layout, Op
from placelang.program.layouts import events, key, layouts, scattered
from placelang.program.program import Program


@attrs.frozen(order=True)
class Traffic:
    """Collectives of one step that share kind, axis and phase. `bytes`: all of them together, on the unsharded side."""

    kind: str
    axis: str
    phase: str
    count: int
    bytes: int


def traffic(program: Program) -> tuple[Traffic, ...]:
    """The collectives of one step on one rank, sorted. Groups of one rank send nothing and are left out.

    An event that moves several buffers is one collective.
    """
    count: Counter[tuple[str, str, str]] = Counter()
    size: Counter[tuple[str, str, str]] = Counter()
    known = layouts(program)
    for event, loops in events(program.body):
        if event.op not in COLLECTIVES or _ranks(program, event.axes) == 1:
            continue
        kind = (event.op.value, "*".join(event.axes), event.phase.value)
        times = prod(_trips(program, loop) for loop in loops)
        count[kind] += times
        size[kind] += times * sum(_moved(program, known[key(buf)], event, buf) for buf in event.ins)
    return tuple(sorted(Traffic(*kind, count[kind], size[kind]) for kind in count))


def rest_bytes(program: Program) -> Mapping[State, int]:
    """Bytes that the largest rank holds of each state between steps (gradients: until the optimizer has read them)."""
    total: Counter[State] = Counter()
    for rest in program.rests:
        group = program.group(rest.group)
        elements = sum(_local(program, t, rest.layout) for t in group.tensors)
        total[rest.state] += int(group.count * rest.copies * elements * BYTES[rest.dtype])
    return {state: total[state] for state in (State.PARAMS, State.GRADS, State.OPTIMIZER)}


def _moved(program: Program, layout: Layout, event: Event, buf: Buf) -> int:
    """Bytes of the unsharded side of what a collective does to one of its inputs."""
    parts = 1
    if event.op is not Op.ALL_REDUCE:
        layout = scattered(layout, event) if event.op is Op.REDUCE_SCATTER else layout
        parts = _ranks(program, event.axes)
    elements = sum(_local(program, t, layout) for t in program.group(buf.of).tensors)
    return int(parts * elements * BYTES[event.dtype])


def _local(program: Program, tensor: Tensor, layout: Layout) -> int:
    """Elements of a tensor that one rank holds, padding included. Only splits of dim 0 are run by this backend."""
    assert all(label.dim == "0" for _, label in layout), layout
    rows, *rest = tensor.shape or (1,)
    return -(-rows // _ranks(program, tuple(axis for axis, _ in layout))) * prod(rest)


def _ranks(program: Program, axes: tuple[str, ...]) -> int:
    size = program.mesh.size(axes)
    assert size is not None, f"axes {axes} have no size"
    return size


def _trips(program: Program, loop: str) -> int:
    trips = program.loops[loop]
    assert trips is not None, f"loop {loop} has no trip count"
    return trips
