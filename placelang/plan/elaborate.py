"""From an AST to a complete Plan: declarations, composition, facts, then the elaboration rules.

Not for: verdicts on the result (`check`), or whether sizes fit (`capacity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import Problems, fault, refuse
from placelang.model.model import Model, generic
from placelang.plan import capacity, claims, compose, declare, selectors
from placelang.plan.facts import NAMES, train_facts
from placelang.plan.infer import infer, split_axes
from placelang.plan.merge import differ
from placelang.plan.mesh import Mesh
from placelang.plan.plan import BackendOptions, Claim, Placed, Plan, State
from placelang.plan.scope import Scope
from placelang.plan.steps import FORMS
from placelang.plan.values import Value, evaluate
from placelang.source import Source
from placelang.syntax import ast, reader

if TYPE_CHECKING:
    from placelang.hardware.hardware import Hardware


def elaborate(
    file: ast.File, sets: Mapping[str, Value] | None = None, model: Model | None = None
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """The plan of a text, or None, with every fault of the text. `model` stands in for the text's own `model` line."""
    problems = Problems()
    lines = _Lines(file.statements, problems)
    hardware: list[Hardware] = []

    def devices(scope: Scope) -> int | None:
        if lines.hardware is not None:
            with problems.catching():
                hardware.append(_hardware(lines.hardware, scope))
        return hardware[0].devices if hardware else None

    scope = declare.declare(file, sets or {}, devices, read_beside, problems)
    if model is None and lines.model is not None:
        with problems.catching():
            model = _model(lines.model, scope)
    composed = compose.composed(file.statements, scope, problems)
    if not composed.journeys and composed.schedule is None and not problems.any_error:
        problems.add(
            fault("E107", "the text places no state", None, help="`params: shard(dp) ; grads: reduce_scatter`")
        )
    mesh = scope.mesh()
    placed, update = infer(composed.journeys, mesh, problems)
    for p in placed:
        _one_axis_per_rank(p, mesh, problems)
    base = {p.state: p.journey for p in placed if not p.selections}
    samples = split_axes(s for s in base[State.ACTIVATIONS] if getattr(s, "dim", "") == "batch")
    train, assumptions = train_facts(lines.train, scope, mesh, samples, problems)
    backends = _backends(file.statements, scope, problems)
    declare.names_nothing(scope, NAMES, problems)
    plan = Plan(
        mesh,
        placed,
        update,
        train,
        model,
        assumptions,
        composed.schedule,
        hardware[0] if hardware else None,
        tuple(_claim(c, s) for c, s in composed.claims),
        backends,
    )
    _selections(plan, problems)
    known = claims.facts(mesh, train, model)
    for claim, claim_scope in composed.claims:
        if claim.kind == "require" and (found := claims.check(claim, claim_scope, mesh, known, lambda _n, _s: None)):
            problems.add(found)
    if not problems.any_error:
        problems.add(*capacity.faults(plan))
    return (None if problems.any_error else plan), tuple(problems)


class _Lines:
    """The lines that may stand once."""

    def __init__(self, statements: Iterable[ast.Statement], problems: Problems) -> None:
        self.train: ast.Train | None = None
        self.model: ast.Fact | None = None
        self.hardware: ast.Fact | None = None
        for s in statements:
            name = "train" if isinstance(s, ast.Train) else s.kind if isinstance(s, ast.Fact) else ""
            if name and getattr(self, name) is not None:
                problems.add(fault("E119", f"a second `{name}` line", s.span))
            elif name:
                setattr(self, name, s)


def read_beside(path: str, source: Source) -> Source | Diagnostic:
    """The file that `use` names: relative to the text, or inside an importable package as `package/file.place`."""
    beside = Path(source.name).parent / path
    if path.startswith((".", "/")) or beside.is_file():
        return reader.read_file(beside)
    from importlib.resources import files

    package, _, inner = path.partition("/")
    try:
        return reader.read_file(str(files(package) / inner))
    except (ModuleNotFoundError, TypeError, ValueError):
        return fault("E116", f"there is no file or package `{path}`", None, help='files are named `"./house.place"`')


