"""Equality, hash and text of frozen values, written once.

attrs generates and compiles these for every class that asks, and a start of `place` has over a hundred classes: half of
its time went there. Classes on hot paths (`program.event`, `check.types`) still ask. Not for: anything mutable.
"""

from __future__ import annotations

from typing import Any

import attrs

_COMPARED: dict[type, tuple[str, ...]] = {}


def _compared(kind: Any) -> tuple[str, ...]:
    names = _COMPARED.get(kind)
    if names is None:
        names = _COMPARED[kind] = tuple(a.name for a in attrs.fields(kind) if a.eq)
    return names


class Frozen:
    """Base of `@attrs.frozen(eq=False, repr=False)` classes: equal when of one class with equal fields."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, n) == getattr(other, n) for n in _compared(type(self)))

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in _compared(type(self)))))

    def __repr__(self) -> str:
        fields: Any = type(self)
        shown = (f"{a.name}={getattr(self, a.name)!r}" for a in attrs.fields(fields) if a.repr)
        return f"{type(self).__name__}({', '.join(shown)})"
