"""Events: the one frozen record that a step program is made of, and the buffers that events read and write.

Source of the event list: "Placement semantics" (arXiv 2601.02311) completed in docs/design/semantics; each op's typing
rule is in `check.rules`, its meaning on numbers in `simulate.ops`. Not for: either of these.
"""

from __future__ import annotations

from enum import Enum

import attrs

from placelang.source import Span


class Op(Enum):
    """What an event does. `ins` and `outs` below are its operands in order."""

    INIT = "init"  # () -> state: every live copy gets the leaf value, drawn by logical index
    ZERO = "zero"  # () -> accumulator: the empty sum
    FORWARD = "forward"  # (x, view of each group read) -> (x', stash)
    LOSS = "loss"  # (logits, targets) -> dlogits: d(sum of token losses / tokens of the whole batch)
    BACKWARD = "backward"  # (dy, stash, views) -> dx: linear in dy
    WGRAD = "wgrad"  # (dy, stash, views) -> raw gradient of each group read: linear in dy, contracts the token dims
    ACC = "acc"  # (summand) -> accumulator: out += in
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"  # shards along one dim -> shards along another
    ADD = "add"  # (summands) -> their sum: contributions to the gradient of one activation
    SLICE = "slice"  # full -> own shard, no traffic
    UNSLICE = "unslice"  # own shard -> the whole with zeros elsewhere: a partial sum, no traffic
    COPY = "copy"  # same value in another buffer, format or tier
    SEND = "send"  # a buffer of one pipeline stage is also on another
    UNSCALE = "unscale"  # (gradients) -> gradients: divided by the loss scale
    FINITE = "finite"  # (gradients) -> flag: whether an element is infinite or no number
    SQNORM = "sqnorm"  # (gradients) -> the sum of the squares of their elements
    CLIP = "clip"  # (gradients, sum of squares of all) -> gradients, no longer than the largest norm
    OPT = "opt"  # (params, complete gradient, optimizer state, flag if any) -> (params', optimizer state')
    FREE = "free"  # (buffers) -> (): a view or stash is released; no meaning but memory


COLLECTIVES = frozenset({Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_REDUCE, Op.ALL_TO_ALL})


class Phase(Enum):
    INIT = "init"
    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@attrs.frozen
class Var:
    """The index of the innermost running loop of this name, plus an offset."""

    loop: str
    offset: int = 0


@attrs.frozen
class End:
    """The trip count of a loop, plus an offset: `x[End(blocks)]` is what the last block returns."""

    loop: str
    offset: int = 0


Index = int | Var | End


@attrs.frozen
class At:
    """A place in a pipeline: where the layer `index` of a run of blocks lies; `loop` "": 0 is the first part, -1 the
    last. One before the first layer, or after the last, is where what stands there lies."""

    loop: str
    index: Index


FIRST, LAST = At("", 0), At("", -1)

SCALARS = frozenset({"sq", "squares", "squares+", "norm", "flag", "flags", "flags+", "overflow"})
"""Kinds of buffers that hold one number: a sum of squares, or whether a gradient overflowed."""


@attrs.frozen
class Buf:
    """A buffer on each rank: what kind of thing (`w`, `view`, `x`, ...), of which group or stack, at which index.

    kinds: `w` parameters at rest, `master` their copy in the optimizer's format, `s` the shard that an optimizer
    updates, `view` parameters as compute reads them, `shard` a smaller shard of a view, `dw` raw gradient (`dw@SITE`:
    of one of several uses), `r` reduced gradient, `g` accumulated gradient, `gs` its shard for the optimizer, `gu`
    unscaled, `gc` clipped, `sq` a unit's sum of squares, `squares` (`squares+`: reduced) of all that some axes split,
    `norm` of all gradients (`flag`, `flags`, `overflow`: likewise of the finite check), `o` optimizer state, `x`/`dx`
    activations and their gradients entering a stack at a position (`xr`: produced again; `dx+`: before a reduction),
    `stash` what backward needs (`stash+`: of a sum again, which nobody reads),
    `tokens`/`targets` the data of a microbatch.
    """

    kind: str
    of: str
    index: tuple[Index, ...] = ()

    def __str__(self) -> str:
        def show(i: Index) -> str:
            if isinstance(i, int):
                return str(i)
            name = i.loop if isinstance(i, Var) else f"end({i.loop})"
            return name + (f"{i.offset:+d}" if i.offset else "")

        return f"{self.kind}:{self.of}" + (f"[{','.join(map(show, self.index))}]" if self.index else "")


