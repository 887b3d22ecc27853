"""The device mesh: named axes with sizes and roles.

Not for: which rank runs where (the backend builds a DeviceMesh from this).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from math import prod

import attrs

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


@attrs.frozen
class Axis:
    """One axis. `size` is None while no number is given; it then stays a symbol of this name."""

    name: str
    role: Role
    size: int | None = None
    span: Span | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class Mesh:
    """Axes, outermost first; ranks are the points of their product, row-major like torch's DeviceMesh."""

    axes: tuple[Axis, ...] = ()

    def __getitem__(self, name: str) -> Axis:
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(axis.name == name for axis in self.axes)

    @property
    def names(self) -> tuple[str, ...]:
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
