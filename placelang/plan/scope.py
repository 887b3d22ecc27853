"""What names mean: axes, args, lets and strategies of a text share one namespace, and a name is declared once.

Not for: the vocabulary of journeys (`words`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import attrs

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import Refused, refuse
from placelang.frozen import Frozen
from placelang.plan.meant import listed, meant
from placelang.plan.mesh import WELL_KNOWN, Axis, Mesh, View
from placelang.plan.values import Axes, Unknown, Value, Word, evaluate, kind
from placelang.source import Span
from placelang.syntax import ast

MAX_RANKS = 2**40  # beyond any machine; keeps arithmetic on sizes small


@attrs.define(eq=False, repr=False)
class Scope(Frozen):
    """The declarations of one text. Without a `mesh` line, well-known axis names are axes as soon as they are used."""

    sets: Mapping[str, Value]
    file: str = ""  # the name of the text
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
    broken: dict[str, Diagnostic] = attrs.field(factory=dict)  # names whose declaration was refused, and why
    broken_use: Diagnostic | None = None  # why a `use` without names was refused: any name might be its
    expanded: dict[tuple[int, str], Any] = attrs.field(factory=dict)  # strategies, by declaration and arguments
    known: dict[str, Value] = attrs.field(factory=dict)  # declarations that were read, each once
    failed: dict[str, Diagnostic] = attrs.field(factory=dict)  # and those that could not be

    def child(self, bound: Mapping[str, Value]) -> Scope:
        """The same declarations, with the parameters of a strategy bound to values."""
        return attrs.evolve(self, bound={**self.bound, **bound})

    def lookup(self, name: str, span: Span, needed: bool = False, /) -> Value | None:
        """The value of a declared name, or None: the name then means itself. See `values.Lookup`."""
        found = self._find(name, span)
        if found is None and needed:
            near = meant(name, (*self.axis_names(), *self.lets, *self.args, *self.homes))
            new = f"`arg {name}` declares it, for `--set {name}=8`"
            if name[0].isdigit():
                new = "a number stands alone or touches its unit, as in `25MB`"
            help_ = f"did you mean `{near}`?" if near else new
            raise refuse("E101", f"no axis or value is called `{name}`", span, help=help_)
        return found

    def whole(self, name: str) -> None:
        """Refuse a name whose declaration was refused, with the same words, which are said once."""
        if name in self.broken:
            raise Refused(self.broken[name])

    def no_axis(self, name: str, span: Span, also: Iterable[str] = ()) -> Refused:
        """What is said of a name that is no axis; `also`: words that may stand there too."""
        known = self.axis_names()
        if refused := meant(name, self.broken):  # one mistake in the mesh, not another here
            return Refused(self.broken[refused])
        near = meant(name, (*known, *also))
        if self.declared_mesh and name in WELL_KNOWN:
            return refuse("E102", f"the mesh has no axis `{name}`", span, help=f"its axes: {listed(known)}")
        if near:
            return refuse("E102", f"no axis is called `{name}`", span, help=f"did you mean `{near}`?")
        new = "" if self.declared_mesh else f"; `mesh ({name}: data)` declares another"
        return refuse("E102", f"no axis is called `{name}`", span, help=f"axes: {listed(known)}{new}")

    def _find(self, name: str, span: Span) -> Value | None:
        if name == "sp" and name not in self.axes and name not in self.bound:
            raise refuse(
                "E114",
                "`sp` means sequence parallelism in two ways",
                span,
                help="`cp` for context parallelism (each rank holds a part of the sequence), `tp` for Megatron's",
            )
        if name in self.bound:
            return self.bound[name]
        self.whole(name)
        if name in self.axes:
            return Axes((name,), self.axes[name].size)
        if name in self.homes:
            home, there = self.homes[name]
            return home.lookup(there, span)
        for view in self.views:
            if name in view:
                return Axes((name,), view[name].size)
        if name in self.known:
            return self.known[name]
        if name in self.failed:
            raise Refused(self.failed[name])
        if self.written(name) is not None:
            return self._read(name, span)
        if name in self.args:
            return self._arg(self.args[name])
        if not self.declared_mesh and name in WELL_KNOWN:
            axis = Axis(name, WELL_KNOWN[name], self._size_set(name), span)
            self.axes[name] = axis
            return Axes((name,), axis.size)
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

    def written(self, name: str) -> ast.Expr | None:
        """The expression that a declared name stands for, if it stands for one."""
        if name in self.folds:
            return self.folds[name].value
        if name in self.lets:
            return self.lets[name].value
        return self.args[name].default if name in self.args and name not in self.sets else None

    def _read(self, name: str, span: Span) -> Value:
        """The value of a declared expression. What it names is read before it, and each declaration once, so that
        neither long chains nor names that are used again and again cost more than they are long."""
        home = attrs.evolve(self, bound={}) if self.bound else self  # a declaration does not see parameters
        reading: dict[str, tuple[ast.Expr, Iterator[ast.Name]]] = {}
        todo: ast.Name | None = ast.Name(name, span=span)
        try:
            while todo is not None or reading:
                if todo is not None:
                    expr = self.written(todo.text)
                    assert expr is not None, "only names that stand for an expression are read"
                    reading[todo.text] = expr, ast.names(expr)
                last = next(reversed(reading))
                expr, inside = reading[last]
                todo = next((n for n in inside if self._unread(n.text)), None)
                if todo is None:
                    self.known[last] = evaluate(expr, home.lookup)
                    del reading[last]
                elif todo.text in reading:
                    raise _circular([*reading, todo.text], todo)
        except Refused as refused:
            self.failed |= dict.fromkeys(reading, refused.diagnostic)
            if refused.diagnostic.code == "E115":  # of every name on the way; other reasons may pass with a mesh
                self.broken |= {n: refused.diagnostic for n in reading if n not in self.broken}
            raise
        return self.known[name]

    def _unread(self, name: str) -> bool:
        elsewhere = name in self.broken or name in self.axes or name in self.homes or any(name in v for v in self.views)
        read = name in self.known or name in self.failed
        return not elsewhere and not read and self.written(name) is not None

    def _arg(self, arg: ast.ArgDecl) -> Value:
        """The value of an `arg` that no default gives."""
        if arg.name.text not in self.sets:
            return Unknown(arg.name.text)
        self.used_sets.add(arg.name.text)
        value = self.sets[arg.name.text]
        if arg.kind is not None:
            check_kind(arg.kind, value, f"`--set {arg.name.text}`", None, self)
        return value

    def _size_set(self, name: str) -> int | None:
        if name not in self.sets:
            return None
        self.used_sets.add(name)
        return size_of(self.sets[name], name, None)


def _circular(chain: list[str], again: ast.Name) -> Refused:
    shown = chain if len(chain) <= 10 else [*chain[:5], "...", *chain[-4:]]
    return refuse("E115", f"`{again.text}` is defined by itself", again.span, cause=" -> ".join(shown))


def size_of(value: Value, name: str, span: Span | None) -> int | None:
    """The size of an axis as a whole number; None for a symbol. Without a span it is `--set` that says it."""
    if isinstance(value, Unknown):
        return None
    if (
        isinstance(value, Fraction)
        and not isinstance(value, bool)
        and value.denominator == 1
        and 1 <= value <= MAX_RANKS
    ):
        return int(value)
    if isinstance(value, Word) and not value.args and span is not None:
        help_ = f"`arg {value.name}: int` declares it, for `--set {value.name}=8`"
        raise refuse("E101", f"no value is called `{value.name}`", span, help=help_)
    whose = "this" if span is not None else f"`--set {name}`"
    raise refuse(
        "E109",
        f"axis `{name}` needs a whole number of ranks from 1 up, {whose} is {kind(value)}",
        span,
        help=f"`{name} = 8`" if span is not None else f"`--set {name}=8`",
    )


_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "int": Fraction,
    "float": Fraction,
    "bool": bool,
    "text": str,
    "axis": Axes,
}


_OTHER_KINDS = ("bytes", "time", "dtype", "schedule")


def known_kind(declared: ast.Name | None) -> None:
    """Refuse the name of a kind that there is not."""
    known = (*_KINDS, *_OTHER_KINDS)
    if declared is not None and declared.text not in known:
        near = meant(declared.text, known)
        raise refuse(
            "E101",
            f"no kind is called `{declared.text}`",
            declared.span,
            help=f"did you mean `{near}`?" if near else f"kinds: {listed(known)}",
        )


def check_kind(declared: ast.Name, value: Value, what: str, span: Span | None, scope: Scope) -> None:
    """Refuse a value at `span` that is not of the declared kind. Kinds without a rule here are checked where they are
    used."""
    expected = _KINDS.get(declared.text)
    if expected is None or (isinstance(value, Unknown) and expected is not Axes):
        return
    if expected is Axes and isinstance(value, Word) and not value.args and span is not None:
        raise scope.no_axis(value.name, span)
    whole = declared.text != "int" or (isinstance(value, Fraction) and value.denominator == 1)
    if not isinstance(value, expected) or not whole or (isinstance(value, bool) and declared.text != "bool"):
        raise refuse("E105", f"{what} is {kind(value)}, declared as {declared.text}", span or declared.span)
