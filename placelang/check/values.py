"""Value ids: which logical value a buffer holds, whatever its layout ("semantics", section 3).

Compute hashes (operation, ids of its inputs) over leaves: the states before the step, and each microbatch's data. What
only moves values (collectives, copies, slices) keeps them. One table numbers the values of a program and of its
one-device reference together, so equal numbers mean equal functions of the same leaves. Not for: coefficients.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from placelang.check.types import ValueId
from placelang.program.event import Compute


class Node(NamedTuple):
    """How a value is made. A leaf has no operands; `owner` is the group of a value shaped like parameters."""

    op: str  # "leaf" or the name of an event's op
    name: str  # of a leaf its kind ("params", "optimizer", "tokens", "targets"); of compute the stack
    which: tuple[int, ...]  # of a leaf which one; of compute the number of the output
    operands: tuple[ValueId, ...]
    owner: str | None
    compute: Compute | None = None  # of an operation inside a layer: what it computes


class Values:
    """A hash-consing table: the same construction is the same number."""

    def __init__(self) -> None:
        self._numbers: dict[Node, ValueId] = {}
        self._nodes: list[Node] = []

    def _number(self, node: Node) -> ValueId:
        number = self._numbers.setdefault(node, len(self._nodes))
        if number == len(self._nodes):
            self._nodes.append(node)
        return number

    def leaf(self, kind: str, index: tuple[int, ...], owner: str | None = None) -> ValueId:
        return self._number(Node("leaf", kind, index, (), owner))

    def made(
        self,
        op: str,
        name: str,
        output: int,
        operands: tuple[ValueId, ...],
        owner: str | None = None,
        compute: Compute | None = None,
    ) -> ValueId:
        return self._number(Node(op, name, (output,), operands, owner, compute))

    def __getitem__(self, value: ValueId) -> Node:
        return self._nodes[value]

    def is_number(self, value: ValueId) -> bool:
        """Whether it is one number, a sum of squares or a flag, and has no dims."""
        node = self._nodes[value]
        return node.op in ("sqnorm", "finite") or (node.op == "add" and any(map(self.is_number, node.operands)))

    def microbatch(self, value: ValueId) -> int | None:
        """The first microbatch whose data it depends on; None of what depends on no data."""

        @cache
        def found(v: ValueId) -> int | None:
            node = self._nodes[v]
            if node.op == "leaf":
                return node.which[0] if node.name in ("tokens", "targets") else None
            return next((m for m in map(found, node.operands) if m is not None), None)

        return found(value)
