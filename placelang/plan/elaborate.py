"""From an AST to a complete Plan: declarations, composition, facts, then the elaboration rules.

Not for: verdicts on the result (`check`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import Problems, fault, refuse
from placelang.model.model import Model
from placelang.plan import compose
from placelang.plan.facts import train_facts
from placelang.plan.infer import infer, sharded
from placelang.plan.mesh import Role
from placelang.plan.plan import Placed, Plan, State
from placelang.plan.scope import Scope, declare
from placelang.plan.values import Value
from placelang.syntax import ast


def elaborate(
    file: ast.File, sets: Mapping[str, Value] | None = None, model: Model | None = None
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """The plan of a text, or None, with every fault of the text. `model` stands in for the text's own `model` line."""
    problems = Problems()
    scope = declare(file.statements, sets or {}, problems)
    journeys = compose.written(file.statements, scope, problems)
    trains = [s for s in file.statements if isinstance(s, ast.Train)]
    models = [s for s in file.statements if isinstance(s, ast.Fact) and s.kind == "model"]
    for extra in (*trains[1:], *models[1:]):
        problems.add(fault("E119", f"a second `{extra.span.text.split()[0]}` line", extra.span))
    if model is None and models:
        with problems.catching():
            model = _model(models[0], scope)
    if not journeys and not problems.any_error:
        problems.add(
            fault("E107", "the text places no state", None, help="`params: shard(dp) ; grads: reduce_scatter`")
        )
    mesh = scope.mesh()
    for axis in mesh.axes:
        if axis.role is not Role.DATA:
            problems.add(
                fault(
                    "E112",
                    f"axes of role {axis.role.value} are not interpreted by this version",
                    axis.span,
                    f"`{axis.name}`",
                )
            )
    states, update = infer(journeys, mesh, problems)
    split = sharded(states[State.ACTIVATIONS])
    train, assumptions = train_facts(trains[0] if trains else None, scope, mesh.size(split), problems)
    compose.unused_sets(scope, problems)
    if problems.any_error:
        return None, tuple(problems)
    placed = tuple(Placed(state, journey) for state, journey in states.items())
    return Plan(mesh, placed, update, train, model, assumptions), tuple(problems)


def _model(fact: ast.Fact, scope: Scope) -> Model:
    """The model of a `model` line: a catalogue name, a value of the text, or the path of a config.json."""
    from placelang.model import catalogue, huggingface, values

    expr = fact.value
    if isinstance(expr, ast.String) and ":" in expr.value:
        raise refuse("E112", "Python factories are not interpreted as models by this version", expr.span)
    if isinstance(expr, ast.String):
        found = huggingface.load(Path(expr.value))
    else:
        lets = {name: let.value for name, let in scope.lets.items()}
        found = values.model_of(expr, lets, catalogue.lookup)
    if isinstance(found, Model):
        return found
    code = "E120" if isinstance(expr, ast.String) else "E106" if found.argument else "E101"
    raise refuse(code, found.message, expr.span, help=found.suggestion)
