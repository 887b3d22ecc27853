"""A plan printed as the text that says all of it, with a reason beside each line. Elaborating it changes nothing.

Not for: layout of users' own files (`syntax.formatter`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from placelang.plan.mesh import WELL_KNOWN, Mesh
from placelang.plan.plan import Placed, Plan
from placelang.plan.steps import Journey
from placelang.plan.text import journey_text, step_text, value_text
from placelang.syntax import ast


@attrs.frozen
class Line:
    """One statement of the complete strategy, and why each part of it stands there that the text does not give."""

    text: str
    why: tuple[str, ...] = ()


def explain(plan: Plan, given: Sequence[str] = ()) -> str:
    """The complete strategy as `.place` text, one statement a line, reasons as comments above it. `given`: lines of the
    text that stand as they are (see `kept`)."""
    rows = (row for line in lines(plan, given) for row in (*(f"# {why}" for why in line.why), line.text))
    return "".join(f"{row}\n" for row in rows)


def lines(plan: Plan, given: Sequence[str] = ()) -> tuple[Line, ...]:
    """The complete strategy, one statement a line."""
    return (*(Line(text) for text in given), *_facts(plan), *_states(plan))


def kept(file: ast.File) -> tuple[str, ...]:
    """The statements of a text that elaboration leaves as they are: model, hardware, claims and backends, after the
    declarations that they name."""
    facts = [s for s in file.statements if isinstance(s, (ast.Fact, ast.Claim, ast.Backend))]
    declared = {s.name.text: s for s in file.statements if isinstance(s, (ast.Let, ast.ArgDecl, ast.FoldedAxis))}
    needed: set[str] = set()
    wanted = [name for fact in facts for name in _names(fact)]
    while wanted:
        if (name := wanted.pop()) in declared and name not in needed:
            needed.add(name)
            wanted += _names(declared[name])
    texts = (s.span.text for name, s in declared.items() if name in needed)
    return (*texts, *(s.span.text for s in facts))


def _names(node: object) -> list[str]:
    """Every name below a node."""
    if isinstance(node, ast.Name):
        return [node.text]
    if isinstance(node, tuple):
        return [name for part in node for name in _names(part)]
    if isinstance(node, ast.Node):
        return [name for field in attrs.fields(type(node)) for name in _names(getattr(node, field.name))]
    return []


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
        yield Line(f"{head + ':':<{widest + 1}} {journey_text(placed.journey)}", _why(placed.journey))
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
    head = f"{override}{placed.state.value}"
    body = f"{placed.state.value}: {journey_text(placed.journey)}"
    if len(placed.selections) == 1:
        return Line(f"{head}[{placed.selections[0]}]:{body.partition(':')[2]}", _why(placed.journey))
    return Line(f"on {', '.join(map(str, placed.selections))} {{ {override}{body} }}", _why(placed.journey))


def _why(journey: Journey) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{step_text(s).partition('(')[0]}: {s.why}" for s in journey if s.why))
