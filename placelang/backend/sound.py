"""The step program that a run carries out: pruned and found sound for the model that is really there.

A text that names no model was checked on a stand-in, which may lack a tensor that the real one has. Not for: what this
backend has a way to run (`recipe`).
"""

from __future__ import annotations

from placelang.backend.errors import BackendError
from placelang.backend.errors import unsupported as refused
from placelang.check.check import check_plan
from placelang.model.model import Model
from placelang.plan.plan import Plan
from placelang.program.lower import lower
from placelang.program.program import Program
from placelang.program.recompute import policy
from placelang.program.supported import unsupported


def step_program(plan: Plan, model: Model, force: bool = False) -> Program:
    """Raises BackendError: the first reason why the plan would not train `model` like one device, unless `force`; and
    what of it has no lowering, even then."""
    gaps = unsupported(plan, model) if plan.mesh.axes else ()  # a plan for one device has nothing to lower
    if gaps:
        raise BackendError(gaps[0])
    again = policy(plan)
    if again is not None and not again.full:  # of layers that are not opened the program does not show it
        what = "recomputation of a part of a block"
        raise refused(what, "`activations[block]: recompute(full)`, which keeps of a block what it is given")
    checked = check_plan(plan, model)
    if checked.ok:
        return checked.program
    if not force:
        raise BackendError(next(d for d in checked.diagnostics if d.is_error))
    return lower(plan, model)
