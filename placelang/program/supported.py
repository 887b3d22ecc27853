"""What of a plan this version lowers. The rest is valid language and is refused by name, never ignored.

Not for: what the backend can run (`backend.recipe`).
"""

from __future__ import annotations

from collections.abc import Iterator

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import fault, from_use
from placelang.model.graph import opens as graph_is_known
from placelang.model.graph import operations
from placelang.model.model import Model, Routing
from placelang.plan import selectors
from placelang.plan.infer import split_axes
from placelang.plan.mesh import Role
from placelang.plan.plan import Placed, Plan, State
from placelang.plan.steps import (
    AllGather,
    AllToAll,
    Formats,
    Gather,
    Keep,
    Partial,
    Recompute,
    Reduce,
    Replicate,
    Ring,
    Shard,
    Step,
    When,
)
from placelang.plan.text import step_text
from placelang.program.atoms import refined
from placelang.program.layers import frozen_names, layers_of
from placelang.program.lower import opens
from placelang.program.stages import layer_shard
from placelang.source import Span
from placelang.syntax import ast

_ROLES = (Role.DATA, Role.TENSOR, Role.SEQUENCE, Role.STAGE, Role.EXPERT)


def unsupported(plan: Plan, model: Model) -> tuple[Diagnostic, ...]:
    """Everything in the plan that has no lowering yet, each with its place in the text."""
    found = tuple(dict.fromkeys(map(from_use, _faults(plan, model))))
    # What is inferred follows from what is written, which has a place in the text.
    return tuple(d for d in found if d.primary) or found


def _faults(plan: Plan, model: Model) -> Iterator[Diagnostic]:
    for axis in plan.mesh.axes:
        if axis.role not in _ROLES:
            yield _not_yet(f"axes of role {axis.role.value}", axis.span)
    if refined(plan) is None:
        yield _not_yet("mesh views (`over`) of several axes whose sizes are not known", plan.mesh.views[0].span)
    if opens(plan) and not graph_is_known(model):
        axis = next(a for a in plan.mesh.axes if a.role is not Role.DATA)
        yield _not_yet(f"`{axis.name}` inside the layers of {model.name}, whose operations it does not know", axis.span)
    for placed in plan.placed:
        yield from _fused(placed, model)
        yield from _selections(placed, plan, model)
        yield from _steps(placed)
        for step in placed.journey:
            if isinstance(step, Formats) and placed.selections and step not in plan.journey(State.OPTIMIZER):
                yield _not_yet("formats of some optimizer state", step.span)
    for step in plan.update:
        if not isinstance(step, AllGather) or step.wire or step.bucket or step.dtype:
            yield _not_yet(f"`update: {step_text(step, full=False)}`", step.span)
    blocks = [stack for stack in model.stacks if stack.block]
    if (dealt := layer_shard(plan)) and len({stack.name for stack in blocks}) > 1:
        yield _not_yet(f"stages of {model.name}, whose blocks are no single run", dealt.span)
    yield from _model(plan)
    yield from _frozen(plan, model)
    train = plan.train
    for name, said in (
        ("dropout", train.dropout > 0),
        ("loss = samples", train.loss == "samples"),
    ):
        if said:
            yield _not_yet(f"`train ({name})`", train.span)


def _frozen(plan: Plan, model: Model) -> Iterator[Diagnostic]:
    """Frozen sets are lowered where they take every layer of a run alike, and whole operations."""
    still = frozen_names(model, plan.train.frozen)
    for stack in model.stacks if plan.train.frozen else ():
        for tensor in stack.tensors:
            count = sum(stack.fqn(tensor, layer) in still for layer in range(stack.count))
            if 0 < count < stack.count:
                yield _not_yet("frozen parameters of some layers of many", plan.train.span)
                return
    for layer in layers_of(model, opens(plan), plan.train.frozen):
        if any(o.kind != "opaque" and len(layer.reads[o.name]) > 1 for o in layer.operations):
            yield _not_yet("some frozen tensors of one operation", plan.train.span)
            return


def _model(plan: Plan) -> Iterator[Diagnostic]:
    """What of the function that the model computes is not lowered."""
    routing = plan.model.routing if plan.model else Routing()
    span = next((s.value.span for s in plan.repeated if isinstance(s, ast.Fact) and s.kind == "model"), None)
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


def _fused(placed: Placed, model: Model) -> Iterator[Diagnostic]:
    """Keys and values that are one matrix with the queries can't be gathered apart."""
    if placed.state is not State.ACTIVATIONS:
        return
    fused = any(o.kind == "attention" and len(o.ins) == 1 for stack in model.stacks for o in operations(model, stack))
    for step in placed.journey:
        if fused and isinstance(step, (AllGather, Ring)):
            yield _not_yet(
                f"`{step_text(step, full=False)}` with the fused query-key-value matrix of {model.name}", step.span
            )


