"""The expression algebra of costs: exact, with units, shared, and readable. Import its names from here.

Build with `symbol`, `constant`, the operators `+ - * / **`, `total` and `product` for many parts, `ceil`, `floor`,
`maximum`, `minimum`, `piecewise` and `named`. Then ask for the number (`evaluate`), the formula (`text`, `latex`), a
partial evaluation (`substitute`), the slope (`derivative`), the size that satisfies a condition (`solve`,
`threshold`), or a function over arrays (`compile_exprs`).

    >>> dp, rows, width = symbol("dp"), constant(50257), constant(4, BYTES)
    >>> padded = named("P_pad", dp * ceil(rows / dp) * 768)
    >>> str(text(3 * padded * width))
    '3·P_pad·4 B where P_pad = 768·dp·ceil(50257/dp)'
    >>> evaluate(3 * padded * width, {"dp": 8})
    Fraction(463233024, 1)
    >>> solve(padded * width / dp <= constant(40 * 2**20, BYTES), "dp", divisors(64))
    4

Not for what a step costs: memory, traffic and time build on this.
"""

from placelang.cost.compile import Compiled, compile_exprs
from placelang.cost.evaluate import evaluate, evaluate_all, free, holds, postorder, symbols
from placelang.cost.exact import DomainError, ExprError, MissingSymbolsError, Number, Rational
from placelang.cost.format import bytes_text, count_text, quantity_text, seconds_text
from placelang.cost.functions import (
    Ceil,
    Floor,
    Max,
    Min,
    Named,
    Piecewise,
    ceil,
    floor,
    maximum,
    minimum,
    named,
    piecewise,
)
from placelang.cost.nodes import (
    Condition,
    Const,
    Expr,
    Product,
    Sum,
    Symbol,
    compare,
    constant,
    expression,
    power,
    product,
    symbol,
    total,
)
from placelang.cost.render import Clause, Formula, latex, text
from placelang.cost.solve import divisors, solve, threshold
from placelang.cost.transform import derivative, substitute, substitute_condition
from placelang.cost.units import BYTES, ELEMENTS, FLOPS, SCALAR, SECONDS, Unit, UnitError, unit

__all__ = [
    "BYTES", "ELEMENTS", "FLOPS", "SCALAR", "SECONDS", "Ceil", "Clause", "Compiled", "Condition", "Const",
    "DomainError", "Expr", "ExprError", "Floor", "Formula", "Max", "Min", "MissingSymbolsError", "Named", "Number",
    "Piecewise", "Product", "Rational", "Sum", "Symbol", "Unit", "UnitError", "bytes_text", "ceil", "compare",
    "compile_exprs", "constant", "count_text", "derivative", "divisors", "evaluate", "evaluate_all", "expression",
    "floor", "free", "holds", "latex", "maximum", "minimum", "named", "piecewise", "postorder", "power", "product",
    "quantity_text", "seconds_text", "solve", "substitute", "substitute_condition", "symbol", "symbols", "text",
    "threshold", "total", "unit",
]  # fmt: skip
