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

    def split(self, axes: tuple[str, ...], letter: str, partitions: Mapping[str, str] | None = None) -> Flow:
        """`partitions`: of axes that deal positions otherwise than in equal runs."""
        dealt = partitions or {}
        more = tuple((a, Label(letter, dealt.get(a, "contiguous") if letter in "st" else "contiguous")) for a in axes)
        return attrs.evolve(self, layout=(*self.layout, *more))

    def summed(self, axes: tuple[str, ...]) -> Flow:
        return attrs.evolve(self, partial=self.partial - set(axes))
