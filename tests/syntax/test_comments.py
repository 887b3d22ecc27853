"""A comment may stand between any two words, and formatting neither loses it nor hands it to another statement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.formatter import format_file
from placelang.syntax.parser import parse
from placelang.syntax.scan import scan

ROOT = Path(__file__).parents[2]
MARK = "# mark"
STEP = 7  # every so many places of a text are tried; the slow test tries all

FOLDERS = ("stdlib", "docs/examples", "tests/syntax/blocks")
TEXTS = sorted(str(p.relative_to(ROOT)) for folder in FOLDERS for p in (ROOT / folder).rglob("*.place"))


def pieces(text: str) -> Iterator[str]:
    """The statements of a text, each with the one after it, so that there is a neighbour to go astray to."""
    spans = [s.span for s in parse(Source(text))[0].statements]
    for span, after in zip(spans, (*spans[1:], spans[-1] if spans else None), strict=False):
        if after is not None:
            yield f"{text[span.start : after.end]}\n" if after != span else f"{span.text}\n"


def leaves(statements: tuple[ast.Statement, ...]) -> Iterator[ast.Statement]:
    """Statements that hold no others, in order."""
    for s in statements:
        body = s.body if isinstance(s, ast.Strategy | ast.On) else None
        if body:
            yield from leaves(body)
        else:
            yield s


def owner(file: ast.File) -> tuple[int, int]:
    """The statements that the mark may belong to: the first and the last of those around it, by number."""
    at = next(c.span.start for c in file.comments if c.text == MARK)
    spans = [s.span for s in leaves(file.statements)]
    before = [i for i, span in enumerate(spans) if span.start < at]
    after = [i for i, span in enumerate(spans) if span.end > at]
    return (before[-1] if before else 0, after[0] if after else len(spans) - 1)


def check(text: str, offset: int) -> bool:
    """Whether a comment may stand at an offset; if it may, what formatting does to it is right."""
    plain, _ = parse(Source(text))
    file, problems = parse(Source(f"{text[:offset]} {MARK}\n{text[offset:]}"))
    if problems or file != plain:
        return False
    formatted = format_file(file)
    again, problems = parse(Source(formatted))
    where = f"{file.source.text}\n---\n{formatted}"
    assert not problems and again == file, where
    assert [c.text for c in again.comments].count(MARK) == 1, where
    assert format_file(again) == formatted, where
    first, last = owner(file)
    now_first, now_last = owner(again)
    assert now_first <= last and first <= now_last, where
    return True


def check_all(name: str, step: int) -> None:
    tried = good = 0
    for number, piece in enumerate(pieces((ROOT / name).read_text("utf-8"))):
        for token in scan(Source(piece)).tokens[number % step :: step]:
            if token.kind not in ("comment", "newline"):
                tried += 1
                good += check(piece, token.start)
    assert good or tried < 5


@pytest.mark.parametrize("name", TEXTS)
def test_a_comment_stays(name: str) -> None:
    if len((ROOT / name).read_text("utf-8")) < 6_000:
        check_all(name, STEP)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_a_comment_stays_anywhere(name: str) -> None:
    check_all(name, 1)
