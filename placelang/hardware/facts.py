"""Checked access to the arguments of a constructor: names, units and ranges, with errors that help.

A constructor lists its arguments as `Arg`s; `read` turns what a text gave into `Facts` or raises `Refused`, which
`values` turns into a `HardwareError` value. Not for: what the arguments mean (`constructors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

import attrs

from placelang.hardware.hardware import Device, Hardware, HardwareError, Host, Link, Network, Part, Reach
from placelang.quantity import Quantity
from placelang.source import Span

MOST_DEVICES: Final = 2**40
"""No machine has more; past it a number is a slip of the hand."""

Value = Fraction | Quantity | bool | str | Part | tuple["Value", ...]


class Refused(Exception):
    """Carries a HardwareError from where a fault is found to `values`; it never leaves this room."""

    def __init__(self, message: str, suggestion: str = "", argument: str = "", span: Span | None = None) -> None:
        super().__init__(message)
        self.error = HardwareError(message, suggestion, argument, span)


@attrs.frozen
class Given:
    """One argument as a text gives it: by name, or by place (name is None)."""

    name: str | None
    value: Value
    span: Span | None = None


@attrs.frozen
class Arg:
    """One argument of a constructor: what it takes (a key of `KINDS`) and what it says."""

    kind: str
    doc: str
    required: bool = False


KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "bytes": ("bytes", "80GiB"),
    "bytes/s": ("bytes/s", "450GB/s"),
    "flops/s": ("FLOP/s", "989TFLOP/s"),
    "seconds": ("seconds", "5us"),
    "number": ("a number", "1.5"),
    "count": ("a whole number", "8"),
    "sizes": ("a list of whole numbers", "[16, 16]"),
    "device": ("a device", "h100_sxm"),
    "link": ("a link", "nvlink(450GB/s)"),
    "network": ("a network", "roce(400Gb/s)"),
    "host": ("a host", "host(memory = 2TiB)"),
    "reach": ("a reach", "reach(matmul = 0.75)"),
}
"""What an argument may take: in words, and an example."""

_PARTS: Final[Mapping[type, str]] = {
    Device: "a device",
    Link: "a link",
    Network: "a network",
    Host: "a host",
    Hardware: "a node",
    Reach: "a reach",
}


def describe(value: Value) -> str:
    """What a value is, in words for a message."""
    match value:
        case bool():
            return "true or false"
        case Fraction():
            return "a number without a unit"
        case Quantity(dimension=dimension):
            return f"in {KINDS[dimension][0] if dimension in KINDS else dimension}"
        case str():
            return "a text"
        case tuple():
            return "a list"
        case _:
            return _PARTS[type(value)]


def hint(unknown: str, known: Iterable[str]) -> str:
    """What to write in place of an unknown word: the one that was meant, or all of them."""
    from placelang.diagnostics.suggest import did_you_mean  # imported only when something is wrong

    near = did_you_mean(unknown, known)
    return f"did you mean `{near}`?" if near else "one of " + ", ".join(f"`{k}`" for k in known)


@attrs.frozen
class Facts:
    """Arguments that passed `read`; one that was not given is None."""

    values: Mapping[str, object]

    def number(self, name: str) -> Fraction | None:
        value = self.values.get(name)
        return value if isinstance(value, Fraction) else None

    def count(self, name: str) -> int | None:
        value = self.values.get(name)
        return value if isinstance(value, int) else None

    def sizes(self, name: str) -> tuple[int, ...]:
        value = self.values.get(name)
        return value if isinstance(value, tuple) else ()

    def reach(self, name: str) -> Reach | None:
        value = self.values.get(name)
        return value if isinstance(value, Reach) else None

    def link(self, name: str) -> Link | None:
        value = self.values.get(name)
        return value if isinstance(value, Link) else None


def read(called: str, args: Mapping[str, Arg], positional: int, levels: Sequence[Sequence[Given]]) -> Facts:
    """Check what was given against `args`. `levels` are the argument lists of the calls that led here, outermost first:
    an outer one replaces what an inner one says. The first `positional` arguments may stand without a name.

    Raises Refused at the first fault, unknown names before missing ones.
    """
    given: dict[str, Given] = {}
    for level in levels:
        for name, one in _named(called, args, positional, level).items():
            given.setdefault(name, one)
    for name, arg in args.items():
        if arg.required and name not in given:
            raise Refused(f"{called} needs `{name}`: {arg.doc}", f"add `{name} = {KINDS[arg.kind][1]}`")
    return Facts({name: _checked(name, args[name].kind, one) for name, one in given.items()})


def _named(called: str, args: Mapping[str, Arg], positional: int, level: Sequence[Given]) -> dict[str, Given]:
    named: dict[str, Given] = {}
    for place, one in enumerate(level):
        name = one.name
        if name is None:
            if place >= positional:
                raise Refused(f"{called} takes this argument by name", "one of " + _listed(args), span=one.span)
            name = tuple(args)[place]
        if name not in args:
            raise Refused(f"{called} has no argument `{name}`", hint(name, args), name, one.span)
        if name in named:
            raise Refused(f"`{name}` is given twice", "keep one of the two", name, one.span)
        named[name] = one
    return named


def _listed(args: Mapping[str, Arg]) -> str:
    return ", ".join(f"`{name} = ...`" for name in args)


def _checked(name: str, kind: str, one: Given) -> object:
    value = one.value
    if kind == "count":
        return _count(name, value, one.span)
    if kind == "number" and isinstance(value, Fraction):
        if value > 0:
            return value
        raise Refused(f"`{name}` is not positive", "leave out what is not known", name, one.span)
    if kind == "sizes":
        if isinstance(value, tuple) and value:
            return tuple(_count(name, size, one.span) for size in value)
    elif isinstance(value, Quantity):
        if value.dimension == kind:
            if value.value > 0 or (kind == "seconds" and not value.value):
                return value.value
            raise Refused(f"`{name}` is not positive", "leave out what is not known", name, one.span)
    elif not isinstance(value, bool | str | tuple | Fraction) and _PARTS[type(value)] == KINDS[kind][0]:
        return value
    takes, example = KINDS[kind]
    raise Refused(
        f"`{name}` takes {takes}, this is {describe(value)}", f"for example `{name} = {example}`", name, one.span
    )


def _count(name: str, value: Value, span: Span | None) -> int:
    if not isinstance(value, Fraction):
        raise Refused(f"`{name}` takes a whole number, this is {describe(value)}", f"`{name} = 8`", name, span)
    if value.denominator != 1 or not 1 <= value <= MOST_DEVICES:
        raise Refused(f"`{name}` is not a whole number from 1 to {MOST_DEVICES:,}", f"`{name} = 8`", name, span)
    return int(value)
