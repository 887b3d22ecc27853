"""Strategies as values: application, products, refinement, overriding.

`*` joins strategies state by state: forms of the factors first, then their transitions, in the order of the factors.
Not for: gaps that remain (`infer`), or the bodies of claims (`claims`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from placelang.diagnostics.diagnostic import Label
from placelang.diagnostics.problems import Problems, both, every, refuse, using
from placelang.frozen import Frozen
from placelang.plan import declare, library
from placelang.plan.journeys import type_journey, type_schedule
from placelang.plan.meant import listed, meant
from placelang.plan.merge import join, replace, shared
from placelang.plan.mesh import WELL_KNOWN
from placelang.plan.plan import Schedule, Selection
from placelang.plan.scope import Scope, check_kind
from placelang.plan.selectors import typed
from placelang.plan.steps import Journey, Step
from placelang.plan.values import Value, Word, evaluate
from placelang.plan.words import HEADS, STATES
from placelang.source import Span
from placelang.syntax import ast

DEEPEST = 50  # strategies within strategies
_LONGEST = 100  # steps of one journey

Key = tuple[str, tuple[Selection, ...]]
"""A head, and the selections that a placement is about (none: all tensors)."""


@attrs.frozen(eq=False, repr=False)
class Written(Frozen):
    """A journey as written for a key. `override`: it may differ from other selections of the same tensors."""

    journey: Journey
    override: bool = False
    span: Span | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen(eq=False, repr=False)
class Composed(Frozen):
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
                    raise _second("schedule", placement, schedule.span)
                _plain_head(placement, selectors)
                schedule = type_schedule(placement.journey, scope)
            else:
                key, written = _written(placement, selectors, scope)
                if key in own and not written.override:
                    raise _second(f"{key[0]}{_where(key)}", placement, own[key].span)
                own[key] = _over(own, key, written, scope)
    for statement in statements:
        with problems.catching():
            match statement:
                case ast.Apply() if applied is not None:
                    first = (Label(applied.span, "the first"),)
                    joined = f"`apply {applied.value.span.text} * {statement.value.span.text}` joins both"
                    raise refuse("E119", "a second `apply`", statement.span, causes=first, help=joined)
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
            base = expand(applied.value, scope, problems)
            over = {key for key, w in own.items() if w.override and key in base.journeys}
            said = {key: _over(base.journeys, key, own[key], scope) for key in over}
            rest = {key: w for key, w in own.items() if key not in over}
            base = attrs.evolve(base, journeys={**base.journeys, **said})
            result = product(base, attrs.evolve(result, journeys=rest), None)
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
    selections, journey = both(
        lambda: typed((*placement.selectors, *selectors), scope),
        lambda: type_journey(head.text, placement.journey, scope),
    )
    return (head.text, selections), Written(journey, placement.override, placement.span)


def _plain_head(placement: ast.Placement, selectors: tuple[ast.Selector, ...]) -> None:
    if placement.selectors or selectors:
        raise refuse("E105", f"`{placement.head.text}` takes no selector", placement.head.span)


def _where(key: Key) -> str:
    return f"[{', '.join(map(str, key[1]))}]" if key[1] else ""


def _second(what: str, placement: ast.Placement, first: Span | None) -> Exception:
    return refuse(
        "E108",
        f"a second word on `{what}`",
        placement.span,
        causes=(Label(first, "the first"),) if first else (),
        help=f"`override {placement.span.text}` replaces what it names",
    )


def expand(expr: ast.Expr, scope: Scope, problems: Problems, open_: tuple[str, ...] = ()) -> Composed:
    """What a strategy expression says. Raises Refused."""
    match expr:
        case ast.Name():
            return _call(expr, (), expr.span, scope, problems, open_)
        case ast.Call(func=func, args=args):
            return _call(func, args, expr.span, scope, problems, open_)
        case ast.Binary(op="*", left=left, right=right):
            a, b = both(
                lambda: expand(left, scope, problems, open_),
                lambda: expand(right, scope, problems, open_),
            )
            return product(a, b, expr.span)
        case ast.Group(inner=inner):
            return expand(inner, scope, problems, open_)
        case ast.With(base=base, body=body):
            result, overrides = both(
                lambda: expand(base, scope, problems, open_),
                lambda: every(lambda statement: _overriding(statement, scope), body),
            )
            for placement in overrides:
                result = override(result, placement, scope)
            return result
        case _:
            raise refuse("E105", "a strategy is expected here", expr.span, help="strategies are joined by `*`")


def _overriding(statement: ast.Statement, scope: Scope) -> ast.Placement:
    """A statement after `with`, if it says something whatever it is said of."""
    if not isinstance(statement, ast.Placement):
        raise refuse("E105", "only `override` placements may stand after `with`", statement.span)
    if not statement.override:
        raise refuse("E108", "after `with` stand overrides", statement.span, help=f"`override {statement.span.text}`")
    override(Composed({}, None, ()), statement, scope)
    return statement


def _call(
    name: ast.Name, args: tuple[ast.Arg, ...], place: Span, scope: Scope, problems: Problems, open_: tuple[str, ...]
) -> Composed:
    resolved = declare.strategy(name.text, scope)
    if resolved is None and name.text in scope.axis_names() and not args:
        message, help_ = "an axis is no strategy", "strategies take axes, as in `zero3(dp)`"
        raise refuse("E105", message, name.span, "a strategy is expected here", help=help_)
    if resolved is None:
        known = (*scope.strategies, *scope.homes, *library.names())
        near = meant(name.text, known)
        raise refuse(
            "E101",
            f"no strategy is called `{name.text}`",
            name.span,
            help=f"did you mean `{near}`?" if near else f"known: {listed(known)}",
        )
    if name.text in open_:
        chain = " -> ".join((*open_, name.text))
        raise refuse("E115", f"strategy `{name.text}` is defined by itself", name.span, cause=chain)
    if len(open_) >= DEEPEST:
        raise refuse("E115", f"`{name.text}` is too many strategies away from a body", name.span)
    found, home = resolved
    bound = _bind(found, args, name.span, scope, home)
    key = (id(found), repr(bound))
    if key not in home.expanded:
        inner, inside = home.child(bound), (*open_, name.text)
        assert found.body is not None or found.value is not None
        with using(problems, place) as within:
            home.expanded[key] = (
                expand(found.value, inner, within, inside)
                if found.value is not None
                else composed(found.body or (), inner, within, inside)
            )
    return _used(home.expanded[key], place)


def _used(said: Composed, place: Span) -> Composed:
    """What a strategy says, with the place that applied it, if that is of another source."""

    def span(own: Span | None) -> Span | None:
        return own and own.used_at(place)

    def step(own: Step) -> Step:
        return attrs.evolve(own, span=span(own.span))

    if all(w.span is None or w.span.source == place.source for w in said.journeys.values()):
        return said
    return attrs.evolve(
        said,
        journeys={
            (head, tuple(attrs.evolve(s, span=span(s.span)) for s in selections)): attrs.evolve(
                w, journey=tuple(map(step, w.journey)), span=span(w.span)
            )
            for (head, selections), w in said.journeys.items()
        },
        schedule=said.schedule and attrs.evolve(said.schedule, span=span(said.schedule.span)),
    )


def _bind(strategy: ast.Strategy, args: tuple[ast.Arg, ...], span: Span, scope: Scope, home: Scope) -> dict[str, Value]:
    """Parameters to values: positional ones first, then by name, then defaults, which are read at `home`."""
    params = {p.name.text: p for p in strategy.params}
    bound: dict[str, Value] = {}
    free = iter(params)

    def bind(arg: ast.Arg) -> None:
        name = arg.name or next(free, None)
        if name is None:
            takes = f"{len(params)} argument{'s' * (len(params) != 1)}" if params else "no argument"
            known = f"parameters: {', '.join(params)}" if params else ""
            raise refuse("E106", f"`{strategy.name.text}` takes {takes}, this is one too many", arg.span, help=known)
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
            check_kind(declared, bound[name], f"`{name}`", arg.value.span, scope)

    every(bind, args)
    for name, param in params.items():
        if name not in bound:
            if param.default is None:
                usual = (*scope.axes, "dp")[0] if param.kind and param.kind.text == "axis" else "..."
                help_ = f"`{strategy.name.text}({name} = {usual})`"
                raise refuse("E107", f"`{strategy.name.text}` needs `{name}`", span, help=help_)
            bound[name] = evaluate(param.default, home.lookup)
            if param.kind and param.kind.text == "axis" and isinstance(bound[name], Word):
                raise _no_default(strategy.name.text, param, span, scope)
    return bound


def _no_default(name: str, param: ast.Param, span: Span, scope: Scope) -> Exception:
    """The axis that a strategy works over unless it is told otherwise is none of the mesh."""
    assert param.default is not None, "the default is what is missing"
    usual = param.default.span.text
    fit = scope.mesh().of_role(WELL_KNOWN[usual]) if usual in WELL_KNOWN else ()
    help_ = f"`{name}({param.name.text} = {fit[0]})`" if fit else f"axes: {listed(scope.axis_names())}"
    return refuse("E102", f"`{name}` works over `{usual}`, which is no axis of the mesh", span, help=help_)


def product(a: Composed, b: Composed, span: Span | None) -> Composed:
    """Two strategies at once, as `span` says; None: `b` is what a text says beside its `apply`. Raises Refused when
    both place one state over one axis."""
    journeys = dict(a.journeys)
    for key, written in b.journeys.items():
        if key in journeys:
            if clash := shared(journeys[key].journey, written.journey):
                raise _both_place(key, clash, written, span)
            together = join(journeys[key].journey, written.journey)
            either = written.override or journeys[key].override
            journeys[key] = attrs.evolve(written, journey=together, override=either)
        else:
            journeys[key] = written
    if a.schedule is not None and b.schedule is not None and a.schedule != b.schedule:
        marks = ((a.schedule.span, "one"), (b.schedule.span, "another"))
        causes = tuple(Label(s, text) for s, text in marks if s and span)
        place = span or b.schedule.span
        override_ = f"`override schedule: {b.schedule.name}`"
        raise refuse("E108", "two factors name a schedule", place, causes=causes, help=f"{override_} names one for all")
    if max((len(w.journey) for w in journeys.values()), default=0) > _LONGEST:
        raise refuse("E118", f"a journey has more than {_LONGEST} steps", span)
    claims = {(id(claim), id(scope)): (claim, scope) for claim, scope in (*a.claims, *b.claims)}
    return Composed(journeys, b.schedule or a.schedule, tuple(claims.values()))


def _both_place(key: Key, clash: tuple[str, Step, Step], written: Written, span: Span | None) -> Exception:
    axis, first, second = clash
    state = f"{key[0]}{_where(key)}"
    if span is None:
        return refuse(
            "E104",
            f"`apply` places {state} over `{axis}` already",
            written.span,
            causes=(Label(first.span, "here"),) if first.span else (),
            help=f"`override {written.span.text}` replaces that" if written.span else "",
        )
    return refuse(
        "E104",
        f"two factors place {state} over `{axis}`",
        span,
        rule="factors of `*` have disjoint axes, state by state",
        causes=tuple(Label(s.span, text) for s, text in ((first, "one"), (second, "the other")) if s.span),
    )


def override(base: Composed, placement: ast.Placement, scope: Scope) -> Composed:
    """`base` with what the placement names replaced by what it says. Raises Refused."""
    if placement.head.text == "schedule":
        return attrs.evolve(base, schedule=type_schedule(placement.journey, scope))
    key, written = _written(placement, (), scope)
    return attrs.evolve(base, journeys={**base.journeys, key: _over(base.journeys, key, written, scope)})


def _over(said: Mapping[Key, Written], key: Key, written: Written, scope: Scope) -> Written:
    """What an override says, in place of what it names where the same thing was placed before."""
    if key not in said:
        return written
    return attrs.evolve(written, journey=replace(said[key].journey, written.journey, scope.mesh()))
