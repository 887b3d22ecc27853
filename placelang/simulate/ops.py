"""The meaning of each event on the arrays of every rank, literally: what is missing or does not fit has no denotation.

Every rank runs every event. Values are never changed in place, so a copy may share its arrays. Source of the list:
`program.event`. Not for: compute (`compute`), or whether a program is right (`compare`, the checker by its own ways).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from placelang.program.event import SCALARS, Buf, Event, Label, Op
from placelang.simulate import compute
from placelang.simulate.arrays import Array, NoDenotation, Value, cut, dim_index, draw, join, piece, same_shape
from placelang.simulate.compute import count
from placelang.simulate.forms import after
from placelang.simulate.machine import ACTIVATIONS, Machine
from placelang.simulate.meter import padded
from placelang.simulate.optimizers import clipping, heeding, update

PARAMETERS = frozenset({"w", "master", "s", "view"})
"""Kinds of buffers that INIT fills with the parameters; `o` gets the empty moments."""


def execute(m: Machine, event: Event) -> None:
    """Run one event on every rank; raises NoDenotation."""
    m.on(event.where)
    _OPS[event.op](m, event)
    m.forms.update([*after(event, m.forms, m.tensors)])
    made = [b for b in event.outs if b.kind not in ACTIVATIONS and b.of in m.tensors]
    for stage in m.stages:
        rank = next(r for r in m.running if m.stage(r) == stage)
        m.meters[stage].ran(event, {b: m.memory[rank][b] for b in made if b in m.memory[rank]})


# --- states ----------------------------------------------------------------------------------------------------------


def _init(m: Machine, event: Event) -> None:
    count(event, 0, 1)
    (out,) = event.outs
    whole = _leaf(m, out)
    for rank in m.running:
        m.put(rank, out, {k: _share(m, event, out, k, v, rank) for k, v in whole.items()})


def _leaf(m: Machine, buf: Buf) -> Value:
    """The initial value of a state, whole: of parameters, drawn by logical index; of moments, zero."""
    tensors = _group(m, buf)
    if buf.kind == "o":
        return {name: np.zeros((*shape, m.program.train.moments)) for name, shape in tensors.items()}
    if buf.kind in PARAMETERS:
        index = [i for i in buf.index if isinstance(i, int)]
        return {name: draw(("theta", m.seed, buf.of, *index, name), shape) for name, shape in tensors.items()}
    raise NoDenotation(f"nothing says what {buf} starts as")


def _zero(m: Machine, event: Event) -> None:
    count(event, 0, 1)
    (out,) = event.outs
    if out.kind in SCALARS:
        for rank in m.running:
            m.put(rank, out, {} if out.kind in FLAGS else {"": np.zeros(())})
        return
    whole = {name: np.zeros(shape) for name, shape in _group(m, out).items()}
    for rank in m.running:
        m.put(rank, out, {k: _share(m, event, out, k, v, rank) for k, v in whole.items()})


def _group(m: Machine, buf: Buf) -> Mapping[str, tuple[int, ...]]:
    if buf.of not in m.tensors:
        raise NoDenotation(f"{buf} belongs to no group of parameters")
    return {t.name: t.shape for t in m.tensors[buf.of].tensors}


def _share(m: Machine, event: Event, buf: Buf, tensor: str, array: Array, rank: int) -> Array:
    return piece(array, event.layout, m.ranks, rank, m.dims(buf, tensor))


# --- moving and adding -----------------------------------------------------------------------------------------------


def _pairs(event: Event) -> Iterator[tuple[Buf, Buf]]:
    if len(event.ins) != len(event.outs) or not event.ins:
        raise NoDenotation(f"{event.op.value} has {len(event.ins)} inputs and {len(event.outs)} outputs")
    yield from zip(event.ins, event.outs, strict=True)


def _label(event: Event) -> Label:
    if event.label is None:
        raise NoDenotation(f"{event.op.value} names no dim")
    return event.label


def _acc(m: Machine, event: Event) -> None:
    for rank in m.running:
        for source, target in _pairs(event):
            summand, total = m.get(rank, source), m.get(rank, target)
            if event.largest:
                m.put(rank, target, _largest((total, summand)))
                continue
            same_shape(f"adding {source} to {target}", total, summand)
            m.put(rank, target, {k: total[k] + summand[k] for k in total})


def _add(m: Machine, event: Event) -> None:
    if not event.ins or len(event.outs) != 1:
        raise NoDenotation(f"add has {len(event.ins)} inputs and {len(event.outs)} outputs")
    for rank in m.running:
        values = [m.get(rank, b) for b in event.ins]
        same_shape(f"adding {', '.join(map(str, event.ins))}", *values)
        m.put(rank, event.outs[0], {k: sum((v[k] for v in values[1:]), values[0][k]) for k in values[0]})


def _copy(m: Machine, event: Event) -> None:
    for rank in m.running:
        for value, target in [(m.get(rank, source), target) for source, target in _pairs(event)]:
            m.put(rank, target, value)


def _send(m: Machine, event: Event) -> None:
    """To the rank of another stage that agrees on every other axis."""
    if len(m.stages) != 1 or event.target not in m.everywhere.coordinates or m.program.stages is None:
        raise NoDenotation("a send has no one stage that it is from, or to")
    axis = m.program.stages.axis
    for source, target in _pairs(event):
        moved = 0
        for rank in m.running:
            (group,) = (g for g in m.ranks.groups((axis,)) if rank in g)
            value = m.get(rank, source)
            m.put(group[int(event.target)], target, value)
            moved = max(moved, sum(a.size for a in value.values()))
        if event.target != m.stages[0]:
            _count(m, event, moved)


def _free(m: Machine, event: Event) -> None:
    for rank in m.running:
        for buf in event.ins:
            m.memory[rank].pop(buf, None)


def _slice(m: Machine, event: Event) -> None:
    for source, target in _pairs(event):
        for rank in m.running:
            m.put(rank, target, _cut(m, event, source, m.get(rank, source), rank))


def _unslice(m: Machine, event: Event) -> None:
    """Each rank's own shard at its place in the whole, with zeros elsewhere."""
    label = _label(event)
    for source, target in _pairs(event):
        made: dict[int, Value] = {}
        for group in m.groups(event.axes):
            values = {rank: m.get(rank, source) for rank in group}
            for own, value in values.items():
                parts = {k: [v[k] * (rank == own) for rank, v in values.items()] for k in value}
                made[own] = {k: _joined(m, label, source, k, arrays) for k, arrays in parts.items()}
        for rank, value in made.items():
            m.put(rank, target, value)


