"""Source texts and spans: where in which text something stands.

The ground floor of the house; every room may point at a place in a text. Not for: reading meaning out of the text.
"""

from __future__ import annotations

from bisect import bisect_right

import attrs


@attrs.frozen
class Source:
    """A text with a name to show. `text` has LF line ends only, no BOM: see `syntax.reader`."""

    text: str = attrs.field(repr=False)
    name: str = "<text>"
    _starts: tuple[int, ...] = attrs.field(init=False, repr=False, eq=False)

    @_starts.default
    def _line_starts(self) -> tuple[int, ...]:
        return (0, *(i + 1 for i, c in enumerate(self.text) if c == "\n"))

    def line_col(self, offset: int) -> tuple[int, int]:
        """The line and column of a character offset, both counted from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of line `number` (from 1) without its line end; empty past the end."""
        if not 1 <= number <= len(self._starts):
            return ""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end]

    def span(self, start: int, end: int) -> Span:
        return Span(self, start, end)


@attrs.frozen
class Span:
    """The half-open range of characters [start, end) of a source. `use`: the place in another source that brought what
    stands here into the text, as the factor of `apply` that names a strategy of the standard library."""

    source: Source = attrs.field(repr=False)
    start: int
    end: int
    use: Span | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """The smallest span that covers both (they are of one source)."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end), self.use)

    def used_at(self, place: Span) -> Span:
        """The same range, brought into the text by `place`; as it is where a place of that source is known already."""
        known = place.source == self.source or (self.use is not None and self.use.source == place.source)
        return self if known else attrs.evolve(self, use=place)
