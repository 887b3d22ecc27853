"""Compute events on the arrays of every rank: forward, loss, backward and weight gradients.

A layer is either one opaque surrogate (`units`) or opened to its operations (`operations`). Not for: what moves data
(`ops`).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from placelang.program.event import Buf, Compute, Event
from placelang.simulate import operations, units
from placelang.simulate.arrays import Array, NoDenotation, Value
from placelang.simulate.forms import Held, tensor_forms
from placelang.simulate.machine import Machine


def count(event: Event, ins: int, outs: int, *, more: bool = False) -> None:
    """An event has as many operands as it takes; `more`: and the views that it reads."""
    if len(event.ins) < ins or len(event.outs) != outs or (len(event.ins) > ins and not more):
        raise NoDenotation(f"{event.op.value} has {len(event.ins)} inputs and {len(event.outs)} outputs")


def opened(event: Event) -> Compute | None:
    """The operation that an event computes; None for a whole layer."""
    return None if event.compute is None or event.compute.kind == "opaque" else event.compute


def _views(m: Machine, rank: int, bufs: Sequence[Buf]) -> dict[str, Value]:
    if len({b.of for b in bufs}) != len(bufs) or any(b.of not in m.tensors for b in bufs):
        raise NoDenotation(f"compute reads {', '.join(map(str, bufs))} as the parameters of groups")
    return {b.of: m.get(rank, b) for b in bufs}


def _tensors(m: Machine, rank: int, bufs: Sequence[Buf]) -> list[Held]:
    """The tensors that an operation reads, in the order of their groups."""
    found = []
    for buf, view in zip(bufs, _views(m, rank, bufs).values(), strict=True):
        group = m.tensors[buf.of]
        if set(view) != {t.name for t in group.tensors}:
            raise NoDenotation(f"{buf} holds the tensors {sorted(view)}")
        forms = tensor_forms(m.form(buf).layout, group)
        found += [Held(view[t.name], form, m.ranks, rank) for t, form in zip(group.tensors, forms, strict=True)]
    return found


# --- forward ---------------------------------------------------------------------------------------------------------


def forward(m: Machine, event: Event) -> None:
    compute = opened(event)
    many = compute.activations if compute else 1
    count(event, many, 2, more=True)
    for rank in m.running:
        if compute:
            xs = [Held(m.activation(rank, b), m.form(b), m.ranks, rank) for b in event.ins[:many]]
            y = operations.forward(compute, xs, _tensors(m, rank, event.ins[many:]))
            stash: Value = {str(k): x.array for k, x in enumerate(xs)}
        else:
            views = _views(m, rank, event.ins[1:])
            y, stash = units.forward(event.site, m.tensors, m.activation(rank, event.ins[0]), views)
        m.put(rank, event.outs[0], {"": y})
        m.put(rank, event.outs[1], stash)


# --- backward --------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Operands:
    dy: Array
    stash: Value
    xs: list[Held]
    rank: int


def _operands(m: Machine, event: Event, rank: int) -> _Operands:
    buf = event.ins[1]
    stash = m.get(rank, buf)
    if buf.kind != "stash":
        raise NoDenotation(f"backward of {event.site} reads {buf} as its stash")
    compute, xs = opened(event), []
    if compute:
        names = [str(k) for k in range(compute.activations)]
        if list(stash) != names or len(m.forms[buf]) != len(names):
            raise NoDenotation(f"backward of {event.site} reads a stash that its forward did not make")
        xs = [Held(stash[n], form, m.ranks, rank) for n, form in zip(names, m.forms[buf], strict=True)]
    return _Operands(m.activation(rank, event.ins[0]), stash, xs, rank)


def backward(m: Machine, event: Event) -> None:
    count(event, 2, 1, more=True)
    compute = opened(event)
    for rank in m.running:
        o = _operands(m, event, rank)
        if compute:
            dx = operations.backward(compute, o.dy, o.xs, _tensors(m, rank, event.ins[2:]))
        else:
            dx = units.backward(event.site, m.tensors, o.dy, o.stash, _views(m, rank, event.ins[2:]))
        m.put(rank, event.outs[0], {"": dx})


def wgrad(m: Machine, event: Event) -> None:
    if not 1 <= len(event.outs) <= len(event.ins) - 2:
        raise NoDenotation(f"wgrad has {len(event.ins)} inputs and {len(event.outs)} outputs")
    compute = opened(event)
    for rank in m.running:
        o = _operands(m, event, rank)
        if compute:
            made = iter(operations.wgrad(compute, o.dy, o.xs, _tensors(m, rank, event.ins[2:])))
            grads: dict[str, dict[str, Array]] = {
                b.of: {t.name: next(made) for t in m.tensors[b.of].tensors} for b in event.ins[2:]
            }
        else:
            grads = units.wgrad(event.site, m.tensors, o.dy, o.stash, _views(m, rank, event.ins[2:]))
        for view, out in zip(event.ins[2:], event.outs, strict=False):
            m.put(rank, out, grads[view.of])


# --- the loss --------------------------------------------------------------------------------------------------------


def loss(m: Machine, event: Event) -> None:
    """Squared error against targets, or cross-entropy against token numbers, whose sums over a split vocabulary are
    reduced over the event's axes. Weighed by token, over the tokens of the whole batch."""
    count(event, 2, 1)
    for group in m.groups(event.axes):
        logits = [m.activation(rank, event.ins[0]) for rank in group]
        data = [_targets(m, rank, event.ins[1]) for rank in group]
        if data[0]["target"].ndim == 2:
            made = _cross_entropy(m, event, group, logits, data)
        elif len(group) > 1:
            raise NoDenotation(f"{event.ins[0]} has no vocabulary that {', '.join(event.axes)} could split")
        else:
            made = [units.loss_gradient(logits[0], data[0]["target"], data[0]["weight"], m.total)]
        for rank, dy in zip(group, made, strict=True):
            m.put(rank, event.outs[0], {"": dy * m.scale**event.power})
    if len(group) > 1:  # the largest logit, the sum of powers, and the target's logit, which the loss itself needs
        for stage in m.stages:
            m.meters[stage].reduced(event, 3, 3 * data[0]["target"].size)


def _targets(m: Machine, rank: int, buf: Buf) -> Value:
    data = m.get(rank, buf)
    if set(data) != {"target", "weight"}:
        raise NoDenotation(f"the loss reads {buf} as targets")
    return data


def _cross_entropy(
    m: Machine, event: Event, group: Sequence[int], logits: Sequence[Array], data: Sequence[Value]
) -> list[Array]:
    """d(sum of w_t (log sum_v exp z_tv - z_t,target) / W) / dz on each rank's part of the vocabulary."""
    if any(z.ndim != 3 or z.shape[:2] != d["target"].shape for z, d in zip(logits, data, strict=True)):
        raise NoDenotation("logits and targets are of other tokens")
    if len({z.shape[:2] for z in logits}) > 1:
        raise NoDenotation("ranks that split the vocabulary hold other tokens")
    largest = np.max([z.max(axis=-1, initial=-np.inf) for z in logits], axis=0)[..., None]
    powers = [np.exp(z - largest) for z in logits]
    total = np.sum([p.sum(axis=-1) for p in powers], axis=0)[..., None]
    made = []
    for rank, z, p, d in zip(group, logits, powers, data, strict=True):
        own = Held(z, m.form(event.ins[0]), m.ranks, rank).indices(2)
        hit = d["target"][..., None] == own
        made.append(d["weight"][..., None] * (p / total - hit) / m.total)
    return made
