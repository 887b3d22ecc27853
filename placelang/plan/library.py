"""The shipped strategies: found by name without parsing more than the file that holds one.

Not for: models and hardware (`model.catalogue`), or a user's own files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from placelang._resources import data
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.parser import parse

_HEAD = re.compile(r"^strategy\s+(\w+)", re.MULTILINE)


@cache
def _index() -> Mapping[str, Path]:
    files = sorted((data("stdlib") / "strategies").glob("*.place"))
    return {name: path for path in files for name in _HEAD.findall(path.read_text(encoding="utf-8"))}


@cache
def _file(path: Path) -> Mapping[str, ast.Strategy]:
    file, problems = parse(Source(path.read_text(encoding="utf-8"), f"std/{path.name}"))
    assert not problems, f"the standard library does not parse: {problems[0].message}"
    return {s.name.text: s for s in file.statements if isinstance(s, ast.Strategy)}


def names() -> tuple[str, ...]:
    return tuple(_index())


def strategy(name: str) -> ast.Strategy | None:
    """The shipped strategy of this name, or None."""
    path = _index().get(name)
    return None if path is None else _file(path)[name]
