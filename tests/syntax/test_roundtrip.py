"""Printing and parsing are inverse, formatting is idempotent, and nothing that a user types raises."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placelang.diagnostics.render import text as rendered
from placelang.source import Source
from placelang.syntax import ast, reader
from placelang.syntax.build import Builder
from placelang.syntax.formatter import format_file, print_node
from placelang.syntax.outline import outline
from placelang.syntax.parser import needs_more, parse
from placelang.syntax.recovery import Recovery
from placelang.syntax.scan import scan
from tests.syntax import trees

_SLOW = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def parsed(text: str) -> ast.File:
    file, diagnostics = parse(Source(text))
    assert not diagnostics, (text, rendered(diagnostics))
    return file


def check_format(text: str) -> None:
    """What formatting must keep of a good text: the tree, each comment, and itself."""
    file = parsed(text)
    once = format_file(file)
    again = parsed(once)
    assert again == file
    assert sorted(_said(c) for c in again.comments) == sorted(_said(c) for c in file.comments)
    assert format_file(again) == once
    assert all(len(line) == len(line.rstrip()) for line in once.splitlines())
    assert once == "" or (once.endswith("\n") and not once.endswith("\n\n"))


def _said(comment: ast.Comment) -> str:
    return comment.text.lstrip("#").strip()


@_SLOW
@given(trees.files())
def test_parsing_a_printed_tree_gives_the_tree(file: ast.File) -> None:
    text = print_node(file)
    if scan(Source(text)).deep:
        return  # deeper than any text may be
    assert parsed(text) == file


@_SLOW
@given(trees.files())
def test_a_printed_tree_is_formatted_but_for_blocks_in_one_line(file: ast.File) -> None:
    text = print_node(file)
    if not scan(Source(text)).deep:
        check_format(text + "\n")


@pytest.mark.parametrize("text", trees.samples())
def test_samples_format(text: str) -> None:
    check_format(text)


@pytest.mark.parametrize("text", trees.samples())
def test_outline_and_grammar_agree_on_good_texts(text: str) -> None:
    source = Source(text)
    found = scan(source)
    recovered = Recovery(source, found, Builder(source, found.docs)).statements(outline(source, found))
    assert recovered == parsed(text).statements


def check_any(text: str) -> bool:
    """What holds for every text; whether it is a good one."""
    file, diagnostics = parse(Source(text))
    for diagnostic in diagnostics:
        assert diagnostic.primary is not None
        for span in (diagnostic.primary.span, *(c.span for c in diagnostic.causes)):
            assert 0 <= span.start <= span.end <= len(text)
        for fix in diagnostic.fixes:
            assert all(0 <= e.span.start <= e.span.end <= len(text) for e in fix.edits)
    assert len(diagnostics) == len({(d.primary and d.primary.span.start, d.message) for d in diagnostics})
    rendered(diagnostics)
    needs_more(text)
    if diagnostics:
        format_file(file)
    else:
        check_format(text)
    return not diagnostics


def check_mutants(count: int, seed: int) -> None:
    rng = random.Random(seed)
    texts = trees.samples()
    good = sum(check_any(trees.mutant(_piece(rng.choice(texts), rng), rng)) for _ in range(count))
    assert count / 50 < good < count  # both kinds are met


def _piece(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    start = rng.randrange(len(lines))
    return "".join(lines[start : start + rng.randint(1, 12)])


def test_mutants_never_raise() -> None:
    check_mutants(2_000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_two_hundred_thousand_mutants_never_raise(seed: int) -> None:
    check_mutants(25_000, seed=100 + seed)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200) | st.lists(st.sampled_from(trees.PIECES), max_size=40).map("".join))
def test_any_text_never_raises(text: str) -> None:
    source = reader.from_text(text)
    check_any(source.text if isinstance(source, Source) else text)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_never_raise(raw: bytes) -> None:
    source = reader.from_bytes(raw, "any")
    if isinstance(source, Source):
        check_any(source.text)
    else:
        assert rendered((source,))