@attrs.frozen
class Label:
    """How one axis splits a buffer: along `dim`, by `partition`: "padded", "contiguous", or "headtail" (each rank an
    early and a late run, so that causal attention is even: Llama 3, arXiv 2407.21783, section 3.3.2)."""

    dim: str
    partition: str = "padded"


Layout = tuple[tuple[str, Label], ...]
"""(axis, label) pairs, outer first; an axis that is absent does not split the buffer."""


@attrs.frozen
class Compute:
    """What a compute event computes: an operation of the model's graph over named dims (`model.graph`).

    `letters`: of the activations and then the tensors that the operation reads; `out`: of what it returns; `whole`:
    letters that no axis may split; `shares`: operands that an axis may leave whole while it splits the others. `wrt`:
    the activation whose gradient a BACKWARD makes.
    """

    kind: str
    letters: tuple[str, ...]
    out: str
    whole: str = ""
    shares: tuple[int, ...] = ()
    activations: int = 1  # how many of the operands are activations; the rest are tensors of one group
    wrt: int = 0

    @property
    def letters_read(self) -> tuple[str, ...]:
        """The letters of each operand of the event: tensors of one group are one operand."""
        return self.letters[: self.activations + 1]


@attrs.frozen(kw_only=True)
class Event:
    """One thing that every rank does, or every rank of some stages. Operands are coalesced: the i-th input of a
    collective makes the i-th output."""

    op: Op
    ins: tuple[Buf, ...] = ()
    outs: tuple[Buf, ...] = ()
    phase: Phase
    axes: tuple[str, ...] = ()  # the group of a collective or slice, outer first
    label: Label | None = None  # the split that a gather undoes, or that a scatter or slice makes
    to: Label | None = None  # the split that an all_to_all makes
    labels: tuple[Label, ...] = ()  # of an all_to_all whose axes split several dims: the split of each, for `label`
    tos: tuple[Label, ...] = ()  # likewise, of one that makes splits of several dims: for `to`
    compute: Compute | None = None  # of FORWARD, BACKWARD and WGRAD
    mean: bool = False  # a reduction that divides by its group's size
    hops: bool = False  # a gather or scatter whose pieces pass around the ranks and are used as they come
    largest: bool = False  # a reduction or accumulation that takes the largest instead of the sum
    power: int = 0  # of LOSS and UNSCALE: the power of the loss scale that the result is multiplied by
    site: str = ""  # the stack whose use of a parameter made this gradient
    layout: Layout = ()  # of the output of INIT and ZERO
    where: tuple[At | int, ...] = ()  # the stages that do it: places, or coordinates once flattened; (): all
    target: At | int | None = None  # of SEND: the stage that receives
    dtype: str  # of the outputs; of collectives: on the wire
    span: Span | None = attrs.field(default=None, eq=False, repr=False)
    why: str = attrs.field(default="", eq=False)

    @property
    def undoes(self) -> Layout:
        """The splits that a gather or all_to_all puts together, outer first. Empty where it names none, or not one an
        axis: there is no such event."""
        return self._each(self.label, self.labels)

    @property
    def makes(self) -> Layout:
        """The splits that an all_to_all makes, likewise."""
        return self._each(self.to, self.tos)

    def _each(self, one: Label | None, several: tuple[Label, ...]) -> Layout:
        found = several or (one,) * len(self.axes)
        pairs = tuple((axis, label) for axis, label in zip(self.axes, found, strict=False) if label)
        return pairs if len(found) == len(self.axes) == len(pairs) else ()
