"""The shipped strategies: found by name, each parsed when it is first named and no sooner.

Not for: models and hardware (`model.catalogue`), whole published compositions, or a user's own files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from placelang._resources import data
from placelang.diagnostics.problems import LIBRARY
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.parser import parse

_ITEM = re.compile(r"(?:^##[^\n]*\n)*^strategy\s+(\w+)", re.MULTILINE)
"""A strategy with its documentation. In these files nothing else stands at the start of a line but comments."""


def is_home(source: Source) -> bool:
    """Whether a text is one of the shipped strategies."""
    return source.name.startswith(LIBRARY)


@cache
def _index() -> Mapping[str, tuple[Path, str]]:
    """Each strategy with its file and its own part of the text, after as many lines as stand before it there."""
    found: dict[str, tuple[Path, str]] = {}
    for path in sorted((data("stdlib") / "strategies").glob("*.place")):
        text = path.read_text(encoding="utf-8")
        items = list(_ITEM.finditer(text))
        ends = (*(item.start() for item in items[1:]), len(text))
        for item, end in zip(items, ends, strict=True):
            lines = text.count("\n", 0, item.start())
            found[item[1]] = path, "\n" * lines + text[item.start() : end]
    return found


def names() -> tuple[str, ...]:
    return tuple(_index())


@cache
def strategy(name: str) -> ast.Strategy | None:
    """The shipped strategy of this name, or None."""
    if name not in _index():
        return None
    path, text = _index()[name]
    file, problems = parse(Source(text, f"{LIBRARY}{path.name}"))
    assert not problems, f"the standard library does not parse: {problems[0].message}"
    return next(s for s in file.statements if isinstance(s, ast.Strategy))
