"""The Plan: what a strategy text means, typed and complete, before any model or event.

Not for: the words of journeys (`steps`), events (`program`), or how a plan is found from a text (`elaborate`).
"""

from __future__ import annotations

from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING

import attrs

from placelang.frozen import Frozen
from placelang.model.model import Model
from placelang.plan.dtypes import PRECISIONS, Precision
from placelang.plan.mesh import Mesh
from placelang.plan.steps import Journey
from placelang.source import Span
from placelang.syntax import ast

if TYPE_CHECKING:
    from placelang.hardware.hardware import Hardware
    from placelang.plan.scope import Scope
    from placelang.plan.values import Value


class State(Enum):
    PARAMS = "params"
    OPTIMIZER = "optimizer"
    GRADS = "grads"
    ACTIVATIONS = "activations"


@attrs.frozen(eq=False, repr=False)
class Selection(Frozen):
    """Which tensors or modules a placement is about: a glob over names, a role, or how another axis places them."""

    kind: str  # "glob" | "role" | "replicated" | "sharded" | "partial"
    value: str  # the pattern or role; the axes joined by " * "
    span: Span | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def by_name(self) -> bool:
        """Whether it takes the same tensors however they are placed."""
        return self.kind in ("glob", "role")

    def __str__(self) -> str:
        return {"glob": f'"{self.value}"', "role": self.value}.get(self.kind, f"{self.kind}({self.value})")


@attrs.frozen(eq=False, repr=False)
class Placed(Frozen):
    """The journey of one state: of all tensors, or where `selections` match, in place of what it names there."""

    state: State
    journey: Journey
    selections: tuple[Selection, ...] = ()
    override: bool = False
    span: Span | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen(eq=False, repr=False)
class Schedule(Frozen):
    """The order of microbatches over the stages. `chunks`: model chunks a rank holds."""

    name: str
    chunks: int = 1
    span: Span | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen(eq=False, repr=False)
class Train(Frozen):
    """What the job fixes. Sizes are None where the text gives none and stay symbols."""

    optimizer: str = "adamw"
    precision: Precision = PRECISIONS["fp32"]
    seq: int | None = None
    micro_batch: int | None = None  # samples of one rank group in one microbatch
    microbatches: int = 1
    loss: str = "tokens"  # what the loss is divided by: the tokens or the samples of the whole batch
    clip: Fraction | None = None  # largest norm of the whole gradient
    loss_scale: Fraction | None = None
    frozen: tuple[str, ...] = ()  # globs over names
    dropout: Fraction = Fraction(0)
    global_batch: int | None = attrs.field(default=None, eq=False)  # where the text says it, and so not `microbatches`
    span: Span | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def moments(self) -> int:
        """Whole-sized states an optimizer keeps per parameter, beside a master copy."""
        return MOMENTS[self.optimizer]


MOMENTS = {"adamw": 2, "adam": 2, "lamb": 2, "sgd": 0, "sgd_momentum": 1, "lion": 1, "adagrad": 1, "muon": 1}
"""Optimizers, with the states each keeps per parameter."""

WHOLE_TENSORS = frozenset({"lamb", "muon"})
"""Optimizers whose update of an element depends on its whole tensor."""


@attrs.frozen(eq=False, repr=False)
class Claim(Frozen):
    """`require` (before interpretation) or `assert` (after), with the names that its condition may use."""

    statement: ast.Claim
    scope: Scope = attrs.field(eq=False, repr=False)


@attrs.frozen(eq=False, repr=False)
class BackendOptions(Frozen):
    """`backend torch (compile = true)`: what only one backend knows, and validates."""

    name: str
    options: tuple[tuple[str, Value], ...]
    spans: tuple[Span, ...] = attrs.field(default=(), eq=False, repr=False)  # of each option
    span: Span | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen(eq=False, repr=False)
class Assumption(Frozen):
    """A fact that no line of the text gives, and the value that was taken for it."""

    name: str
    text: str


@attrs.frozen(eq=False, repr=False)
class Plan(Frozen):
    """A complete strategy: every state has a journey that names every axis it crosses.

    `placed` holds one entry a state without selections, then those with selections in the order of the text.
    """

    mesh: Mesh
    placed: tuple[Placed, ...]
    update: Journey
    train: Train = Train()
    model: Model | None = None
    assumptions: tuple[Assumption, ...] = ()
    schedule: Schedule | None = None
    hardware: Hardware | None = None
    claims: tuple[Claim, ...] = ()
    backends: tuple[BackendOptions, ...] = ()
    repeated: tuple[ast.Statement, ...] = ()  # what of the text no rule completes: see the module of this name

    def journey(self, state: State) -> Journey:
        """The journey of a state where no selection says otherwise."""
        return next(p.journey for p in self.placed if p.state is state and not p.selections)

    def refinements(self, state: State) -> tuple[Placed, ...]:
        return tuple(p for p in self.placed if p.state is state and p.selections)
