"""Text to syntax tree: `parse` for whole texts, `needs_more` for whoever reads line by line.

Any text gives a tree and diagnostics; nothing is raised and the time is linear. A text without errors goes through
the LALR parser once; one with errors goes through `recovery`, which is imported only then. Not for: reading files
(`reader`), what names mean (`plan`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from lark import UnexpectedInput, UnexpectedToken

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.build import Builder
from placelang.syntax.scan import Scan, Token, scan
from placelang.syntax.table import lalr


def parse(source: Source) -> tuple[ast.File, tuple[Diagnostic, ...]]:
    """The tree of a text and what is wrong with it, in the order of the text.

    With errors the tree holds the statements that are right. Raises nothing.
    """
    with _uncollected():
        found = scan(source)
        builder = Builder(source, found.docs)
        if found.clean:
            try:
                return _file(source, found, builder.statements(lalr().parse(source.text)), builder)
            except UnexpectedInput:
                pass
        from placelang.syntax.recovery import recover  # costs start-up time, and most texts are right

        return _file(source, found, recover(source, found, builder), builder)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's search for cycles of garbage. Trees hold none (a test asks that), and a search that looks at
    all of a growing tree again and again takes longer than the parse itself: 14 times for 8 times the lines."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def needs_more(text: str) -> bool:
    """Whether a text is the beginning of a statement that goes on: an open bracket, a trailing operator, a bare head.

    Not an answer about errors: a text that no continuation can save needs no more.
    """
    source = Source(text)
    found = scan(source)
    if found.deep or found.strange:
        return False
    if not found.balanced:
        return _only_open(found.tokens)
    try:
        lalr().parse(text)
    except UnexpectedToken as refused:
        return bool(refused.token.type == "$END")
    except UnexpectedInput:
        pass
    return False


def _only_open(tokens: tuple[Token, ...]) -> bool:
    """Whether the brackets match but for some that are still open at the end."""
    expected: list[str] = []
    for token in tokens:
        if token.kind == "open":
            expected.append({"(": ")", "[": "]", "{": "}"}[token.text])
        elif token.kind == "close" and (not expected or expected.pop() != token.text):
            return False
    return True


def _file(
    source: Source, found: Scan, statements: tuple[ast.Statement, ...], builder: Builder
) -> tuple[ast.File, tuple[Diagnostic, ...]]:
    first = next((t.start for t in found.tokens if t.kind not in ("comment", "newline", "semi")), 0)
    for statement in statements:
        if isinstance(statement, ast.Edition) and statement.span.start != first:
            builder.misplaced_edition(statement)
    attached = {c.span.start for start in builder.documented for c in found.doc_comments[start]}
    comments = tuple(c for c in found.comments if c.span.start not in attached)
    said = tuple(sorted(builder.diagnostics, key=_place))
    gaps = (*builder.gaps, *_misread(statements, said, builder.gaps))
    return ast.File(source, statements, comments, gaps, span=source.span(0, len(source.text))), said


def _misread(
    statements: tuple[ast.Statement, ...], said: tuple[Diagnostic, ...], known: list[ast.Gap]
) -> Iterator[ast.Gap]:
    """The words that are in the tree for want of better ones, such as numbers in no known unit."""
    for span in (d.primary.span for d in said if d.primary and d.is_error):
        if not any(gap.span.start <= span.start < gap.span.end for gap in known):
            whole = next((s.span for s in statements if s.span.start <= span.start < s.span.end), span)
            yield ast.Gap(whole, span=span)


def _place(diagnostic: Diagnostic) -> int:
    return diagnostic.primary.span.start if diagnostic.primary else 0
