"""The Plan: what a strategy text means, typed and complete, before any model or event.

A journey is a tuple of steps. `params` and `optimizer` journeys go from rest to use, `grads` and `activations` from
production to rest (language reference, "Words"). Each step says where it stands in the text or why it was inferred.
Not for: events (`program`), or how a plan is found from a text (`elaborate`).
"""

from __future__ import annotations

from enum import Enum

import attrs

from placelang.model.model import Model
from placelang.plan.dtypes import PRECISIONS, Precision
from placelang.plan.mesh import Mesh
from placelang.source import Span


class State(Enum):
    PARAMS = "params"
    OPTIMIZER = "optimizer"
    GRADS = "grads"
    ACTIVATIONS = "activations"


class When(Enum):
    """How often a reduction runs: once per microbatch, or once per step on the accumulated gradient."""

    MICROBATCH = "microbatch"
    STEP = "step"


class Keep(Enum):
    """How long a gathered view lives."""

    UNIT = "unit"
    MICROBATCH = "microbatch"
    STEP = "step"


@attrs.frozen(kw_only=True)
class Step:
    """One form or transition of a journey over `axes`. `why` is empty for what the text says."""

    axes: tuple[str, ...] = ()
    dtype: str | None = None
    span: Span | None = attrs.field(default=None, eq=False, repr=False)
    why: str = attrs.field(default="", eq=False)


@attrs.frozen(kw_only=True)
class Replicate(Step):
    """Full on every rank of the axes (of the whole mesh when none is named)."""


@attrs.frozen(kw_only=True)
class Shard(Step):
    """Split along `dim` over the axes, outer first. `pad`: "even" rounds dim 0 up to equal shards as FSDP2 does."""

    dim: str = "0"
    pad: str = "even"


@attrs.frozen(kw_only=True)
class Partial(Step):
    """Each rank of the axes holds a summand."""


@attrs.frozen(kw_only=True)
class Gather(Step):
    """A temporary full copy, one `unit` at a time, `prefetch` units ahead, released after `keep`."""

    unit: str = "layer"
    keep: Keep = Keep.UNIT
    prefetch: int = 1


@attrs.frozen(kw_only=True)
class Reduce(Step):
    """A sum (or mean) over the axes; `scatter` leaves each rank its shard along `dim`, else all get the whole."""

    scatter: bool
    mean: bool = False
    when: When = When.STEP
    dim: str = "0"
    pad: str = "even"
    wire: str | None = None


@attrs.frozen(kw_only=True)
class AllGather(Step):
    """Shards to the whole, for good: how refreshed parameters return in `update:`."""


Journey = tuple[Step, ...]


@attrs.frozen
class Placed:
    """The journey of one state, for the tensors that a selector names (none: all)."""

    state: State
    journey: Journey


@attrs.frozen
class Train:
    """What the job fixes. Sizes are None where the text gives none and stay symbols."""

    optimizer: str = "adamw"
    precision: Precision = PRECISIONS["fp32"]
    seq: int | None = None
    micro_batch: int | None = None  # samples of one rank group in one microbatch
    microbatches: int = 1
    loss: str = "tokens"

    @property
    def moments(self) -> int:
        """Moments an optimizer keeps per parameter."""
        return {"adamw": 2, "adam": 2, "sgd": 0, "sgd_momentum": 1}[self.optimizer]


@attrs.frozen
class Assumption:
    """A fact that no line of the text gives, and the value that was taken for it."""

    name: str
    text: str


@attrs.frozen
class Plan:
    """A complete strategy: every state has a journey that names every axis it crosses."""

    mesh: Mesh
    placed: tuple[Placed, ...]
    update: Journey
    train: Train = Train()
    model: Model | None = None
    assumptions: tuple[Assumption, ...] = ()

    def journey(self, state: State) -> Journey:
        return next(p.journey for p in self.placed if p.state is state)