def _cut(m: Machine, event: Event, buf: Buf, value: Value, rank: int) -> Value:
    """The shard of `rank` in the event's group, cut by one axis after the other, outer first."""
    label = _label(event)
    return {k: _cut_array(m, event.axes, label, a, m.dims(buf, k), rank) for k, a in value.items()}


def _cut_array(m: Machine, axes: Sequence[str], label: Label, array: Array, dims: Sequence[str], rank: int) -> Array:
    for axis in axes:
        array = cut(array, label, m.ranks.size(axis), m.ranks.coordinate(rank, axis), dims)
    return array


def _all_gather(m: Machine, event: Event) -> None:
    label = _label(event)
    moved = 0
    for source, target in _pairs(event):
        whole, largest = _gathered(m, event.axes, label, source, partial(m.get, buf=source))
        moved += largest * max(len(g) for g in m.groups(event.axes))
        for rank, value in whole.items():
            m.put(rank, target, value)
    _count(m, event, moved)


def _gathered(
    m: Machine, axes: Sequence[str], label: Label, source: Buf, held: Callable[[int], Value]
) -> tuple[dict[int, Value], int]:
    """On every rank what its group's shards make up, and the elements of the largest shard that any rank sends.
    `held`: what each rank has of the source."""
    made: dict[int, Value] = {}
    largest = 0
    for group in m.groups(axes):
        values = [held(rank) for rank in group]
        if len({tuple(v) for v in values}) > 1:
            raise NoDenotation(f"ranks {group} gather different tensors of {source}")
        whole = {k: _joined(m, label, source, k, [v[k] for v in values]) for k in values[0]}
        made.update(dict.fromkeys(group, whole))
        if len(group) > 1:
            largest = max(largest, *(sum(a.size for a in v.values()) for v in values))
    return made, largest


