"""Published machines and their parts by name, read from `stdlib/hardware/*.place`.

A look-up parses the declaration of that name and those of the parts that it names, no whole file. Names are the usual
ones with `-` and `.` as `_`: `h100_sxm`, `dgx_a100`, `nvlink_4`. Not for: machines that a text defines itself
(`values`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from placelang import _resources
from placelang.diagnostics.suggest import did_you_mean
from placelang.hardware.facts import Value
from placelang.hardware.hardware import Hardware, HardwareError, Part
from placelang.hardware.values import Declared, hardware_of, part_of
from placelang.source import Source
from placelang.syntax import ast

# Docs, the line with the name, and the lines up to the next that begins a comment or a declaration.
_DECLARATION: Final = re.compile(r"(?:^##.*\n)*^let[ ]+(\w+)[ ]*=.*\n?(?:^(?!#|let\b).*\n?)*", re.MULTILINE)
_SOURCE: Final = re.compile(r"Source:\s*(.*)", re.DOTALL)
_NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})


@cache
def index() -> Mapping[str, Source]:
    """Every name of the catalogue, in alphabetical order, with the text that declares it."""
    return {name: Source(text, file) for name, text, file in sorted(_declarations())}


def _declarations() -> Iterator[tuple[str, str, str]]:
    for file in (_resources.data("stdlib") / "hardware").glob("*.place"):
        for found in _DECLARATION.finditer(file.read_text("utf-8")):
            yield found[1], found[0], str(file)


def names() -> tuple[str, ...]:
    return tuple(index())


def lookup(name: str, given: Mapping[str, Value] = _NOTHING) -> Hardware | HardwareError:
    """The machine of that name; `given` replaces its arguments: `lookup("dgx_a100", {"nodes": Fraction(4)})`."""
    return hardware_of(ast.Name(name), {}, declared, given)


def part(name: str) -> Part | HardwareError:
    """Whatever has that name: a device, a link, a network or a machine."""
    return part_of(ast.Name(name), {}, declared)


@cache
def declared(name: str) -> Declared | HardwareError:
    """The declaration of a name, for `values.hardware_of`."""
    from placelang.syntax.parser import parse  # the parser is needed only once a machine is named

    text = index().get(name)
    if text is None:
        near = did_you_mean(name, names())
        own = "`node(devices = 8, device = gpu(...), ...)` says a machine of your own"
        return HardwareError(f"no hardware is named `{name}`", f"did you mean `{near}`?" if near else own)
    for statement in parse(text)[0].statements:
        if isinstance(statement, ast.Let):
            source = _SOURCE.search(statement.doc)
            return Declared(name, statement.value, " ".join(source[1].split()) if source else "")
    return HardwareError(f"the declaration of `{name}` is damaged", f"restore {text.name}")
