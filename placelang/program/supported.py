"""What of a plan this version lowers. The rest is valid language and is refused by name, never ignored.

Not for: what the backend can run (`backend.recipe`).
"""

from __future__ import annotations

from collections.abc import Iterator

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import fault
from placelang.model.model import Routing
from placelang.plan.infer import split_axes
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
from placelang.syntax import ast


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
        if not isinstance(step, AllGather) or step.wire or step.bucket or step.dtype:
            yield _not_yet(f"`update: {step_text(step, full=False)}`", step.span)
    if plan.schedule is not None:
        yield _not_yet("pipeline schedules", plan.schedule.span)
    yield from _model(plan)
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


def _model(plan: Plan) -> Iterator[Diagnostic]:
    """What of the function that the model computes is not lowered."""
    model, routing = plan.model, plan.model.routing if plan.model else Routing()
    span = next((s.value.span for s in plan.repeated if isinstance(s, ast.Fact) and s.kind == "model"), None)
    if model is not None and model.params_trainable < model.params:
        yield _not_yet("frozen parameters", span)
    if routing.tokenwise:
        return
    what = "a capacity" if routing.capacity is not None else "a load-balance loss"
    if routing.group is not None:
        yield _not_yet(f"routing with {what}", span)
    elif split_axes(plan.journey(State.ACTIVATIONS)):
        yield fault(
            "E213",
            f"routing with {what} depends on a token set, and the model names none",
            span,
            rule="which tokens meet is part of the function that the model computes",
            help="`group = dp` (one set a data rank), or `group = global` (one set of all tokens)",
        )


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
            plain = (step.unit, step.bucket, step.wire) == ("layer", None, None)
            return plain and isinstance(step.keep, Keep)
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
