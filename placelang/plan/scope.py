"""What names mean: axes, args, lets and strategies of a text share one namespace, and a name is declared once.

Not for: the vocabulary of journeys (`words`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import attrs

from placelang.diagnostics.problems import Problems, fault, refuse
from placelang.diagnostics.suggest import did_you_mean
from placelang.plan.mesh import WELL_KNOWN, Axis, Mesh, Role
from placelang.plan.values import Axes, Unknown, Value, evaluate, kind
from placelang.source import Span
from placelang.syntax import ast

MAX_RANKS = 2**40  # beyond any machine; keeps arithmetic on sizes small


@attrs.define
class Scope:
    """The declarations of one text. Without a `mesh` line, well-known axis names are axes as soon as they are used."""

    sets: Mapping[str, Value]
    lets: dict[str, ast.Let] = attrs.field(factory=dict)
    args: dict[str, ast.ArgDecl] = attrs.field(factory=dict)
    folds: dict[str, ast.FoldedAxis] = attrs.field(factory=dict)
    strategies: dict[str, ast.Strategy] = attrs.field(factory=dict)
    axes: dict[str, Axis] = attrs.field(factory=dict)
    declared_mesh: bool = False
    bound: Mapping[str, Value] = attrs.field(factory=dict)
    used_sets: set[str] = attrs.field(factory=set)
    _open: list[str] = attrs.field(factory=list)

    def child(self, bound: Mapping[str, Value]) -> Scope:
        """The same declarations, with the parameters of a strategy bound to values."""
        return attrs.evolve(self, bound={**self.bound, **bound})

    def lookup(self, name: str, span: Span) -> Value | None:
        """The value of a declared name, or None: the name then means itself."""
        if name == "sp" and name not in self.axes and name not in self.bound:
            raise refuse(
                "E114",
                "`sp` means sequence parallelism in two ways",
                span,
                help="`cp` for context parallelism (each rank holds a part of the sequence), `tp` for Megatron's",
            )
        if name in self.bound:
            return self.bound[name]
        if name in self.axes:
            return Axes((name,))
        if name in self.folds:
            return self._entered(name, span, self.folds[name].value)
        if name in self.lets:
            return self._entered(name, span, self.lets[name].value)
        if name in self.args:
            return self._arg(self.args[name], span)
        if not self.declared_mesh and name in WELL_KNOWN:
            self.axes[name] = Axis(name, WELL_KNOWN[name], self._size_set(name, span), span)
            return Axes((name,))
        return None

    def axis_names(self) -> tuple[str, ...]:
        """Every name that could stand where an axis is expected, for suggestions."""
        implicit = () if self.declared_mesh else WELL_KNOWN
        return tuple(dict.fromkeys((*self.axes, *self.folds, *implicit)))

    def mesh(self) -> Mesh:
        return Mesh(tuple(self.axes.values()))

    def _entered(self, name: str, span: Span, expr: ast.Expr) -> Value:
        if name in self._open:
            raise refuse("E115", f"`{name}` is defined by itself", span, cause=" -> ".join((*self._open, name)))
        self._open.append(name)
        try:
            return evaluate(expr, self.lookup)
        finally:
            self._open.pop()

    def _arg(self, arg: ast.ArgDecl, span: Span) -> Value:
        if arg.name.text in self.sets:
            self.used_sets.add(arg.name.text)
            value = self.sets[arg.name.text]
            if arg.kind is not None:
                check_kind(arg.kind, value, f"`--set {arg.name.text}`")
            return value
        if arg.default is not None:
            return self._entered(arg.name.text, span, arg.default)
        return Unknown(arg.name.text)

    def _size_set(self, name: str, span: Span) -> int | None:
        if name not in self.sets:
            return None
        self.used_sets.add(name)
        return size_of(self.sets[name], name, span)


def size_of(value: Value, name: str, span: Span) -> int | None:
    """The size of an axis as a whole number; None for a symbol."""
    if isinstance(value, Unknown):
        return None
    if (
        isinstance(value, Fraction)
        and not isinstance(value, bool)
        and value.denominator == 1
        and 1 <= value <= MAX_RANKS
    ):
        return int(value)
    raise refuse("E109", f"axis `{name}` needs a whole number of ranks from 1 up, this is {kind(value)}", span)


_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "int": Fraction,
    "float": Fraction,
    "bool": bool,
    "text": str,
    "axis": Axes,
}


def check_kind(declared: ast.Name, value: Value, what: str) -> None:
    """Refuse a value that is not of the declared kind. Kinds without a rule here are checked where they are used."""
    expected = _KINDS.get(declared.text)
    known = (*_KINDS, "bytes", "time", "dtype", "schedule")
    if declared.text not in known:
        near = did_you_mean(declared.text, known)
        raise refuse(
            "E101",
            f"no kind is called `{declared.text}`",
            declared.span,
            help=f"did you mean `{near}`?" if near else "",
        )
    if expected is None or isinstance(value, Unknown):
        return
    whole = declared.text != "int" or (isinstance(value, Fraction) and value.denominator == 1)
    if not isinstance(value, expected) or not whole or (isinstance(value, bool) and declared.text != "bool"):
        raise refuse("E105", f"{what} is {kind(value)}, declared as {declared.text}", declared.span)


def declare(statements: tuple[ast.Statement, ...], sets: Mapping[str, Value], problems: Problems) -> Scope:
    """Collect the declarations of a text; faults go to `problems`."""
    scope = Scope(sets)
    seen: dict[str, Span] = {}

    def name(node: ast.Name) -> bool:
        if node.text in seen:
            problems.add(
                fault("E103", f"`{node.text}` is declared twice", node.span, "again here", cause="first declared above")
            )
            return False
        seen[node.text] = node.span
        return True

    for statement in statements:
        match statement:
            case ast.Let() if name(statement.name):
                scope.lets[statement.name.text] = statement
            case ast.ArgDecl() if name(statement.name):
                scope.args[statement.name.text] = statement
            case ast.FoldedAxis() if name(statement.name):
                scope.folds[statement.name.text] = statement
            case ast.Strategy() if name(statement.name):
                scope.strategies[statement.name.text] = statement
            case ast.Mesh(name=None) if scope.declared_mesh:
                problems.add(
                    fault("E119", "a second mesh", statement.span, help="`mesh NAME (...) over (...)` adds a view")
                )
            case ast.Mesh(name=None):
                scope.declared_mesh = True
            case ast.Mesh():
                problems.add(fault("E112", "mesh views (`over`) are not interpreted by this version", statement.span))
            case _:
                pass
    for statement in statements:
        if isinstance(statement, ast.Mesh) and statement.name is None and not scope.axes:
            for declared in statement.axes:
                with problems.catching():
                    if name(declared.name):
                        scope.axes[declared.name.text] = _axis(declared, scope)
    return scope


def _axis(declared: ast.AxisDecl, scope: Scope) -> Axis:
    name, span = declared.name.text, declared.name.span
    if name == "sp":
        raise refuse(
            "E114",
            "`sp` means sequence parallelism in two ways",
            span,
            help="`cp` or `tp`, or another name with a role",
        )
    if declared.role is not None:
        roles = {r.value: r for r in Role}
        if declared.role.text not in roles:
            near = did_you_mean(declared.role.text, roles)
            raise refuse(
                "E101",
                f"no role is called `{declared.role.text}`",
                declared.role.span,
                help=f"did you mean `{near}`?" if near else f"roles: {', '.join(roles)}",
            )
        role = roles[declared.role.text]
    elif name in WELL_KNOWN:
        role = WELL_KNOWN[name]
    else:
        near = did_you_mean(name, WELL_KNOWN)
        raise refuse(
            "E113",
            f"axis `{name}` needs a role",
            span,
            help=f"`{name}: data`" + (f"; or did you mean `{near}`?" if near else ""),
            rule=f"only these names carry one: {', '.join(WELL_KNOWN)}",
        )
    if name in scope.sets:
        scope.used_sets.add(name)
        return Axis(name, role, size_of(scope.sets[name], name, span), span)
    if declared.size is None:
        return Axis(name, role, None, span)
    if isinstance(declared.size, ast.Star):
        raise refuse(
            "E121",
            f"`{name} = *` needs the number of devices, which no line gives",
            declared.size.span,
            help=f"`--set {name}=8`",
        )
    return Axis(name, role, size_of(evaluate(declared.size, scope.lookup), name, declared.size.span), span)
