"""What is said about texts with mistakes: each `errors/NAME.place` beside the rendered errors in `NAME.txt`.

`pytest tests/syntax/test_errors.py --update-goldens` writes the `.txt` files; read what changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.render import text as rendered
from placelang.source import Source
from placelang.syntax.parser import parse

ERRORS = Path(__file__).parent / "errors"
CASES = sorted(ERRORS.glob("*.place"))


def diagnose(path: Path) -> tuple[Source, tuple[Diagnostic, ...]]:
    source = Source(path.read_text(encoding="utf-8"), path.name)
    return source, parse(source)[1]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_message(path: Path, update_goldens: bool) -> None:
    _, diagnostics = diagnose(path)
    golden = path.with_suffix(".txt")
    message = rendered(diagnostics)
    if update_goldens:
        golden.write_text(message, encoding="utf-8")
    assert message == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_one_mistake_is_one_error(path: Path) -> None:
    _, diagnostics = diagnose(path)
    several = {"every_statement_wrong_once": 8, "mesh_of_numbers": 2, "mesh_without_equals": 2, "unit_spaced": 2}
    assert len(diagnostics) == several.get(path.stem, 1)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_fix_mends_what_it_is_offered_for(path: Path) -> None:
    source, diagnostics = diagnose(path)
    for diagnostic in diagnostics:
        for fix in diagnostic.fixes:
            text = source.text
            for edit in sorted(fix.edits, key=lambda edit: -edit.span.start):
                text = text[: edit.span.start] + edit.text + text[edit.span.end :]
            _, after = parse(Source(text))
            assert diagnostic.message not in [d.message for d in after if d.primary == diagnostic.primary]
            assert len(after) <= len(diagnostics)


def test_every_golden_has_its_text() -> None:
    assert {path.stem for path in ERRORS.glob("*.txt")} == {path.stem for path in CASES}
