"""The inside of a layer as the lowering sees it: operations, and the moves that bring each operand where it is read.

A move stands between an operation that makes an activation and one that reads it: what the `activations` lines say, or
the one conversion that fits. Each move knows what undoes it in backward. Not for: parameters (`placement`), or events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby

import attrs

from placelang.frozen import Frozen
from placelang.model.graph import INPUT, LETTERS, Operation
from placelang.plan.steps import AllGather, AllToAll, Journey, Reduce, Ring, Shard, Step
from placelang.program.event import Op
from placelang.program.flow import Flow
from placelang.source import Span


@attrs.frozen(eq=False, repr=False)
class Node(Frozen):
    """An operation, or a move of one value: `name` is what it makes, `ins` what it reads."""

    name: str
    ins: tuple[str, ...]
    letters: str
    flow: Flow
    operation: Operation | None = None
    move: Move | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """Those that a move is over."""
        return self.move.axes if self.move else ()


@attrs.frozen(eq=False, repr=False)
class Move(Frozen):
    """A collective or slice in forward, and what it is in backward (None: nothing, the gradient is whole already)."""

    op: Op
    axes: tuple[str, ...]
    letter: str = ""
    to: str = ""
    back: Op | None = None
    span: Span | None = None
    why: str = ""
    hops: bool = False
    wire: str | None = None  # the format in which it sends; None: that of what it moves
    letters: tuple[str, ...] = ()  # of an exchange over axes that split several dims: those of each axis, for `letter`
    tos: tuple[str, ...] = ()  # likewise, of one that splits several dims: for `to`

    @property
    def befores(self) -> tuple[str, ...]:
        """What each axis splits before an exchange (of a scatter or slice: after it)."""
        return self.letters or (self.letter,) * len(self.axes)

    @property
    def afters(self) -> tuple[str, ...]:
        """What each axis splits after an exchange."""
        return self.tos or (self.to,) * len(self.axes)


def _exchanges(moves: Iterator[Move]) -> Iterator[Move]:
    """Exchanges that follow each other are one, over all of their axes: tokens that several axes split, of whichever
    dims, are dealt to experts that the same axes split as one."""
    for exchange, run in groupby(moves, key=lambda move: move.op is Op.ALL_TO_ALL):
        found = tuple(run)
        if not exchange or len(found) == 1:
            yield from found
            continue
        if found[0].letter == "e":  # back to where the tokens are: the innermost was put first
            found = found[::-1]
        yield attrs.evolve(
            found[0],
            axes=tuple(axis for move in found for axis in move.axes),
            letters=tuple(letter for move in found for letter in move.befores),
            tos=tuple(letter for move in found for letter in move.afters),
        )


def nodes(
    operations: tuple[Operation, ...],
    into: Flow,
    into_letters: str,
    splits: Callable[[Operation], tuple[Mapping[str, str], ...]],
    says: Callable[[Operation], Journey],
    finish: Callable[[Operation], Journey],
) -> tuple[Node, ...]:
    """The nodes of a layer. `splits`: for each tensor of an operation, the letter that each axis splits in use;
    `says`: how a module fetches the tokens that it lacks; `finish`: what the text says of what it returns."""
    return tuple(_Wiring(into, into_letters, splits, says, finish).run(operations))


class _Wiring:
    def __init__(
        self,
        into: Flow,
        into_letters: str,
        splits: Callable[[Operation], tuple[Mapping[str, str], ...]],
        says: Callable[[Operation], Journey],
        finish: Callable[[Operation], Journey],
    ) -> None:
        self.made: dict[str, Node] = {INPUT: Node(INPUT, (), into_letters, into)}
        self.current: dict[str, str] = {INPUT: INPUT}  # an operation's result, after the moves that follow it
        self.splits, self.says, self.finish = splits, says, finish
        self.dealt = {axis: label.partition for axis, label in into.layout if label.dim == "s"}

    def run(self, operations: tuple[Operation, ...]) -> Iterator[Node]:
        for o in operations:
            tensors = self.splits(o)
            ins: list[str] = []
            for k, source in enumerate(o.ins):
                name = self.current[source]
                for move in self._fetch(o, k, self.made[name], tensors):
                    node = self._moved(name, move)
                    if node.name not in self.made:
                        self.made[node.name] = node
                        yield node
                    name = node.name
                ins.append(name)
            flow = self._result(o, ins, tensors)
            node = Node(o.name, tuple(ins), o.out, flow, operation=o)
            self.made[o.name] = node
            yield node
            name = o.name
            for move in (*self._said(o, node), *self._restored(o, node)):
                after = self._moved(name, move)
                self.made[after.name] = after
                yield after
                name = after.name
            self.current[o.name] = name

    # --- before an operation -----------------------------------------------------------------------------------------

    def _fetch(self, o: Operation, k: int, source: Node, tensors: tuple[Mapping[str, str], ...]) -> Iterator[Move]:
        """What brings operand k where the operation can read it."""
        letters = o.letters[k]
        if o.kind == "opaque":
            return  # nothing says how a layer whose inside is not known would go on with the whole
        found: list[list[Move]] = []  # by axis, outer first
        gathered: set[str] = set()  # dims of which an axis further out is
        for axis, label in source.flow.layout:
            if label.dim not in source.letters:
                continue
            letter = letters[source.letters.index(label.dim)]
            elsewhere = {t[axis] for t in tensors if axis in t}
            others = {split for n, own in self._others(o, k) if (split := self._letter(n, own, axis))}
            if o.kind == "attention" and label.dim == "s" and "a" not in others:
                found.append([*self._tokens(o, k, axis)])
            elif o.role.startswith("experts") and (to := self._dealt(o, axis, letter, elsewhere, others)):
                found.append([to])
            elif (
                letter in o.whole
                or (letter == "s" and "a" in others)
                or (elsewhere and letter not in elsewhere)
                or label.dim in gathered
            ):
                why = f"`{o.name}` reads all of it"
                found.append([Move(Op.ALL_GATHER, (axis,), label.dim, back=Op.REDUCE_SCATTER, why=why)])
                gathered.add(label.dim)
        # What is gathered is gathered inner axes first; experts lie over the axes of a deal outer first.
        dealt = o.role.startswith("experts") and any("e" in t.values() for t in tensors)
        ordered = (move for moves in (found if dealt else reversed(found)) for move in moves)
        yield from _exchanges(ordered) if o.role.startswith("experts") else ordered
        if o.kind == "add":
            yield from self._aligned(o, k, source)
        for t in tensors:
            for axis, letter in t.items():
                if letter in letters and source.flow.on(axis) is None and axis not in source.flow.partial:
                    own = source.letters[letters.index(letter)]
                    yield Move(Op.SLICE, (axis,), own, back=Op.ALL_GATHER, why=f"`{o.name}` splits it over `{axis}`")

    def _others(self, o: Operation, k: int) -> Iterator[tuple[str, str]]:
        """The other activations that an operation reads, with their letters."""
        yield from ((self.current[n], o.letters[i]) for i, n in enumerate(o.ins) if i != k)

    def _letter(self, name: str, letters: str, axis: str) -> str | None:
        """The operation's letter that an axis splits of one activation."""
        node = self.made[name]
        own = node.flow.on(axis)
        return letters[node.letters.index(own)] if own is not None and own in node.letters else None

    def _dealt(self, o: Operation, axis: str, letter: str, tensors: set[str], others: set[str]) -> Move | None:
        """Tokens go to the ranks whose experts they want, and what experts return goes back to where its tokens are."""
        step = next((s for s in self.says(o) if isinstance(s, AllToAll) and axis in s.axes), None)
        to = "e" if letter in "bs" and "e" in tensors else next(iter(others & set("bs")), "") if letter == "e" else ""
        if step is None or letter in tensors:
            return None
        if letter == "e" and not to and "e" not in tensors | others:  # experts over ranks that have the same tokens
            return Move(Op.ALL_GATHER, (axis,), "e", back=Op.REDUCE_SCATTER, span=step.span, wire=step.wire)
        if not to:
            return None
        return Move(Op.ALL_TO_ALL, (axis,), letter, to, back=Op.ALL_TO_ALL, span=step.span, wire=step.wire)

    def _aligned(self, o: Operation, k: int, source: Node) -> Iterator[Move]:
        """A summand that is whole where another is split keeps its own part only."""
        for other in o.ins:
            for axis, label in self.made[self.current[other]].flow.layout:
                if source.flow.on(axis) is None and axis not in source.flow.partial and label.dim in source.letters:
                    # What an embedding returns has no gradient to hand on: its table may take a partial sum.
                    table = source.operation is not None and source.operation.kind == "embed"
                    back = Op.UNSLICE if table else Op.ALL_GATHER
                    yield Move(Op.SLICE, (axis,), label.dim, back=back, why=f"`{o.name}` adds it to a shard")

    def _tokens(self, o: Operation, k: int, axis: str) -> Iterator[Move]:
        """How attention fetches the tokens that a rank of a sequence axis lacks."""
        for step in self.says(o):
            if axis not in step.axes:
                continue
            if isinstance(step, AllToAll) and "a" in o.letters[k]:
                yield Move(Op.ALL_TO_ALL, (axis,), "s", "a", back=Op.ALL_TO_ALL, span=step.span, wire=step.wire)
            elif isinstance(step, AllToAll):  # what all heads share
                yield Move(Op.ALL_GATHER, (axis,), "s", back=Op.REDUCE_SCATTER, span=step.span, wire=step.wire)
            elif isinstance(step, (AllGather, Ring)) and k in o.shares:
                hops = isinstance(step, Ring)
                back, wire = Op.REDUCE_SCATTER, step.wire
                yield Move(Op.ALL_GATHER, (axis,), "s", back=back, span=step.span, hops=hops, wire=wire)

    def _restored(self, o: Operation, node: Node) -> Iterator[Move]:
        """After all_to_all attention its result goes back to shards of the sequence."""
        if o.kind == "attention":
            for step in self.says(o):
                if isinstance(step, AllToAll):
                    for axis in step.axes:
                        if node.flow.on(axis) == "a":
                            yield Move(
                                Op.ALL_TO_ALL, (axis,), "a", "s", back=Op.ALL_TO_ALL, span=step.span, wire=step.wire
                            )

    # --- after it ----------------------------------------------------------------------------------------------------

    def _result(self, o: Operation, ins: list[str], tensors: tuple[Mapping[str, str], ...]) -> Flow:
        """How the result lies: kept letters stay split, letters summed over leave a partial sum."""
        layout: dict[str, str] = {}
        partial: set[str] = set()
        for k, name in enumerate(ins):
            source = self.made[name]
            partial |= source.flow.partial
            for axis, label in source.flow.layout:
                if label.dim in source.letters:
                    layout[axis] = o.letters[k][source.letters.index(label.dim)]
        for t in tensors:
            layout.update(t)
        kept = {axis: letter for axis, letter in layout.items() if letter in o.out}
        partial |= {axis for axis, letter in layout.items() if letter not in o.out and letter not in o.whole}
        flow = Flow(partial=frozenset(partial))
        for axis, letter in kept.items():
            flow = flow.split((axis,), letter, self.dealt)
        return flow

    def _said(self, o: Operation, node: Node) -> Iterator[Move]:
        """What the `activations` lines say of the result, as far as it is not so already."""
        for step in self.finish(o):
            axes = tuple(a for a in step.axes if a in self._open(step, node))
            if not axes and step.axes:
                continue
            axes = axes or tuple(sorted(node.flow.partial))
            if isinstance(step, Reduce) and axes:
                letter = LETTERS.get(step.dim, step.dim)
                if step.scatter:
                    yield Move(Op.REDUCE_SCATTER, axes, letter, back=Op.ALL_GATHER, span=step.span, wire=step.wire)
                else:
                    yield Move(Op.ALL_REDUCE, axes, back=None, span=step.span, wire=step.wire)
            elif isinstance(step, Shard) and axes:
                yield Move(Op.SLICE, axes, LETTERS.get(step.dim, step.dim), back=Op.ALL_GATHER, span=step.span)

    def _open(self, step: Step, node: Node) -> tuple[str, ...]:
        """The axes of a step that have something left to do on this node."""
        if isinstance(step, Reduce):
            return tuple(a for a in step.axes if a in node.flow.partial)
        if isinstance(step, Shard):
            return tuple(a for a in step.axes if node.flow.on(a) is None and a not in node.flow.partial)
        return ()

    def _moved(self, source: str, move: Move) -> Node:
        before = self.made[source]
        flow = before.flow
        if move.op is Op.ALL_GATHER:
            flow = flow.without(move.axes)
        elif move.op in (Op.REDUCE_SCATTER, Op.ALL_REDUCE):
            flow = flow.summed(move.axes)
        elif move.op is Op.ALL_TO_ALL:
            flow = flow.without(move.axes)
        splits = move.befores if move.op in (Op.REDUCE_SCATTER, Op.SLICE) else move.afters
        for axis, letter in zip(move.axes, splits, strict=True):
            if letter:
                flow = flow.split((axis,), letter, self.dealt)
        target = "".join(dict.fromkeys(splits))
        name = f"{source}|{move.op.value}({','.join(move.axes)}{',' + target if target else ''})"
        return Node(name, (source,), before.letters, flow, move=move)
