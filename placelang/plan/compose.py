"""Strategies as values: application, products, refinement, overriding.

`*` joins strategies state by state: forms of the factors first, then their transitions, in the order of the factors.
Not for: gaps that remain (`infer`), or the bodies of claims (`claims`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from placelang.diagnostics.problems import Problems, refuse
from placelang.plan import declare, library
from placelang.plan.journeys import type_journey, type_schedule
from placelang.plan.meant import meant
from placelang.plan.merge import join, replace
from placelang.plan.plan import Schedule, Selection
from placelang.plan.scope import Scope, check_kind
from placelang.plan.selectors import typed
from placelang.plan.steps import Journey
from placelang.plan.values import Value, evaluate
from placelang.plan.words import HEADS, STATES
from placelang.source import Span
from placelang.syntax import ast

Key = tuple[str, tuple[Selection, ...]]
"""A head, and the selections that a placement is about (none: all tensors)."""


@attrs.frozen
class Written:
    """A journey as written for a key. `override`: it may differ from other selections of the same tensors."""

    journey: Journey
    override: bool = False
    span: Span | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class Composed:
    """All that a text or strategy says, after application and overriding."""

    journeys: Mapping[Key, Written] = attrs.field(factory=dict)
    schedule: Schedule | None = None
    claims: tuple[tuple[ast.Claim, Scope], ...] = ()

    def base(self) -> dict[str, Journey]:
        """The journeys without selections, by head."""
        return {head: w.journey for (head, selections), w in self.journeys.items() if not selections}


def composed(
    statements: Iterable[ast.Statement], scope: Scope, problems: Problems, open_: tuple[str, ...] = ()
) -> Composed:
    """What these statements say, `apply` included. `open_`: the strategies whose bodies we are in, outer first."""
    own: dict[Key, Written] = {}
    schedule: Schedule | None = None
    claims: list[tuple[ast.Claim, Scope]] = []
    overrides: list[ast.Placement] = []
    applied: ast.Apply | None = None
    for placement, selectors in _placements(statements, problems):
        with problems.catching():
            if placement.override and not (placement.selectors or selectors):
                overrides.append(placement)
            elif placement.head.text == "schedule":
                if schedule is not None:
                    raise refuse("E108", "a second word on `schedule`", placement.span)
                _plain_head(placement, selectors)
                schedule = type_schedule(placement.journey, scope)
            else:
                key, written = _written(placement, selectors, scope)
                if key in own:
                    raise _second(key, placement)
                own[key] = written
    for statement in statements:
        with problems.catching():
            match statement:
                case ast.Apply() if applied is not None:
                    raise refuse("E119", "a second `apply`", statement.span, help="`*` joins strategies in one `apply`")
                case ast.Apply() if not open_:
                    applied = statement
                case ast.Claim():
                    claims.append((statement, scope))
                case ast.Placement() | ast.On():
                    pass
                case _ if open_:
                    raise refuse("E105", "only placements and claims may stand in a strategy", statement.span)
                case _:
                    pass
    result = Composed(own, schedule, tuple(claims))
    if applied is not None:
        with problems.catching():
            result = product(expand(applied.value, scope, problems), result)
    for placement in overrides:
        with problems.catching():
            result = override(result, placement, scope)
    return result


def _placements(
    statements: Iterable[ast.Statement], problems: Problems
) -> list[tuple[ast.Placement, tuple[ast.Selector, ...]]]:
    """Every placement with the selectors of the `on` around it."""
    found: list[tuple[ast.Placement, tuple[ast.Selector, ...]]] = []
    for statement in statements:
        match statement:
            case ast.Placement():
                found.append((statement, ()))
            case ast.On(selectors=selectors, body=body):
                for inner in body:
                    with problems.catching():
                        if not isinstance(inner, ast.Placement):
                            raise refuse("E105", "only placements may stand after `on`", inner.span)
                        if inner.selectors:
                            raise refuse("E105", "a selector inside `on` would select twice", inner.selectors[0].span)
                        found.append((inner, selectors))
            case _:
                pass
    return found


def _written(placement: ast.Placement, selectors: tuple[ast.Selector, ...], scope: Scope) -> tuple[Key, Written]:
    head = placement.head
    if head.text not in HEADS:
        near = meant(head.text, HEADS)
        raise refuse(
            "E101",
            f"no state is called `{head.text}`",
            head.span,
            help=f"did you mean `{near}`?" if near else f"states: {', '.join(HEADS)}",
        )
    if head.text not in STATES:
        _plain_head(placement, selectors)
    selections = typed((*placement.selectors, *selectors), scope)
    journey = type_journey(head.text, placement.journey, scope)
    return (head.text, selections), Written(journey, placement.override, placement.span)


def _plain_head(placement: ast.Placement, selectors: tuple[ast.Selector, ...]) -> None:
    if placement.selectors or selectors:
        raise refuse("E105", f"`{placement.head.text}` takes no selector", placement.head.span)


def _second(key: Key, placement: ast.Placement) -> Exception:
    head, selections = key
    where = f"[{', '.join(map(str, selections))}]" if selections else ""
    return refuse(
        "E108",
        f"a second word on `{head}{where}`",
        placement.span,
        help=f"`override {placement.span.text}` replaces what it names",
    )


def expand(expr: ast.Expr, scope: Scope, problems: Problems, open_: tuple[str, ...] = ()) -> Composed:
    """What a strategy expression says. Raises Refused."""
    match expr:
        case ast.Name():
            return _call(expr, (), scope, problems, open_)
        case ast.Call(func=func, args=args):
            return _call(func, args, scope, problems, open_)
        case ast.Binary(op="*", left=left, right=right):
            return product(expand(left, scope, problems, open_), expand(right, scope, problems, open_))
        case ast.Group(inner=inner):
            return expand(inner, scope, problems, open_)
        case ast.With(base=base, body=body):
            result = expand(base, scope, problems, open_)
            for statement in body:
                if not isinstance(statement, ast.Placement):
                    raise refuse("E105", "only `override` placements may stand after `with`", statement.span)
                if not statement.override:
                    raise refuse(
                        "E108", "after `with` stand overrides", statement.span, help=f"`override {statement.span.text}`"
                    )
                result = override(result, statement, scope)
            return result
        case _:
            raise refuse("E105", "a strategy is expected here", expr.span, help="strategies are joined by `*`")


def _call(
    name: ast.Name, args: tuple[ast.Arg, ...], scope: Scope, problems: Problems, open_: tuple[str, ...]
) -> Composed:
    resolved = declare.strategy(name.text, scope)
    if resolved is None:
        known = (*scope.strategies, *scope.homes, *library.names())
        near = meant(name.text, known)
        raise refuse(
            "E101",
            f"no strategy is called `{name.text}`",
            name.span,
            help=f"did you mean `{near}`?" if near else f"known: {', '.join(known)}",
        )
    if name.text in open_:
        chain = " -> ".join((*open_, name.text))
        raise refuse("E115", f"strategy `{name.text}` is defined by itself", name.span, cause=chain)
    found, home = resolved
    inner = home.child(_bind(found, args, name.span, scope, home))
    inside = (*open_, name.text)
    if found.body is not None:
        return composed(found.body, inner, problems, inside)
    assert found.value is not None
    return expand(found.value, inner, problems, inside)


def _bind(strategy: ast.Strategy, args: tuple[ast.Arg, ...], span: Span, scope: Scope, home: Scope) -> dict[str, Value]:
    """Parameters to values: positional ones first, then by name, then defaults, which are read at `home`."""
    params = {p.name.text: p for p in strategy.params}
    bound: dict[str, Value] = {}
    free = iter(params)
    for arg in args:
        name = arg.name or next(free, None)
        if name is None:
            raise refuse("E107", f"`{strategy.name.text}` takes {len(params)} arguments", arg.span)
        if name not in params:
            near = meant(name, params)
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
            bound[name] = evaluate(param.default, home.lookup)
    return bound


def product(a: Composed, b: Composed) -> Composed:
    """Two strategies at once. Raises Refused when both place one state over one axis."""
    journeys = dict(a.journeys)
    for key, written in b.journeys.items():
        if key in journeys:
            together = join(key[0], journeys[key].journey, written.journey)
            either = written.override or journeys[key].override
            journeys[key] = attrs.evolve(written, journey=together, override=either)
        else:
            journeys[key] = written
    if a.schedule is not None and b.schedule is not None and a.schedule != b.schedule:
        raise refuse("E108", "two factors name a schedule", b.schedule.span)
    return Composed(journeys, b.schedule or a.schedule, (*a.claims, *b.claims))


def override(base: Composed, placement: ast.Placement, scope: Scope) -> Composed:
    """`base` with what the placement names replaced by what it says. Raises Refused."""
    if placement.head.text == "schedule":
        return attrs.evolve(base, schedule=type_schedule(placement.journey, scope))
    key, written = _written(placement, (), scope)
    if key in base.journeys:
        written = attrs.evolve(written, journey=replace(base.journeys[key].journey, written.journey, scope.mesh()))
    return attrs.evolve(base, journeys={**base.journeys, key: written})
