"""Collecting faults: one bad construct is refused, its neighbours go on, and all faults of a text come in one run.

Not for: wording; whoever finds a fault words it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from placelang.diagnostics.diagnostic import Diagnostic, Label
from placelang.source import Source, Span


def fault(code: str, message: str, span: Span | None, label: str = "", **rest: Any) -> Diagnostic:
    """A diagnostic that points at `span`; `rest` are fields of Diagnostic."""
    return Diagnostic(code, message, None if span is None else Label(span, label), **rest)


class Refused(Exception):
    """One construct has no meaning; `diagnostic` says why. Never leaves the room that raises it."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


def refuse(code: str, message: str, span: Span | None, label: str = "", **rest: Any) -> Refused:
    """An exception to raise: `raise refuse("E101", ...)`."""
    return Refused(fault(code, message, span, label, **rest))


class Problems:
    """The faults found so far, in the order of finding, each once."""

    def __init__(self) -> None:
        self._found: dict[Diagnostic, None] = {}

    def add(self, *diagnostics: Diagnostic) -> None:
        self._found.update(dict.fromkeys(diagnostics))

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Keep a refusal of the block inside and go on after it."""
        try:
            yield
        except Refused as refused:
            self.add(refused.diagnostic)

    @property
    def any_error(self) -> bool:
        return any(d.is_error for d in self._found)

    def sorted(self, source: Source) -> tuple[Diagnostic, ...]:
        """What was found, in the order of `source`; what stands elsewhere comes first, what stands nowhere last.
        What is said of several places in the same words is said once."""
        grouped: dict[Diagnostic, list[Diagnostic]] = {}
        for d in sorted(self._found, key=lambda d: _order(d, source)):
            grouped.setdefault(attrs.evolve(d, primary=None, causes=()), []).append(d)
        return tuple(_also(*same) for same in grouped.values())

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._found)


def _order(d: Diagnostic, source: Source) -> tuple[int, int]:
    if d.primary is None:
        return 2, 0
    return (1, d.primary.span.start) if d.primary.span.source == source else (0, 0)


def _also(first: Diagnostic, *others: Diagnostic) -> Diagnostic:
    """The first of several that say the same, with the lines where the others stand."""
    places = [d.primary.span for d in others if d.primary]
    lines = dict.fromkeys(str(span.source.line_col(span.start)[0]) for span in places)
    if not lines:
        return first
    return attrs.evolve(first, notes=(*first.notes, f"the same on line{'s' * (len(lines) > 1)} {', '.join(lines)}"))
