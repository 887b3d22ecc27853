"""Axes of the mesh over which a strategy splits nothing: their ranks repeat each other's work.

Sound, since copies of one computation agree, and nearly always a factor that was forgotten. Not for: steps without
effect (`explain.no_benefit`).
"""

from __future__ import annotations

from collections.abc import Iterator

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import fault
from placelang.plan.mesh import Axis, Role
from placelang.plan.plan import Plan
from placelang.plan.steps import Gather, Replicate, SmallerShard

_USUAL = {Role.TENSOR: "megatron_sp", Role.STAGE: "pipelined", Role.SEQUENCE: "ring", Role.EXPERT: "expert_parallel"}
"""The strategy of the standard library that most people mean by an axis of this role."""


def idle(plan: Plan) -> Iterator[Diagnostic]:
    """A warning for each axis of more than one rank, or of unknown size, that no step of the plan is over."""
    used = {other for name in _used(plan) for other in plan.mesh.shared(name)}
    for axis in plan.mesh.axes:
        if axis.size != 1 and axis.name not in used:
            yield _warning(axis)


def _used(plan: Plan) -> Iterator[str]:
    """The axes that steps are over, on whichever mesh they are declared."""
    for step in (step for journey in (*(p.journey for p in plan.placed), plan.update) for step in journey):
        if not isinstance(step, Replicate):  # which says of an axis that it does nothing
            yield from step.axes
        if isinstance(step, Gather) and isinstance(step.keep, SmallerShard):
            yield from step.keep.axes


def _warning(axis: Axis) -> Diagnostic:
    count = "all" if axis.size is None else f"all {axis.size}"
    usual = _USUAL.get(axis.role)
    return fault(
        "W401",
        f"nothing is split over `{axis.name}`: {count} ranks of it do the same work",
        axis.span,
        rule="an axis brings something only where a state, the samples or the tokens are split over it",
        help=f"`{usual}({axis.name})` as a factor of `apply`, or a mesh without `{axis.name}`"
        if usual
        else f"a mesh without `{axis.name}`",
    )
