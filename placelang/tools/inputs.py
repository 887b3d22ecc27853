"""From what was typed after a command to a strategy: a file or standard input, `--set`, `--model`.

Not for: what the text means (`api`), or options themselves (`cli`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from placelang.api import Strategy, load_source
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.source import Source
from placelang.syntax import ast, reader

STDIN = "-"


def read(file: str) -> Source | Diagnostic:
    """The text of a file, or of standard input for `-`."""
    if file != STDIN:
        return reader.read_file(file)
    stream = getattr(sys.stdin, "buffer", None)
    raw: bytes = stream.read(reader.MAX_BYTES + 1) if stream is not None else sys.stdin.read().encode()
    return reader.from_bytes(raw, "<stdin>")


def strategy(file: str, sets: Mapping[str, str], model: str | None = None, devices: int | None = None) -> Strategy:
    """The strategy of a file; one that says why when the file cannot be read. Raises nothing."""
    source = read(file)
    if isinstance(source, Diagnostic):
        return unreadable(source, file)
    return load_source(source, model=model, devices=devices, sets=sets)


def unreadable(why: Diagnostic, name: str) -> Strategy:
    nothing = Source("", name)
    return Strategy(nothing, ast.File(nothing), None, (why,))
