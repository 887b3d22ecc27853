"""Explain pages show what the tool says of their wrong texts, and nothing of their right ones."""

import re

import pytest

from placelang.api import load_source
from placelang.diagnostics import codes, render
from placelang.diagnostics.codes import CODES, Verdict
from placelang.source import Source
from tests.docs import explained

NOT_YET = {
    "E205", "E206", "E207", "E208", "E301", "E302", "E303", "E501", "W202", "W203",
}  # fmt: skip
"""Their wrong texts are refused earlier, or mean something that this version does not check."""

TEXTS = [code for code in CODES if explained.said(code) is not None]


@pytest.mark.parametrize("code", [code for code in TEXTS if code not in NOT_YET])
def test_page_shows_what_the_tool_says(code: str) -> None:
    assert explained.said(code) == explained.claimed(code), "python tests/docs/explained.py"
    assert len(re.findall(r"^(?:error|warning|note)\[", explained.claimed(code), re.MULTILINE)) == 1


@pytest.mark.parametrize("code", sorted(NOT_YET))
def test_what_is_not_said_yet_is_listed(code: str) -> None:
    said = explained.said(code)
    assert said is not None
    assert not explained.leads(code, said), f"{code} is said by now: take it out of the list"


@pytest.mark.parametrize("code", [code for code in TEXTS if code != "E116"])  # its right text names a file
def test_right_text_of_a_page_is_free_of_the_error(code: str) -> None:
    right = re.search(r"^## Right\n\n```place\n(.*?)^```$", codes.explain(code), re.MULTILINE | re.DOTALL)
    assert right is not None
    found = load_source(Source(right[1], explained.NAME)).diagnostics
    unfinished = [d for d in found if d.code == "E107" and d.primary is None]
    assert not [d for d in found if d.code == code and d not in unfinished], render.text(found)
    wrong = [d for d in found if d.is_error and d.verdict is Verdict.INVALID and d not in unfinished]
    assert code in NOT_YET or not wrong, render.text(found)
