"""The registry and its pages agree with each other and with the code that uses them."""

import re
from pathlib import Path

import pytest

import placelang
from placelang.diagnostics.codes import CODES, GROUPS, Severity, explain, find
from placelang.diagnostics.diagnostic import Diagnostic, Verdict
from placelang.syntax.table import lalr

PACKAGE = Path(placelang.__file__).parent
PAGES = PACKAGE / "diagnostics" / "explain"
HEADINGS = ["## Wrong", "## What the tool says", "## Right", "## Why"]


def test_codes_are_well_formed_and_names_are_unique() -> None:
    assert all(key == code.code and re.fullmatch(r"[EWN]\d{3}", key) for key, code in CODES.items())
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code.name) for code in CODES.values())
    assert len({code.name for code in CODES.values()}) == len(CODES)
    assert list(CODES) == sorted(CODES, key=lambda key: ("EWN".index(key[0]), key))
    assert {code.group for code in CODES.values()} == set(GROUPS.values())


def test_a_diagnostic_takes_severity_and_verdict_of_its_code() -> None:
    d = Diagnostic("E201", "gradients stay partial")
    assert (d.severity, d.verdict, d.name) == (Severity.ERROR, Verdict.UNSOUND, "grads-left-partial")
    assert Diagnostic("W401", "no effect").severity is Severity.WARNING
    assert Diagnostic("N101", "no router", severity=Severity.WARNING).severity is Severity.WARNING
    with pytest.raises(KeyError):
        Diagnostic("E999", "no such code")


@pytest.mark.parametrize("code", CODES)
def test_page(code: str) -> None:
    page = explain(code)
    lines = page.splitlines()
    assert lines[0] == f"# {code} {CODES[code].name}"
    assert [line for line in lines if line.startswith("##")] == HEADINGS
    assert lines[2] and not lines[2].startswith("#"), "a page begins with what the code means"
    assert 20 <= len(lines) <= 60
    parts = re.split("|".join(f"^{h}$" for h in HEADINGS), page, flags=re.MULTILINE)
    assert all(part.strip() for part in parts)
    fences = re.findall(r"^```(\w*)$", page, flags=re.MULTILINE)
    assert fences[1::2] == ["", "", ""] and fences[2] == "text" and fences[0] == fences[4] != ""
    says = re.search(r"```text\n(.*?)```", parts[2], flags=re.DOTALL)
    assert says is not None
    assert says[1].startswith(f"{CODES[code].severity.value}[{code}] {CODES[code].name}: ")


@pytest.mark.parametrize("code", CODES)
def test_examples_of_a_page_follow_the_grammar(code: str) -> None:
    """All but those that are about not following it. That each causes its error is for the rooms that find it."""
    wrong_parses = code not in ("E001", "E006", "E007")
    for i, example in enumerate(re.findall(r"^```place\n(.*?)^```$", explain(code), flags=re.DOTALL | re.MULTILINE)):
        if i == 1 or wrong_parses:
            lalr().parse(example)


def test_no_page_without_code() -> None:
    assert {path.name for path in PAGES.iterdir()} == {f"{code}.md" for code in CODES}


def test_every_code_that_the_package_names_is_registered() -> None:
    named = {
        (path.name, code)
        for path in PACKAGE.rglob("*.py")
        for code in re.findall(r"\"([EWN]\d{3})\"", path.read_text(encoding="utf-8"))
    }
    assert {(file, code) for file, code in named if code not in CODES} == set()


NOT_RAISED = {"W202", "W203"}
"""What these warn of is refused by E112, as it is not lowered."""


def test_every_code_is_raised_somewhere() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if path.name != "codes.py"]
    raised = {code for code in CODES if any(f'"{code}"' in text for text in texts)}
    assert CODES.keys() - raised == NOT_RAISED


def test_find_takes_number_or_name_in_any_case() -> None:
    assert find("e201") == find("Grads-Left-Partial") == CODES["E201"]
    assert find("E999") is None
    assert find("") is None
