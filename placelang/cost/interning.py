"""Hash-consing: the table that makes equal nodes the same object.

Not for what nodes mean: `nodes.py` and `functions.py` define them.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, TypeVar

from placelang.cost.exact import Rational


class Node:
    """An expression or a condition. Compared and hashed by identity, which hash-consing makes structural.

    `digest` depends on the structure alone, not on when or in which process the node was built; it orders the parts
    of sums and products, so that `a + b` and `b + a` are one node. (Should two digests collide, they are two nodes of
    equal value.)
    """

    __slots__ = ("__weakref__", "digest")

    __match_args__: tuple[str, ...] = ()
    digest: int

    @property
    def children(self) -> tuple[Node, ...]:
        """The nodes that this one is computed from."""
        return ()

    def __reduce__(self) -> tuple[Any, ...]:
        return intern, (type(self), *(getattr(self, name) for name in self.__match_args__))

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        return self


N = TypeVar("N", bound=Node)


class _Ref(weakref.ref[Node]):
    __slots__ = ("key",)

    key: tuple[Any, ...]


_TABLE: dict[tuple[Any, ...], _Ref] = {}
_LOCK = threading.RLock()  # re-entrant: a garbage collection inside `intern` may call `_forget`


def _forget(dead: Any, table: dict[tuple[Any, ...], _Ref] = _TABLE, lock: Any = _LOCK) -> None:
    # The globals come as defaults because nodes may die after the interpreter has cleared this module.
    key = dead.key
    with lock:
        if table.get(key) is dead:
            del table[key]


def intern(kind: type[N], *fields: Any) -> N:
    """The one node of this kind with these fields. Nodes that nobody holds any more are forgotten."""
    key = (kind, *fields)
    known = _TABLE.get(key)
    node = known() if known is not None else None
    if node is None:
        fresh = kind(*fields)
        ref = _Ref(fresh, _forget)
        ref.key = key
        with _LOCK:  # two threads may have missed at once; the first one's node is everybody's
            known = _TABLE.get(key)
            node = known() if known is not None else None
            if node is None:
                _TABLE[key] = ref
                return fresh
    return node  # type: ignore[return-value]


def structural(tag: int, number: Rational, parts: tuple[tuple[Node, Rational], ...]) -> int:
    """A digest of a number and weighted nodes."""
    # Twice each numerator, as hash(-1) == hash(-2) in CPython.
    mixed = [tag, 2 * number.numerator, number.denominator]
    for node, weight in parts:
        mixed += (node.digest, 2 * weight.numerator, weight.denominator)
    return hash(tuple(mixed))
