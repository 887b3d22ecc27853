"""Lines of a source with marks under them: where a message points, drawn for a terminal of a given width.

Columns here are terminal cells (a wide character takes two, a combining one none, a tab goes to the next multiple of
four); nothing unprintable is ever passed on. Not for: the text around the snippet, or colour names (`render`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence

import attrs

from placelang.frozen import Frozen
from placelang.source import Source

_TAB = 4
_LEAST = 24  # cells of source text, however narrow the terminal

Paint = Callable[[str, str], str]  # a style ("gutter", "primary", "cause") and a text -> the text, painted


@attrs.frozen(eq=False, repr=False)
class Mark(Frozen):
    """The characters [start, end) of a source to underline, and what to say of them."""

    start: int
    end: int
    text: str
    style: str  # "primary" (carets) or "cause" (dashes)


def visible(text: str) -> str:
    """`text` with every unprintable character (controls, bidi marks, lone surrogates, odd spaces) as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def cells(text: str) -> int:
    """The number of terminal cells that printable `text` takes."""
    return len(text) if text.isascii() else sum(_cells(c) for c in text)


def draw(source: Source, marks: Sequence[Mark], *, width: int, digits: int, paint: Paint) -> Iterator[str]:
    """The rows that show `marks`: each line of the source that one touches, with its underline; `...` for a gap."""
    by_line: dict[int, list[Mark]] = {}
    for mark in marks:
        for number, part in _parts(source, mark):
            by_line.setdefault(number, []).append(part)
    shown = _with_context(source, by_line)
    bar = paint("gutter", " " * (digits + 2) + " |")
    last = shown[0] if shown else 0
    for number in shown:
        if number > last + 1:
            yield paint("gutter", " " * (digits + 2) + "...")
        last = number
        view = _View.of(source, number, by_line.get(number, []), max(_LEAST, width - digits - 5))
        yield f"{paint('gutter', f'  {number:>{digits}} |')} {view.text}".rstrip()
        for row in view.underlines(paint):
            yield f"{bar} {row}".rstrip()


def last_line(source: Source, marks: Sequence[Mark]) -> int:
    """The greatest line number that `draw` shows."""
    return max((number for mark in marks for number, _ in _parts(source, mark)), default=1)


def _parts(source: Source, mark: Mark) -> Iterator[tuple[int, Mark]]:
    """A mark cut into its first and last line; its text stands at the last."""
    start = min(max(mark.start, 0), len(source.text))
    end = min(max(mark.end, start), len(source.text))
    first, _ = source.line_col(start)
    last, column = source.line_col(end)
    if last > first and column == 1:  # up to and with a line end: the mark ends on the line before
        end -= 1
        last, _ = source.line_col(end)
    if last == first:
        yield first, Mark(start, end, mark.text, mark.style)
        return
    line_start = start - source.line_col(start)[1] + 1
    yield first, Mark(start, line_start + len(source.line(first)), "", mark.style)
    tail = source.line(last)
    line_start = end - source.line_col(end)[1] + 1
    begin = line_start + len(tail) - len(tail.lstrip())
    yield last, Mark(min(begin, end), end, mark.text, mark.style)


def _with_context(source: Source, by_line: dict[int, list[Mark]]) -> list[int]:
    """The lines to show: the marked ones, one that alone stands between two of them, and one above a blank one."""
    numbers = set(by_line)
    for number in by_line:
        if number + 2 in numbers:
            numbers.add(number + 1)
        if number > 1 and not source.line(number).strip():
            numbers.add(number - 1)
    return sorted(numbers)


