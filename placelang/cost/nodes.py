"""The arithmetic of cost expressions: constants, symbols, sums and products as a shared DAG of immutable nodes.

Nodes are hash-consed: two expressions built alike are the same object, so `==` and `is` mean structural equality and
a shared sub-expression is stored, evaluated and printed once. Construction brings a node into a light canonical form:
constants folded, small sums and products flattened, equal terms and factors collected. Products of sums are never
expanded, and a sum or product of more than `FLATTEN` parts is kept whole inside another, so that building n nodes
costs about n steps.

Not a computer algebra system: nothing here factors, expands or proves two unlike expressions equal. Steps, choices
and names (`ceil`, `maximum`, `piecewise`, `named`) are in `functions.py`.

Cancelling may widen the domain: `x / x` is 1, also at x = 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from operator import attrgetter
from typing import Final

from placelang.cost.exact import ExprError, Number, Rational, exact, raised, whole
from placelang.cost.interning import Node, intern, structural
from placelang.cost.units import SCALAR, Unit, UnitError

FLATTEN: Final = 32
"""A nested sum or product of more parts than this is not flattened into the outer one."""

MAX_EXPONENT: Final = 1000
"""Largest numerator and denominator of an exponent; beyond it lies a mistake, and numbers too long to compute with."""


class Expr(Node):
    """A quantity: a number with a unit, built from symbols. Use the operators `+ - * / **` and `< <= > >=`.

    Ints, Fractions and floats mix in as scalars; a float means the decimal that prints it (0.1 is 1/10). A bare 0 has
    every unit.
    """

    __slots__ = ("unit",)

    unit: Unit

    def __add__(self, other: Expr | Number) -> Expr:
        return total((self, other)) if isinstance(other, _OPERANDS) else NotImplemented

    def __radd__(self, other: Number) -> Expr:
        return total((other, self)) if isinstance(other, _OPERANDS) else NotImplemented

    def __sub__(self, other: Expr | Number) -> Expr:
        return total((self, product((-1, other)))) if isinstance(other, _OPERANDS) else NotImplemented

    def __rsub__(self, other: Number) -> Expr:
        return total((other, product((-1, self)))) if isinstance(other, _OPERANDS) else NotImplemented

    def __mul__(self, other: Expr | Number) -> Expr:
        return product((self, other)) if isinstance(other, _OPERANDS) else NotImplemented

    def __rmul__(self, other: Number) -> Expr:
        return product((other, self)) if isinstance(other, _OPERANDS) else NotImplemented

    def __truediv__(self, other: Expr | Number) -> Expr:
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        return product((self, power(other, -1) if isinstance(other, Expr) else raised(exact(other), -1)))

    def __rtruediv__(self, other: Number) -> Expr:
        return product((other, power(self, -1))) if isinstance(other, _OPERANDS) else NotImplemented

    def __pow__(self, exponent: Number) -> Expr:
        return power(self, exponent)

    def __neg__(self) -> Expr:
        return product((-1, self))

    def __le__(self, other: Expr | Number) -> Condition:
        return compare(self, "<=", other)

    def __lt__(self, other: Expr | Number) -> Condition:
        return compare(self, "<", other)

    def __ge__(self, other: Expr | Number) -> Condition:
        return compare(self, ">=", other)

    def __gt__(self, other: Expr | Number) -> Condition:
        return compare(self, ">", other)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} [{self.unit.name}] of {len(self.children)} parts>"


_OPERANDS = (Expr, int, Fraction, float)


class Const(Expr):
    """An exact number with a unit."""

    __slots__ = ("value",)
    __match_args__ = ("value", "unit")

    def __init__(self, value: Rational, unit: Unit) -> None:
        self.value: Final = value
        self.unit = unit
        self.digest = hash((1, 2 * value.numerator, value.denominator))

    def __repr__(self) -> str:
        return f"<Const {self.value} [{self.unit.name}]>"


class Symbol(Expr):
    """A named unknown. `doc` says in a few words what it stands for."""

    __slots__ = ("doc", "name")
    __match_args__ = ("name", "doc", "unit")

    def __init__(self, name: str, doc: str, unit: Unit) -> None:
        self.name: Final = name
        self.doc: Final = doc
        self.unit = unit
        self.digest = hash((2, int.from_bytes(name.encode(), "big")))  # hash(str) would differ from run to run

    def __repr__(self) -> str:
        return f"<Symbol {self.name} [{self.unit.name}]>"


class Sum(Expr):
    """`const + sum of factor * term`; no term is a constant or has a coefficient of its own."""

    __slots__ = ("const", "terms")
    __match_args__ = ("const", "terms")

    def __init__(self, const: Rational, terms: tuple[tuple[Expr, Rational], ...]) -> None:
        self.const: Final = const
        self.terms: Final = terms
        self.unit = terms[0][0].unit
        self.digest = structural(3, const, terms)

    @property
    def children(self) -> tuple[Node, ...]:
        return tuple(term for term, _ in self.terms)


class Product(Expr):
    """`factor * product of base ** exponent`; quotients and powers are products too.

    A constant with a unit stays a factor of its own beside the scalar `factor`: in `3·P·4 B` the 3 counts copies and
    the 4 B is the width of a dtype, which a reader wants to tell apart.
    """

    __slots__ = ("_core", "factor", "powers")
    __match_args__ = ("factor", "powers")

    def __init__(self, factor: Rational, powers: tuple[tuple[Expr, Rational], ...]) -> None:
        self.factor: Final = factor
        self.powers: Final = powers
        self._core: Expr | None = None
        unit = SCALAR
        for base, exponent in powers:
            if base.unit is not SCALAR:
                unit = unit * (base.unit if exponent == 1 else base.unit**exponent)
        self.unit = unit
        self.digest = structural(4, factor, powers)

    @property
    def core(self) -> Expr:
        """The product without its coefficient."""
        if self._core is None:
            self._core = self if self.factor == 1 else _scaled(1, self.powers)
        return self._core

    @property
    def children(self) -> tuple[Node, ...]:
        return tuple(base for base, _ in self.powers)


class Condition(Node):
    """`left relation right`, relation being one of `< <= > >= == !=`. True or false only once it is evaluated."""

    __slots__ = ("left", "relation", "right")
    __match_args__ = ("left", "relation", "right")

    def __init__(self, left: Expr, relation: str, right: Expr) -> None:
        self.left: Final = left
        self.relation: Final = relation
        self.right: Final = right
        self.digest = hash((5, RELATIONS.index(relation), left.digest, right.digest))

    @property
    def children(self) -> tuple[Node, ...]:
        return self.left, self.right

    def __bool__(self) -> bool:
        raise TypeError("a condition over symbols is neither true nor false; evaluate it first")


RELATIONS: Final = ("<", "<=", ">", ">=", "==", "!=")


def constant(value: Number, unit: Unit = SCALAR) -> Const:
    """A number with a unit, such as `constant(4, BYTES)`."""
    return intern(Const, value if type(value) is int else exact(value), unit)


def symbol(name: str, doc: str = "", unit: Unit = SCALAR) -> Symbol:
    """The unknown of that name. Values are given by name, so use one unit for a name."""
    if not name:
        raise ExprError("a symbol needs a name")
    return intern(Symbol, name, doc, unit)


def expression(value: Expr | Number) -> Expr:
    """The value itself, or the scalar constant of a number."""
    return value if isinstance(value, Expr) else constant(value)


def is_zero(value: Expr) -> bool:
    """Whether it is the bare 0, which goes with every unit."""
    return type(value) is Const and value.value == 0 and value.unit is SCALAR


def total(values: Iterable[Expr | Number]) -> Expr:
    """The sum of the values, all of one unit. Raises UnitError. One call for n terms is cheaper than n additions."""
    const: Rational = 0
    unit: Unit | None = None
    parts: dict[Expr, Rational] = {}
    for value in values:
        x = value if isinstance(value, Expr) else constant(value)
        if x.unit is not unit:
            if is_zero(x):
                continue
            if unit is not None:
                raise UnitError("addition", unit, x.unit)
            unit = x.unit
        factor: Rational = 1
        if type(x) is Product and x.factor != 1:
            factor, x = x.factor, x.core
        if type(x) is Const:
            const += factor * x.value
        elif type(x) is Sum and len(x.terms) <= FLATTEN and factor in (1, -1):
            const += factor * x.const
            for term, weight in x.terms:
                parts[term] = parts.get(term, 0) + factor * weight
        else:
            parts[x] = parts.get(x, 0) + factor
    terms = [(term, whole(weight)) for term, weight in parts.items() if weight]
    const = whole(const)
    if not terms:
        return intern(Const, const, SCALAR if unit is None else unit)
    if len(terms) == 1 and const == 0:
        term, weight = terms[0]
        return _scaled(weight, term.powers if type(term) is Product else ((term, 1),))
    terms.sort(key=_first_digest)
    return intern(Sum, const, tuple(terms))


def product(values: Iterable[Expr | Number]) -> Expr:
    """The product of the values; units multiply. Sums are not expanded."""
    factor: Rational = 1
    parts: dict[Expr, Rational] = {}
    for value in values:
        if not isinstance(value, Expr):
            factor *= value if type(value) is int else exact(value)
            continue
        x = value
        if type(x) is Product and len(x.powers) <= FLATTEN:
            factor *= x.factor
            for base, exponent in x.powers:
                parts[base] = parts.get(base, 0) + exponent
        elif type(x) is Product and x.factor != 1:
            factor *= x.factor
            parts[x.core] = parts.get(x.core, 0) + 1
        elif type(x) is Const and x.unit is SCALAR:
            factor *= x.value
        else:
            parts[x] = parts.get(x, 0) + 1
    return _multiplied(factor, parts)


def _multiplied(factor: Rational, parts: dict[Expr, Rational]) -> Expr:
    literal: Rational = 1
    literal_unit = unit = SCALAR
    powers: list[tuple[Expr, Rational]] = []
    for base, exponent in parts.items():
        value = raised(base.value, exponent) if type(base) is Const else None
        if isinstance(value, (int, Fraction)):
            literal *= value
            literal_unit = literal_unit * base.unit**exponent
        elif exponent:
            powers.append((base, whole(exponent)))
            if base.unit is not SCALAR:
                unit = unit * base.unit**exponent
    if literal_unit is SCALAR or not powers or not literal:
        factor *= literal
    else:
        powers.append((intern(Const, whole(literal), literal_unit), 1))
    if not powers or not factor:
        return intern(Const, whole(factor), unit * literal_unit)
    powers.sort(key=_first_digest)
    return _scaled(whole(factor), tuple(powers))


def _scaled(factor: Rational, powers: tuple[tuple[Expr, Rational], ...]) -> Expr:
    if factor == 1 and len(powers) == 1 and powers[0][1] == 1:
        return powers[0][0]
    return intern(Product, factor, powers)


def power(base: Expr | Number, exponent: Number) -> Expr:
    """`base ** exponent` for a rational number; whole powers of a product go to its factors, roots do not."""
    base, e = expression(base), exponent if type(exponent) is int else exact(exponent)
    if e == 1:
        return base
    factor: Rational = 1
    parts: dict[Expr, Rational] = {base: e}
    if type(base) is Product and e.denominator == 1:
        folded = raised(base.factor, e)
        assert not isinstance(folded, float)  # a whole power of a rational
        factor, parts = folded, {b: x * e for b, x in base.powers}
    elif type(base) is Symbol and type(e) is int and 0 < abs(e) <= MAX_EXPONENT:
        return intern(Product, 1, ((base, e),))  # the common case, sooner
    if any(max(abs(x.numerator), x.denominator) > MAX_EXPONENT for x in parts.values()):
        raise ExprError(f"exponent {e} is out of range")
    return _multiplied(factor, parts)


def compare(left: Expr | Number, relation: str, right: Expr | Number) -> Condition:
    """The condition `left relation right`, of one unit; needed for `==` and `!=`, whose operators mean identity."""
    if relation not in RELATIONS:
        raise ExprError(f"unknown relation {relation!r}")
    a, b = aligned("comparison", (left, right))
    return intern(Condition, a, relation, b)


def aligned(operation: str, values: Iterable[Expr | Number]) -> list[Expr]:
    """The values as expressions of one unit, a bare 0 taking the unit of the others. Raises UnitError."""
    parts = [expression(value) for value in values]
    units = [part.unit for part in parts if not is_zero(part)]
    for unit in units:
        if unit is not units[0]:
            raise UnitError(operation, units[0], unit)
    return [intern(Const, 0, units[0]) if units and is_zero(part) else part for part in parts]


_digest_of = attrgetter("digest")


def _first_digest(pair: tuple[Expr, Rational]) -> int:
    return pair[0].digest
