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


def shared_by(layout: Layout, tokens: Layout) -> tuple[str, ...]:
    """The axes over which ranks share an activation, of which `b` counts the samples of one rank: those that split
    another dim, but not those that split the samples elsewhere, as a rank then has its part of others' samples."""
    samples = {axis for axis, label in tokens if label.dim == "batch"}
    return tuple(axis for axis, label in layout if label.dim != "batch" and axis not in samples)


def width(dtype: str) -> Const:
    """Bytes of one element."""
    return constant(DTYPE_BYTES[dtype], BYTES)


def whole(groups: Iterable[Group]) -> Expr:
    """Elements of the groups, all layers, unpadded: `P` when they are all groups."""
    return constant(sum(g.count * sum(t.elements for t in g.tensors) for g in groups))


def local(groups: tuple[Group, ...], layout: Layout) -> Expr:
    """Elements that one rank holds of these groups, all layers of them, when `layout` splits them."""
    if not layout:
        return whole(groups)
    by_dim: dict[int, list[str]] = {}
    for axis, label in layout:
        by_dim.setdefault(int(label.dim), []).append(axis)
    same: Counter[tuple[int, ...]] = Counter()  # sizes of the split dims -> elements beside them, over all tensors
    for group in groups:
        for t in group.tensors:
            shape = t.shape or (1,)
            split = tuple(shape[d] for d in by_dim)
            same[split] += group.count * prod(size for d, size in enumerate(shape) if d not in by_dim)
    parts = tuple(ranks(axes) for axes in by_dim.values())
    return total(
        product((*(ceil(constant(size) / n) for size, n in zip(split, parts, strict=True)), elements))
        for split, elements in sorted(same.items())
    )


def name_of(groups: tuple[Group, ...], every: tuple[Group, ...], layout: Layout) -> str:
    """`P` for all parameters; for some of them, `P` with how they lie."""
    if len(groups) == len(every):
        return "P"
    lies = "·".join(axis if label.dim == "0" else f"{axis}.{label.dim}" for axis, label in layout)
    return f"P[{lies or 'whole'}]"


def padded(groups: tuple[Group, ...], layout: Layout, name: str) -> Expr:
    """Elements of the groups over all ranks of the layout: what a gather makes; named for short formulas."""
    axes = tuple(axis for axis, _ in layout)
    if not axes:
        return named(name, whole(groups), "parameters")
    text = f"{name}_pad" if "[" in name else f"{name}_pad({'·'.join(axes)})"
    return named(text, ranks(axes) * local(groups, layout), "parameters, rows rounded up to equal shards")
