"""The vocabulary of journeys: which words each state takes, and the options of each word with their defaults.

States, modes, roles and units are names that are resolved here, not keywords of the grammar, so an unknown one can be
answered with the nearest known. One table types journeys, prints them, and documents them. Not for: what a step means.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from placelang.frozen import Frozen
from placelang.plan.steps import (
    AllGather,
    AllToAll,
    Broadcast,
    Compress,
    Consume,
    Delay,
    Gather,
    Materialize,
    Offload,
    Partial,
    Recompute,
    Reduce,
    Replicate,
    Ring,
    Shard,
    Slice,
    Step,
)

STATES = ("params", "optimizer", "grads", "activations")
HEADS = (*STATES, "update", "schedule")
"""Names that may stand before the `:` of a placement."""


@attrs.frozen(eq=False, repr=False)
class Option(Frozen):
    """An option of a word. `kind` says what values it takes (see `journeys`); `words` are those of kind "word"."""

    name: str
    kind: str
    words: tuple[str, ...] = ()
    doc: str = ""


@attrs.frozen(eq=False, repr=False)
class Word(Frozen):
    """A word of journeys: the step that it makes, with the fields that it fixes."""

    name: str
    step: type[Step]
    options: tuple[Option, ...] = ()
    fixed: tuple[tuple[str, object], ...] = ()
    axes: str = "optional"  # "required" | "optional" | "none"
    flags: tuple[str, ...] = ()  # option names whose value may stand alone: `all_reduce(dp, mean)`
    doc: str = ""


_PAD = Option("pad", "pad", doc="rows are rounded up so that shards are equal")
_DIM = Option("dim", "dim", doc="the dim along which it is split")
_COLLECTIVE = (
    Option("bucket", "bytes", doc="bytes sent at a time"),
    Option("wire", "dtype", doc="number format while sent"),
    Option("overlap", "bool", doc="runs beside compute"),
)
_REDUCE = (
    Option("op", "word", ("sum", "mean"), "also alone: `all_reduce(dp, mean)`"),
    Option("when", "when", ("microbatch", "step"), "how often it runs"),
    *_COLLECTIVE,
)
_SHARD = (
    _DIM,
    Option("split", "split", doc="sizes of the parts"),
    _PAD,
    Option("min", "int", doc="tensors of fewer elements stay whole"),
)

_ALL = (
    Word("replicate", Replicate, doc="full on every rank of the axes"),
    Word("shard", Shard, _SHARD, axes="required", doc="split over the axes, outer first"),
    Word("colwise", Shard, fixed=(("word", "colwise"), ("dim", "0")), axes="required", doc="output features split"),
    Word("rowwise", Shard, fixed=(("word", "rowwise"), ("dim", "1")), axes="required", doc="input features split"),
    Word("partial", Partial, doc="each rank of the axes holds a summand"),
    Word(
        "gather",
        Gather,
        (
            Option("unit", "word", ("layer", "model"), "what is gathered together"),
            Option(
                "keep",
                "keep",
                ("unit", "microbatch", "step"),
                "how long the view lives, or what is left of it for backward",
            ),
            Option("prefetch", "int", doc="units gathered ahead"),
            Option("reshard_after_forward", "reshard", doc="torch's way to say `keep`"),
            *_COLLECTIVE,
        ),
        doc="a temporary full copy",
    ),
    Word("all_reduce", Reduce, _REDUCE, (("scatter", False),), flags=("op",), doc="the sum, whole on every rank"),
    Word(
        "reduce_scatter", Reduce, (*_REDUCE, _DIM, _PAD), (("scatter", True),), flags=("op",), doc="each rank its shard"
    ),
    Word("all_gather", AllGather, _COLLECTIVE, doc="shards to the whole"),
    Word("all_to_all", AllToAll, (_DIM, *_COLLECTIVE), doc="shards along one dim to shards along another"),
    Word(
        "ulysses", AllToAll, _COLLECTIVE, (("dim", "heads"), ("word", "ulysses")), doc="sequence shards to head shards"
    ),
    Word(
        "ring",
        Ring,
        (Option("balance", "word", ("contiguous", "headtail"), "how the sequence is dealt"), *_COLLECTIVE),
        doc="keys and values pass around",
    ),
    Word(
        "broadcast",
        Broadcast,
        (Option("root", "int", doc="the rank that has it"), *_COLLECTIVE),
        doc="one rank's value to all",
    ),
    Word("slice", Slice, (_DIM,), doc="the whole to each rank's shard"),
    Word(
        "offload",
        Offload,
        (
            Option("fraction", "share", doc="how much of the state"),
            Option("path", "text", doc="folder, for nvme"),
            Option("pin_memory", "bool", doc="page-locked host memory"),
            Option("buffers", "count", doc="pieces on their way at once"),
            Option("buffer_size", "bytes", doc="of each of them"),
            Option("prefetch", "int", doc="pieces fetched ahead"),
            Option("overlap", "bool", doc="runs beside compute"),
        ),
        axes="none",
        flags=("tier",),
        doc="to host memory (cpu) or disk (nvme) between uses",
    ),
    Word(
        "recompute",
        Recompute,
        (
            Option("save", "names", ("matmul", "linear", "sdpa", "norm", "collective"), "whose results are kept"),
            Option("chunks", "count", doc="tiles of a layer"),
        ),
        axes="none",
        flags=("policy",),
        doc="produced again in backward",
    ),
    Word("materialize", Materialize, axes="none", doc="rebuilt on demand, never at rest"),
    Word("consume", Consume, axes="none", doc="read by the optimizer inside backward"),
    Word("compress", Compress, axes="none", flags=("method",), doc="sent lossily"),
    Word(
        "delay",
        Delay,
        (Option("steps", "count", doc="how late"), Option("fraction", "share", doc="how much of the gradient")),
        axes="none",
        doc="used some steps late",
    ),
)

WORDS: Mapping[str, Word] = {w.name: w for w in _ALL}

FLAGS: Mapping[str, Option] = {
    "op": Option("op", "word", ("sum", "mean")),
    "tier": Option("tier", "word", ("cpu", "nvme"), "stands alone: `offload(cpu)`"),
    "policy": Option("policy", "word", ("full", "selective", "none"), "stands alone: `recompute(full)`"),
    "method": Option("method", "word", ("onebit",), "stands alone: `compress(onebit)`"),
}
"""Options whose value may stand without a name, as the first word that is no axis."""

TAKES: Mapping[str, tuple[str, ...]] = {
    "params": ("replicate", "shard", "colwise", "rowwise", "gather", "offload", "materialize", "all_reduce"),
    "optimizer": ("replicate", "shard", "colwise", "rowwise", "offload", "materialize"),
    "grads": ("partial", "all_reduce", "reduce_scatter", "offload", "consume", "compress", "delay"),
    "activations": (
        *(
            "replicate",
            "shard",
            "partial",
            "all_reduce",
            "reduce_scatter",
            "all_gather",
            "all_to_all",
            "ulysses",
            "ring",
        ),
        *("slice", "recompute", "materialize", "offload"),
    ),
    "update": ("all_gather", "slice", "broadcast"),
}
"""The words that each head takes."""

SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "gpipe": (),
    "1f1b": (),
    "interleaved_1f1b": ("chunks",),
    "zb_h1": (),
    "zb_h2": (),
    "zbv": (),
    "dualpipev": (),
}
"""Pipeline schedules and their options."""
