"""What a text asks to lose: sums, views and tokens that are sent in formats too small to hold them.

Everything but the rounding is checked as for an exact strategy; the verdict is then *inexact*, and names what is lost.
Not for: formats that training at mixed precision is used to (bf16, fp16): they belong to the job (`train`).
"""

from __future__ import annotations

from collections.abc import Iterator

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import fault
from placelang.plan.dtypes import BYTES
from placelang.plan.plan import Plan, State
from placelang.plan.steps import Collective

_EXACT = 2
"""Bytes an element from which on a format counts as that of an exact strategy."""
_SENT = {State.PARAMS: "parameters", State.GRADS: "gradients", State.ACTIVATIONS: "tokens"}


def inexact(plan: Plan) -> Iterator[Diagnostic]:
    """A warning for each collective that rounds what it sends to less than two bytes an element."""
    for placed in plan.placed:
        for step in placed.journey:
            if isinstance(step, Collective) and step.wire and BYTES[step.wire] < _EXACT:
                what = _SENT.get(placed.state, placed.state.value)
                yield fault(
                    "W201",
                    f"{what} are sent as `{step.wire}`: what training computes is no longer exact",
                    step.span,
                    rule="a strategy is exact when it loses nothing that one device would keep",
                    help="leave `wire` out, or `wire = bf16`",
                )
