"""What is said only because a part of the text could not be read: a mistake of syntax is one message, not two.

A statement that was not read, or not all of it, may declare a name, give a fact, or place a state. What does not depend
on that is said in the same run. Not for: reading what is left of such a statement (`syntax.recovery`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.plan.words import HEADS
from placelang.syntax import ast

_ASIDE = ("require", "assert", "backend")
"""Statements that no other depends on."""

_PLACES = (*HEADS, "override", "apply", "on", "strategy")
_DECLARES = ("mesh", "axis", "arg", "let", "use")
_FACTS = ("model", "hardware", "train")

_NAMES = ("E101", "E102", "E114")
_NAMELESS = r"\A\w+\s*[=:]|[(,]\s*[^\s\w\"*-]"
"""How a declaration begins, or an axis in it, whose name is missing."""

_DEPENDS: Mapping[str, tuple[str, ...]] = {
    "E107": _PLACES,  # where nothing is placed; an argument that is missing is missing
    "E109": (*_DECLARES, "hardware"),
    "E117": _DECLARES,
    "E121": (*_DECLARES, *_FACTS),
    "E122": (*_DECLARES, *_FACTS),
    "E401": (*_DECLARES, *_FACTS, *_PLACES),
}
"""By code: the statements that may hold what a message asks for or counts with."""


def known(gaps: Iterable[ast.Gap]) -> bool:
    """Whether every state, axis and fact of the text was read, so that what follows from all of them may be said."""
    return all(_head(gap) in _ASIDE for gap in gaps)


def placed(gaps: Iterable[ast.Gap]) -> bool:
    """Whether every axis and every word on a state was read, so that one may ask how they fit."""
    return all(_head(gap) in (*_ASIDE, *_FACTS) for gap in gaps)


def refused(line: ast.Fact | ast.Train) -> ast.Gap:
    """A line that was read but refused: what is said of it stands, its facts are as unknown as if it was not read."""
    span = line.span
    return ast.Gap(span, span=span.source.span(span.start, span.start))


def follows(d: Diagnostic, gaps: Iterable[ast.Gap]) -> bool:
    """Whether something may be said only for want of what was not read."""
    return any(_follows(d, gap) for gap in gaps)


def _follows(d: Diagnostic, gap: ast.Gap) -> bool:
    head = _head(gap)
    if d.primary is not None and d.primary.span.source == gap.span.source:
        here = d.primary.span
        if gap.span.start < here.end and here.start < gap.span.end:
            return True
    if head in _ASIDE:
        return False
    # A line that begins with no known word, or goes on with the next, may have been meant as anything.
    anything = head not in (*_PLACES, *_DECLARES, *_FACTS) or "\n" in gap.statement.text
    declares = anything or head in (*_DECLARES, "strategy")
    if declares and d.primary is not None and d.primary.span.source != gap.span.source:
        return True  # a strategy of another file was given what this one did not declare
    if d.code in _NAMES:
        if d.primary is None or head == "use":
            return anything or head in _DECLARES
        if not declares:
            return False
        word = re.escape(d.primary.span.text)
        return re.search(rf"(?<![\w.]){word}(?![\w.])|{_NAMELESS}", gap.span.text or gap.statement.text) is not None
    if d.code == "E107" and d.primary is not None:
        return False
    return (anything or head in _DEPENDS[d.code]) if d.code in _DEPENDS else d.primary is None


def _head(gap: ast.Gap) -> str:
    """The word that a statement begins with."""
    found = re.match(r"[A-Za-z_]\w*", gap.statement.text)
    return found[0] if found else ""
