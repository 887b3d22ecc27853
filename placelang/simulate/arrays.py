"""What a simulated buffer holds, and how layouts cut arrays into the pieces of ranks.

A value is a family of named float64 arrays: the tensors of a group, or the one array of an activation. Pieces are
stored without padding: the last shards are short or empty, and padding exists on the wire and in counts of bytes only
(docs/design/semantics, section 2). Several axes that split one dim do so one after the other, outer first, so that
two collectives over one axis each and one over both make the same pieces. Not for: events (`ops`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from zlib import crc32

import attrs
import numpy as np
import numpy.typing as npt

from placelang.plan.mesh import Mesh
from placelang.program.event import Label, Layout

Array = npt.NDArray[np.float64]
Value = Mapping[str, Array]

PARTITIONS = frozenset({"padded", "contiguous", "headtail"})


class NoDenotation(Exception):
    """The program has no meaning on these ranks: it reads what is not there, or joins what does not fit."""


@lru_cache(maxsize=4096)
def draw(key: tuple[str | int, ...], shape: tuple[int, ...]) -> Array:
    """Standard normal numbers that depend on the key and the logical index alone, whichever rank draws."""
    values = np.asarray(np.random.default_rng(_numbers(key)).standard_normal(shape), dtype=np.float64)
    values.setflags(write=False)
    return values


@lru_cache(maxsize=4096)
def whole_numbers(key: tuple[str | int, ...], shape: tuple[int, ...], below: int) -> Array:
    """Numbers 0, 1, ... `below` - 1 in float64, that depend on the key and the logical index alone."""
    values = np.random.default_rng(_numbers(key)).integers(below, size=shape).astype(np.float64)
    values.setflags(write=False)
    return values


def _numbers(key: tuple[str | int, ...]) -> list[int]:
    return [k if isinstance(k, int) else crc32(k.encode()) for k in key]


@attrs.frozen
class Ranks:
    """The points of a mesh, row-major, and its groups."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    points: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(mesh: Mesh) -> Ranks:
        sizes = []
        for axis in mesh.axes:
            if axis.size is None:
                raise NoDenotation(f"axis {axis.name} has no size")
            sizes.append(axis.size)
        return Ranks(mesh.names, tuple(sizes), tuple(product(*(range(n) for n in sizes))))

    @property
    def count(self) -> int:
        return len(self.points)

    def size(self, axis: str) -> int:
        return self.sizes[self._position(axis)]

    def coordinate(self, rank: int, axis: str) -> int:
        return self.points[rank][self._position(axis)]

    def groups(self, axes: Sequence[str]) -> list[list[int]]:
        """The groups of a collective over `axes`; members in the order of their coordinates on `axes`, outer first."""
        if len(set(axes)) != len(axes):
            raise NoDenotation(f"an axis occurs twice in ({', '.join(axes)})")
        positions = [self._position(a) for a in axes]
        members: dict[tuple[int, ...], list[int]] = {}
        for rank, point in enumerate(self.points):
            rest = tuple(c for i, c in enumerate(point) if i not in positions)
            members.setdefault(rest, []).append(rank)
        return [sorted(group, key=lambda r: [self.points[r][p] for p in positions]) for group in members.values()]

    def _position(self, axis: str) -> int:
        if axis not in self.names:
            raise NoDenotation(f"the mesh has no axis {axis}")
        return self.names.index(axis)


def dim_index(dim: str, dims: Sequence[str], ndim: int) -> int:
    """Which dim of an array a label means: a number, or the name of a dim."""
    index = int(dim) if dim.isdecimal() else dims.index(dim) if dim in dims else ndim
    if index >= ndim:
        raise NoDenotation(f"there is no dim {dim} to split in a tensor of {ndim} dims")
    return index


def rows(size: int, parts: int, part: int, partition: str) -> slice | npt.NDArray[np.int64]:
    """The rows that one of `parts` shards holds of `size`: blocks of ceil(size / parts), the last short or empty; of
    "headtail" an early and a late run."""
    if partition not in PARTITIONS:
        raise NoDenotation(f"unknown partition {partition}")
    if partition == "contiguous" and size % parts:
        raise NoDenotation(f"{size} rows do not divide by {parts}")
    if partition == "headtail":
        if size % (2 * parts):
            raise NoDenotation(f"{size} rows do not divide by {2 * parts}, an early and a late run for each rank")
        runs = np.arange(size).reshape(2 * parts, -1)
        return np.concatenate((runs[part], runs[2 * parts - 1 - part]))
    block = -(-size // parts)
    return slice(min(part * block, size), min((part + 1) * block, size))


def cut(array: Array, label: Label, parts: int, part: int, dims: Sequence[str]) -> Array:
    """One shard of an array, split once."""
    axis = dim_index(label.dim, dims, array.ndim)
    where = rows(array.shape[axis], parts, part, label.partition)
    return array[(slice(None),) * axis + (where,)]


def piece(array: Array, layout: Layout, ranks: Ranks, rank: int, dims: Sequence[str]) -> Array:
    """What `rank` holds of a whole array under a layout."""
    for axis, label in layout:
        array = cut(array, label, ranks.size(axis), ranks.coordinate(rank, axis), dims)
    return array


def whole(pieces: Mapping[int, Array], layout: Layout, ranks: Ranks, rank: int, dims: Sequence[str]) -> Array:
    """The array that the pieces of the ranks which differ from `rank` on the layout's axes only make up."""
    held = dict(pieces)
    for axis, label in reversed(layout):
        joined = {}
        for group in ranks.groups((axis,)):
            index = dim_index(label.dim, dims, held[group[0]].ndim)
            together = join([held[r] for r in group], index, label.partition)
            joined.update(dict.fromkeys(group, together))
        held = joined
    return held[rank]


def join(parts: Sequence[Array], axis: int, partition: str = "padded") -> Array:
    """Pieces in order along one dim; every other dim must agree, and a contiguous partition has equal pieces."""
    shapes = {p.shape if partition != "padded" else p.shape[:axis] + p.shape[axis + 1 :] for p in parts}
    if len(shapes) > 1 or partition not in PARTITIONS:
        raise NoDenotation(f"cannot join pieces of shapes {_shapes(parts)} along dim {axis}")
    if partition == "headtail":
        if parts[0].shape[axis] % 2:
            raise NoDenotation(f"{parts[0].shape[axis]} rows are no early and late run")
        halves = [np.split(p, 2, axis=axis) for p in parts]
        parts = [*(early for early, _ in halves), *(late for _, late in reversed(halves))]
    return np.concatenate(parts, axis=axis)


def same_shape(what: str, *values: Value) -> None:
    """Every value must have the same tensors of the same shapes."""
    first = {k: v.shape for k, v in values[0].items()}
    for value in values[1:]:
        other = {k: v.shape for k, v in value.items()}
        if other != first:
            raise NoDenotation(f"{what}: {first} does not fit {other}")


def _shapes(parts: Iterable[Array]) -> str:
    return ", ".join(str(p.shape) for p in parts)
