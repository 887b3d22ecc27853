"""What names mean: axes, args, lets and strategies of a text share one namespace, and a name is declared once.

Not for: the vocabulary of journeys (`words`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import attrs

from placelang.diagnostics.problems import refuse
from placelang.diagnostics.suggest import did_you_mean
from placelang.plan.mesh import WELL_KNOWN, Axis, Mesh, View
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
    views: list[View] = attrs.field(factory=list)
    homes: dict[str, tuple[Scope, str]] = attrs.field(factory=dict)  # imported names: their own scope and name there
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
        if name in self.homes:
            home, there = self.homes[name]
            return home.lookup(there, span)
        if any(name in view for view in self.views):
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
        viewed = (a.name for view in self.views for a in view.axes)
        return tuple(dict.fromkeys((*self.axes, *viewed, *self.folds, *implicit)))

    def mesh(self) -> Mesh:
        return Mesh(tuple(self.axes.values()), tuple(self.views))

    def strategy(self, name: str) -> tuple[ast.Strategy, Scope] | None:
        """A strategy of the text, or one that it imports, with the scope that its body reads."""
        if name in self.homes:
            home, there = self.homes[name]
            return home.strategy(there)
        found = self.strategies.get(name)
        return None if found is None else (found, self)

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
