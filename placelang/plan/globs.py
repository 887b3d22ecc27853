"""Globs over full names: `*` one segment, `**` many, `{a,b}`, `{0..3}`; a module selects all below it.

Matching walks the pattern once with the set of places where the name may stand, so that no pattern takes long.
Not for: what is said of the selected (`selectors`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import attrs

RANGE = re.compile(r"(\d{1,9})\.\.(\d{1,9})")
_PIECE = re.compile(r"\*\*+|\*|\{([^{}]*)\}|[^*{}]+|[{}]")
_MOST = 10_000  # layers a `{a..b}` may span


@attrs.frozen
class Glob:
    """A pattern as pieces: `*`, `**`, or the texts of which one stands here."""

    pieces: tuple[str | frozenset[str], ...]

    def matches(self, name: str) -> bool:
        """Whether the pattern is this name, or that of a module above it."""
        places = {0}
        for piece in self.pieces:
            if piece == "**":
                places = set(range(min(places), len(name) + 1))
            elif piece == "*":
                places = {end for at in places for end in range(at, _dot(name, at) + 1)}
            else:
                assert isinstance(piece, frozenset)
                ends = {at + n for at in places for n in _sizes(piece) if name[at : at + n] in piece}
                places = {end for end in ends if end <= len(name)}  # a slice past the end is a shorter text
            if not places:
                return False
        return any(at == len(name) or name[at] == "." for at in places)


@cache
def _sizes(texts: frozenset[str]) -> frozenset[int]:
    return frozenset(len(text) for text in texts)


def _dot(name: str, at: int) -> int:
    end = name.find(".", at)
    return len(name) if end < 0 else end


@cache
def glob(pattern: str) -> Glob:
    """The glob of a pattern; a brace that has no partner stands for itself."""
    pieces: list[str | frozenset[str]] = []
    for found in _PIECE.finditer(pattern):
        text = found[0]
        if text.startswith("*"):
            pieces.append("**" if len(text) > 1 else "*")
        else:
            pieces.append(frozenset([text]) if found[1] is None else frozenset(_choices(found[1])))
    return Glob(tuple(pieces))


def _choices(inside: str) -> Iterator[str]:
    for choice in inside.split(","):
        numbers = RANGE.fullmatch(choice.strip())
        if numbers and 0 <= int(numbers[2]) - int(numbers[1]) < _MOST:
            yield from (str(n) for n in range(int(numbers[1]), int(numbers[2]) + 1))
        else:
            yield choice.strip()


def fault_of(pattern: str) -> str:
    """What is wrong with a pattern, or empty."""
    if not pattern:
        return "an empty selector selects nothing"
    depth = 0
    for c in pattern:
        depth += (c == "{") - (c == "}")
        if not 0 <= depth <= 1:
            break
    return f"the braces of `{pattern}` do not pair" if depth else ""


EXAMPLES = '`"layers.*.attn.{wq,wk}"` or `"layers.{0..3}"`'
