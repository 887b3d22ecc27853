"""Where activations move inside layers: the collectives of a step program, tied to the operations they stand between.

A move stands behind the operation that makes its value when nothing else reads that value, and before the operation
that reads it otherwise; those of attention always stand at attention, whose rotation of queries and keys no operation
names. What a move is in backward, and where a gradient is reduced, is read off the program too. Not for: carrying moves
out (`moves`), or finding the module of an operation (`inside`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from placelang.backend.errors import unsupported
from placelang.program.event import Buf, Event, Index, Op, Phase
from placelang.program.layouts import events
from placelang.program.program import Program
from placelang.program.recompute import KEEPS_NOTHING

Value = tuple[str, tuple[Index, ...]]
"""A buffer without its kind: an activation and its gradient share it."""

_MOVES = (Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_REDUCE, Op.ALL_TO_ALL, Op.SLICE)


@attrs.frozen
class Move:
    """What happens to a value (`forward`) and to its gradient (`backward`); None: it passes as it is. `dim`: the split
    that a gather undoes, or that a scatter or slice makes; an all_to_all turns `dim` into `to`, and back."""

    forward: Op | None
    backward: Op | None
    axes: tuple[str, ...]
    dim: str = ""
    to: str = ""
    hops: bool = False  # pieces pass around the ranks and are used as they come


@attrs.frozen
class Wiring:
    """`after` and `before` by site (`layers/attn.wq`), `before` also by operand. `recomputed`: layers that run again
    in backward. `loss`: the axes that split the vocabulary of the logits."""

    after: Mapping[str, tuple[Move, ...]]
    before: Mapping[tuple[str, int], tuple[Move, ...]]
    recomputed: frozenset[str]
    loss: tuple[str, ...]

    @property
    def axes(self) -> frozenset[str]:
        return frozenset(a for m in (*self.after.values(), *self.before.values()) for move in m for a in move.axes)


def wiring(program: Program) -> Wiring:
    """Raises BackendError (E501) for a move that no module boundary has a place for."""
    return _Wiring(program).found()


@attrs.frozen
class _Use:
    """An operation reads a value as its `operand`-th."""

    site: str
    operand: int


@attrs.frozen
class _Link:
    """A move of the program: from one value to another."""

    event: Event
    source: Value
    target: Value


class _Wiring:
    def __init__(self, program: Program) -> None:
        self.made: dict[Value, str] = {}  # value -> the operation that makes it
        self.readers: dict[Value, list[_Use | Value]] = {}  # ... by operations and by moves
        self.links: dict[Value, _Link] = {}
        self.back: dict[Value, Op | None] = {}  # value after a move -> what its gradient goes through
        self.reduced: dict[Value, tuple[str, ...]] = {}  # value -> axes that its gradient is reduced over
        self.part: dict[str, tuple[str, ...]] = {}  # use (`layers/attn.wq.0`) -> axes of its part of a gradient
        self.attention: set[str] = set()
        self.idle: set[str] = set()  # operations whose backward reads no value
        self.again: set[str] = set()  # operations that run again in backward
        self.loss: tuple[str, ...] = ()
        for event, _ in events(program.body):
            if event.phase is Phase.FORWARD:
                self._forward(event)
            elif event.phase is Phase.BACKWARD:
                self._backward(event)

    def _forward(self, e: Event) -> None:
        if e.op is Op.FORWARD and e.compute is not None:
            self.made[_value(e.outs[0])] = e.site
            for k in range(e.compute.activations):
                self.readers.setdefault(_value(e.ins[k]), []).append(_Use(e.site, k))
            if e.compute.kind == "attention":
                self.attention.add(e.site)
            if e.compute.kind in KEEPS_NOTHING:
                self.idle.add(e.site)
        elif e.op is Op.LOSS:
            self.loss = e.axes
        elif e.op in _MOVES and e.ins[0].kind == "x":
            link = _Link(e, _value(e.ins[0]), _value(e.outs[0]))
            self.links[link.target] = link
            self.readers.setdefault(link.source, []).append(link.target)

    def _backward(self, e: Event) -> None:
        if e.op is Op.FORWARD:
            self.again.add(e.site)
            kept = next((b for b in e.ins if b.kind == "x" and "/" in b.of), None)
            if kept is not None:  # a value inside the layer that was never released
                raise unsupported(
                    f"recomputation of a part of a block, which keeps `{kept.of}`",
                    "`activations: recompute`, which keeps of a block what it is given",
                )
        if not e.ins or e.ins[0].kind not in ("dx", "dx+") or e.compute is not None:
            return
        if e.op is Op.ALL_REDUCE:
            whole, _, use = e.outs[0].of.partition("<")
            if use:
                self.part[f"{whole.partition('/')[0]}/{use}"] = e.axes
            else:
                self.reduced[_value(e.outs[0])] = e.axes
        elif e.op in (*_MOVES, Op.UNSLICE, Op.COPY):
            link = self.links.get(_value(e.ins[0]))
            if link is not None and link.source == _value(e.outs[0]):
                self.back[link.target] = None if e.op is Op.COPY else e.op

    def found(self) -> Wiring:
        after: dict[str, tuple[Move, ...]] = {}
        before: dict[tuple[str, int], tuple[Move, ...]] = {}
        behind: set[Value] = set()  # values that are made by moves behind an operation
        for value, site in self.made.items():
            moves, last = self._chain(value, site in self.attention)
            if moves:
                after[site] = tuple(moves)
            behind |= self._passed(value, last)
            self._edges(last, before)
        for value in {v: None for v in self.readers if v not in self.made and v not in self.links}:
            if value in self.reduced:
                raise _nowhere(f"the sum of the gradient of `{value[0]}` over {_names(self.reduced[value])}")
            self._edges(value, before)  # what a layer is given
        return Wiring(after, before, self._recomputed(), self.loss)

    def _recomputed(self) -> frozenset[str]:
        """The layers that run again, each as a whole but for operations whose backward reads nothing."""
        layers = {_layer(site) for site in self.again}
        missing = [s for s in self.made.values() if _layer(s) in layers and s not in self.again | self.idle]
        if missing:
            raise unsupported(
                f"recomputation of a part of a block, without `{missing[0]}`",
                "`activations: recompute`, which keeps of a block what it is given",
            )
        return frozenset(layers)

    def _chain(self, value: Value, attention: bool = False) -> tuple[list[Move], Value]:
        """The moves that follow a value while each is all that reads the one before, and where they end."""
        moves = [Move(None, Op.ALL_REDUCE, self.reduced[value])] if value in self.reduced else []
        readers = self.readers.get(value, [])
        if len(readers) != 1 or isinstance(readers[0], _Use):
            return moves, value
        target = readers[0]
        uses = (r for r in self.readers.get(target, []) if isinstance(r, _Use))
        if not attention and any(use.site in self.attention for use in uses):
            return moves, value
        more, last = self._chain(target)
        return [*moves, *self._move(target), *more], last

    def _passed(self, first: Value, last: Value) -> set[Value]:
        found = set()
        while last != first:
            found.add(last)
            last = self.links[last].source
        return found

    def _move(self, target: Value) -> Iterator[Move]:
        link = self.links[target]
        e = link.event
        layer = e.outs[0].of.partition("/")[0]
        if axes := self.part.get(f"{layer}/{target[0].partition('/')[2]}"):
            yield Move(None, Op.ALL_REDUCE, axes)
        dim, to = e.label.dim if e.label else "", e.to.dim if e.to else ""
        yield Move(e.op, self.back.get(target), e.axes, dim, to, e.hops)

    def _edges(self, value: Value, before: dict[tuple[str, int], tuple[Move, ...]]) -> None:
        """What stands before each operation that reads a value, directly or through moves."""
        for reader in self.readers.get(value, []):
            if isinstance(reader, _Use):
                if own := self._own(reader):
                    before[reader.site, reader.operand] = own
                continue
            moves, last = self._chain(reader)
            users = self.readers.get(last, [])
            if len(users) != 1 or not isinstance(users[0], _Use):
                raise _nowhere(f"`{self.links[reader].event.op.value}` of `{value[0]}`, which others read as it was")
            use = users[0]
            before[use.site, use.operand] = (*self._move(reader), *moves, *self._own(use))

    def _own(self, use: _Use) -> tuple[Move, ...]:
        """The sum of what one use gives of a gradient, where that is summed apart from other uses."""
        axes = self.part.get(f"{use.site}.{use.operand}")
        return (Move(None, Op.ALL_REDUCE, axes),) if axes else ()


def _layer(site: str) -> str:
    return site.partition("/")[0]


def _value(buf: Buf) -> Value:
    return buf.of.partition("<")[0].rstrip("/"), buf.index


def _names(axes: tuple[str, ...]) -> str:
    return " and ".join(f"`{a}`" for a in axes)


def _nowhere(what: str) -> Exception:
    return unsupported(f"{what}: no boundary of a module stands there", "collectives behind norms and products")
