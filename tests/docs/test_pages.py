"""The pages say what is true: their commands print what they show, their texts end as they say, their links lead on."""

import re
from pathlib import Path

import pytest

import placelang
from tests.docs import consoles

ROOT = consoles.ROOT
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_TEXT = re.compile(r"^```place *(\S*) *\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"(<!-- not run here.*?-->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def consoles_of_pages() -> list[object]:
    found: list[object] = []
    for page in PAGES:
        for command, said in consoles.blocks(page):
            trains = re.search(r"place (run|verify)", command) is not None
            marks = [pytest.mark.slow] if trains else []
            found.append(pytest.param(command, said, id=f"{name(page)}: {command[:60]}", marks=marks))
    return found


@pytest.mark.parametrize(("command", "said"), consoles_of_pages())
def test_command_prints_what_the_page_shows(command: str, said: str) -> None:
    assert consoles.stable(consoles.run(command)) == consoles.stable(said)


def texts() -> list[object]:
    return [
        pytest.param(outcome, text, id=f"{name(page)}: {text.splitlines()[0][:40]}")
        for page in PAGES
        for outcome, text in _TEXT.findall(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("outcome", "text"), texts())
def test_text_ends_as_the_page_says(outcome: str, text: str) -> None:
    strategy = placelang.load(text + "\n")
    codes = [d.code for d in strategy.diagnostics]
    if outcome:
        assert not strategy.ok
        assert codes == [outcome]
    elif strategy.plan is not None or "E107" not in codes:
        assert strategy.ok, codes
    else:
        assert codes == ["E107"], "declarations alone are no strategy, and nothing else is wrong with them"


def programs() -> list[object]:
    return [
        pytest.param(code, id=f"{name(page)}: {code.splitlines()[0][:40]}")
        for page in PAGES
        for skipped, code in _PYTHON.findall(page.read_text(encoding="utf-8"))
        if not skipped
    ]


@pytest.mark.parametrize("code", programs())
def test_program_of_a_page_runs(code: str) -> None:
    exec(compile(code, "<page>", "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        waiting += [page.parent / target for target in _LINK.findall(page.read_text(encoding="utf-8"))]
    assert {page for page in PAGES if "docs" in page.parts} <= seen
