"""From an expression of a text to the model that it says: `gpt2_124m`, `transformer(...)`, `llama3_8b(layers = 4)`.

Knows names by what the caller hands in, and reads each once, so that reading ends soon whatever the text. Not for: the
files of the catalogue (`catalogue`), or expressions that are not models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

import attrs

from placelang.model.constructors import CONSTRUCTORS, build
from placelang.model.facts import Learned, Lora, Refused
from placelang.model.model import Model, ModelError
from placelang.quantity import out_of_range
from placelang.syntax import ast

DEEPEST: Final = 100  # names within names, parentheses within parentheses

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
    reader = _Reader(lets)
    try:
        while True:
            while isinstance(expr, ast.Group):
                expr = expr.inner
            if isinstance(expr, ast.Call):
                facts = reader.arguments(expr) | facts
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


@attrs.define
class _Reader:
    """One reading of the arguments of one model. `at`: the argument that is being read, for messages."""

    lets: Mapping[str, ast.Expr]
    known: dict[str, object] = attrs.field(factory=dict)
    open: list[str] = attrs.field(factory=list)
    depth: int = 0
    at: str = ""

    def arguments(self, call: ast.Call) -> dict[str, object]:
        """The arguments of a call. Raises Refused."""
        facts: dict[str, object] = {}
        for arg in call.args:
            if arg.name is None:
                raise Refused(f"`{call.func.text}` takes arguments by name", "write `layers = 12`")
            if arg.name in facts:
                raise Refused(f"`{arg.name}` is given twice", "keep one of the two", arg.name)
            self.at = arg.name
            facts[arg.name] = self.read(arg.value)
        return facts

    def read(self, expr: ast.Expr) -> object:
        """An argument's value: an int, a Fraction, a bool, a word, `learned(n)`, `lora(...)`; a tuple of words for a
        list, or for a product of axes. Raises Refused."""
        if self.depth >= DEEPEST:
            raise self.refused("is nested too deeply", "fewer names within names and parentheses within parentheses")
        self.depth += 1
        try:
            match expr:
                case ast.Group(inner):
                    return self.read(inner)
                case ast.Number(_, unit) if unit:
                    raise self.refused("is a count and has no unit", f"write it without `{unit}`")
                case ast.Number(value):
                    return _whole(value)
                case ast.Name("true" | "false" as word):
                    return word == "true"
                case ast.Name(word):
                    return self._named(word) if word in self.lets else word
                case ast.Call(ast.Name("learned"), (ast.Arg(length),)):
                    return self._learned(self.read(length))
                case ast.Call(ast.Name("lora"), args):
                    return self._lora(args)
                case ast.List(items):
                    return tuple(self._word(self.read(item)) for item in items)
                case ast.Unary("-", operand):
                    return _whole(-self._number(self.read(operand)))
                case ast.Binary("+" | "-" | "*" | "/" as op, left, right):
                    return self._computed(op, self.read(left), self.read(right))
            raise self.refused("has a value that no model has", "a number, a word, true, false or `learned(1024)`")
        finally:
            self.depth -= 1

    def refused(self, what: str, suggestion: str = "") -> Refused:
        return Refused(f"`{self.at}` {what}", suggestion, self.at)

    def _named(self, word: str) -> object:
        if word in self.open:
            raise Refused(f"`{word}` is defined by itself", argument=self.at)
        if word not in self.known:
            self.open.append(word)
            self.known[word] = self.read(self.lets[word])
            self.open.pop()
        return self.known[word]

    def _learned(self, length: object) -> Learned:
        if isinstance(length, int) and not isinstance(length, bool):
            return Learned(length)
        raise Refused("a position table has a whole number of rows", "`learned(1024)`", self.at)

    def _lora(self, args: tuple[ast.Arg, ...]) -> Lora:
        given: dict[str, object] = {}
        for place, arg in enumerate(args):
            name = arg.name or ("rank" if place == 0 else "")
            if name not in ("rank", "on") or name in given:
                raise self.refused("is `lora(rank = 16, on = [attn, mlp])`")
            given[name] = self.read(arg.value)
        on = given.get("on")
        return Lora(given.get("rank"), on if on is None or isinstance(on, tuple) else (on,))

    def _word(self, value: object) -> str:
        if isinstance(value, str):
            return value
        raise self.refused("has a value that no model has", "a list of words")

    def _computed(self, op: str, a: object, b: object) -> object:
        if op == "*" and isinstance(a, str | tuple) and isinstance(b, str | tuple):  # a product of axes
            return (*((a,) if isinstance(a, str) else a), *((b,) if isinstance(b, str) else b))[:DEEPEST]
        x, y = self._number(a), self._number(b)
        if op == "/" and not y:
            raise self.refused("divides by zero")
        result = x + y if op == "+" else x - y if op == "-" else x * y if op == "*" else x / y
        if out_of_range(result):
            raise self.refused("is out of range")
        return _whole(result)

    def _number(self, value: object) -> Fraction:
        if isinstance(value, int | Fraction) and not isinstance(value, bool):
            return Fraction(value)
        raise self.refused("computes with something that is not a number")


def _whole(value: Fraction) -> int | Fraction:
    return int(value) if value.denominator == 1 else value
