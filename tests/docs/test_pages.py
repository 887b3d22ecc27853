"""The pages say what is true: their commands print what they show, their texts end as they say, their links lead on."""

import re
from pathlib import Path

import attrs
import pytest

from tests.docs import consoles, generated, texts

ROOT = consoles.ROOT
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
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


TEXTS = [text for page in PAGES for text in texts.texts(page)]


def first_line(text: texts.Text) -> str:
    return f"{name(text.page)}: {text.text.splitlines()[0][:40]}"


@pytest.mark.parametrize("text", TEXTS, ids=first_line)
def test_text_ends_as_the_page_says(text: texts.Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(text.page.parent)
    strategy = text.load()
    assert texts.ends(strategy) == text.outcome
    assert text.answer(strategy) == text.said


@pytest.mark.parametrize("text", [text for text in TEXTS if text.kind == "place complete"], ids=first_line)
def test_complete_strategy_stays_as_it_is(text: texts.Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(text.page.parent)
    again = attrs.evolve(text, text=text.said, sets=()).load()
    assert statements(again.explain()) == statements(text.said)


def statements(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_generated_parts_are_fresh(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert generated.fresh(text) == text, f"python tests/docs/generated.py {name(page)}"


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


def test_sections_that_code_cites_exist() -> None:
    page = (ROOT / "docs" / "design" / "semantics.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^## (\d+)\. ", page, re.MULTILINE))
    theorems = set(re.findall(r"\*\*(T\d)", page))
    cited: set[str] = set()
    for file in (*(ROOT / "placelang").rglob("*.py"), *(ROOT / "tests").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        cited |= set(re.findall(r"semantics\"?, (?:section )?(\d+)", text))
        cited |= set(re.findall(r"semantics\"?, theorem (T\d)", text))
    assert cited
    assert cited <= sections | theorems


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
