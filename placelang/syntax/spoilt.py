"""What a mistake spoils of its statement: the step, argument or element around it, from one separator to the next.

With that part left out the rest can be read, and other mistakes in it found. Not for: where statements end (`outline`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from placelang.frozen import Frozen
from placelang.syntax.scan import Token

PLACEHOLDER = "_"  # a name, so that it may stand where any step, argument or element may


@attrs.frozen(eq=False, repr=False)
class Part(Frozen):
    """The tokens from index `first` to `last`, and what to read in their place."""

    first: int
    last: int
    instead: str = PLACEHOLDER

    def touches(self, at: int) -> bool:
        """Whether the token at an index is in this part or follows it at once, where what is wrong may be its fault."""
        return self.first <= at <= self.last + 1


def spoilt(tokens: Sequence[Token], at: int) -> Iterator[Part]:
    """The parts around the token at an index (or the end), the smallest first; none where all of the statement is."""
    around = _openers(tokens)
    level = around[at]
    if level < 0 and at < len(tokens) and tokens[at].text == ":":
        return  # a second head: there is no telling which statement goes on behind it
    first = last = at
    while level < 0 or tokens[level].text != "{":
        left = _start(tokens, around, first - 1, level)
        if left + 1 == at < len(tokens) and tokens[at].text == "=" and left > level:
            left = _start(tokens, around, left - 1, level)  # the name that it binds is before the separator
        if left < 0:
            return  # the head is a part of it
        right = _end(tokens, around, last, level)
        if left + 1 < right:
            if right == at < len(tokens) and tokens[right].kind != "close":  # the part may go on behind this separator
                right = _end(tokens, around, right + 1, level)
            yield Part(left + 1, right - 1)
        elif right < len(tokens) and tokens[right].text == tokens[left].text:
            yield Part(right, right, " ")  # one of two separators is too many
        elif right < len(tokens) and tokens[right].kind != "close":
            yield Part(right, _end(tokens, around, right + 1, level) - 1)
        elif left > level and around[left] == level:
            yield Part(left, left, " ")
        if level < 0:
            return
        first, last = level, right
        level = around[level]


def _openers(tokens: Sequence[Token]) -> list[int]:
    """For each token, and for the end, the index of the bracket that it stands in, or -1; a bracket stands outside of
    itself, but a closing one in what it closes."""
    found: list[int] = []
    open_ = [-1]
    for i, token in enumerate(tokens):
        found.append(open_[-1])
        if token.kind == "open":
            open_.append(i)
        elif token.kind == "close" and len(open_) > 1:
            open_.pop()
    return [*found, -1]


def _start(tokens: Sequence[Token], around: Sequence[int], i: int, level: int) -> int:
    """Where the separator or bracket stands after which the part of the level begins that holds the token at an index;
    -1 if it begins with the statement."""
    while i > level and not (around[i] == level and _separates(tokens, i, level)):
        i -= 1
    return i


def _separates(tokens: Sequence[Token], i: int, level: int) -> bool:
    """Whether a part of the level may begin after this token. Outside of brackets the head ends with the first `:`."""
    if tokens[i].text in (",", "|"):
        return True
    return level < 0 and tokens[i].text == ":" and all(t.text != ":" for t in tokens[:i])


def _end(tokens: Sequence[Token], around: Sequence[int], i: int, level: int) -> int:
    """Where the part of the level that holds the token at an index ends."""
    while i < len(tokens) and not (around[i] == level and (tokens[i].text in (",", "|") or tokens[i].kind == "close")):
        i += 1
    return i