def _selections(placed: Placed, plan: Plan, model: Model) -> Iterator[Diagnostic]:
    """Selections are lowered where they take whole operations, alike in every layer."""
    if not placed.selections:
        return
    span = placed.selections[0].span
    if placed.state is State.ACTIVATIONS:
        for s in placed.selections:
            recompute = all(isinstance(step, Recompute) for step in placed.journey)
            if s.kind != "role" or (s.value == "block" and not recompute) or s.value in ("tied", "frozen", "trainable"):
                yield _not_yet(f"activations of `{s}`", s.span)
        return
    if any(s.kind == "partial" for s in placed.selections):
        yield _not_yet("selections of partial sums", span)
    if any(s.kind in ("replicated", "sharded") for s in placed.selections) and placed.state is not State.GRADS:
        yield _not_yet(f"{placed.state.value} selected by placement", span)
    for stack in model.stacks:
        hits = frozenset[str]().union(
            *(selectors.matches(s, model, plan.train.frozen) for s in placed.selections if s.kind == "glob")
        )
        for tensor in stack.tensors:
            count = sum(stack.fqn(tensor, layer) in hits for layer in range(stack.count))
            if 0 < count < stack.count:
                yield _not_yet("a selection of some layers of many", span)
                return
    whole = [g.tensors for layer in layers_of(model, opens(plan), plan.train.frozen) for g in layer.own]
    names = {t: s.fqn(t) for s in model.stacks for t in s.tensors}
    taken = frozenset[str]().union(
        *(selectors.matches(s, model, plan.train.frozen) for s in placed.selections if s.kind in ("glob", "role"))
    )
    for tensors in whole:
        some = [names[t] in taken for t in tensors if t in names]
        if any(some) and not all(some):
            yield _not_yet("a selection of some tensors of one operation", span)
            return


_LOWERED: dict[State, tuple[type[Step], ...]] = {
    State.PARAMS: (Replicate, Shard, Gather),
    State.OPTIMIZER: (Replicate, Shard, Formats),
    State.GRADS: (Partial, Reduce),
    State.ACTIVATIONS: (Replicate, Shard, Partial, Reduce, AllGather, AllToAll, Ring, Recompute),
}


def _steps(placed: Placed) -> Iterator[Diagnostic]:
    for step in placed.journey:
        if not isinstance(step, _LOWERED[placed.state]):
            yield _not_yet(f"`{step_text(step, full=False)}` on {placed.state.value}", step.span)
        elif not _is_lowered(step, placed):
            yield _not_yet(f"`{step_text(step, full=False)}`", step.span)
        elif step.dtype is not None and not (isinstance(step, Gather) or _rests_apart(step, placed)):
            yield _not_yet(f"`as {step.dtype}` here", step.span)


def _rests_apart(step: Step, placed: Placed) -> bool:
    """Parameters that no optimizer updates may rest in a format of their own."""
    frozen = bool(placed.selections) and all(s.value == "frozen" for s in placed.selections)
    return placed.state is State.PARAMS and frozen and isinstance(step, (Replicate, Shard))


def _is_lowered(step: Step, placed: Placed) -> bool:
    """Whether the options of a step that is lowered are too."""
    activations = placed.state is State.ACTIVATIONS
    match step:
        case Shard() if activations:
            return step.dim in ("batch", "seq")
        case Shard(dim="layer"):
            return placed.state in (State.PARAMS, State.OPTIMIZER) and len(step.axes) == 1
        case Shard():
            return (step.pad, step.split, step.min) == ("even", None, None) and (
                step.dim.isdigit() or step.dim in ("vocab", "heads", "expert")
            )
        case Gather():
            known = isinstance(step.keep, Keep) or bool(step.keep.axes)
            return known and (step.unit, step.bucket) == ("layer", None)
        case Reduce() if activations:
            return step.dim in ("seq", "0") and step.bucket is None and not step.mean
        case Reduce():
            plain = (step.dim, step.pad, step.bucket) == ("0", "even", None)
            return plain and isinstance(step.when, When)
        case AllToAll():
            experts = all(s.kind == "role" and s.value == "experts" for s in placed.selections)
            plain = step.bucket is None
            return plain and (step.dim == "heads" or (bool(placed.selections) and experts and not step.dim))
        case Recompute():
            return step.chunks == 1
        case _:
            return True


def _not_yet(what: str, span: Span | None) -> Diagnostic:
    return fault(
        "E112",
        f"this version does not check, cost or run {what}",
        span,
        rule="what is not modelled is refused, so that no answer is about another strategy",
    )
