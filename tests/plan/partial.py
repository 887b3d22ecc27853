"""Every partial text over data axes: what each state may say, and what the checker says of it. For `test_infer`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

from placelang.check.fold import Reference, fold, reference
from placelang.check.prune import prune
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.model.model import generic
from placelang.plan.elaborate import elaborate
from placelang.plan.plan import Plan
from placelang.program.lower import lower, single_device
from placelang.source import Source
from placelang.syntax.parser import parse

Triple = tuple[str | None, str | None, str | None]
"""What a text says of params, grads and optimizer; None: nothing."""

ONE = ("dp",)
TWO = ("dp_replicate", "dp_shard")


def menus(axes: Sequence[str]) -> tuple[list[str | None], list[str | None], list[str | None]]:
    """All that a text may say of each of the three states over these axes, nothing included."""
    groups = [*axes, *(" * ".join(order) for order in ((axes, axes[::-1]) if len(axes) > 1 else ()))]
    over = ["", *(f"({g})" for g in groups)]
    sums, shards = [f"all_reduce{o}" for o in over], [f"reduce_scatter{o}" for o in over]
    both = [f"{a} | {b}" for x, y in ((shards, sums), (sums, shards)) for a, b in product(x, y)]
    uses = ("", " | gather", *(f" | gather({g})" for g in groups))
    params = [f"shard({g}){use}" for g in groups for use in uses if use in ("", " | gather", f" | gather({g})")]
    optimizer = [f"shard({g})" for g in groups]
    return [None, "replicate", *params], [None, *sums, *shards, *both], [None, "replicate", *optimizer]


def text(axes: Sequence[str], said: Triple) -> str:
    lines = [
        f"{head}: {journey}" for head, journey in zip(("params", "grads", "optimizer"), said, strict=True) if journey
    ]
    return "\n".join((f"mesh ({', '.join(f'{a} = 2' for a in axes)})", "train (microbatches = 2)", *lines))


def elaborated(written: str) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    file, problems = parse(Source(written))
    assert not problems
    return elaborate(file)


@cache
def sound(axes: tuple[str, ...], said: Triple) -> bool:
    """Whether the elaborated text trains like one device."""
    plan, _ = elaborated(text(axes, said))
    return plan is not None and not fold(prune(lower(plan, generic())).program, _reference(axes)).faults


@cache
def _reference(axes: tuple[str, ...]) -> Reference:
    plan, _ = elaborated(text(axes, ("replicate", "all_reduce", "replicate")))
    assert plan is not None
    return reference(lower(single_device(plan), generic()))
