"""What of a plan this version lowers. The rest is valid language and is refused by name, never ignored.

Not for: what the backend can run (`backend.recipe`).
"""

from __future__ import annotations

from collections.abc import Iterator

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import fault
from placelang.plan.mesh import Role
from placelang.plan.plan import Placed, Plan, State
from placelang.plan.steps import (
    AllGather,
    Gather,
    Keep,
    Partial,
    Reduce,
    Replicate,
    Shard,
    Step,
    When,
)
from placelang.plan.text import step_text
from placelang.source import Span


def unsupported(plan: Plan) -> tuple[Diagnostic, ...]:
    """Everything in the plan that has no lowering yet, each with its place in the text."""
    found = tuple(dict.fromkeys(_faults(plan)))
    # What is inferred follows from what is written, which has a place in the text.
    return tuple(d for d in found if d.primary) or found


def _faults(plan: Plan) -> Iterator[Diagnostic]:
    for axis in plan.mesh.axes:
        if axis.role is not Role.DATA:
            yield _not_yet(f"axes of role {axis.role.value}", axis.span)
    for view in plan.mesh.views:
        yield _not_yet("mesh views (`over`)", view.span)
    for placed in plan.placed:
        if placed.selections:
            yield _not_yet("selections", placed.selections[0].span)
        else:
            yield from _steps(placed)
    for step in plan.update:
        if not isinstance(step, AllGather):
            yield _not_yet(f"`update: {step_text(step, full=False)}`", step.span)
    if plan.schedule is not None:
        yield _not_yet("pipeline schedules", plan.schedule.span)
    train = plan.train
    for name, said in (
        ("clip", train.clip is not None),
        ("loss_scale", train.loss_scale is not None),
        ("frozen", bool(train.frozen)),
        ("dropout", train.dropout > 0),
        ("loss = samples", train.loss == "samples"),
    ):
        if said:
            yield _not_yet(f"`train ({name})`", train.span)


_LOWERED: dict[State, tuple[type[Step], ...]] = {
    State.PARAMS: (Replicate, Shard, Gather),
    State.OPTIMIZER: (Replicate, Shard),
    State.GRADS: (Partial, Reduce),
    State.ACTIVATIONS: (Replicate, Shard),
}


def _steps(placed: Placed) -> Iterator[Diagnostic]:
    for step in placed.journey:
        if not isinstance(step, _LOWERED[placed.state]):
            yield _not_yet(f"`{step_text(step, full=False)}` on {placed.state.value}", step.span)
        elif not _is_lowered(step, placed.state):
            yield _not_yet(f"`{step_text(step, full=False)}`", step.span)
        elif step.dtype is not None and not isinstance(step, Gather):
            yield _not_yet(f"`as {step.dtype}` here", step.span)


def _is_lowered(step: Step, state: State) -> bool:
    """Whether the options of a step that is lowered are too."""
    match step:
        case Shard():
            dim = "batch" if state is State.ACTIVATIONS else "0"
            return (step.dim, step.pad, step.split, step.min, step.word) == (dim, "even", None, None, "shard")
        case Gather():
            return isinstance(step.keep, Keep) and step.unit == "layer" and step.bucket is None
        case Reduce():
            plain = (step.dim, step.pad, step.bucket) == ("0", "even", None)
            return plain and isinstance(step.when, When)
        case _:
            return True


def _not_yet(what: str, span: Span | None) -> Diagnostic:
    return fault(
        "E112",
        f"this version does not check, cost or run {what}",
        span,
        rule="what is not modelled is refused, so that no answer is about another strategy",
    )
