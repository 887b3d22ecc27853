"""How activations lie as they flow through a layer, and what must move so that each operation can read them.

The lowering follows layouts with the same letters that the checker does, only to find conversions of which exactly one
fits; it proves nothing. Not for: verdicts (`check`).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from placelang.frozen import Frozen
from placelang.program.event import Label, Layout


@attrs.frozen(eq=False, repr=False)
class Flow(Frozen):
    """The split of an activation, axis by axis and outer first, and the axes over which it is a partial sum."""

    layout: Layout = ()
    partial: frozenset[str] = frozenset()

    def on(self, axis: str) -> str | None:
        """The letter that an axis splits."""
        return next((label.dim for a, label in self.layout if a == axis), None)

    def without(self, axes: tuple[str, ...]) -> Flow:
        return attrs.evolve(self, layout=tuple((a, label) for a, label in self.layout if a not in axes))

    def split(self, axes: tuple[str, ...], letter: str) -> Flow:
        more = tuple((a, Label(letter, "contiguous")) for a in axes)
        return attrs.evolve(self, layout=(*self.layout, *more))

    def summed(self, axes: tuple[str, ...]) -> Flow:
        return attrs.evolve(self, partial=self.partial - set(axes))


@attrs.frozen(eq=False, repr=False)
class Operand(Frozen):
    """A flow seen through the letters of the operation that reads it."""

    flow: Flow
    letters: str
    shared: bool = False  # may stay whole where the others are split

    def letter(self, axis: str, own: str) -> str | None:
        """The operation's letter that an axis splits; `own` are the operand's letters where it was made."""
        mine = self.flow.on(axis)
        return None if mine is None or mine not in own else self.letters[own.index(mine)]


def result(operands: Mapping[str, Mapping[str, str]], out: str) -> tuple[dict[str, str], set[str]]:
    """By axis, the letter of `out` that is split, and the axes over which the result is partial.

    `operands`: for each axis, the letters that it splits, by operand. A letter that `out` lacks was summed over.
    """
    split: dict[str, str] = {}
    partial: set[str] = set()
    for axis, letters in operands.items():
        for letter in letters.values():
            if letter in out:
                split[axis] = letter
            else:
                partial.add(axis)
    return split, partial
