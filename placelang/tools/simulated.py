"""`place verify --simulate`: the strategy run literally on simulated ranks, in numpy, held against one device.

It needs neither torch nor processes: a program does to a few small tensors what it does to large ones. Not for: traffic
or bytes of a real run (`verify`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from placelang.api import Strategy
from placelang.diagnostics.diagnostic import Diagnostic, Verdict
from placelang.tools import inputs
from placelang.tools.running import refuse
from placelang.tools.screen import Screen

SHOWN = 5
_NOTHING: Mapping[str, Any] = {
    "model": None,
    "ranks": None,
    "outcome": None,
    "difference": None,
    "message": "",
    "mismatches": [],
}


def simulate(
    screen: Screen, file: str, sets: Mapping[str, str], model: str | None, *, nproc: int | None, force: bool
) -> bool:
    """Compare and say so; whether every rank ends the steps with what one device has."""
    strategy = inputs.strategy(file, sets, model, nproc)
    reasons = _reasons(strategy, force)
    if reasons or strategy.plan is None:
        return refuse(screen, file, reasons, _NOTHING)
    from placelang.program.lower import lower, opens, single_device
    from placelang.simulate import Outcome, compare, shrink, shrink_plan

    plan, small = shrink_plan(strategy.plan), shrink(strategy.model)
    program = lower(plan, small)
    found = compare(program, lower(single_device(plan), small, inside=opens(plan)))
    ok = found.outcome is Outcome.EQUAL
    ranks = plan.mesh.world or 1
    screen.answer(
        {
            "file": file,
            "ok": ok,
            "diagnostics": [],
            "model": strategy.model.name,
            "ranks": ranks,
            "outcome": found.outcome.value,
            "difference": found.difference,
            "message": found.message,
            "mismatches": [
                {"state": str(m.buffer), "tensor": m.tensor, "rank": m.rank, "difference": m.difference}
                for m in found.mismatches
            ],
        }
    )
    axes = ", ".join(f"{axis.name} = {axis.size}" for axis in plan.mesh.axes)
    screen.out(f"{strategy.model.name} made small, on {ranks} simulated ranks ({axes or 'no mesh'}), in float64")
    if found.message:
        screen.out(found.message)
    for m in sorted(found.mismatches, key=lambda m: -m.difference)[:SHOWN]:
        screen.out(f"  rank {m.rank} holds {m.buffer} {m.tensor} wrong by up to {m.difference:.1e}")
    if len(found.mismatches) > SHOWN:
        screen.out(f"  and {len(found.mismatches) - SHOWN} more")
    if ok:
        screen.out(f"{screen.paint('good', 'equal')} to one device: largest difference {found.difference:.1e}")
    else:
        screen.out(f"{screen.paint('bad', 'NOT EQUAL')} to one device")
    return ok


def _reasons(strategy: Strategy, force: bool) -> tuple[Diagnostic, ...]:
    if strategy.plan is None or not (strategy.ok or (force and strategy.verdict is Verdict.UNSOUND)):
        return strategy.diagnostics
    if find_spec("numpy") is None:
        text = "simulating needs numpy, which this Python does not have"
        return (Diagnostic("E502", text, help="`pip install numpy`"),)
    return ()
