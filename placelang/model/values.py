"""From an expression of a text to the model that it says: `gpt2_124m`, `transformer(...)`, `llama3_8b(layers = 4)`.

Knows names by what the caller hands in. Not for: the files of the catalogue (`catalogue`), or expressions that are not
models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from placelang.model.constructors import CONSTRUCTORS, build
from placelang.model.facts import Learned, Refused
from placelang.model.model import Model, ModelError
from placelang.syntax import ast

Given = Mapping[str, object]
Elsewhere = Callable[[str, Given], "Model | ModelError"]
"""Finds a model by a name that no `let` binds, with arguments that replace its own."""


def model_of(
    expr: ast.Expr,
    lets: Mapping[str, ast.Expr],
    elsewhere: Elsewhere,
    given: Given | None = None,
    *,
    name: str = "model",
    family: str = "",
    source: str = "",
) -> Model | ModelError:
    """The model that `expr` says, where `lets` binds names.

    A name that is called, `llama3_8b(layers = 4)`, is the model of that name built again with those arguments replaced.
    `given` replaces arguments of the whole in the same way.
    """
    facts = dict(given or {})
    seen: set[str] = set()
    try:
        while True:
            while isinstance(expr, ast.Group):
                expr = expr.inner
            if isinstance(expr, ast.Call):
                facts = _arguments(expr, lets) | facts
                called = expr.func.text
            elif isinstance(expr, ast.Name):
                called = expr.text
            else:
                return ModelError("this is not a model", "a name of the catalogue, or `transformer(layers = 4, ...)`")
            if called in seen:
                return ModelError(f"`{called}` is defined by itself")
            seen.add(called)
            if called in lets:
                expr = lets[called]
            elif called in CONSTRUCTORS:
                return build(called, facts, name=name, family=family, source=source)
            else:
                return elsewhere(called, facts)
    except Refused as refused:
        return refused.error


def _arguments(call: ast.Call, lets: Mapping[str, ast.Expr]) -> dict[str, object]:
    facts: dict[str, object] = {}
    for arg in call.args:
        if arg.name is None:
            raise Refused(f"`{call.func.text}` takes arguments by name", "write `layers = 12`")
        if arg.name in facts:
            raise Refused(f"`{arg.name}` is given twice", "keep one of the two", arg.name)
        facts[arg.name] = _scalar(arg.value, lets, arg.name)
    return facts


def _scalar(expr: ast.Expr, lets: Mapping[str, ast.Expr], at: str, seen: frozenset[str] = frozenset()) -> object:
    """An argument's value: an int, a Fraction that some argument will refuse, a bool, a word, or `learned(n)`."""
    match expr:
        case ast.Group(inner):
            return _scalar(inner, lets, at, seen)
        case ast.Number(value, unit):
            if unit:
                raise Refused(f"`{at}` is a count and has no unit", f"write it without `{unit}`", at)
            return _whole(value)
        case ast.Name("true" | "false" as word):
            return word == "true"
        case ast.Name(word) if word in lets and word not in seen:
            return _scalar(lets[word], lets, at, seen | {word})
        case ast.Name(word):
            return word
        case ast.Call(ast.Name("learned"), (ast.Arg(length),)):
            n = _scalar(length, lets, at, seen)
            if isinstance(n, int) and not isinstance(n, bool):
                return Learned(n)
            raise Refused("a position table has a whole number of rows", "`learned(1024)`", at)
        case ast.Unary("-", operand):
            return _whole(-_number(operand, lets, at, seen))
        case ast.Binary("+" | "-" | "*" | "/" as op, left, right):
            a, b = _number(left, lets, at, seen), _number(right, lets, at, seen)
            if op == "/" and not b:
                raise Refused(f"`{at}` divides by zero", argument=at)
            return _whole(a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a / b)
    raise Refused(f"`{at}` has a value that no model has", "a number, a word, true, false or `learned(1024)`", at)


def _number(expr: ast.Expr, lets: Mapping[str, ast.Expr], at: str, seen: frozenset[str]) -> Fraction:
    value = _scalar(expr, lets, at, seen)
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        return Fraction(value)
    raise Refused(f"`{at}` computes with something that is not a number", argument=at)


def _whole(value: Fraction) -> int | Fraction:
    return int(value) if value.denominator == 1 else value