@attrs.frozen(eq=False, repr=False)
class _View(Frozen):
    """One line as shown: its cells, perhaps clipped, and its marks as (from, to) in cells."""

    text: str
    marks: tuple[tuple[int, int, Mark], ...]

    @staticmethod
    def of(source: Source, number: int, marks: Sequence[Mark], width: int) -> _View:
        line = source.line(number)
        start = 0
        if marks:
            offset = marks[0].start
            start = offset - source.line_col(offset)[1] + 1
        focus = next((m for m in marks if m.style == "primary"), marks[0] if marks else None)
        low, high = (0, width) if focus is None else (focus.start - start, focus.end - start)
        # Characters further than this from the focus are never shown, so a line of megabytes costs nothing.
        first, past = max(0, low - width), min(len(line), low + 2 * width)
        glyphs: list[str] = []
        edges = [0]
        for c in line[first:past]:
            glyph = " " * (_TAB - edges[-1] % _TAB) if c == "\t" else visible(c)
            glyphs.append(glyph)
            edges.append(edges[-1] + cells(glyph))
        at = [edges[min(max(m.start - start - first, 0), len(glyphs))] for m in marks]
        to = [edges[min(max(m.end - start - first, 0), len(glyphs))] for m in marks]
        begin, end = 0, len(glyphs)
        if first > 0 or past < len(line) or edges[-1] > width:
            begin, end = _window(edges, low - first, min(high - first, len(glyphs)), width)
        left = "..." if begin > 0 or first > 0 else ""
        right = "..." if end < len(glyphs) or past < len(line) else ""
        shift = edges[begin] - len(left)
        most = edges[end] - shift
        spans = []
        for mark, a, b in zip(marks, at, to, strict=True):
            x = min(max(a - shift, 0), most)
            spans.append((x, max(x + 1, min(b - shift, most)), mark))
        return _View(left + "".join(glyphs[begin:end]) + right, tuple(spans))

    def underlines(self, paint: Paint) -> Iterator[str]:
        """The row of carets and dashes with one text beside it, then a row for each further text, under its mark."""
        if not self.marks:
            return
        row: list[tuple[str, str]] = [(" ", "")] * max(end for _, end, _ in self.marks)
        for start, end, mark in sorted(self.marks, key=lambda m: m[2].style == "primary"):
            sign = "^" if mark.style == "primary" else "-"
            row[start:end] = [(sign, mark.style)] * (end - start)
        texts = [(start, end, mark) for start, end, mark in self.marks if mark.text]
        beside = max((t for t in texts if t[1] == len(row)), key=lambda t: t[0], default=None)
        below = sorted((t for t in texts if t is not beside), key=lambda t: -t[0])
        line = _painted(row, paint)
        yield f"{line} {paint(beside[2].style, visible(beside[2].text))}" if beside else line
        while below:
            start, _, mark = below.pop(0)
            stems = {s: m.style for s, _, m in below if s < start}
            stem = [("|", stems[i]) if i in stems else (" ", "") for i in range(start)]
            yield f"{_painted(stem, paint)}{paint(mark.style, visible(mark.text))}"


def _window(edges: Sequence[int], low: int, high: int, width: int) -> tuple[int, int]:
    """The characters to show of a clipped line: `low` to `high` in the middle, or, if longer, a third before `low`."""
    room = width - 6  # for `...` on either side
    low = min(max(low, 0), len(edges) - 1)
    high = min(max(high, low), len(edges) - 1)
    before = max(room // 3, (room - (edges[high] - edges[low])) // 2)
    begin = low
    while begin > 0 and edges[low] - edges[begin - 1] <= before:
        begin -= 1
    end = begin
    while end < len(edges) - 1 and edges[end + 1] - edges[begin] <= room:
        end += 1
    while begin > 0 and edges[end] - edges[begin - 1] <= room:
        begin -= 1
    return begin, end


def _painted(row: Sequence[tuple[str, str]], paint: Paint) -> str:
    """Signs with their styles as text, each run of one style painted once."""
    out: list[str] = []
    i = 0
    while i < len(row):
        j = i
        while j < len(row) and row[j][1] == row[i][1]:
            j += 1
        run = "".join(sign for sign, _ in row[i:j])
        out.append(paint(row[i][1], run) if row[i][1] else run)
        i = j
    return "".join(out)


def _cells(c: str) -> int:
    if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in ("W", "F") else 1


def _escape(c: str) -> str:
    if c in "\t\r\n":
        return {"\t": r"\t", "\r": r"\r", "\n": r"\n"}[c]
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
