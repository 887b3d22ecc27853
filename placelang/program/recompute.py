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
    """`rules`: of roles, or of a block, what is kept of their operations (None: all). The last that fits counts."""

    rules: tuple[tuple[str, tuple[str, ...] | None], ...]

    @property
    def of_block(self) -> tuple[str, ...] | None:
        """What is kept of operations of which no rule of their role speaks; None: all."""
        return next((save for scope, save in reversed(self.rules) if scope == BLOCK), None)

    @property
    def full(self) -> bool:
        """Whether a block keeps nothing but its input."""
        return self.of_block == () and len(self.rules) == 1

    def saved(self, role: str, kind: str) -> tuple[str, ...] | None:
        """What is kept of an operation that runs again; None: it does not."""
        for scope, save in reversed(self.rules):
            if scope == BLOCK or ((role == scope or role.startswith(f"{scope}.")) and (kind != "add")):
                return save
        return None

    def keeps(self, node: Node) -> bool:
        """Whether the result of an operation or move is still there in backward."""
        if node.operation is None:
            return self.of_block is None or "collective" in self.of_block
        save = self.saved(node.operation.role, node.operation.kind)
        return save is None or results(save, node.operation.kind)

    def releases(self, node: Node) -> bool:
        """Whether what the backward of an operation reads is released after forward."""
        o = node.operation
        save = self.saved(o.role, o.kind) if o is not None and o.kind not in KEEPS_NOTHING else None
        return o is not None and save is not None and not (o.kind == "linear" and "linear" in save)


def results(save: tuple[str, ...], kind: str) -> bool:
    """Whether results of a kind of operation stay."""
    return any(kind in _RESULTS.get(word, ()) for word in save)


def policy(plan: Plan) -> Policy | None:
    """What the text says of blocks and of roles in them; None where all is kept."""
    rules: list[tuple[str, tuple[str, ...] | None]] = []
    for placed in plan.placed:
        if placed.state is not State.ACTIVATIONS:
            continue
        scopes = [s.value for s in placed.selections if s.kind == "role"] if placed.selections else [BLOCK]
        for step in placed.journey:
            if isinstance(step, Recompute):
                rules += [(scope, None if step.policy == "none" else step.save) for scope in scopes]
    return Policy(tuple(rules)) if any(save is not None for _, save in rules) else None
