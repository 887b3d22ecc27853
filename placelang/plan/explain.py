"""A plan printed as the text that says all of it, with a reason beside each line. Elaborating it changes nothing.

Not for: layout of users' own files (`syntax.formatter`).
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from placelang.frozen import Frozen
from placelang.plan.mesh import WELL_KNOWN, Mesh
from placelang.plan.plan import Placed, Plan, State
from placelang.plan.steps import Journey
from placelang.plan.text import journey_text, step_text, value_text
from placelang.syntax import ast


@attrs.frozen(eq=False, repr=False)
class Line(Frozen):
    """One statement of the complete strategy, and why each part of it stands there that the text does not give."""

    text: str
    why: tuple[str, ...] = ()


def explain(plan: Plan) -> str:
    """The complete strategy as `.place` text, one statement a line, reasons as comments above it."""
    rows = (row for line in lines(plan) for row in (*(f"# {why}" for why in line.why), line.text))
    return "".join(f"{row}\n" for row in rows)


def lines(plan: Plan) -> tuple[Line, ...]:
    """The complete strategy, one statement a line."""
    return (*_repeated(plan), *_facts(plan), *_states(plan))


def _repeated(plan: Plan) -> Iterator[Line]:
    if plan.model is not None and not any(isinstance(s, ast.Fact) and s.kind == "model" for s in plan.repeated):
        yield Line(f"# the model is {plan.model.name}, which was given beside the text")
    if plan.repeated:
        from placelang.syntax.formatter import print_node

        yield from (Line(print_node(statement)) for statement in plan.repeated)


def _facts(plan: Plan) -> Iterator[Line]:
    if plan.mesh.axes:
        sizes = () if plan.mesh.world else ("sizes without a number stay symbols",)
        yield Line(f"mesh ({_axes(plan.mesh, plan.mesh.names)})", sizes)
    for view in plan.mesh.views:
        inside = _axes(plan.mesh, tuple(a.name for a in view.axes))
        yield Line(f"mesh {view.name} ({inside}) over ({', '.join(view.over)})")
    t = plan.train
    given: dict[str, object] = {"optimizer": t.optimizer, "precision": t.precision.name}
    given |= {"seq": t.seq, "micro_batch": t.micro_batch, "microbatches": t.microbatches, "loss": t.loss}
    given |= {"clip": t.clip, "loss_scale": t.loss_scale, "dropout": t.dropout or None}
    facts = [f"{name} = {value_text(value)}" for name, value in given.items() if value is not None]
    if t.frozen:
        quoted = [f'"{g}"' for g in t.frozen]
        facts.append(f"frozen = {quoted[0] if len(quoted) == 1 else '[' + ', '.join(quoted) + ']'}")
    assumed = tuple(a.text for a in plan.assumptions if a.name in ("precision", "optimizer"))
    yield Line(f"train ({', '.join(facts)})", assumed)


def _axes(mesh: Mesh, names: tuple[str, ...]) -> str:
    return ", ".join(_axis(mesh, name) for name in names)


def _axis(mesh: Mesh, name: str) -> str:
    axis = mesh[name]
    role = "" if WELL_KNOWN.get(name) is axis.role else f": {axis.role.value}"
    return f"{name}{role}" + (f" = {axis.size}" if axis.size is not None else "")


def _states(plan: Plan) -> Iterator[Line]:
    rows = [(p.state.value, p) for p in plan.placed if not p.selections]
    widest = max(len(head) for head, _ in rows)
    for head, placed in rows:
        said = _journey(placed)
        yield Line(f"{head + ':':<{widest + 1}} {said}", _why(placed.journey)) if said else _nothing(head)
    for placed in plan.placed:
        if placed.selections:
            yield _refinement(placed)
    if plan.update:
        yield Line(f"{'update:':<{widest + 1}} {journey_text(plan.update)}", _why(plan.update))
    if plan.schedule is not None:
        chunks = f"(chunks = {plan.schedule.chunks})" if plan.schedule.name == "interleaved_1f1b" else ""
        yield Line(f"schedule: {plan.schedule.name}{chunks}")


def _refinement(placed: Placed) -> Line:
    override = "override " if placed.override else ""
    state, said = placed.state.value, _journey(placed)
    if not said:
        return _nothing(f"{state}[{', '.join(map(str, placed.selections))}]")
    if len(placed.selections) == 1:
        return Line(f"{override}{state}[{placed.selections[0]}]: {said}", _why(placed.journey))
    return Line(f"on {', '.join(map(str, placed.selections))} {{ {override}{state}: {said} }}", _why(placed.journey))


def _journey(placed: Placed) -> str:
    """The journey as text. What a module returns is sent where it is produced, so `when` says nothing of it."""
    return journey_text(placed.journey, hide=("when",) if placed.state is State.ACTIVATIONS else ())


def _nothing(head: str) -> Line:
    """A comment in place of a journey of no steps, which only a gradient has that is whole as produced."""
    return Line(f"# {head}: whole where it is produced, so nothing reduces it")


def _why(journey: Journey) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{step_text(s).partition('(')[0]}: {s.why}" for s in journey if s.why))
