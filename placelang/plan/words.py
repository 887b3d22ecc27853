"""The vocabulary of journeys: which words each state takes, their options, and which ones this version interprets.

States, modes, roles and units are names that are resolved here, not keywords of the grammar, so an unknown one can be
answered with the nearest known. Not for: what a word means (`journeys`).
"""

from __future__ import annotations

from collections.abc import Mapping

from placelang.plan.plan import State

STATES = tuple(s.value for s in State)
HEADS = (*STATES, "update", "schedule")
"""Names that may stand before the `:` of a placement."""

FORMS: Mapping[str, tuple[str, ...]] = {
    "params": ("replicate", "shard"),
    "optimizer": ("replicate", "shard"),
    "grads": ("partial",),
    "activations": ("replicate", "shard"),
    "update": (),
}
"""How a state can lie."""

TRANSITIONS: Mapping[str, tuple[str, ...]] = {
    "params": ("gather",),
    "optimizer": (),
    "grads": ("all_reduce", "reduce_scatter"),
    "activations": (),
    "update": ("all_gather",),
}
"""What can happen to a state on its journey."""

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "replicate": (),
    "shard": ("dim", "pad"),
    "partial": (),
    "gather": ("unit", "keep", "prefetch", "reshard_after_forward"),
    "all_reduce": ("op", "when", "wire"),
    "reduce_scatter": ("op", "when", "wire", "dim", "pad"),
    "all_gather": (),
}

NOT_INTERPRETED = frozenset(
    (
        *("colwise", "rowwise", "materialize", "recompute", "consume", "offload", "all_to_all", "slice", "broadcast"),
        *("compress", "delay", "ring", "ulysses", "all_gather", "reduce_scatter", "all_reduce", "gather", "partial"),
    )
)
"""Words of the language that this version refuses, as not interpreted, where a state does not list them above."""

NOT_INTERPRETED_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "shard": ("split", "min"),
    "gather": ("overlap", "wire", "bucket"),
    "all_reduce": ("bucket", "overlap"),
    "reduce_scatter": ("bucket", "overlap"),
    "all_gather": ("bucket", "overlap", "wire"),
}
