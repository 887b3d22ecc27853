"""What a complete strategy repeats of its text: model, hardware, claims, backends, and the declarations they name.

Journeys, the mesh and the facts of `train` are printed as they were understood (`explain`); these have no fuller form.
Not for: layout (`syntax.formatter`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import attrs

from placelang.diagnostics.problems import Refused
from placelang.plan.literal import literal
from placelang.plan.scope import Scope
from placelang.syntax import ast

Declaration = ast.Let | ast.ArgDecl | ast.FoldedAxis


def repeated(
    statements: Sequence[ast.Statement],
    facts: Sequence[ast.Fact],
    claims: Iterable[tuple[ast.Claim, Scope]],
    scope: Scope,
) -> tuple[ast.Statement, ...]:
    """The statements in an order that reads well: imports, declarations, facts, backends, claims.

    An `arg` has as default what `--set` gave it. A claim of a strategy stands for itself: its parameters, and names of
    other files, are replaced by their values.
    """
    closed = dict.fromkeys(_closed(claim, at, scope) for claim, at in claims)
    backends = [s for s in statements if isinstance(s, ast.Backend)]
    declared = {s.name.text: s for s in statements if isinstance(s, Declaration)}
    needed: dict[str, None] = {}
    wanted = [name for s in (*facts, *backends, *closed) for name in _names(s)]
    while wanted:
        if (name := wanted.pop()) not in needed and (name in declared or name in scope.homes):
            needed[name] = None
            wanted += _names(declared[name]) if name in declared else []
    used = [(name, one) for name, one in declared.items() if name in needed]
    return (
        *_imports(statements, needed, scope),
        *(_set(one, scope) for name, one in used if name not in scope.homes),
        *facts,
        *backends,
        *closed,
    )


def _names(node: object) -> list[str]:
    """Every name below a node."""
    if isinstance(node, ast.Name):
        return [node.text]
    if isinstance(node, tuple):
        return [name for part in node for name in _names(part)]
    if isinstance(node, ast.Node):
        return [name for field in attrs.fields(type(node)) for name in _names(getattr(node, field.name))]
    return []


def _imports(statements: Iterable[ast.Statement], needed: Iterable[str], scope: Scope) -> list[ast.Use]:
    """The `use` lines, each with the names of it that are needed; one that names none may be where a name is from."""
    uses = [s for s in statements if isinstance(s, ast.Use)]
    wanted = {name for name in needed if name in scope.homes}
    named = {(i.alias or i.name).text for use in uses for i in use.names}
    found: list[ast.Use] = []
    for use in uses:
        names = tuple(i for i in use.names if (i.alias or i.name).text in wanted)
        if names or (not use.names and wanted - named):
            found.append(ast.Use(use.path, names))
    return found


def _set(declared: Declaration, scope: Scope) -> Declaration:
    if isinstance(declared, ast.ArgDecl) and declared.name.text in scope.sets:
        return attrs.evolve(declared, default=literal(scope.sets[declared.name.text]))
    return declared


def _closed(claim: ast.Claim, at: Scope, scope: Scope) -> ast.Claim:
    """A claim that says the same in the scope of the text."""
    if at.lets is scope.lets and not at.bound:
        return claim
    values = {}
    for name in ast.names(claim.condition):
        own = name.text in at.bound or at.lets is not scope.lets
        with suppress(Refused):  # which is said where the claim is checked
            if own and (value := at.lookup(name.text, name.span)) is not None:
                values[name.text] = literal(value)
    return attrs.evolve(claim, condition=ast.replaced(claim.condition, values))
