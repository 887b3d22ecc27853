"""How a runtime spends time beside its kernels: passes over memory, the host, and what overlapping costs.

Figures are fitted over published runs of stacks that work alike (docs/design/time); none is of one run or model. Not
for: what a runtime does to traffic and memory (`program.profile`), or devices (`hardware`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import attrs

from placelang.frozen import Frozen
from placelang.plan.plan import Assumption


@attrs.frozen(eq=False, repr=False)
class Stack(Frozen):
    """Of one runtime.

    `fusion`: bytes that elementwise operations move, over the least they could; `host`: seconds of the host for one
    operation; `logits`: bytes that the loss moves for each logit; `tax`: slowdown of compute while a collective runs
    beside it, as a share of what is hidden; `fixed`: seconds of a step outside of all kernels; `reach`: the window of a
    layer that reductions and gathers may use; `striped`: rings over all NICs of a node.
    """

    name: str
    fusion: Fraction
    host: Fraction
    logits: Fraction
    tax: Fraction
    fixed: Fraction
    striped: int
    source: str

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return (
            Assumption(
                "stack",
                f"{self.name}: elementwise operations move {float(self.fusion):g} times the bytes they must, the host "
                f"takes {float(self.host) * 1e6:g} us an operation; {self.source}",
            ),
        )


STACKS: Final[Mapping[str, Stack]] = {
    "torch": Stack(
        name="torch",
        fusion=Fraction("1.63"),
        host=Fraction("12e-6"),
        logits=Fraction(23),
        tax=Fraction("0.5"),
        fixed=Fraction("0.0097"),
        striped=1,
        source="fitted on public runs of Composer and torchtitan",
    ),
}
"""By the name of the runtime profile (`program.profile`)."""

STRAGGLERS: Final = Fraction(1, 128)
"""A step waits for the slowest rank: a factor (n/8) to this power, 4 % at 1,024 devices (fitted)."""
