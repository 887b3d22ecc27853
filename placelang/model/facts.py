"""Checked access to the arguments of a constructor: names, kinds, ranges and defaults, with errors that help.

A constructor lists its arguments as `Arg`s; `read` turns what a text gave into `Facts` or raises `Refused`, which
`constructors.build` turns into a `ModelError` value. Not for: what the arguments mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

import attrs

from placelang.model.model import ModelError

LARGEST: Final = 10**9
"""No single size of a model is larger; past it a number is a slip of the hand."""

DEEPEST: Final = 2_000
"""No published model has more layers (DeepNet, arXiv 2203.00555: 1,000). Selectors look at each, which takes time."""


@attrs.frozen
class Learned:
    """`learned(1024)`: a table of 1,024 trained position vectors."""

    length: int


@attrs.frozen
class Lora:
    """`lora(rank = 16, on = [attn, mlp])`, as a text gives it: nothing of it is checked yet."""

    rank: object
    on: tuple[object, ...] | None = None  # None: every linear layer of the blocks


class Refused(Exception):
    """Carries a ModelError from where a fault is found to `constructors.build`; it never leaves this room."""

    def __init__(self, message: str, suggestion: str = "", argument: str = "") -> None:
        super().__init__(message)
        self.error = ModelError(message, suggestion, argument)


@attrs.frozen
class Arg:
    """One argument of a constructor. `kind`: "size" (an integer), "ratio" (a positive number), "flag", "positions",
    "group" (axes, or `global`), or the words it may be."""

    kind: str | tuple[str, ...]
    doc: str
    default: int | bool | str | Learned | None = None  # None: derived from others, unless `required`
    required: bool = False
    least: int = 1


def size(doc: str, default: int | None = None, *, required: bool = False, least: int = 1) -> Arg:
    return Arg("size", doc, default, required, least)


def flag(doc: str, default: bool | None = None) -> Arg:
    return Arg("flag", doc, default)


def ratio(doc: str) -> Arg:
    return Arg("ratio", doc)


def word(doc: str, *options: str) -> Arg:
    """One of some words, the first being the default."""
    return Arg(options, doc, options[0])


def hint(unknown: object, known: Iterable[str]) -> str:
    """What to write in place of an unknown word: the one that was meant, or all of them."""
    from placelang.diagnostics.suggest import did_you_mean  # imported only when something is wrong

    near = did_you_mean(unknown, known) if isinstance(unknown, str) else None
    return f"did you mean `{near}`?" if near else "one of " + ", ".join(f"`{k}`" for k in known)


@attrs.frozen
class Facts:
    """Arguments that passed `read`: every one that the constructor knows is here, None where it is to be derived."""

    values: Mapping[str, object]

    def size(self, name: str, default: int = 0) -> int:
        value = self.values[name]
        return value if isinstance(value, int) else default

    def ratio(self, name: str) -> Fraction | None:
        value = self.values[name]
        return value if isinstance(value, Fraction) else None

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.values[name]
        return value if isinstance(value, bool) else default

    def word(self, name: str) -> str:
        return str(self.values[name])

    def given(self, name: str) -> bool:
        return self.values[name] is not None


def read(constructor: str, args: Mapping[str, Arg], given: Mapping[str, object]) -> Facts:
    """Check `given` against `args`. Raises Refused at the first fault, unknown names before missing ones."""
    for name in given:
        if name not in args:
            raise Refused(f"`{constructor}` has no argument `{name}`", hint(name, args), name)
    for name, arg in args.items():
        if arg.required and name not in given:
            raise Refused(f"`{constructor}` needs `{name}`: {arg.doc}", f"add `{name} = ...`")
    return Facts({name: _value(name, arg, given[name]) if name in given else arg.default for name, arg in args.items()})


def _value(name: str, arg: Arg, value: object) -> object:
    if arg.kind == "flag":
        if isinstance(value, bool):
            return value
        raise Refused(f"`{name}` is {_show(value)}, not true or false", f"`{name} = true`", name)
    if arg.kind == "size":
        return _integer(name, value, arg.least, DEEPEST if name in ("layers", "decoder_layers") else LARGEST)
    if arg.kind == "positions":
        if isinstance(value, Learned):
            return Learned(_integer("learned", value.length, 1))
        if value in ("rope", "alibi", "none"):
            return value
        raise Refused(
            f"`{name}` is {_show(value)}, not a kind of positions", "`rope`, `alibi`, `none` or `learned(1024)`", name
        )
    if arg.kind == "ratio":
        if isinstance(value, int | Fraction) and not isinstance(value, bool) and 0 < value <= LARGEST:
            return Fraction(value)
        raise Refused(f"`{name}` is {_show(value)}, not a positive number", f"`{name} = 1.25`", name)
    if arg.kind == "group":
        return _group(name, value)
    if isinstance(value, str) and value in arg.kind:
        return value
    raise Refused(f"`{name}` is {_show(value)}, which is no choice for it", hint(value, arg.kind), name)


def _group(name: str, value: object) -> tuple[str, ...]:
    """The axes of a group as names, which only the text's mesh knows; none for `global`."""
    if value == "global":
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, tuple) and value and all(isinstance(v, str) for v in value):
        if len(set(value)) < len(value):
            raise Refused(f"`{name}` names an axis twice", argument=name)
        return value
    examples = f"`{name} = dp`, `{name} = dp * ep` or `{name} = global`"
    raise Refused(f"`{name}` is {_show(value)}, not an axis", examples, name)


def _integer(name: str, value: object, least: int, most: int = LARGEST) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(f"`{name}` is {_show(value)}, not a whole number", f"`{name} = 1024`", name)
    if not least <= value <= most:
        raise Refused(f"`{name}` is {value:,}", f"a whole number from {least:,} to {most:,}", name)
    return value


def _show(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else "".join(c if c.isprintable() else "?" for c in str(value))
    return f"`{text if len(text) <= 40 else text[:39] + '…'}`"


def divides(small: str, by: int, large: str, of: int) -> None:
    """Refuse unless `by` divides `of`; the suggestion holds the divisors nearest to `by`."""
    if of % by:
        near = sorted((d for d in range(1, min(of, 4096) + 1) if of % d == 0), key=lambda d: abs(d - by))[:3]
        raise Refused(
            f"{small} = {by:,} does not divide {large} = {of:,}",
            f"{small} in {{{', '.join(map(str, sorted(near)))}}}",
            small,
        )
