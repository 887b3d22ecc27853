"""Claims: what `require` and `assert` conditions say, evaluated over facts, sizes and costs.

Not for: computing the costs (`cost`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import prod

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import Refused, fault, refuse
from placelang.diagnostics.suggest import did_you_mean
from placelang.model.model import Model
from placelang.plan.mesh import Mesh
from placelang.plan.plan import Train
from placelang.plan.scope import Scope
from placelang.plan.values import Axes, Quantity, Unknown, Value, evaluate, kind
from placelang.source import Span
from placelang.syntax import ast

Costs = Callable[[str, Span], Value | None]
"""The value of `memory.peak` and the like; None for a name that is no cost."""


def facts(mesh: Mesh, train: Train, model: Model | None) -> dict[str, Value]:
    """The names that a condition may use beside declared ones: sizes of the model, of the job, and `world`."""
    found: dict[str, Value] = {}
    for name, value in model.sizes if model else ():
        found[name] = Fraction(value)
    for name in ("seq", "micro_batch", "microbatches"):
        given = getattr(train, name)
        found[name] = Unknown(name) if given is None else Fraction(given)
    found["world"] = Unknown("world") if mesh.world is None else Fraction(mesh.world)
    return found


def check(claim: ast.Claim, scope: Scope, mesh: Mesh, known: Mapping[str, Value], costs: Costs) -> Diagnostic | None:
    """What is wrong with a claim, or None when it holds or waits for a fact that is not given."""
    try:
        value = _number(evaluate(claim.condition, _lookup(scope, mesh, known, costs)), mesh)
    except Refused as refused:
        return refused.diagnostic
    if isinstance(value, Unknown):
        return None
    if not isinstance(value, bool):
        return fault("E105", f"a condition is true or false, this is {kind(value)}", claim.condition.span)
    if value:
        return None
    code = "E122" if claim.kind == "require" else "E403"
    said = claim.message.value if claim.message else f"`{claim.condition.span.text}` does not hold"
    values = _values(claim.condition, scope, mesh, known, costs)
    return fault(code, said, claim.condition.span, cause=", ".join(f"{n} = {v}" for n, v in values.items()))


def _lookup(scope: Scope, mesh: Mesh, known: Mapping[str, Value], costs: Costs) -> Callable[[str, Span], Value]:
    def lookup(name: str, span: Span) -> Value:
        found = scope.lookup(name, span)
        if found is not None:
            return _number(found, mesh)
        if name in known:
            return known[name]
        cost = costs(name, span)
        if cost is not None:
            return cost
        near = did_you_mean(name, (*known, *mesh.names, *COSTS))
        raise refuse("E101", f"no fact is called `{name}`", span, help=f"did you mean `{near}`?" if near else "")

    return lookup


COSTS = ("memory.peak", "memory.params", "memory.grads", "memory.optimizer", "memory.activations", "memory.host")
"""Costs that an `assert` may use; time is added by the time model."""


def _number(value: Value, mesh: Mesh) -> Value:
    """An axis counts as its size."""
    if isinstance(value, Axes):
        sizes = [mesh[a].size for a in value.names]
        unknown = next((a for a, size in zip(value.names, sizes, strict=True) if size is None), None)
        return Unknown(unknown) if unknown else Fraction(prod(s for s in sizes if s is not None))
    return value


def _values(condition: ast.Expr, scope: Scope, mesh: Mesh, known: Mapping[str, Value], costs: Costs) -> dict[str, str]:
    """The names in a condition with their values, so that a failed one shows why."""
    found: dict[str, str] = {}
    for name in _names(condition):
        try:
            value = _lookup(scope, mesh, known, costs)(name.text, name.span)
        except Refused:
            continue
        found[name.text] = show(value)
    return found


def _names(expr: ast.Expr) -> list[ast.Name]:
    match expr:
        case ast.Name():
            return [expr]
        case ast.Binary(left=left, right=right):
            return [*_names(left), *_names(right)]
        case ast.Unary(operand=inner) | ast.Group(inner=inner):
            return _names(inner)
        case ast.Call(args=args):
            return [n for a in args for n in _names(a.value)]
        case _:
            return []


def show(value: Value) -> str:
    """A value in words: `28`, `76.5 GiB`, `unknown`."""
    match value:
        case Quantity(value=v, dimension="bytes"):
            return f"{float(v) / 2**30:.4g} GiB"
        case Quantity(value=v, dimension=d):
            return f"{float(v):.4g} {d}"
        case Fraction():
            return str(value.numerator) if value.denominator == 1 else f"{float(value):.6g}"
        case Unknown():
            return "unknown"
        case _:
            return str(value)
