"""The number that an expression stands for, and the symbols that it needs.

Every walk is iterative and visits a shared node once, so depth and sharing cost nothing extra. Not for many points at
once: `compile.py` does that with arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

from placelang.cost.exact import DomainError, ExprError, MissingSymbolsError, Number, Rational, exact, raised, whole
from placelang.cost.functions import TESTS, Ceil, Extreme, Max, Named, Piecewise, Rounded
from placelang.cost.interning import Node
from placelang.cost.nodes import Condition, Const, Expr, Product, Sum, Symbol


def postorder(roots: Iterable[Node]) -> list[Node]:
    """Every node that the roots are built from, each once, parts before wholes."""
    order: dict[Node, None] = {}
    stack = [(root, False) for root in roots][::-1]
    while stack:
        node, entered = stack.pop()
        if node in order:
            continue
        if entered:
            order[node] = None
        else:
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.children) if child not in order)
    return list(order)


def symbols(*roots: Node) -> tuple[Symbol, ...]:
    """The free symbols, sorted by name. The label of a Named expression is not free."""
    return tuple(sorted((n for n in postorder(roots) if isinstance(n, Symbol)), key=lambda s: s.name))


def free(*roots: Node) -> frozenset[str]:
    """The names of the free symbols."""
    return frozenset(s.name for s in symbols(*roots))


def evaluate(expr: Expr, values: Mapping[str, Number]) -> Fraction | float:
    """The value, in the expression's base unit, with symbols replaced by `values` (in their base units).

    Exact (a Fraction) when the numbers that matter are ints or Fractions; a float as soon as a float or an irrational
    root enters. Names that the expression does not use are ignored. Only the branch that a case distinction selects
    is evaluated.

    Raises:
        MissingSymbolsError: names every free symbol without a value.
        DomainError: division by zero, root of a negative number, overflow, or an input that is not finite.
    """
    return evaluate_all((expr,), values)[0]


def evaluate_all(exprs: Iterable[Expr], values: Mapping[str, Number]) -> tuple[Fraction | float, ...]:
    """As `evaluate`, for several expressions; what they share is computed once."""
    roots = tuple(exprs)
    known: dict[Node, Number] = {}
    try:
        for root in roots:
            _evaluate(root, values, known)
        results = tuple(known[root] for root in roots)
    except _Unknown:
        raise MissingSymbolsError(tuple(sorted(free(*roots) - values.keys()))) from None
    except (OverflowError, ValueError):
        raise DomainError("the numbers grow out of range") from None
    return tuple(_finite(x) if isinstance(x, float) else Fraction(x) for x in results)


def holds(condition: Condition, values: Mapping[str, Number]) -> bool:
    """Whether the condition is true at these values; compares exactly. Raises as `evaluate`."""
    left, right = evaluate_all((condition.left, condition.right), values)
    return bool(TESTS[condition.relation](left, right))


class _Unknown(Exception):
    """A symbol without a value was reached."""


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise DomainError("the numbers grow out of range")
    return value


def _evaluate(root: Node, values: Mapping[str, Number], known: dict[Node, Number]) -> None:
    stack = [root]
    while stack:
        node = stack[-1]
        if node in known:
            stack.pop()
        elif isinstance(node, Piecewise):
            needed = _next(node, known)
            if needed not in known:
                stack.append(needed)
            else:
                known[node] = known[needed]
        else:
            pending = [part for part in node.children if part not in known]
            if pending:
                stack.extend(pending)
            else:
                known[node] = _value(node, values, known)


def _next(node: Piecewise, known: Mapping[Node, Number]) -> Node:
    """What the choice needs: its first untested condition, or, once they decide it, the selected value."""
    for condition, value in node.branches:
        if condition not in known:
            return condition
        if known[condition]:
            return value
    return node.otherwise


def _value(node: Node, values: Mapping[str, Number], known: Mapping[Node, Number]) -> Number:
    kind = type(node)
    if isinstance(node, Sum):
        result: Number = node.const
        for term, weight in node.terms:
            result += weight * known[term]
        return result
    if isinstance(node, Product):
        return _quotient(node, known)
    if isinstance(node, Const):
        return node.value
    if isinstance(node, Symbol):
        if node.name not in values:
            raise _Unknown
        return _input(node.name, values[node.name])
    if isinstance(node, Rounded):
        argument = known[node.argument]
        return math.ceil(argument) if kind is Ceil else math.floor(argument)
    if isinstance(node, Extreme):
        return (max if kind is Max else min)(known[a] for a in node.arguments)
    if isinstance(node, Condition):
        return bool(TESTS[node.relation](known[node.left], known[node.right]))
    assert isinstance(node, Named)
    return known[node.definition]


def _quotient(node: Product, known: Mapping[Node, Number]) -> Number:
    # One division at the end: with floats, n/d is right to the last bit and n*(1/d) is not, which a ceil would show.
    above: Number = node.factor.numerator
    below: Number = node.factor.denominator
    for base, exponent in node.powers:
        value = known[base]
        if exponent == 1:
            above *= value
        elif exponent > 0:
            above *= raised(value, exponent)
        else:
            below *= raised(value, -exponent)
    if below == 0:
        raise DomainError("division by zero")
    if isinstance(above, float) or isinstance(below, float):
        return above / below
    return above if below == 1 else whole(Fraction(above) / below)


def _input(name: str, value: Number) -> Number:
    if type(value) is int:
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DomainError(f"{name} is not a finite number: {value!r}")
        return float(value)
    try:
        rational: Rational = exact(value)
    except ExprError:
        raise ExprError(f"{name} is {value!r}, which is not a number") from None
    return rational