def _all_to_all(m: Machine, event: Event) -> None:
    """Shards along one dim become shards along another: each rank deals its own out and keeps a part of everyone's."""
    if not (event.undoes and event.makes):
        raise NoDenotation("all_to_all names no dim to gather, or none to split")
    moved = 0
    for source, target in _pairs(event):
        held: Callable[[int], Value] = partial(m.get, buf=source)
        sent = 0
        for label in reversed(dict.fromkeys(label for _, label in event.undoes)):  # inner first
            axes = [axis for axis, own in event.undoes if own == label]
            whole, largest = _gathered(m, axes, label, source, held)
            held, sent = whole.__getitem__, sent or largest
        moved += sent
        for group in m.groups(event.axes):
            for rank in group:
                m.put(rank, target, {k: _dealt(m, event, a, m.dims(source, k), rank) for k, a in held(rank).items()})
    _count(m, event, moved)


def _dealt(m: Machine, event: Event, array: Array, dims: Sequence[str], rank: int) -> Array:
    for axis, label in event.makes:
        array = _cut_array(m, (axis,), label, array, dims, rank)
    return array


def _joined(m: Machine, label: Label, buf: Buf, tensor: str, parts: Sequence[Array]) -> Array:
    return join(parts, dim_index(label.dim, m.dims(buf, tensor), parts[0].ndim), label.partition)


def _reduce(m: Machine, event: Event) -> None:
    """all_reduce and reduce_scatter: the sum (or mean) over the group, whole or each rank its shard."""
    scatter = event.op is Op.REDUCE_SCATTER
    moved = 0
    for source, target in _pairs(event):
        made: dict[int, Value] = {}
        largest = 0
        for group in m.groups(event.axes):
            values = [m.get(rank, source) for rank in group]
            if event.largest and not scatter:
                made.update(dict.fromkeys(group, _largest(values)))
                largest = max(largest, len(group) > 1)
                continue
            same_shape(f"reducing {source} over {', '.join(event.axes)}", *values)
            scale = len(group) if event.mean else 1
            total = {k: sum((v[k] for v in values[1:]), values[0][k]) / scale for k in values[0]}
            for rank in group:
                made[rank] = _cut(m, event, source, total, rank) if scatter else total
            if len(group) > 1:
                dims = {k: m.dims(source, k) for k in total}
                largest = max(largest, padded(total, _label(event).dim if scatter else None, len(group), dims))
        moved += largest
        for rank, value in made.items():
            m.put(rank, target, value)
    _count(m, event, moved)


def _count(m: Machine, event: Event, elements: int) -> None:
    if elements:
        for stage in m.stages:
            m.meters[stage].moved(event, elements)


# --- the update ------------------------------------------------------------------------------------------------------


def _unscale(m: Machine, event: Event) -> None:
    for source, target in _pairs(event):
        for rank in m.running:
            m.put(rank, target, {k: a * m.scale**event.power for k, a in m.get(rank, source).items()})


def _number(m: Machine, rank: int, buf: Buf) -> float:
    array = m.activation(rank, buf)
    if array.shape:
        raise NoDenotation(f"{buf} is read as one number and has the shape {array.shape}")
    return float(array)


FLAGS = frozenset({"flag", "flags", "flags+", "overflow"})
"""Kinds of buffers that hold a flag: of each tensor that was looked at, how large its largest element is.

Nothing overflows in a simulation, so that a flag of two states would show nothing.
"""


