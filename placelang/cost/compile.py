"""One expression at many points: compiled to a list of NumPy operations, each shared sub-expression computed once.

In float64, so for sizes up to 2**53 a `ceil` of one quotient is exact, as in `evaluate.py`; a `ceil` of a sum of
quotients need not be. NumPy is imported when something is compiled, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import attrs

from placelang.cost.evaluate import free, postorder
from placelang.cost.exact import DomainError, MissingSymbolsError, Rational
from placelang.cost.functions import TESTS, Ceil, Extreme, Max, Named, Piecewise, Rounded
from placelang.cost.interning import Node
from placelang.cost.nodes import Condition, Const, Expr, Product, Sum, Symbol

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

CHUNK = 8192
"""Points computed at a time: the intermediate arrays then stay in a core's cache."""

Registers = list[Any]
"""Values computed so far: a float64 scalar or an array over the points of a chunk."""

Step = Callable[[Registers], Any]


@attrs.frozen(eq=False)
class Compiled:
    """A function of the free symbols `names`. Call it with a mapping of names to numbers or arrays, in base units."""

    names: tuple[str, ...]
    _inputs: tuple[int, ...]
    _steps: tuple[tuple[int, Step, tuple[int, ...]], ...]
    _outputs: tuple[int, ...]
    _size: int

    def __call__(self, values: Mapping[str, ArrayLike]) -> tuple[NDArray[Any], ...]:
        """One float64 array for each expression, all of the common shape of the inputs in `names`; others are ignored.

        Where `evaluate` would raise a DomainError, the result is infinite or not a number.

        Raises:
            MissingSymbolsError: names every symbol without a value.
            ValueError: the inputs' shapes do not broadcast together.
        """
        import numpy as np

        missing = tuple(name for name in self.names if name not in values)
        if missing:
            raise MissingSymbolsError(missing)
        given = [np.asarray(values[name], dtype=np.float64) for name in self.names]
        shape = np.broadcast_shapes(*(array.shape for array in given))
        flat = [array[()] if array.ndim == 0 else np.broadcast_to(array, shape).reshape(-1) for array in given]
        count = int(np.prod(shape, dtype=np.int64))
        results = [np.empty(count) for _ in self._outputs]
        for start in range(0, count, CHUNK):
            part = slice(start, start + CHUNK)
            registers: Registers = [None] * self._size
            for slot, array in zip(self._inputs, flat, strict=True):
                registers[slot] = array if array.ndim == 0 else array[part]
            with np.errstate(all="ignore"):
                for slot, step, dead in self._steps:
                    registers[slot] = step(registers)
                    for old in dead:
                        registers[old] = None
            for result, slot in zip(results, self._outputs, strict=True):
                result[part] = registers[slot]
        return tuple(result.reshape(shape) for result in results)


def compile_exprs(exprs: Sequence[Expr]) -> Compiled:
    """The expressions as one function over arrays. Raises DomainError if a constant is too large for a float."""
    order = postorder(exprs)
    slots: dict[Node, int] = {}
    names = tuple(sorted(free(*exprs)))
    inputs = {name: position for position, name in enumerate(names)}
    steps: list[tuple[int, Step, list[int]]] = []
    size = len(names)
    last_use: dict[int, int] = {}
    for node in order:
        if isinstance(node, Symbol):
            slots[node] = inputs[node.name]
            continue
        if isinstance(node, Named):
            slots[node] = slots[node.definition]
            continue
        for child in node.children:
            last_use[slots[child]] = len(steps)
        slots[node] = size
        try:
            steps.append((size, _step(node, slots), []))
        except OverflowError:
            raise DomainError("a constant is too large for a float") from None
        size += 1
    outputs = tuple(slots[expr] for expr in exprs)
    for slot, position in last_use.items():
        if slot not in outputs:
            steps[position][2].append(slot)
    frozen = tuple((slot, step, tuple(dead)) for slot, step, dead in steps)
    return Compiled(names, tuple(inputs.values()), frozen, outputs, size)


def _step(node: Node, slots: Mapping[Node, int]) -> Step:
    import numpy as np

    if isinstance(node, Sum):
        return _sum(float(node.const), [(slots[term], float(weight)) for term, weight in node.terms])
    if isinstance(node, Product):
        return _quotient(node.factor, [(slots[base], exponent) for base, exponent in node.powers])
    if isinstance(node, Const):
        value = np.float64(node.value)
        return lambda r: value
    if isinstance(node, Rounded):
        rounding, argument = (np.ceil if isinstance(node, Ceil) else np.floor), slots[node.argument]
        return lambda r: rounding(r[argument])
    if isinstance(node, Extreme):
        pick, arguments = (np.maximum if isinstance(node, Max) else np.minimum), [slots[a] for a in node.arguments]
        return lambda r: reduce(pick, [r[a] for a in arguments])
    if isinstance(node, Condition):
        test, left, right = TESTS[node.relation], slots[node.left], slots[node.right]
        return lambda r: test(r[left], r[right])
    assert isinstance(node, Piecewise)
    cases = [(slots[condition], slots[value]) for condition, value in reversed(node.branches)]
    otherwise = slots[node.otherwise]
    return lambda r: reduce(lambda rest, case: np.where(r[case[0]], r[case[1]], rest), cases, r[otherwise])


def _sum(const: float, terms: list[tuple[int, float]]) -> Step:
    (first, weight), *rest = terms

    def step(r: Registers) -> Any:
        result = r[first] if weight == 1 else weight * r[first]
        for slot, w in rest:
            result = result + (r[slot] if w == 1 else w * r[slot])
        return result + const if const else result

    return step


def _quotient(factor: Rational, powers: list[tuple[int, Rational]]) -> Step:
    above = [(slot, float(exponent)) for slot, exponent in powers if exponent > 0]
    below = [(slot, float(-exponent)) for slot, exponent in powers if exponent < 0]
    numerator, denominator = float(factor.numerator), float(factor.denominator)

    def multiplied(r: Registers, start: float, parts: list[tuple[int, float]]) -> Any:
        result: Any = start
        for slot, exponent in parts:
            value = r[slot] if exponent == 1 else r[slot] ** exponent
            result = value if isinstance(result, float) and result == 1 else result * value
        return result

    def step(r: Registers) -> Any:
        top = multiplied(r, numerator, above)
        bottom = multiplied(r, denominator, below)
        return top if isinstance(bottom, float) and bottom == 1 else top / bottom

    return step
