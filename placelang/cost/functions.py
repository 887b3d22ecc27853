"""What cost expressions need beyond arithmetic: rounding, extremes, case distinctions, and names for sub-expressions.

The same canonical form and interning as in `nodes.py`: constants fold, equal arguments merge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from operator import attrgetter, eq, ge, gt, le, lt, ne
from typing import Any, Final

from placelang.cost.exact import ExprError, Number
from placelang.cost.interning import Node, intern
from placelang.cost.nodes import Condition, Const, Expr, Symbol, aligned, expression, symbol

TESTS: Final[dict[str, Callable[[Any, Any], Any]]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}
"""The relations of a Condition as functions, of numbers or of arrays."""


class Rounded(Expr):
    """An argument rounded to a whole number of its unit."""

    __slots__ = ("argument",)
    __match_args__ = ("argument",)

    tag = 0

    def __init__(self, argument: Expr) -> None:
        self.argument: Final = argument
        self.unit = argument.unit
        self.digest = hash((self.tag, argument.digest))

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.argument,)


class Ceil(Rounded):
    """Rounded up: `ceil(50257/dp)` rows a shard."""

    __slots__ = ()

    tag = 6


class Floor(Rounded):
    """Rounded down."""

    __slots__ = ()

    tag = 7


class Extreme(Expr):
    """The largest or smallest of two or more arguments, at most one of them constant."""

    __slots__ = ("arguments",)
    __match_args__ = ("arguments",)

    tag = 0

    def __init__(self, arguments: tuple[Expr, ...]) -> None:
        self.arguments: Final = arguments
        self.unit = arguments[0].unit
        self.digest = hash((self.tag, *(a.digest for a in arguments)))

    @property
    def children(self) -> tuple[Node, ...]:
        return self.arguments


class Max(Extreme):
    """The largest of the arguments."""

    __slots__ = ()

    tag = 8


class Min(Extreme):
    """The smallest of the arguments."""

    __slots__ = ()

    tag = 9


class Piecewise(Expr):
    """The value beside the first condition that holds, else `otherwise`; the other values need not even be defined."""

    __slots__ = ("branches", "otherwise")
    __match_args__ = ("branches", "otherwise")

    def __init__(self, branches: tuple[tuple[Condition, Expr], ...], otherwise: Expr) -> None:
        self.branches: Final = branches
        self.otherwise: Final = otherwise
        self.unit = otherwise.unit
        self.digest = hash((10, *(x.digest for pair in branches for x in pair), otherwise.digest))

    @property
    def children(self) -> tuple[Node, ...]:
        return (*(x for pair in self.branches for x in pair), self.otherwise)


class Named(Expr):
    """A definition that prints as a short name, explained in a *where* clause. Its value is the definition's."""

    __slots__ = ("definition", "symbol")
    __match_args__ = ("symbol", "definition")

    def __init__(self, symbol: Symbol, definition: Expr) -> None:
        self.symbol: Final = symbol
        self.definition: Final = definition
        self.unit = definition.unit
        self.digest = hash((11, symbol.digest, definition.digest))

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.definition,)  # the symbol is only a label: nobody has to give it a value


def ceil(value: Expr | Number) -> Expr:
    """The least whole number that is no smaller; the unit stays."""
    x = expression(value)
    if type(x) is Const:
        return intern(Const, math.ceil(x.value), x.unit)
    return x if isinstance(x, Rounded) else intern(Ceil, x)


def floor(value: Expr | Number) -> Expr:
    """The greatest whole number that is no larger; the unit stays."""
    x = expression(value)
    if type(x) is Const:
        return intern(Const, math.floor(x.value), x.unit)
    return x if isinstance(x, Rounded) else intern(Floor, x)


def maximum(*values: Expr | Number) -> Expr:
    """The largest of one or more values of one unit. Raises UnitError."""
    return _extreme(Max, "max", values)


def minimum(*values: Expr | Number) -> Expr:
    """The smallest of one or more values of one unit. Raises UnitError."""
    return _extreme(Min, "min", values)


def _extreme(kind: type[Max] | type[Min], name: str, values: Iterable[Expr | Number]) -> Expr:
    parts = aligned(name, values)
    if not parts:
        raise ExprError(f"{name} of nothing")
    flat = [x for part in parts for x in (part.arguments if type(part) is kind else (part,))]
    constants = [x for x in flat if type(x) is Const]
    rest = dict.fromkeys(x for x in flat if type(x) is not Const)
    if constants:
        pick = max if kind is Max else min
        rest[pick(constants, key=attrgetter("value"))] = None
    return next(iter(rest)) if len(rest) == 1 else intern(kind, tuple(sorted(rest, key=attrgetter("digest"))))


def piecewise(*branches: tuple[Condition, Expr | Number], otherwise: Expr | Number) -> Expr:
    """The value beside the first condition that holds, else `otherwise`. Raises UnitError if the values' units differ.

    Example: `piecewise((n <= 1, 0), otherwise=2 * (n - 1) / n * x)`. For an equality write `compare(n, "==", 1)`, as
    `n == 1` asks whether the two are the same expression.
    """
    *values, last = aligned("choice", (*(value for _, value in branches), otherwise))
    kept: list[tuple[Condition, Expr]] = []
    for (condition, _), value in zip(branches, values, strict=True):
        if not isinstance(condition, Condition):
            raise ExprError(f"not a condition over expressions: {condition!r}")
        truth = decided(condition)
        if truth:
            last = value
            break
        if truth is None:
            kept.append((condition, value))
    while kept and kept[-1][1] is last:
        kept.pop()
    return intern(Piecewise, tuple(kept), last) if kept else last


def decided(condition: Condition) -> bool | None:
    """Whether the condition holds, if it holds or fails whatever the symbols are; None if that depends on them."""
    a, b = condition.left, condition.right
    if type(a) is Const and type(b) is Const:
        return bool(TESTS[condition.relation](a.value, b.value))
    return condition.relation in ("<=", ">=", "==") if a is b else None


def named(name: Symbol | str, definition: Expr | Number, doc: str = "") -> Named:
    """The definition under a short name. Example: `named("P_pad", dp * ceil(d0 / dp) * rest, "padded parameters")`."""
    value = expression(definition)
    return intern(Named, symbol(name, doc, value.unit) if isinstance(name, str) else name, value)