def _one_axis_per_rank(placed: Placed, mesh: Mesh, problems: Problems) -> None:
    """Of axes that share ranks (views) a state uses one."""
    used: dict[str, str] = {}
    for step in placed.journey:
        if not isinstance(step, FORMS):
            continue
        for axis in step.axes:
            clash = next((used[a] for a in mesh.shared(axis) if a in used), None)
            if clash is not None and clash != axis:
                problems.add(
                    fault(
                        "E104", f"`{axis}` and `{clash}` are axes of the same ranks", step.span, help="use one of them"
                    )
                )
            used[axis] = axis


def _selections(plan: Plan, problems: Problems) -> None:
    """Globs match something, and two selections of one tensor do not contradict each other without `override`."""
    for placed in plan.placed:
        for selection in placed.selections:
            if plan.model is not None and (found := selectors.check_match(selection, plan.model, plan.train.frozen)):
                problems.add(found)
    model = plan.model or generic()
    for state in State:
        problems.add(*_clashes([p for p in plan.refinements(state) if p.span], model, plan.train.frozen))


def _clashes(placed: Sequence[Placed], model: Model, frozen: tuple[str, ...]) -> Iterable[Diagnostic]:
    hits = [
        frozenset[str]().union(
            *(selectors.matches(s, model, frozen) for s in p.selections if s.kind in ("glob", "role"))
        )
        for p in placed
    ]
    for i, later in enumerate(placed):
        for j in range(i):
            both = hits[i] & hits[j]
            if both and not later.override and (where := differ(later.journey, placed[j].journey)):
                yield fault(
                    "E108",
                    f"two selections place {later.state.value} of `{min(both)}` differently {where}",
                    later.span,
                    help="`override` lets this one replace the other",
                )


def _claim(claim: ast.Claim, scope: Scope) -> Claim:
    return Claim(claim, scope)


def _backends(statements: Iterable[ast.Statement], scope: Scope, problems: Problems) -> tuple[BackendOptions, ...]:
    found: list[BackendOptions] = []
    for s in statements:
        if isinstance(s, ast.Backend):
            with problems.catching():
                if any(b.name == s.name.text for b in found):
                    raise refuse("E119", f"a second `backend {s.name.text}` line", s.span)
                for a in s.args:
                    if a.name is None:
                        raise refuse("E107", "options are written `name = value`", a.span)
                values = tuple((a.name or "", evaluate(a.value, scope.lookup)) for a in s.args)
                found.append(BackendOptions(s.name.text, values, s.span))
    return tuple(found)


def _hardware(fact: ast.Fact, scope: Scope) -> Hardware:
    """The machine of a `hardware` line: a catalogue name or a value of the text. Raises Refused."""
    from placelang.hardware import catalogue, values
    from placelang.hardware.hardware import Hardware

    lets = {name: let.value for name, let in scope.lets.items()}
    found = values.hardware_of(fact.value, lets, catalogue.declared)
    if isinstance(found, Hardware):
        return found
    raise refuse("E106" if found.argument else "E101", found.message, fact.value.span, help=found.suggestion)


def _model(fact: ast.Fact, scope: Scope) -> Model:
    """The model of a `model` line: a catalogue name, a value of the text, or the path of a config.json."""
    from placelang.model import catalogue, huggingface, values

    expr = fact.value
    if isinstance(expr, ast.String) and ":" in expr.value:
        raise refuse("E112", "Python factories are not interpreted as models by this version", expr.span)
    if isinstance(expr, ast.String):
        found = huggingface.load(Path(expr.span.source.name).parent / expr.value)
    else:
        lets = {name: let.value for name, let in scope.lets.items()}
        found = values.model_of(expr, lets, catalogue.lookup)
    if isinstance(found, Model):
        return found
    code = "E120" if isinstance(expr, ast.String) else "E106" if found.argument else "E101"
    raise refuse(code, found.message, expr.span, help=found.suggestion)
