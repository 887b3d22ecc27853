"""The device mesh: named axes with sizes and roles.

Not for: which rank runs where (the backend builds a DeviceMesh from this).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import pairwise
from math import prod

import attrs

from placelang.frozen import Frozen
from placelang.source import Span


class Role(Enum):
    """What an axis splits. Well-known names carry one; others declare it."""

    DATA = "data"
    SEQUENCE = "sequence"
    TENSOR = "tensor"
    STAGE = "stage"
    EXPERT = "expert"


WELL_KNOWN: Mapping[str, Role] = {
    **dict.fromkeys(("dp", "dp_replicate", "dp_shard", "fsdp", "edp", "efsdp"), Role.DATA),
    "cp": Role.SEQUENCE,
    "tp": Role.TENSOR,
    "pp": Role.STAGE,
    "ep": Role.EXPERT,
}


@attrs.frozen(eq=False, repr=False)
class Axis(Frozen):
    """One axis. `size` is None while no number is given; it then stays a symbol of this name."""

    name: str
    role: Role
    size: int | None = None
    span: Span | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen(eq=False, repr=False)
class View(Frozen):
    """Another factorisation of the ranks of some axes: `mesh moe (efsdp = *, ep = 32) over (dp_shard, cp, tp)`."""

    name: str
    axes: tuple[Axis, ...]
    over: tuple[str, ...]
    span: Span | None = attrs.field(default=None, eq=False, repr=False)

    def __contains__(self, name: object) -> bool:
        return any(axis.name == name for axis in self.axes)

    def __getitem__(self, name: str) -> Axis:
        return next(axis for axis in self.axes if axis.name == name)


@attrs.frozen(eq=False, repr=False)
class Mesh(Frozen):
    """Axes, outermost first; ranks are the points of their product, row-major like torch's DeviceMesh."""

    axes: tuple[Axis, ...] = ()
    views: tuple[View, ...] = ()

    def __getitem__(self, name: str) -> Axis:
        for axis in (*self.axes, *(a for view in self.views for a in view.axes)):
            if axis.name == name:
                return axis
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(axis.name == name for axis in self.axes) or any(name in view for view in self.views)

    @property
    def names(self) -> tuple[str, ...]:
        """The mesh's own axes; those of views share their ranks."""
        return tuple(axis.name for axis in self.axes)

    def of_role(self, *roles: Role) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes if axis.role in roles)

    def size(self, names: Iterable[str]) -> int | None:
        """The number of ranks in a group over `names`; None when one of them is symbolic."""
        sizes = [self[name].size for name in names]
        return None if None in sizes else prod(s for s in sizes if s is not None)

    @property
    def world(self) -> int | None:
        return self.size(self.names)

    def shared(self, name: str) -> frozenset[str]:
        """Every axis that shares ranks with this one, itself included."""
        mine = next((set(view.over) for view in self.views if name in view), {name})
        others = {a.name for view in self.views if name not in view and mine & set(view.over) for a in view.axes}
        return frozenset({name} | others | (mine if name not in self.names else set()))


def atomic(factorisations: Iterable[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Sizes of the common refinement of factorisations of the same ranks, outer first; None when there is none.

    The cut points of a factorisation are its partial products from the inside; their union must be a divisor chain
    (docs/design/semantics, section 1): 16x4 with 2x32 gives 2x8x4; 2x3 with 3x2 has none.
    """
    cuts = {1}
    for sizes in factorisations:
        product_ = 1
        for size in reversed(sizes):
            product_ *= size
            cuts.add(product_)
    chain = sorted(cuts)
    if any(b % a for a, b in pairwise(chain)):
        return None
    return tuple(b // a for a, b in pairwise(chain))[::-1]
