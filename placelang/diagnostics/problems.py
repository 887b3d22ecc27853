"""Collecting faults: one bad construct is refused, its neighbours go on, and all faults of a text come in one run.

Not for: wording; whoever finds a fault words it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import attrs

from placelang.diagnostics.diagnostic import Diagnostic, Label, Verdict
from placelang.source import Source, Span

LIBRARY = "std/"
"""How the names of the sources of the standard library begin."""


def fault(code: str, message: str, span: Span | None, label: str = "", **rest: Any) -> Diagnostic:
    """A diagnostic that points at `span`; `rest` are fields of Diagnostic."""
    return Diagnostic(code, message, None if span is None else Label(span, label), **rest)


def from_use(d: Diagnostic) -> Diagnostic:
    """The diagnostic as a writer sees it: what another file says, by the line of one's own that asked for it; that file
    follows as a cause. What is wrong in itself, in a file that is no part of the language, is shown where it stands."""
    if d.primary is None:
        return d
    own = not d.primary.span.source.name.startswith(LIBRARY)
    if d.verdict is Verdict.INVALID and own:
        use = d.primary.span.use
        at = attrs.evolve(d.primary, span=attrs.evolve(d.primary.span, use=None))
        return attrs.evolve(d, primary=at, causes=(*d.causes, Label(use, "used here"))) if use else d
    marked: list[Span] = []

    def at_use(label: Label) -> Label:
        use = label.span.use
        if use is None or use in marked:
            return label
        marked.append(use)
        return Label(use, label.text)

    primary = at_use(d.primary)
    causes = tuple(at_use(cause) for cause in d.causes)
    there = () if primary is d.primary else (Label(attrs.evolve(d.primary.span, use=None), "which says this"),)
    return (
        d if primary is d.primary and causes == d.causes else attrs.evolve(d, primary=primary, causes=(*causes, *there))
    )


_Given = TypeVar("_Given")
_Found = TypeVar("_Found")
_Other = TypeVar("_Other")


class Refused(Exception):
    """One construct has no meaning; `diagnostics` say why, the first is `diagnostic`. Never leaves the room that raises
    it."""

    def __init__(self, diagnostic: Diagnostic, *more: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic
        self.diagnostics = (diagnostic, *more)


def refuse(code: str, message: str, span: Span | None, label: str = "", **rest: Any) -> Refused:
    """An exception to raise: `raise refuse("E101", ...)`."""
    return Refused(fault(code, message, span, label, **rest))


def every(read: Callable[[_Given], _Found], parts: Iterable[_Given]) -> list[_Found]:
    """What `read` makes of each part. All parts are read before the whole is refused, with what is said of any."""
    found: list[_Found] = []
    faults: list[Diagnostic] = []
    for part in parts:
        try:
            found.append(read(part))
        except Refused as refused:
            faults += refused.diagnostics
    if faults:
        raise Refused(*faults)
    return found


def both(first: Callable[[], _Found], second: Callable[[], _Other]) -> tuple[_Found, _Other]:
    """What two readings find, neither of which needs the other: both are done before the whole is refused."""
    found: list[Any] = every(lambda read: read(), (first, second))
    return found[0], found[1]


class Problems:
    """The faults found so far, in the order of finding, each once."""

    def __init__(self) -> None:
        self._found: dict[Diagnostic, None] = {}

    def add(self, *diagnostics: Diagnostic) -> None:
        self._found.update(dict.fromkeys(map(from_use, diagnostics)))

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Keep a refusal of the block inside and go on after it."""
        try:
            yield
        except Refused as refused:
            self.add(*refused.diagnostics)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep a refusal of the block inside and let it go on its way."""
        try:
            yield
        except Refused as refused:
            self.add(*refused.diagnostics)
            raise

    @property
    def any_error(self) -> bool:
        return any(d.is_error for d in self._found)

    def sorted(self, source: Source, but: Callable[[Diagnostic], bool] = lambda _: False) -> tuple[Diagnostic, ...]:
        """What was found, in the order of `source`; what stands elsewhere comes first, what stands nowhere last.
        What is said of several places in the same words is said once. `but`: what is not worth saying."""
        grouped: dict[Diagnostic, list[Diagnostic]] = {}
        for d in in_order((d for d in self._found if not but(d)), source):
            grouped.setdefault(attrs.evolve(d, primary=None, causes=()), []).append(d)
        return tuple(_also(*same) for same in grouped.values())

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._found)


@contextmanager
def using(problems: Problems, place: Span) -> Iterator[Problems]:
    """Problems of what `place` brings in from elsewhere: each is said of that place."""

    def used(d: Diagnostic) -> Diagnostic:
        primary, *causes = (label and Label(label.span.used_at(place), label.text) for label in (d.primary, *d.causes))
        return from_use(attrs.evolve(d, primary=primary, causes=tuple(filter(None, causes))))

    within = Problems()
    try:
        yield within
    except Refused as refused:
        raise Refused(*map(used, refused.diagnostics)) from None
    finally:
        problems.add(*map(used, within))


def in_order(diagnostics: Iterable[Diagnostic], source: Source) -> list[Diagnostic]:
    """Diagnostics in the order of `source`; what stands elsewhere comes first, what stands nowhere last."""
    return sorted(diagnostics, key=lambda d: _order(d, source))


def _order(d: Diagnostic, source: Source) -> tuple[int, int]:
    if d.primary is None:
        return 2, 0
    return (1, d.primary.span.start) if d.primary.span.source == source else (0, 0)


def _also(first: Diagnostic, *others: Diagnostic) -> Diagnostic:
    """The first of several that say the same, with the lines where the others stand."""
    own = _line(first)
    lines = dict.fromkeys(line for line in map(_line, others) if line)
    elsewhere = [str(line) for line in lines if line != own]
    again = ["once more on this line"] if own in lines else []
    again += [f"on line{'s' * (len(elsewhere) > 1)} {', '.join(elsewhere)}"] if elsewhere else []
    return attrs.evolve(first, notes=(*first.notes, f"the same {' and '.join(again)}")) if again else first


def _line(d: Diagnostic) -> int:
    return d.primary.span.source.line_col(d.primary.span.start)[0] if d.primary else 0
