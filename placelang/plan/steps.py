"""Steps: the typed words of journeys, forms first and then what happens to a state.

A journey is a tuple of steps. `params` and `optimizer` journeys go from rest to use, `grads` and `activations` from
production to rest (language reference, "Words"). Each step says where it stands in the text or why it was inferred.
Not for: which words exist and what options they take (`words`).
"""

from __future__ import annotations

from enum import Enum
from fractions import Fraction

import attrs

from placelang.frozen import Frozen
from placelang.source import Span


class When(Enum):
    """How often a reduction runs: once per microbatch, or once per step on the accumulated gradient."""

    MICROBATCH = "microbatch"
    STEP = "step"


class Keep(Enum):
    """How long a gathered view lives."""

    UNIT = "unit"
    MICROBATCH = "microbatch"
    STEP = "step"


@attrs.frozen(eq=False, repr=False)
class SmallerShard(Frozen):
    """`keep = shard(axes)`: backward gathers from a shard over `axes` only (hpZ of ZeRO++, arXiv 2306.10209, sec.
    3.2). `ranks` instead of axes: torch's `reshard_after_forward = N`."""

    axes: tuple[str, ...] = ()
    ranks: int | None = None


@attrs.frozen(eq=False, repr=False)
class Balanced(Frozen):
    """`split = balanced(first_less = 1, last_less = 1)`: equal parts, but the outer ones short of some."""

    first_less: int = 0
    last_less: int = 0


@attrs.frozen(eq=False, repr=False)
class Every(Frozen):
    """`when = every(100)`: once in so many steps. Replicas differ in between."""

    steps: int


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Step(Frozen):
    """One form or transition of a journey over `axes`. `why` is empty for what the text says."""

    axes: tuple[str, ...] = ()
    dtype: str | None = None
    span: Span | None = attrs.field(default=None, eq=False, repr=False)
    why: str = attrs.field(default="", eq=False)


# --- how a state lies -----------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Replicate(Step):
    """Full on every rank of the axes (of the whole mesh when none is named)."""


def _or_equal(split: tuple[int, ...] | Balanced | None) -> tuple[int, ...] | Balanced | None:
    return None if split == Balanced() else split


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Shard(Step):
    """Split along `dim` over the axes, outer first.

    `dim`: a number, or `flat`, `tensor`, `layer`, `expert`, `seq`, `batch`, `heads`, `vocab`. `pad`: "even" rounds dim
    0 up to equal shards as FSDP2 does, a number up to a multiple. `split`: sizes instead of equal parts. `min`: smaller
    tensors stay whole. `word`: `shard`, or `colwise` and `rowwise` (dims 0 and 1, which a matrix product can use).
    """

    dim: str = "0"
    pad: str = "even"
    split: tuple[int, ...] | Balanced | None = attrs.field(default=None, converter=_or_equal)
    min: int | None = None
    word: str = "shard"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Partial(Step):
    """Each rank of the axes holds a summand."""


# --- what happens to it ---------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Collective(Step):
    """Anything that sends: `bucket` bytes at a time, in format `wire`, `overlap`ped with compute or not."""

    bucket: int | None = None
    wire: str | None = None
    overlap: bool = True


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Gather(Collective):
    """A temporary full copy, one `unit` at a time, `prefetch` units ahead, released after `keep`."""

    unit: str = "layer"
    keep: Keep | SmallerShard = Keep.UNIT
    prefetch: int = 1


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Reduce(Collective):
    """A sum (or mean) over the axes; `scatter` leaves each rank its shard along `dim`, else all get the whole."""

    scatter: bool
    mean: bool = False
    when: When | Every = When.STEP
    dim: str = "0"
    pad: str = "even"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AllGather(Collective):
    """Shards to the whole: how refreshed params return in `update:`, or how a module fetches all tokens."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AllToAll(Collective):
    """Shards along one dim to shards along `dim`; `word` is `all_to_all` or `ulysses` (dim = heads)."""

    dim: str = ""
    word: str = "all_to_all"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Ring(Collective):
    """Keys and values pass around the axis (Liu et al., arXiv 2310.01889). `balance`: how the sequence is dealt."""

    balance: str = "contiguous"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Broadcast(Collective):
    """One rank's value to all of the axes."""

    root: int = 0


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Slice(Step):
    """The whole to each rank's own shard, without traffic."""

    dim: str = "0"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Offload(Step):
    """To host or disk between uses."""

    tier: str = "cpu"
    fraction: Fraction = Fraction(1)
    path: str | None = None
    pin_memory: bool = True
    buffers: int = 3
    buffer_size: int | None = None  # bytes; None: the largest piece
    prefetch: int = 1
    overlap: bool = True


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Recompute(Step):
    """Activations produced again in backward: `full`, `selective` (all but `save`), `none`; `chunks` tiles a layer."""

    policy: str = "full"
    save: tuple[str, ...] = ()
    chunks: int = 1


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Materialize(Step):
    """No rest form: rebuilt on demand."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Consume(Step):
    """Gradients read by the optimizer inside backward, never at rest."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Compress(Step):
    """Gradients sent lossily; the verdict is *inexact*."""

    method: str = "onebit"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Delay(Step):
    """Gradients used some steps late; the verdict is *inexact*."""

    steps: int = 1
    fraction: Fraction = Fraction(1)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Formats(Step):
    """`optimizer: as (master = fp32, moments = bf16)`; master "none" keeps no copy."""

    master: str | None = None
    moments: str | None = None


FORMS = (Replicate, Shard, Partial)
LOSSY = (Compress, Delay)

Journey = tuple[Step, ...]
