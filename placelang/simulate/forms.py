"""What a program takes each buffer to be: the dims of the whole, and how axes split it.

A rank computes from its own piece alone, but must know which part of the whole that is: causal attention at which
positions, a vocabulary shard for which tokens. As in a real run this follows from the program's text and the rank's
coordinates, not from the data: where a program is wrong about a buffer, the rank computes wrongly. Not for: judging
layouts (`check`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from placelang.model.graph import DIMS
from placelang.program.event import Buf, Compute, Event, Label, Layout, Op
from placelang.program.program import Group
from placelang.simulate.arrays import Array, NoDenotation, Ranks, rows


@attrs.frozen
class Form:
    """`dims`: each dim's name and its whole size, of an activation or of one tensor; of a group of tensors, none."""

    layout: Layout = ()
    dims: tuple[tuple[str, int], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.dims)

    def split(self, axes: Sequence[str], label: Label) -> Form:
        return attrs.evolve(self, layout=(*self.layout, *((axis, label) for axis in axes)))

    def gathered(self, axes: Sequence[str]) -> Form:
        return attrs.evolve(self, layout=tuple((axis, label) for axis, label in self.layout if axis not in axes))

    def position(self, label: Label) -> int | None:
        """The dim that a label splits."""
        if label.dim.isdecimal():
            return int(label.dim)
        return self.names.index(label.dim) if label.dim in self.names else None


@attrs.frozen
class Held:
    """A rank's piece of one operand."""

    array: Array
    form: Form
    ranks: Ranks
    rank: int

    def size(self, dim: int) -> int:
        """Of the whole."""
        return self.form.dims[dim][1]

    def indices(self, dim: int) -> npt.NDArray[np.int64]:
        """Where the piece's elements stand in the whole along one dim."""
        found = np.arange(self.size(dim))
        for axis, label in self.form.layout:
            if self.form.position(label) == dim:
                part = self.ranks.coordinate(self.rank, axis)
                found = found[rows(len(found), self.ranks.size(axis), part, label.partition)]
        if len(found) != self.array.shape[dim]:
            raise NoDenotation(f"rank {self.rank} holds {self.array.shape[dim]} rows of what has {len(found)} for it")
        return found


Forms = Mapping[Buf, tuple[Form, ...]]
"""By buffer; of a stash, one for each operand that it keeps."""


def tensor_forms(layout: Layout, group: Group) -> list[Form]:
    """The forms of a group's tensors, which all lie alike."""
    return [Form(layout, tuple((str(k), n) for k, n in enumerate(t.shape))) for t in group.tensors]


def after(event: Event, forms: Forms, groups: Mapping[str, Group]) -> Iterator[tuple[Buf, tuple[Form, ...]]]:
    """The forms of what an event writes, from those of what it reads."""
    ins = [forms.get(b, (Form(),)) for b in event.ins]
    op = event.op
    if op in (Op.INIT, Op.ZERO):
        yield from ((out, (Form(event.layout),)) for out in event.outs)
    elif op is Op.FORWARD:
        yield from zip(event.outs, _forward(event, ins, groups), strict=True)
    elif op is Op.BACKWARD:
        opened = event.compute is not None and event.compute.kind != "opaque"
        wrt = event.compute.wrt if opened and event.compute is not None else 0
        yield event.outs[0], (ins[1][wrt],) if opened and wrt < len(ins[1]) else ins[0]
    elif op is Op.WGRAD:
        yield from zip(event.outs, ins[2:], strict=False)
    elif op is Op.OPT:
        yield from zip(event.outs, (ins[0], ins[2]), strict=True)
    elif op in (Op.LOSS, Op.ADD):
        yield event.outs[0], ins[0]
    elif op in (Op.ALL_REDUCE, Op.COPY, Op.SEND, Op.UNSCALE):
        yield from zip(event.outs, ins, strict=True)
    elif op is Op.CLIP:
        yield from zip(event.outs, ins[:-1], strict=True)
    elif op in (Op.SLICE, Op.REDUCE_SCATTER, Op.ALL_GATHER, Op.ALL_TO_ALL, Op.UNSLICE):
        yield from zip(event.outs, (tuple(_moved(event, f) for f in form) for form in ins), strict=True)


def _moved(event: Event, form: Form) -> Form:
    if event.op in (Op.SLICE, Op.REDUCE_SCATTER):
        return form.split(event.axes, event.label) if event.label else form
    form = form.gathered(event.axes)
    for axis, label in event.makes if event.op is Op.ALL_TO_ALL else ():
        form = form.split((axis,), label)
    return form


def _forward(
    event: Event, ins: Sequence[tuple[Form, ...]], groups: Mapping[str, Group]
) -> tuple[tuple[Form, ...], tuple[Form, ...]]:
    """The forms of the result, and of the operands that the stash keeps."""
    compute = event.compute
    if compute is None or compute.kind == "opaque":
        return ins[0], ins[0]
    operands = tuple(f[0] for f in ins[: compute.activations])
    views = zip(event.ins[compute.activations :], ins[compute.activations :], strict=True)
    tensors = [form for buf, (own, *_) in views for form in tensor_forms(own.layout, groups[buf.of])]
    return (_result(compute, (*operands, *tensors)),), operands


def _result(compute: Compute, operands: Sequence[Form]) -> Form:
    """Letters keep their size and what splits them, from the first operand that says so."""
    sizes: dict[str, int] = {}
    split: dict[str, tuple[str, str]] = {}
    for form, letters in zip(operands, compute.letters, strict=False):
        for letter, (_, size) in zip(letters, form.dims, strict=False):
            sizes.setdefault(letter, size)
        for axis, label in form.layout:
            k = form.position(label)
            if k is not None and k < len(letters):
                split.setdefault(axis, (letters[k], label.partition))
    if compute.kind == "attention" and compute.activations == 1:
        sizes["a"] = sizes.get("a", 0) // 3  # queries, keys and values lie side by side
    dims = tuple((DIMS.get(letter, letter), sizes.get(letter, 0)) for letter in compute.out)
    layout = ((a, Label(DIMS.get(letter, letter), p)) for a, (letter, p) in split.items() if letter in compute.out)
    return Form(tuple(layout), dims)