def _largest(flags: Sequence[Value]) -> Value:
    if any(array.shape for flag in flags for array in flag.values()):
        raise NoDenotation("the largest of what are no numbers")
    names = dict.fromkeys(name for flag in flags for name in flag)
    return {name: np.max([flag[name] for flag in flags if name in flag], axis=0) for name in names}


def _gradients(m: Machine, event: Event) -> Iterator[tuple[int, dict[str, Array]]]:
    """By rank, the tensors of all operands."""
    count(event, 1, 1, more=True)
    if len(set(event.ins)) != len(event.ins) or any(b.of not in m.tensors for b in event.ins):
        raise NoDenotation(f"{event.op.value} reads {', '.join(map(str, event.ins))} as gradients")
    for rank in m.running:
        yield rank, {f"{b.of}{b.index}/{k}": a for b in event.ins for k, a in m.get(rank, b).items()}


def _finite(m: Machine, event: Event) -> None:
    for rank, arrays in _gradients(m, event):
        m.put(rank, event.outs[0], {k: np.asarray(np.abs(a).max(initial=0.0)) for k, a in arrays.items()})


def _sqnorm(m: Machine, event: Event) -> None:
    for rank, arrays in _gradients(m, event):
        m.put(rank, event.outs[0], {"": np.asarray(sum(float((a**2).sum()) for a in arrays.values()))})


def _clip(m: Machine, event: Event) -> None:
    """Gradients as `optimizers.clipped` makes them from the norm of all."""
    if len(event.ins) != len(event.outs) + 1 or not event.outs:
        raise NoDenotation(f"clip has {len(event.ins)} inputs and {len(event.outs)} outputs")
    for rank in m.running:
        factor = clipping(float(m.program.train.clip or 0), _number(m, rank, event.ins[-1]))
        for value, target in [(m.get(rank, b), out) for b, out in zip(event.ins, event.outs, strict=False)]:
            m.put(rank, target, {k: a * factor for k, a in value.items()})


def _opt(m: Machine, event: Event) -> None:
    count(event, 3, 2, more=True)
    if len(event.ins) > 4:
        raise NoDenotation(f"the optimizer joins {', '.join(map(str, event.ins))}")
    for rank in m.running:
        theta, grad, state = (m.get(rank, b) for b in event.ins[:3])
        if len(event.ins) == 4:
            flag = _largest([m.get(rank, event.ins[3])])
            if "" in flag:
                raise NoDenotation(f"the optimizer heeds {event.ins[3]}, which is no flag")
            grad = heeding(grad, float(sum(flag.values())))
        if not set(theta) == set(grad) == set(state):
            raise NoDenotation(f"the optimizer joins {', '.join(map(str, event.ins))}: other tensors")
        m.read.setdefault((rank, event.ins[0]), grad)
        new = {k: update(m.program.train.optimizer, theta[k], grad[k], state[k], m.step) for k in theta}
        m.put(rank, event.outs[0], {k: v[0] for k, v in new.items()})
        m.put(rank, event.outs[1], {k: v[1] for k, v in new.items()})


_OPS: Mapping[Op, Callable[[Machine, Event], None]] = {
    Op.INIT: _init,
    Op.ZERO: _zero,
    Op.FORWARD: compute.forward,
    Op.LOSS: compute.loss,
    Op.BACKWARD: compute.backward,
    Op.WGRAD: compute.wgrad,
    Op.ACC: _acc,
    Op.ADD: _add,
    Op.ALL_GATHER: _all_gather,
    Op.REDUCE_SCATTER: _reduce,
    Op.ALL_REDUCE: _reduce,
    Op.ALL_TO_ALL: _all_to_all,
    Op.SLICE: _slice,
    Op.UNSLICE: _unslice,
    Op.COPY: _copy,
    Op.SEND: _send,
    Op.UNSCALE: _unscale,
    Op.FINITE: _finite,
    Op.SQNORM: _sqnorm,
    Op.CLIP: _clip,
    Op.OPT: _opt,
    Op.FREE: _free,
}
