"""Every text of the repository that people read is in canonical form, and formatting it again changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from placelang.source import Source
from placelang.syntax.formatter import format_file
from placelang.syntax.parser import parse

ROOT = Path(__file__).parents[2]
AS_PRINTED = {"docs/examples/card.place"}
"""The card's line stands as it is printed on the card, two statements on one line."""

TEXTS = sorted(
    str(path.relative_to(ROOT))
    for folder in ("stdlib", "docs", "tests/cases/configs", "tests/cases/issues")
    for path in (ROOT / folder).rglob("*.place")
)


@pytest.mark.parametrize("name", TEXTS)
def test_is_canonical(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    file, problems = parse(Source(text))
    if problems:
        assert name.startswith("tests/"), f"{name} does not parse"
        return
    formatted = format_file(file)
    assert formatted == text or name in AS_PRINTED
    again, _ = parse(Source(formatted))
    assert again == file
    assert format_file(again) == formatted
