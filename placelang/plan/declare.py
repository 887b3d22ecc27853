"""Collecting declarations: what a text and the files that it uses declare, each name once.

Not for: evaluating them (`scope` does, when a name is looked up).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import Problems, fault, refuse
from placelang.plan import library, meshes
from placelang.plan.meant import meant
from placelang.plan.scope import Scope
from placelang.plan.values import Value
from placelang.source import Source, Span
from placelang.syntax import ast
from placelang.syntax.parser import parse

Reader = Callable[[str, Source], "Source | Diagnostic"]
"""Reads the file that `use` names, seen from the text that names it."""


def declare(
    file: ast.File,
    sets: Mapping[str, Value],
    devices: Callable[[Scope], int | None],
    reader: Reader,
    problems: Problems,
    open_: tuple[str, ...] = (),
) -> Scope:
    """The scope of a text; faults go to `problems`. `devices`: how many the hardware has."""
    scope = Scope(sets)
    seen: dict[str, Span] = {}
    declared_meshes: list[ast.Mesh] = []

    def fresh(node: ast.Name) -> bool:
        if node.text in seen:
            where = seen[node.text]
            line, _ = where.source.line_col(where.start)
            problems.add(
                fault(
                    "E103", f"`{node.text}` is declared twice", node.span, "again here", cause=f"first on line {line}"
                )
            )
            return False
        seen[node.text] = node.span
        return True

    for statement in file.statements:
        match statement:
            case ast.Use():
                with problems.catching():
                    _use(statement, scope, file.source, reader, fresh, problems, open_)
            case ast.Let() if fresh(statement.name):
                scope.lets[statement.name.text] = statement
            case ast.ArgDecl() if fresh(statement.name):
                scope.args[statement.name.text] = statement
            case ast.FoldedAxis() if fresh(statement.name):
                scope.folds[statement.name.text] = statement
            case ast.Strategy() if fresh(statement.name):
                scope.strategies[statement.name.text] = statement
            case ast.Mesh(name=None) if scope.declared_mesh:
                help_ = "`mesh NAME (...) over (...)` adds a view"
                problems.add(fault("E119", "a second mesh", statement.span, help=help_))
            case ast.Mesh():
                scope.declared_mesh = scope.declared_mesh or statement.name is None
                names = (*(axis.name for axis in statement.axes), *((statement.name,) if statement.name else ()))
                if not [n for n in names if not fresh(n)]:  # every name is looked at, so that every fault is shown
                    declared_meshes.append(statement)
            case _:
                pass
    homes = _homes(scope)
    for home in homes:  # what is imported places over the axes of this text
        home.axes, home.views, home.declared_mesh = scope.axes, scope.views, scope.declared_mesh
    meshes.build(declared_meshes, scope, devices(scope), problems)
    for each in (scope, *homes):  # what was read for the sizes of the mesh saw no axes yet
        each.known.clear()
    return scope


def _homes(scope: Scope) -> list[Scope]:
    """The scopes of every file that the text uses, itself or through others."""
    found: dict[int, Scope] = {}
    todo = [scope]
    while todo:
        for home, _ in todo.pop().homes.values():
            if id(home) not in found:
                found[id(home)] = home
                todo.append(home)
    return list(found.values())


def _use(
    use: ast.Use,
    scope: Scope,
    source: Source,
    reader: Reader,
    fresh: Callable[[ast.Name], bool],
    problems: Problems,
    open_: tuple[str, ...],
) -> None:
    """Bind the names that a file declares, each to its own scope there."""
    found = reader(use.path, source)
    if isinstance(found, Diagnostic):
        raise refuse("E116", found.message, use.span, help=found.help)
    chain = (*open_, source.name)
    if found.name in chain:
        raise refuse(
            "E115", f'`use "{use.path}"` leads back to this file', use.span, cause=" -> ".join((*chain, found.name))
        )
    file, faults = parse(found)
    problems.add(*faults)
    home = declare(file, {}, lambda _: None, reader, problems, chain)
    names = (*home.strategies, *home.lets, *home.homes)
    wanted = [(i.name, i.alias or i.name) for i in use.names] or [
        (ast.Name(n, span=use.span), ast.Name(n, span=use.span)) for n in names
    ]
    for name, alias in wanted:
        if name.text not in names:
            near = meant(name.text, names)
            problems.add(
                fault(
                    "E101",
                    f'"{use.path}" declares no `{name.text}`',
                    name.span,
                    help=f"did you mean `{near}`?" if near else f"it declares: {', '.join(names) or 'nothing'}",
                )
            )
        elif fresh(alias):
            scope.homes[alias.text] = (home, name.text)


def strategy(name: str, scope: Scope) -> tuple[ast.Strategy, Scope] | None:
    """A strategy by name: the text's own, an imported one, or one of the standard library."""
    found = scope.strategy(name)
    if found is not None:
        return found
    shipped = library.strategy(name)
    return None if shipped is None else (shipped, scope)


def names_nothing(scope: Scope, facts: tuple[str, ...], problems: Problems) -> None:
    """A `--set` that names nothing is a mistake, not a wish."""
    for name in scope.sets:
        if name not in scope.used_sets:
            known = (*scope.args, *scope.axes, *facts)
            near = meant(name, known)
            help_ = f"did you mean `{near}`?" if near else ""
            problems.add(fault("E101", f"`--set {name}` names nothing in this text", None, help=help_))
