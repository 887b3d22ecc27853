"""Sizes of groups of parameters as expressions: elements a rank holds of each tensor under a layout, padding included.

Padding is that of FSDP2: dim 0 is rounded up to equal shards, so a tensor of d0 rows over n ranks takes n * ceil(d0/n)
rows on the wire and ceil(d0/n) on each rank (docs/design/semantics, section 2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

from placelang.cost.expr import BYTES, Const, Expr, ceil, constant, named, product, symbol, total
from placelang.plan.dtypes import BYTES as DTYPE_BYTES
from placelang.program.event import Layout
from placelang.program.program import Group


def axis_symbol(name: str) -> Expr:
    return symbol(name, f"ranks of axis {name}")


def ranks(axes: Iterable[str]) -> Expr:
    """Ranks in a group over `axes`."""
    return product(axis_symbol(a) for a in axes)


def width(dtype: str) -> Const:
    """Bytes of one element."""
    return constant(DTYPE_BYTES[dtype], BYTES)


def whole(groups: Iterable[Group]) -> Expr:
    """Elements of the groups, all layers, unpadded: `P` when they are all groups."""
    return constant(sum(g.count * sum(t.elements for t in g.tensors) for g in groups))


def local(groups: tuple[Group, ...], layout: Layout) -> Expr:
    """Elements that one rank holds of these groups, all layers of them, when `layout` splits them."""
    axes = tuple(axis for axis, _ in layout)
    n = ranks(axes)
    if not axes:
        return whole(groups)
    rows: Counter[int] = Counter()  # dim 0 -> elements of one row, over all tensors with that many rows
    for group in groups:
        for t in group.tensors:
            first, *rest = t.shape or (1,)
            rows[first] += group.count * prod(rest)
    return total(product((ceil(constant(d0) / n), width_)) for d0, width_ in sorted(rows.items()))


def padded(groups: tuple[Group, ...], layout: Layout, name: str) -> Expr:
    """Elements of the groups over all ranks of the layout: what a gather makes; named for short formulas."""
    axes = tuple(axis for axis, _ in layout)
    if not axes:
        return named(name, whole(groups), "parameters")
    text = f"{name}_pad({'·'.join(axes)})"
    return named(text, ranks(axes) * local(groups, layout), "parameters, rows rounded up to equal shards")
