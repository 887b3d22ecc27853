"""The simulated ranks: their memories, the data of each step, and what is metered while events run.

Not for: the events' meaning (`ops`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from placelang.program.event import At, Buf
from placelang.program.program import Group, Program, Sample, whole
from placelang.program.stages import NOWHERE
from placelang.simulate.arrays import Array, NoDenotation, Ranks, Value, draw, piece, whole_numbers
from placelang.simulate.forms import Form
from placelang.simulate.meter import Meter
from placelang.simulate.sizes import SEQ, WIDTH

ACTIVATIONS = frozenset({"x", "xr", "dx", "dx+", "stash", "tokens", "targets"})
"""Kinds of buffers that hold activations and data, not the tensors of a group."""


_DIMS = ("batch", "seq", "hidden")
"""The dims of data: of token numbers the first two."""


def _vocabulary(program: Program) -> int | None:
    """The rows of the table in which the program looks its tokens up."""
    for group in program.groups:
        for tensor in group.tensors:
            if tensor.role == "embed" and group.name.endswith("/embed.tokens"):
                return tensor.shape[0]
    return None


@attrs.frozen
class Source:
    """The tokens that one data shard has of one microbatch: those that each of `ranks` reads."""

    microbatch: int
    rows: tuple[int, ...]  # of the microbatch, in batch order
    ranks: tuple[int, ...]


@attrs.define
class Machine:
    """`batch`: rows of one microbatch of the whole job. `only`: the tokens whose loss counts (none: all)."""

    program: Program
    seed: int
    batch: int
    only: Source | None = None
    step: int = 0
    ranks: Ranks = attrs.field(init=False)
    tensors: Mapping[str, Group] = attrs.field(init=False)  # the groups of parameters
    memory: list[dict[Buf, Value]] = attrs.field(init=False)
    forms: dict[Buf, tuple[Form, ...]] = attrs.field(factory=dict)
    vocabulary: int | None = attrs.field(init=False)  # of a program that looks tokens up; None where they are vectors
    meters: tuple[Meter, ...] = attrs.field(init=False)  # of a rank of each coordinate on the stage axis
    stages: tuple[int, ...] = attrs.field(init=False)  # the coordinates that the running event is on
    running: tuple[int, ...] = attrs.field(init=False)  # its ranks
    everywhere: Sample = attrs.field(init=False)
    _on: dict[tuple[At | int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = attrs.field(init=False, factory=dict)
    read: dict[tuple[int, Buf], Value] = attrs.field(factory=dict)  # the gradient that each rank's optimizer read

    def __attrs_post_init__(self) -> None:
        self.ranks = Ranks.of(self.program.mesh)
        self.tensors = {g.name: g for g in self.program.groups}
        self.memory = [{} for _ in range(self.ranks.count)]
        self.vocabulary = _vocabulary(self.program)
        self.everywhere = whole(self.program)
        self.meters = tuple(Meter(self.program) for _ in self.everywhere.coordinates)
        self.on(())

    # --- ranks -------------------------------------------------------------------------------------------------------

    def on(self, where: tuple[At | int, ...]) -> None:
        """What follows runs on the ranks of these stages."""
        if where not in self._on:
            stages = tuple(s for s in self.everywhere.where(where) if s != NOWHERE)
            self._on[where] = stages, tuple(r for r in range(self.ranks.count) if self.stage(r) in stages)
        self.stages, self.running = self._on[where]

    def stage(self, rank: int) -> int:
        """The coordinate of a rank on the stage axis."""
        return self.ranks.coordinate(rank, self.program.stages.axis) if self.program.stages else 0

    def groups(self, axes: Sequence[str]) -> list[list[int]]:
        """The groups over `axes` of the ranks that run."""
        running = set(self.running)
        found = [[r for r in group if r in running] for group in self.ranks.groups(axes)]
        if self.program.stages and self.program.stages.axis in axes and len(self.stages) == 1:
            raise NoDenotation(f"only stage {self.stages[0]} joins a collective over {', '.join(axes)}")
        return [group for group in found if group]

    # --- memory ------------------------------------------------------------------------------------------------------

    def get(self, rank: int, buf: Buf) -> Value:
        try:
            return self.memory[rank][buf]
        except KeyError:
            raise NoDenotation(f"rank {rank} has no {buf}") from None

    def activation(self, rank: int, buf: Buf) -> Array:
        value = self.get(rank, buf)
        if set(value) != {""}:
            raise NoDenotation(f"{buf} is read as one activation and holds {sorted(value)}")
        return value[""]

    def put(self, rank: int, buf: Buf, value: Value) -> None:
        self.memory[rank][buf] = value

    def form(self, buf: Buf) -> Form:
        return self.forms.get(buf, (Form(),))[0]

    def dims(self, buf: Buf, tensor: str) -> Sequence[str]:
        """The names of the dims of one array of a buffer."""
        if tensor == "":
            return self.form(buf).names
        tensors = self.tensors[buf.of].tensors if buf.of in self.tensors else ()
        return next((t.dims for t in tensors if t.name == tensor), ())

    # --- data --------------------------------------------------------------------------------------------------------

    def weights(self, microbatch: int) -> Array:
        """How much each token counts in the loss: unequal, as masks and packed documents make it."""
        return np.exp(draw(("weight", self.seed, self.step, microbatch), (self.batch, SEQ)) / 2)

    @property
    def total(self) -> float:
        """W: the tokens of the whole batch, whatever part of them counts."""
        return float(sum(self.weights(m).sum() for m in range(self.program.train.microbatches)))

    @property
    def scale(self) -> float:
        """The loss scale."""
        return float(self.program.train.loss_scale or 1)

    def load(self) -> None:
        """The data loader: every rank's part of every microbatch of this step."""
        for m in range(self.program.train.microbatches):
            tokens, target = self._drawn("tokens", m), self._drawn("target", m)
            weight = self.weights(m)
            if self.only is not None:
                counts = np.isin(np.arange(self.batch), self.only.rows) & (m == self.only.microbatch)
                weight = weight * counts[:, None]
            for rank in range(self.ranks.count):
                self.put(rank, Buf("tokens", "data", (m,)), {"": self._share(tokens, rank)})
                targets = {"target": self._share(target, rank), "weight": self._share(weight, rank)}
                self.put(rank, Buf("targets", "data", (m,)), targets)
            form = Form(self.program.tokens, tuple(zip(_DIMS, tokens.shape, strict=False)))
            self.forms |= {Buf(kind, "data", (m,)): (form,) for kind in ("tokens", "targets")}

    def _drawn(self, kind: str, microbatch: int) -> Array:
        key = (kind, self.seed, self.step, microbatch)
        if self.vocabulary is None:
            return draw(key, (self.batch, SEQ, WIDTH))
        return whole_numbers(key, (self.batch, SEQ), self.vocabulary)

    def _share(self, array: Array, rank: int) -> Array:
        return piece(array, self.program.tokens, self.ranks, rank, _DIMS)

    def sources(self) -> list[Source]:
        """Every contribution to a gradient: a microbatch and the tokens that some rank reads of it."""
        index = np.repeat(np.arange(self.batch, dtype=np.float64)[:, None], SEQ, axis=1)
        held: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.ranks.count):
            rows = tuple(int(r) for r in np.unique(self._share(index, rank)))
            held.setdefault(rows, []).append(rank)
        microbatches = range(self.program.train.microbatches)
        return [Source(m, rows, tuple(ranks)) for m in microbatches for rows, ranks in held.items()]
