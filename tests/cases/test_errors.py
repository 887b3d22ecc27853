"""Every case of `errors/`: a text that is wrong, and beside it, as `.txt`, what is said of it.

A case's first line may hold `# set: name=value ...`, as `--set` gives it. Its last lines may hold `# fix: OLD => NEW`:
what the help suggests, as an edit of the text. NEW must be part of the message, and the edited text must have a plan.
Where a case holds one mistake, one message is all that is said: `SEVERAL` lists the groups that hold more.

After a change of wording, `pytest tests/cases --update-goldens` writes the `.txt` files again; read the difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from placelang import api
from placelang.diagnostics import render
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.source import Source

ERRORS = Path(__file__).parent / "errors"
CASES = sorted(str(p.relative_to(ERRORS)) for p in ERRORS.glob("*/*.place"))
SEVERAL = (
    "several/",
    "unsupported/",
    "syntax/faults_after",
    "syntax/several",
    "syntax/claim_hides_nothing",
    "claims/require_two",
    "names/state_singular",
    "axes/role_needed_two",
)


def load(source: Source) -> api.Strategy:
    found = re.match(r"# set: (.*)", source.text)
    sets = dict(pair.split("=", 1) for pair in found[1].split()) if found else {}
    return api.load_source(source, sets=sets)


def read(case: str) -> Source:
    return Source((ERRORS / case).read_text("utf-8"), case)


def said(diagnostics: Iterable[Diagnostic]) -> str:
    return render.text(diagnostics)


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ERRORS)  # so that messages name files by short paths


@pytest.mark.parametrize("case", CASES)
def test_message(case: str, update_goldens: bool) -> None:
    golden = (ERRORS / case).with_suffix(".txt")
    text = said(load(read(case)).diagnostics)
    if update_goldens:
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


@pytest.mark.parametrize("case", CASES)
def test_one_mistake_is_one_message(case: str) -> None:
    found = load(read(case)).diagnostics
    assert found
    if not case.startswith(SEVERAL):
        assert sum(d.is_error for d in found) <= 1, said(found)


FIXES = [
    (case, old, new.replace("\\n", "\n"))
    for case in CASES
    for old, new in re.findall(r"^# fix: (.*) => (.*)$", read(case).text, re.MULTILINE)
]


@pytest.mark.parametrize(("case", "old", "new"), FIXES)
def test_what_the_help_suggests_is_right(case: str, old: str, new: str) -> None:
    source = read(case)
    body, _, _ = source.text.partition("# fix:")
    assert body.count(old) == 1, "the fix does not name one place"
    fixed = load(Source(body.replace(old, new), case))
    assert fixed.plan is not None, said(fixed.diagnostics)


def test_there_is_no_golden_without_a_case() -> None:
    assert {p.with_suffix(".place") for p in ERRORS.glob("*/*.txt")} == {ERRORS / case for case in CASES}
