"""What a command says and where: results on standard output, messages on standard error, colour only on a terminal.

Not for: the wording or layout of diagnostics (`diagnostics.render`), or progress bars (`progress`).
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import attrs

from placelang.diagnostics.diagnostic import Diagnostic

WIDTH = 80  # of tables, where the terminal is not narrower; messages may use a wider one
KEEP = "\N{NO-BREAK SPACE}"  # a blank at which `folded` does not break
_STYLES = {"good": "32", "bad": "1;31", "warn": "33", "dim": "2", "strong": "1", "added": "36"}


@attrs.frozen
class Screen:
    """`json` wants one JSON object on standard output and nothing else; `plain` no colour and no redrawing; `silent`
    nothing at all."""

    json: bool = False
    plain: bool = False
    silent: bool = False

    def color(self, stream: IO[str] | None = None) -> bool:
        """Whether to colour what goes to `stream` (default: standard output). See https://no-color.org."""
        return not self.plain and not self.json and is_terminal(stream or sys.stdout) and not os.environ.get("NO_COLOR")

    def paint(self, style: str, text: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if text and self.color() else text

    def out(self, text: str = "") -> None:
        """A line (or several) of the result. Nothing when JSON is wanted."""
        if not (self.json or self.silent):
            _write(sys.stdout, text)

    def err(self, text: str) -> None:
        """A line that is not the result."""
        if not (self.json or self.silent):
            _write(sys.stderr, text)

    def answer(self, value: Mapping[str, Any]) -> None:
        """The JSON object, where one is wanted."""
        if self.json and not self.silent:
            import json

            _write(sys.stdout, json.dumps(value, indent=2, ensure_ascii=False))

    def show(self, diagnostics: Iterable[Diagnostic], *, result: bool = False) -> None:
        """Diagnostics as text, on standard error unless they are the result."""
        found = list(diagnostics)
        if not found or self.json or self.silent:
            return
        from placelang.diagnostics import render  # costs start-up time, and most texts are right

        stream = sys.stdout if result else sys.stderr
        _write(stream, render.text(found, color=self.color(stream), width=message_width()).rstrip("\n"))


def is_terminal(stream: IO[str]) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def message_width() -> int:
    import shutil

    return min(max(shutil.get_terminal_size((100, 24)).columns, 40), 120)


def table_width() -> int:
    """Of tables and folded text: at most 80, and not more than the terminal has."""
    import shutil

    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, 40), WIDTH)


_SPELLED = str.maketrans(
    {"·": "*", "×": "x", "≤": "<=", "≥": ">=", "≠": "!=", "µ": "u", "→": "->", "…": "...", KEEP: " "}
)
_SPELLED |= {ord(raised): f"^{digit}" for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}


def _spelled(error: UnicodeError) -> tuple[str | bytes, int]:
    """What an encoding lacks, in ASCII as one would type it, and else as an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end].translate(_SPELLED)
    return lost.encode("ascii", "backslashreplace").decode("ascii"), error.end


def forgiving() -> None:
    """Let standard streams spell what their encoding lacks, rather than fail."""
    codecs.register_error("placelang.spelled", _spelled)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="placelang.spelled")


def _write(stream: IO[str], text: str) -> None:
    stream.write(f"{text}\n")
    stream.flush()


def columns(rows: Sequence[Sequence[str]], right: Iterable[int] = (), indent: str = "  ") -> list[str]:
    """Rows as lines with aligned columns, two cells apart; the columns of `right` are flush right."""
    flush = set(right)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        fields = [f"{c:>{w}}" if i in flush else f"{c:<{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append((indent + "  ".join(fields)).rstrip())
    return lines


def folded(text: str, first: str, rest: str, width: int | None = None) -> list[str]:
    """`text` after the prefix `first`, broken at blanks to `width` (default: of tables); others begin with `rest`."""
    width = width or table_width()
    lines, line = [], first
    room_used = False
    for word in text.split(" "):
        if room_used and len(line) + 1 + len(word) > width:
            lines.append(line)
            line, room_used = rest, False
        line += f" {word}" if room_used else word
        room_used = True
    return [row.replace(KEEP, " ") for row in (*lines, line)]
