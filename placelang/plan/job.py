"""What a text trains and where: the model and the machine that its `model` and `hardware` lines name.

A line may name a published value, one of the text, or one that the text imports; it may compute with `let`s and `arg`s.
Not for: what models and machines are (`model`, `hardware`), or the `train` line (`facts`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import refuse
from placelang.diagnostics.suggest import did_you_mean
from placelang.model.model import Model, ModelError
from placelang.plan.literal import literal
from placelang.plan.scope import Scope
from placelang.plan.values import Axes, Value
from placelang.source import Source, Span
from placelang.syntax import ast

if TYPE_CHECKING:
    from placelang.hardware.hardware import Hardware, HardwareError

Factory = Callable[[str, Path], "Model | Diagnostic"]
"""Calls the Python factory `pkg.module:build`, found from a folder, and reads the module that it makes."""

FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def line(name: str, value: Value) -> ast.Fact:
    """The line that `--set model=...` or `--set hardware=...` stands for."""
    from placelang.syntax.formatter import print_node
    from placelang.syntax.parser import parse

    file, problems = parse(Source(f"{name} {print_node(literal(value))}", f"--set {name}"))
    fact = file.statements[0]
    assert isinstance(fact, ast.Fact) and not problems, "a value is an expression"
    return fact


def hardware(fact: ast.Fact, scope: Scope) -> Hardware:
    """The machine of a `hardware` line. Raises Refused."""
    from placelang.hardware import catalogue, values
    from placelang.hardware.hardware import Hardware

    found = values.hardware_of(fact.value, bindings(fact.value, scope), catalogue.declared)
    if isinstance(found, Hardware):
        return found
    code = "E101" if found.message.startswith("no hardware") else _code(found)
    raise refuse(code, found.message, found.span or fact.value.span, help=found.suggestion)


def model(fact: ast.Fact, scope: Scope, factory: Factory | None) -> Model:
    """The model of a `model` line; a text in quotes is the path of a `config.json`, seen from the text, or a factory.

    Raises Refused.
    """
    from placelang.model import catalogue, huggingface, values

    expr = fact.value
    if isinstance(expr, ast.String):
        folder = Path(expr.span.source.name).parent
        if FACTORY.fullmatch(expr.value):
            return _made(expr, folder, factory)
        read = huggingface.load(folder / expr.value)
        if isinstance(read, Model):
            return read
        raise refuse("E120", read.message, expr.span, help=read.suggestion)
    lets = bindings(expr, scope)
    found = values.model_of(expr, lets, catalogue.lookup)
    if isinstance(found, Model):
        return _grouped(found, scope, _argument(expr, "group", lets))
    code = "E101" if found.message.startswith("no model") else _code(found)
    # A published name, such as `llama3-70b`, reads as a difference.
    near = did_you_mean(expr.span.text, catalogue.names()) if isinstance(expr, ast.Binary) else None
    help_ = f"did you mean `{near}`?" if near else found.suggestion
    raise refuse(code, found.message, _argument(expr, found.argument, lets), help=help_)


def _made(expr: ast.String, folder: Path, factory: Factory | None) -> Model:
    if factory is None:
        raise refuse("E501", "Python factories are not called here", expr.span, help="give the model as a value")
    found = factory(expr.value, folder)
    if isinstance(found, Model):
        return found
    raise refuse(found.code, found.message, expr.span, help=found.help, cause=found.cause)


def _grouped(found: Model, scope: Scope, span: Span) -> Model:
    """The model with the names of its routing group read as axes of this text."""
    if not found.routing.group:
        return found
    axes: list[str] = []
    for name in found.routing.group:
        value = scope.lookup(name, span)
        if not isinstance(value, Axes):
            raise scope.no_axis(name, span, ("global",))
        axes += value.names
    if len(set(axes)) < len(axes):
        raise refuse("E104", "`group` names an axis twice", span)
    return attrs.evolve(found, routing=attrs.evolve(found.routing, group=tuple(axes)))


def bindings(expr: ast.Expr, scope: Scope) -> Mapping[str, ast.Expr]:
    """What the names in `expr` stand for, those in these, and so on; a name that is not here means itself.

    Names of other files are told apart by the file. Raises Refused for a name whose declaration was refused, and for
    an `arg` that has no value.
    """
    found: dict[str, ast.Expr] = {}
    todo = [(scope, "", name) for name in ast.names(expr, called=True)]
    while todo:
        at, file, name = todo.pop()
        key = f"{file}{name.text}"
        at.whole(name.text)
        there = name.text
        while there in at.homes:
            at, there = at.homes[there]
            file = f"{at.file}:"
        if key in found or (value := _stands_for(at, there, name.span)) is None:
            continue
        inside = {inner.text: inner for inner in ast.names(value, called=True)}
        todo += [(at, file, inner) for inner in inside.values()]
        own = {n: f"{file}{n}" for n in inside if n in at.lets or n in at.args or n in at.homes}
        found[key] = ast.renamed(value, own) if file else value
    return found


def _stands_for(scope: Scope, name: str, span: Span) -> ast.Expr | None:
    if name in scope.folds:
        return None  # an axis means itself
    if name not in scope.args or name not in scope.sets:
        if (written := scope.written(name)) is not None or name not in scope.args:
            return written
        raise refuse("E121", f"`{name}` has no value yet", span, help=f"`--set {name}=8`")
    value = scope.lookup(name, span)
    assert value is not None, "it is set"
    return literal(value)


def _code(error: ModelError | HardwareError) -> str:
    if error.argument:
        return "E106"
    return "E107" if " needs " in error.message or "arguments by name" in error.message else "E105"


def _argument(expr: ast.Expr, argument: str, lets: Mapping[str, ast.Expr]) -> Span:
    """Where an argument of a value stands, which may be behind names that the text binds; else its head."""
    seen: set[str] = set()
    while True:
        match expr:
            case ast.Group(inner=inner):
                expr = inner
                continue
            case ast.Call(func=func, args=args):
                place = next((a.span for a in args if argument and a.name == argument), None)
                if place is not None:
                    return place
                head = func
            case ast.Name():
                head = expr
            case _:
                return expr.span
        if head.text in seen or head.text not in lets:
            return head.span
        seen.add(head.text)
        expr = lets[head.text]
