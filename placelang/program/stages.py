"""Pipeline stages: which rank of the stage axis holds which layer.

Layers in their order are dealt out in parts, and parts to the ranks of one axis: one part a rank, several in turn
(interleaved, Narayanan et al., SC 2021, arXiv 2104.04473, section 2.2), or there and back as a V (zero bubble V, Qi et
al., arXiv 2401.10241, section 6; DualPipeV), which puts part k on rank min(k, 2p - 1 - k). What stands before the
blocks lies with the first part, what follows them with the last. Not for: the order of microbatches (`cost`).
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from placelang.frozen import Frozen
from placelang.model.model import Model
from placelang.plan.plan import Plan, State
from placelang.plan.steps import Balanced, Shard
from placelang.program.event import At

V_SHAPED = frozenset({"zbv", "dualpipev"})
"""Schedules whose parts go there and back."""

NOWHERE = -1
"""The coordinate of a place that names no layer, as one of a loop does outside it."""

_UNKNOWN = 3
"""Ranks that stand for an axis of unknown size: a first, a middle and a last one."""


@attrs.frozen(eq=False, repr=False)
class Stages(Frozen):
    """`parts`: layers of each part, in order of execution; `ranks`: the coordinate on `axis` that holds it. `real`: of
    a sample, the coordinate in the whole mesh that each of its own stands for."""

    axis: str
    runs: tuple[tuple[str, int], ...]  # loop and number of layers of each run of blocks
    parts: tuple[int, ...]
    ranks: tuple[int, ...]
    real: tuple[int, ...] = ()

    @property
    def coordinates(self) -> tuple[int, ...]:
        return tuple(range(max(self.ranks) + 1))

    def of(self, at: At | int) -> int:
        """The coordinate of a place; one before the first layer or after the last is that of what stands there."""
        if isinstance(at, int):
            return at
        if not isinstance(at.index, int):
            return NOWHERE
        if not at.loop:
            return self.ranks[at.index]
        return self.ranks[self.part(self._start(at.loop) + at.index)]

    def all_of(self, places: Iterable[At | int]) -> tuple[int, ...]:
        """The coordinates of some places, each once; all of them where none is named."""
        return tuple(sorted({self.of(at) for at in places})) or self.coordinates

    def part(self, layer: int) -> int:
        """The part that holds a layer, counted over all runs."""
        if layer < 0:
            return 0
        for k, count in enumerate(self.parts):
            if layer < count:
                return k
            layer -= count
        return len(self.parts) - 1

    def layers(self, rank: int) -> dict[str, int]:
        """How many layers of each run a coordinate holds."""
        found = dict.fromkeys((loop for loop, _ in self.runs), 0)
        for layer, loop in enumerate(self._loops()):
            found[loop] += self.ranks[self.part(layer)] == rank
        return found

    def _start(self, loop: str) -> int:
        before = 0
        for name, count in self.runs:
            if name == loop:
                break
            before += count
        return before

    def _loops(self) -> list[str]:
        return [loop for loop, count in self.runs for _ in range(count)]

    def sampled(self) -> Stages:
        """The same kinds of stages and boundaries, with as few layers as show them all.

        Kept are the first two parts and the last, those on either side of the turn where ranks hold several, and those
        where a run of blocks begins or ends; of each run two layers that lie together, and one in each other part.
        """
        last, ranks = len(self.parts) - 1, max(self.ranks) + 1
        loops = self._loops()
        ends = {self.part(k) for k in range(len(loops)) if k in (0, len(loops) - 1) or loops[k - 1] != loops[k]}
        ends |= {self.part(k - 1) for k in range(1, len(loops)) if loops[k - 1] != loops[k]}
        kept = sorted(k for k in {0, 1, ranks - 1, ranks, last} | ends if k <= last)
        counts = dict.fromkeys((loop for loop, _ in self.runs), 0)
        parts = dict.fromkeys(kept, 0)
        together: set[str] = set()
        held: dict[tuple[str, int], int] = {}
        for layer, loop in enumerate(loops):
            part = self.part(layer)
            if part not in parts:
                continue
            here = held.get((loop, part), 0)
            if here == 0 or (here == 1 and loop not in together):
                together |= {loop} if here else set()
                held[loop, part] = here + 1
                counts[loop] += 1
                parts[part] += 1
        real = sorted({self.ranks[k] for k in kept})
        return Stages(
            self.axis,
            tuple(counts.items()),
            tuple(parts.values()),
            tuple(real.index(self.ranks[k]) for k in kept),
            tuple(self.real[r] for r in real) if self.real else tuple(real),
        )


def stages(plan: Plan, model: Model, loops: Iterable[tuple[str, int]]) -> Stages | None:
    """How a plan deals the layers of `loops` (name and count of each run of blocks) out; None where it does not."""
    step = layer_shard(plan)
    if step is None or plan.mesh.size(step.axes) == 1:
        return None
    runs = tuple(loops)
    ranks = plan.mesh.size(step.axes) or _UNKNOWN
    chunks = plan.schedule.chunks if plan.schedule else 1
    count = ranks * chunks
    name = plan.schedule.name if plan.schedule else ""
    of_part = tuple(min(k, 2 * ranks - 1 - k) if name in V_SHAPED else k % ranks for k in range(count))
    (axis,) = step.axes
    return Stages(axis, runs, dealt(step, sum(n for _, n in runs), count), of_part)


def layer_shard(plan: Plan) -> Shard | None:
    """The step that deals layers over stages."""
    return next((s for s in plan.journey(State.PARAMS) if isinstance(s, Shard) and s.dim == "layer"), None)


def unsized(plan: Plan) -> str | None:
    """The axis over which layers are dealt out, where its size is not known."""
    step = layer_shard(plan)
    return next((a for a in step.axes if plan.mesh[a].size is None), None) if step else None


def dealt(step: Shard, layers: int, parts: int) -> tuple[int, ...]:
    """Layers of each part: as written, else in equal runs, the outer ones short of some."""
    if isinstance(step.split, tuple):
        return step.split
    balance = step.split or Balanced()
    whole, more = divmod(layers + balance.first_less + balance.last_less, parts)
    counts = [whole + (k < more) for k in range(parts)]
    counts[0] -= balance.first_less
    counts[-1] -= balance.last_less
    return tuple(counts)
