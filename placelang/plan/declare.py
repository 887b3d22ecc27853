"""Collecting declarations: what a text and the files that it uses declare, each name once.

Not for: evaluating them (`scope` does, when a name is looked up).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from placelang.diagnostics.diagnostic import Diagnostic, Label
from placelang.diagnostics.problems import Problems, Refused, fault, refuse
from placelang.plan import library, meshes
from placelang.plan.meant import listed, meant
from placelang.plan.scope import Scope, check_kind, known_kind
from placelang.plan.values import Axes, Value, kind
from placelang.source import Source, Span
from placelang.syntax import ast
from placelang.syntax.parser import parse

DEEPEST = 50  # files that use files

Reader = Callable[[str, Source], "Source | Diagnostic"]
"""Reads the file that `use` names, seen from the text that names it."""


def declare(
    file: ast.File,
    sets: Mapping[str, Value],
    devices: Callable[[Scope], int | None],
    reader: Reader,
    problems: Problems,
    open_: tuple[str, ...] = (),
    asked: int | None = None,
) -> Scope:
    """The scope of a text; faults go to `problems`. `devices`: how many the hardware has, or raises Refused. `asked`:
    how many there are to run on, in their place."""
    scope = Scope(sets, file.source.name)
    seen: dict[str, Span] = {}
    declared_meshes: list[ast.Mesh] = []

    def fresh(node: ast.Name) -> bool:
        if node.text in seen:
            twice = _twice(node, seen[node.text])
            problems.add(twice)
            scope.broken[node.text] = twice
            return False
        seen[node.text] = node.span
        return True

    for statement in file.statements:
        match statement:
            case ast.Use():
                try:
                    _use(statement, scope, file.source, reader, fresh, problems, open_)
                except Refused as refused:
                    problems.add(*refused.diagnostics)
                    scope.broken |= {(i.alias or i.name).text: refused.diagnostic for i in statement.names}
                    scope.broken_use = scope.broken_use or (None if statement.names else refused.diagnostic)
            case ast.Let() if fresh(statement.name):
                scope.lets[statement.name.text] = statement
            case ast.ArgDecl() if fresh(statement.name):
                scope.args[statement.name.text] = statement
            case ast.FoldedAxis() if fresh(statement.name):
                scope.folds[statement.name.text] = statement
            case ast.Strategy() if fresh(statement.name):
                scope.strategies[statement.name.text] = statement
            case ast.Mesh(name=None) if scope.declared_mesh:
                second = fault(
                    "E119",
                    "a second mesh",
                    statement.span,
                    causes=tuple(Label(m.span, "the first") for m in declared_meshes if m.name is None),
                    help="`mesh NAME (...) over (...)` adds a view",
                )
                problems.add(second)
                scope.broken |= {axis.name.text: second for axis in statement.axes if axis.name.text not in seen}
            case ast.Mesh():
                scope.declared_mesh = scope.declared_mesh or statement.name is None
                names = (*(axis.name for axis in statement.axes), *((statement.name,) if statement.name else ()))
                if [n for n in names if not fresh(n)]:  # every name is looked at, so that every fault is shown
                    bare = tuple(attrs.evolve(a, size=None) for a in statement.axes if a.name.text not in scope.broken)
                    declared_meshes.append(attrs.evolve(statement, axes=bare))  # sizes of what is left say nothing
                else:
                    declared_meshes.append(statement)
            case _:
                pass
    homes = _homes(scope)
    for home in homes:  # what is imported places over the axes of this text
        home.axes, home.views, home.declared_mesh = scope.axes, scope.views, scope.declared_mesh
    _kinds(file.statements, problems)
    _values(scope, problems, "E115")  # before meshes, whose sizes read them
    total: int | None = None
    broken: Diagnostic | None = None
    try:
        total = devices(scope)
    except Refused as refused:
        broken = refused.diagnostic
        problems.add(broken)
    if asked is not None:
        total, broken = asked, None
    meshes.build(declared_meshes, scope, total, broken, problems, asked is not None)
    _forget(scope)
    _folds(scope, problems)
    _values(scope, problems)
    return scope


def _twice(again: ast.Name, first: Span) -> Diagnostic:
    causes = (Label(first, "first here"),)
    return fault("E103", f"`{again.text}` is declared twice", again.span, "again here", causes=causes)


def _kinds(statements: Iterable[ast.Statement], problems: Problems) -> None:
    """Kinds are known, and a parameter is declared once, whether anything uses them or not."""
    for statement in statements:
        match statement:
            case ast.ArgDecl(kind=kind) | ast.Let(kind=kind):
                with problems.catching():
                    known_kind(kind)
            case ast.Strategy(params=params):
                first: dict[str, Span] = {}
                for param in params:
                    with problems.catching():
                        known_kind(param.kind)
                        if param.name.text in first:
                            raise Refused(_twice(param.name, first[param.name.text]))
                        first[param.name.text] = param.name.span
            case _:
                pass


def _folds(scope: Scope, problems: Problems) -> None:
    """A folded axis is a product of axes, whether anything uses it or not."""
    for name, fold in scope.folds.items():
        with problems.catching():
            try:
                value = scope.lookup(name, fold.name.span)
                if not isinstance(value, Axes):
                    assert value is not None, "a fold is declared"
                    raise refuse("E105", f"a folded axis is a product of axes, this is {kind(value)}", fold.value.span)
            except Refused as refused:
                scope.broken.setdefault(name, refused.diagnostic)
                raise


def _values(scope: Scope, problems: Problems, only: str = "") -> None:
    """Every `let` and default has a value, whether anything uses it or not. Names that it mentions become no axes."""
    before = dict(scope.axes)
    declared: list[ast.Let | ast.ArgDecl] = [*scope.lets.values(), *scope.args.values()]
    for one in declared:
        name, span = one.name.text, one.name.span
        try:
            value = scope.lookup(name, span)
            if one.kind is not None and value is not None and not only:
                check_kind(one.kind, value, f"`{name}`", span, scope)
        except Refused as refused:
            if only in ("", refused.diagnostic.code):
                problems.add(*refused.diagnostics)
                scope.broken.setdefault(name, refused.diagnostic)
    scope.axes.clear()
    scope.axes.update(before)
    _forget(scope)


def _forget(scope: Scope) -> None:
    """Declarations are read again: the axes that they may name are others now."""
    for each in (scope, *_homes(scope)):
        each.known.clear()
        each.failed.clear()


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
    if len(chain) > DEEPEST:
        raise refuse("E115", f'`use "{use.path}"` is more than {DEEPEST} files deep', use.span)
    file, faults = parse(found)
    problems.add(*faults)
    home = declare(_sizeless(file), {}, lambda _: None, reader, problems, chain)
    names = (*home.strategies, *home.lets, *home.homes)
    wanted = [(i.name, i.alias or i.name) for i in use.names] or [
        (ast.Name(n, span=use.span), ast.Name(n, span=use.span)) for n in names
    ]
    for name, alias in wanted:
        if name.text not in names:
            inner = next((d for d in faults if d.is_error), home.broken.get(name.text))
            near = meant(name.text, names)
            missing = inner or fault(
                "E101",
                f'"{use.path}" declares no `{name.text}`',
                name.span,
                help=f"did you mean `{near}`?" if near else f"it declares: {listed(names) or 'nothing'}",
            )
            problems.add(missing)
            scope.broken[alias.text] = missing
        elif fresh(alias):
            scope.homes[alias.text] = (home, name.text)


def _sizeless(file: ast.File) -> ast.File:
    """A file whose meshes have no sizes: what it declares places over the axes of the text that uses it."""

    def bare(statement: ast.Statement) -> ast.Statement:
        if not isinstance(statement, ast.Mesh):
            return statement
        return attrs.evolve(statement, axes=tuple(attrs.evolve(axis, size=None) for axis in statement.axes))

    return attrs.evolve(file, statements=tuple(map(bare, file.statements)))


def strategy(name: str, scope: Scope) -> tuple[ast.Strategy, Scope] | None:
    """A strategy by name: the text's own, an imported one, or one of the standard library. Raises Refused where its
    declaration was refused."""
    scope.whole(name)
    found = scope.strategy(name)
    if found is not None:
        return found
    shipped = library.strategy(name)
    if shipped is None and scope.broken_use is not None:
        raise Refused(scope.broken_use)
    return None if shipped is None else (shipped, scope)


def names_nothing(scope: Scope, facts: tuple[str, ...], problems: Problems) -> None:
    """A `--set` that names nothing is a mistake, not a wish."""
    for name in scope.sets:
        if name in scope.used_sets or name in scope.broken:
            continue
        known = (*scope.args, *scope.axes, *facts)
        near = meant(name, known)
        help_ = f"did you mean `--set {near}=...`?" if near else f"a text can be given: {listed(known)}"
        if name in scope.lets:
            help_ = f"`{name}` is a `let`; `arg {name}` in its place can be set"
        problems.add(fault("E101", f"`--set {name}` names nothing in this text", None, help=help_))
