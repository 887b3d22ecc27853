"""What backward produces again instead of keeping: which operations of a block, and whose results stay.

`save` names kinds of results: `matmul` (of matrix products), `sdpa` (of attention), `norm`, `collective` (of moves);
`linear` keeps linear layers as they are, with their inputs (Korthikanti et al., arXiv 2205.05198, section 5; the others
as PyTorch's selective checkpointing does). Not for: how many bytes that is (`cost`).
"""

from __future__ import annotations

import attrs

from placelang.frozen import Frozen
from placelang.plan.plan import Plan, State
from placelang.plan.steps import Recompute
from placelang.program.nodes import Node

BLOCK = "block"

KEEPS_NOTHING = ("add", "bias")
"""Kinds of operations whose backward reads no value."""

_RESULTS = {"matmul": ("linear", "bias"), "linear": ("linear", "bias"), "sdpa": ("attention",), "norm": ("norm",)}
"""The kinds of operations whose results a word of `save` keeps."""


@attrs.frozen(eq=False, repr=False)
class Policy(Frozen):
    """`scope`: the role whose operations run again, or all of a block. `save`: what of them is kept."""

    scope: str
    save: tuple[str, ...]

    @property
    def full(self) -> bool:
        """Whether a block keeps nothing but its input."""
        return self.scope == BLOCK and not self.save

    def covers(self, role: str, kind: str) -> bool:
        """Whether an operation is one of those that run again."""
        if self.scope == BLOCK:
            return True
        inside = role == self.scope or role.startswith(f"{self.scope}.")
        return inside and kind not in ("add", "norm")

    def keeps(self, node: Node) -> bool:
        """Whether the result of an operation or move is still there in backward."""
        if node.operation is None:
            return self.scope != BLOCK or "collective" in self.save
        o = node.operation
        return not self.covers(o.role, o.kind) or self.saves(o.kind)

    def saves(self, kind: str) -> bool:
        """Whether results of a kind of operation stay."""
        return any(kind in _RESULTS.get(word, ()) for word in self.save)

    def releases(self, node: Node) -> bool:
        """Whether what the backward of an operation reads is released after forward."""
        o = node.operation
        if o is None or o.kind in KEEPS_NOTHING or not self.covers(o.role, o.kind):
            return False
        return not (o.kind == "linear" and "linear" in self.save)


def policy(plan: Plan) -> Policy | None:
    """What the text says of blocks, or of one role in them; None where all is kept."""
    found: Policy | None = None
    for placed in plan.placed:
        if placed.state is not State.ACTIVATIONS:
            continue
        scopes = [s.value for s in placed.selections if s.kind == "role"] if placed.selections else [BLOCK]
        for step in placed.journey:
            if isinstance(step, Recompute) and scopes:
                found = None if step.policy == "none" else Policy(scopes[0], step.save)
    return found
