"""The typed values of options: what `keep = microbatch`, `split = [10, 10, 8]` or `bucket = 25MB` mean.

One function a kind. Not for: which options a word has (`words`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from placelang.diagnostics.problems import refuse
from placelang.plan.dtypes import BYTES
from placelang.plan.meant import meant
from placelang.plan.scope import Scope
from placelang.plan.steps import Balanced, Every, Keep, SmallerShard, When
from placelang.plan.values import Axes, Unknown, Value, Word, kind
from placelang.quantity import Quantity
from placelang.source import Span

DIMS = ("flat", "tensor", "layer", "expert", "seq", "batch", "heads", "vocab")
LARGEST = 2**48


def option_value(kind_: str, words: tuple[str, ...], name: str, value: Value, span: Span, scope: Scope) -> Any:
    """The typed value of option `name` of a kind. Raises Refused with what it takes."""
    if isinstance(value, Unknown):
        raise refuse(
            "E121", f"`{name}` needs a value, and `{value.name}` has none yet", span, help=f"`--set {value.name}=...`"
        )
    if kind_ == "keep" and isinstance(value, Word) and value.name == "shard":
        for _, axis in value.args:
            if isinstance(axis, Word):
                raise scope.no_axis(axis.name, span)
    found = _KINDS[kind_](value, words)
    if found is not None:
        return found
    near = meant(value.name, (*words, *_NAMES.get(kind_, ()))) if isinstance(value, Word) else None
    raise refuse(
        "E106",
        f"`{name}` cannot be {kind(value)}",
        span,
        help=f"did you mean `{near}`?" if near else f"it takes {takes(kind_, words)}",
    )


def takes(kind_: str, words: tuple[str, ...]) -> str:
    """What values an option of a kind takes, for people."""
    if kind_ == "names":
        return f"a list of {', '.join(words)}"
    return _TAKES.get(kind_, " or ".join(words) if len(words) < 3 else "one of " + ", ".join(words))


def whole(value: Value) -> int | None:
    """A whole number from 0 up, or None."""
    if isinstance(value, Fraction) and not isinstance(value, bool) and value.denominator == 1 and 0 <= value <= LARGEST:
        return int(value)
    return None


def _plain(value: Value) -> str:
    return value.name if isinstance(value, Word) and not value.args else ""


def _word(value: Value, words: tuple[str, ...]) -> str | None:
    return _plain(value) if _plain(value) in words else None


def _count(value: Value, _: tuple[str, ...]) -> int | None:
    return whole(value) or None


def _bytes(value: Value, _: tuple[str, ...]) -> int | None:
    if isinstance(value, Quantity) and value.dimension == "bytes" and value.value > 0:
        return int(value.value)
    return None


def _share(value: Value, _: tuple[str, ...]) -> Fraction | None:
    if isinstance(value, Fraction) and not isinstance(value, bool) and 0 <= value <= 1:
        return value
    return None


def _dim(value: Value, _: tuple[str, ...]) -> str | None:
    number = whole(value)
    return str(number) if number is not None and number < 16 else _word(value, DIMS)


def _pad(value: Value, _: tuple[str, ...]) -> str | None:
    number = whole(value)
    return str(number) if number else _word(value, ("even",))


def _keep(value: Value, _: tuple[str, ...]) -> Keep | SmallerShard | None:
    if isinstance(value, Word) and value.name == "shard" and value.args:
        axes = [v for name, v in value.args if name is None and isinstance(v, Axes)]
        return SmallerShard(tuple(a for v in axes for a in v.names)) if len(axes) == len(value.args) else None
    return Keep(_plain(value)) if _plain(value) in {k.value for k in Keep} else None


def _reshard(value: Value, _: tuple[str, ...]) -> Keep | SmallerShard | None:
    if isinstance(value, bool):
        return Keep.UNIT if value else Keep.MICROBATCH
    number = whole(value)
    return SmallerShard(ranks=number) if number else None


def _when(value: Value, _: tuple[str, ...]) -> When | Every | None:
    if isinstance(value, Word) and value.name == "every" and len(value.args) == 1:
        steps = whole(value.args[0][1])
        return Every(steps) if steps else None
    return When(_plain(value)) if _plain(value) in {w.value for w in When} else None


def _split(value: Value, _: tuple[str, ...]) -> tuple[int, ...] | Balanced | None:
    if isinstance(value, Word) and value.name == "balanced":
        given = {name: whole(v) for name, v in value.args}
        if None in given or None in given.values() or set(given) - {"first_less", "last_less"}:
            return None
        return Balanced(given.get("first_less") or 0, given.get("last_less") or 0)
    if isinstance(value, tuple) and value:
        sizes = [whole(v) for v in value]
        return tuple(s for s in sizes if s is not None) if None not in sizes else None
    return None


def _names(value: Value, words: tuple[str, ...]) -> tuple[str, ...] | None:
    if isinstance(value, tuple) and all(_plain(v) in words for v in value):
        return tuple(_plain(v) for v in value)
    return None


_KINDS: Mapping[str, Callable[[Value, tuple[str, ...]], Any]] = {
    "word": _word,
    "int": lambda value, _: whole(value),
    "count": _count,
    "bytes": _bytes,
    "bool": lambda value, _: value if isinstance(value, bool) else None,
    "text": lambda value, _: value if isinstance(value, str) else None,
    "share": _share,
    "dtype": lambda value, _: _word(value, tuple(BYTES)),
    "dim": _dim,
    "pad": _pad,
    "keep": _keep,
    "reshard": _reshard,
    "when": _when,
    "split": _split,
    "names": _names,
}

_TAKES: Mapping[str, str] = {
    "int": "a whole number",
    "count": "a whole number from 1 up",
    "bytes": "a size, such as `25MB`",
    "bool": "true or false",
    "text": 'a text in quotes, such as `"scratch"`',
    "share": "a number from 0 to 1",
    "dtype": "a number format: " + ", ".join(BYTES),
    "dim": "a number from 0 up, or one of " + ", ".join(DIMS),
    "pad": "`even`, or a number to round up to a multiple of",
    "keep": "unit, microbatch, step, or a smaller `shard(axis)`",
    "reshard": "true, false, or a number of ranks",
    "when": "microbatch, step, or `every(n)`",
    "split": "a list of sizes, or `balanced(first_less = 1, last_less = 1)`",
}

_NAMES: Mapping[str, tuple[str, ...]] = {
    "bool": ("true", "false"),
    "reshard": ("true", "false"),
    "dtype": tuple(BYTES),
    "dim": DIMS,
    "pad": ("even",),
    "keep": ("unit", "microbatch", "step"),
    "when": ("microbatch", "step", "every"),
    "split": ("balanced",),
}
