"""Strategies as values: application, products, refinement, overriding. The result is one journey a head.

`*` joins strategies state by state: forms of the factors first, then their transitions, in the order of the factors.
Not for: gaps that remain (`infer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from placelang.diagnostics.problems import Problems, fault, refuse
from placelang.diagnostics.suggest import did_you_mean
from placelang.plan import library
from placelang.plan.journeys import type_journey
from placelang.plan.plan import Journey, Partial, Replicate, Shard, Step
from placelang.plan.scope import Scope, check_kind
from placelang.plan.values import Value, evaluate
from placelang.plan.words import HEADS
from placelang.source import Span
from placelang.syntax import ast

Journeys = Mapping[str, Journey]
_FORMS = (Replicate, Shard, Partial)


def written(statements: Iterable[ast.Statement], scope: Scope, problems: Problems, inside: str = "") -> Journeys:
    """The journeys that these statements write, `apply` included, joined. `inside`: the strategy whose body this is."""
    own: dict[str, Journey] = {}
    overrides: list[ast.Placement] = []
    applied: list[ast.Apply] = []
    for statement in statements:
        with problems.catching():
            match statement:
                case ast.Placement(override=True):
                    overrides.append(statement)
                case ast.Placement():
                    head = _head(statement)
                    if head in own:
                        raise refuse(
                            "E108",
                            f"a second word on `{head}`",
                            statement.span,
                            help=f"`override {statement.span.text}` replaces what it names",
                        )
                    own[head] = type_journey(head, statement.journey, scope)
                case ast.Apply() if applied:
                    raise refuse(
                        "E119", "a second `apply`", statement.span, help="join strategies by `*` in one `apply`"
                    )
                case ast.Apply():
                    applied.append(statement)
                case ast.On():
                    raise refuse("E112", "selectors are not interpreted by this version", statement.span)
                case ast.Use():
                    raise refuse("E112", "`use` is not interpreted by this version", statement.span)
                case ast.Claim():
                    raise refuse("E112", f"`{statement.kind}` is not interpreted by this version", statement.span)
                case ast.Backend():
                    raise refuse("E112", "`backend` is not interpreted by this version", statement.span)
                case ast.Fact(kind="hardware"):
                    raise refuse("E112", "`hardware` is not interpreted by this version", statement.span)
                case _ if inside and not isinstance(statement, ast.Placement):
                    raise refuse("E105", "only placements may stand in a strategy", statement.span)
                case _:
                    pass
    result: Journeys = own
    for apply in applied:
        with problems.catching():
            result = join(expand(apply.value, scope, problems), own)
    for statement in overrides:
        with problems.catching():
            result = _override(result, statement, scope)
    return result


def _head(statement: ast.Placement) -> str:
    head = statement.head
    if head.text not in HEADS:
        near = did_you_mean(head.text, HEADS)
        raise refuse(
            "E101",
            f"no state is called `{head.text}`",
            head.span,
            help=f"did you mean `{near}`?" if near else f"states: {', '.join(HEADS)}",
        )
    if statement.selectors:
        raise refuse("E112", "selectors are not interpreted by this version", statement.selectors[0].span)
    if head.text == "schedule":
        raise refuse("E112", "pipeline schedules are not interpreted by this version", statement.span)
    return head.text


def expand(expr: ast.Expr, scope: Scope, problems: Problems, open_: tuple[str, ...] = ()) -> Journeys:
    """The journeys that a strategy expression denotes. Raises Refused."""
    match expr:
        case ast.Name():
            return _call(expr, (), scope, problems, open_)
        case ast.Call(func=func, args=args):
            return _call(func, args, scope, problems, open_)
        case ast.Binary(op="*", left=left, right=right):
            return join(expand(left, scope, problems, open_), expand(right, scope, problems, open_))
        case ast.Group(inner=inner):
            return expand(inner, scope, problems, open_)
        case ast.With(base=base, body=body):
            result = expand(base, scope, problems, open_)
            for statement in body:
                if not isinstance(statement, ast.Placement):
                    raise refuse("E105", "only `override` placements may stand after `with`", statement.span)
                result = _override(result, statement, scope)
            return result
        case _:
            raise refuse("E105", "a strategy is expected here", expr.span, help="strategies are joined by `*`")


def _call(
    name: ast.Name, args: tuple[ast.Arg, ...], scope: Scope, problems: Problems, open_: tuple[str, ...]
) -> Journeys:
    found = scope.strategies.get(name.text) or library.strategy(name.text)
    if found is None:
        known = (*scope.strategies, *library.names())
        near = did_you_mean(name.text, known)
        raise refuse(
            "E101",
            f"no strategy is called `{name.text}`",
            name.span,
            help=f"did you mean `{near}`?" if near else f"known: {', '.join(known)}",
        )
    if name.text in open_:
        raise refuse(
            "E115", f"strategy `{name.text}` is defined by itself", name.span, cause=" -> ".join((*open_, name.text))
        )
    inner = scope.child(_bind(found, args, name.span, scope))
    if found.body is not None:
        return written(found.body, inner, problems, inside=name.text)
    assert found.value is not None
    return expand(found.value, inner, problems, (*open_, name.text))


def _bind(strategy: ast.Strategy, args: tuple[ast.Arg, ...], span: Span, scope: Scope) -> dict[str, Value]:
    """Parameters to values: positional ones first, then by name, then defaults."""
    params = {p.name.text: p for p in strategy.params}
    bound: dict[str, Value] = {}
    free = iter(params)
    for arg in args:
        name = arg.name or next(free, None)
        if name is None:
            raise refuse("E107", f"`{strategy.name.text}` takes {len(params)} arguments", arg.span)
        if name not in params:
            near = did_you_mean(name, params)
            raise refuse(
                "E106",
                f"`{strategy.name.text}` has no parameter `{name}`",
                arg.span,
                help=f"did you mean `{near}`?" if near else f"parameters: {', '.join(params) or 'none'}",
            )
        if name in bound:
            raise refuse("E119", f"parameter `{name}` is given twice", arg.span)
        bound[name] = evaluate(arg.value, scope.lookup)
        if (declared := params[name].kind) is not None:
            check_kind(attrs.evolve(declared, span=arg.value.span), bound[name], f"`{name}`")
    for name, param in params.items():
        if name not in bound:
            if param.default is None:
                raise refuse("E107", f"`{strategy.name.text}` needs `{name}`", span)
            bound[name] = evaluate(param.default, scope.lookup)
    return bound


def join(a: Journeys, b: Journeys) -> Journeys:
    """The product of two strategies. Raises Refused when both place one state over one axis."""
    result = dict(a)
    for head, journey in b.items():
        result[head] = _join(head, a.get(head, ()), journey)
    return result


def _join(head: str, a: Journey, b: Journey) -> Journey:
    used = {axis for s in a for axis in s.axes}
    for s in b:
        if clash := used & set(s.axes):
            raise refuse(
                "E104",
                f"two factors place {head} over `{min(clash)}`",
                s.span,
                rule="factors of `*` have disjoint axes",
            )
    steps = [s for s in (*a, *b) if isinstance(s, _FORMS)] + [s for s in (*a, *b) if not isinstance(s, _FORMS)]
    split = any(isinstance(s, Shard) for s in steps)
    return tuple(s for s in steps if not (split and isinstance(s, Replicate) and not s.axes))


def _override(base: Journeys, statement: ast.Placement, scope: Scope) -> Journeys:
    """Replace what the statement names: the axes that it mentions; a word without axes replaces the whole journey."""
    head = _head(statement)
    if not statement.override:
        raise refuse("E108", "after `with` stand overrides", statement.span, help=f"`override {statement.span.text}`")
    new = type_journey(head, statement.journey, scope)
    named = {axis for s in new for axis in s.axes}
    kept = () if not named else tuple(k for s in base.get(head, ()) if (k := _without(s, named)) is not None)
    return {**base, head: _join(head, kept, new)}


def _without(step: Step, axes: set[str]) -> Step | None:
    """What is left of a step when some axes are taken out; None when nothing is."""
    left = tuple(a for a in step.axes if a not in axes)
    return attrs.evolve(step, axes=left) if left else None


def unused_sets(scope: Scope, problems: Problems) -> None:
    """A `--set` that names nothing is a mistake, not a wish."""
    for name in scope.sets:
        if name not in scope.used_sets:
            known = (*scope.args, *scope.axes)
            near = did_you_mean(name, known)
            problems.add(
                fault(
                    "E101",
                    f"`--set {name}` names nothing in this text",
                    None,
                    help=f"did you mean `{near}`?" if near else "",
                )
            )
