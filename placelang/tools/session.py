"""What the REPL knows and how it changes: a program so far, and the answer to each statement. Pure: no input or output.

Statements go into one text. One that says anew what stands there (a state, a mesh, a name) takes its place; one that
the text cannot take is not kept. Not for: prompts, files or colours (`repl`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import attrs

from placelang.api import Strategy, load_source
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.formatter import print_node
from placelang.syntax.parser import parse
from placelang.syntax.reader import from_text

NAME = "<repl>"


@attrs.frozen(slots=False)
class Session:
    """A program with what was set beside it. `past` holds the sessions that `undo` goes back to, the last one last."""

    text: str = ""
    sets: Mapping[str, str] = attrs.field(factory=dict)
    model: str | None = None
    past: tuple[Session, ...] = attrs.field(default=(), repr=False, eq=False)

    @cached_property
    def strategy(self) -> Strategy:
        """What the text means. What was set for a name that is not there yet waits for it."""
        source, sets = Source(self.text, NAME), dict(self.sets)
        strategy = load_source(source, model=self.model, sets=sets)
        said = " ".join(d.message for d in strategy.diagnostics if d.code == "E101" and d.primary is None)
        there = {name: value for name, value in sets.items() if f"`--set {name}`" not in said}
        return strategy if there == sets else load_source(source, model=self.model, sets=there)

    @property
    def empty(self) -> bool:
        """Whether no state is placed yet: declarations and facts alone are no strategy, and no mistake either."""
        errors = [d for d in self.strategy.diagnostics if d.is_error]
        return all(d.code == "E107" and d.primary is None for d in errors) and self.strategy.plan is None

    def then(self, **changes: Any) -> Session:
        """The session after a change, which `undo` takes back."""
        return attrs.evolve(self, past=(*self.past, attrs.evolve(self, past=())), **changes)

    def undo(self) -> Session | None:
        return attrs.evolve(self.past[-1], past=self.past[:-1]) if self.past else None


def enter(session: Session, typed: str) -> Session | tuple[Diagnostic, ...]:
    """The session with what was typed, or why it was not kept."""
    source = from_text(typed, NAME)
    if isinstance(source, Diagnostic):
        return (source,)
    file, problems = parse(source)
    if any(d.is_error for d in problems):
        return problems
    return attempt(session, text=_merged(session.text, file))


def attempt(session: Session, **changes: Any) -> Session | tuple[Diagnostic, ...]:
    """The session after a change, or why it is not kept: the text would have no meaning. (One that is unsound has.)"""
    new = session.then(**changes)
    if new.strategy.plan is not None or new.empty:
        return new
    return new.strategy.diagnostics


def _merged(text: str, typed: ast.File) -> str:
    """The text in which typed statements stand where others said the same before, or else at the end."""
    old = {key(s): s.span for s in parse(Source(text, NAME))[0].statements}
    edits: list[tuple[int, int, str]] = []
    added: list[ast.Statement] = []
    for statement in typed.statements:
        span = old.pop(key(statement), None)
        if span is None:
            added.append(statement)
        else:
            edits.append((span.start, span.end, statement.span.text))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    more = [print_node(s) for s in added] if edits else [typed.source.text.strip("\n")]
    return "".join(f"{part}\n" for part in (text.rstrip("\n"), *more) if part)


def key(statement: ast.Statement) -> tuple[str, ...]:
    """What a statement is about. Of two statements with equal keys the later replaces the earlier."""
    match statement:
        case ast.Placement(head=head, selectors=selectors, override=False):
            return "state", head.text, *(print_node(s) for s in selectors)
        case ast.Let(name=name) | ast.ArgDecl(name=name) | ast.FoldedAxis(name=name) | ast.Strategy(name=name):
            return "name", name.text
        case ast.Mesh(name=name):
            return "mesh", name.text if name else ""
        case ast.Fact(kind=kind):
            return "fact", kind
        case ast.Train() | ast.Apply() | ast.Edition():
            return (type(statement).__name__,)
        case _:
            return "", print_node(statement)


@attrs.frozen
class Change:
    """A number before and after. `unit` is "memory", or the axes of traffic."""

    unit: str
    name: str
    before: int | None
    after: int | None


def changes(before: Session, after: Session) -> Iterator[Change]:
    """Memory by state and traffic by axis of a sound program with a model, beside what they were."""
    now = _numbers(after)
    was = _numbers(before)
    for (unit, name), value in now.items():
        yield Change(unit, name, was.get((unit, name)), value)
    for (unit, name), value in was.items():
        if now and (unit, name) not in now:
            yield Change(unit, name, value, 0)


def _numbers(session: Session) -> dict[tuple[str, str], int | None]:
    strategy = session.strategy
    if not strategy.ok or strategy.lacks:
        return {}
    cost = strategy.cost()
    found = {("memory", name): cost.number(expr) for name, expr in cost.by_state.items()}
    found["memory", "peak"] = cost.number(cost.memory.peak)
    for axes in cost.axes:
        parts = [cost.number(t.alg) for t in cost.on(axes)]
        known = [n for n in parts if n is not None]
        found["traffic", " * ".join(axes)] = sum(known) if len(known) == len(parts) else None
    return found
