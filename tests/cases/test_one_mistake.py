"""One slip in a right text is one message: no mistake brings forth a second, false one.

Every word of the shipped and exemplary texts is deleted, doubled, shortened or followed by what cannot stand there, one
at a time; of what comes out, each text with an error must have one. `TWO` counts those of which people would say that
they hold two mistakes. Not for: whether the message is a good one (`test_errors`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from placelang import api
from placelang.diagnostics import render
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.source import Source

ROOT = Path(__file__).parents[2]
WORD = re.compile(r"\n|[ \t]+|#[^\n]*|\"[^\"\n]*\"?|[\w.]+|[^\w\s]")
TWO = (
    ("practice/ring_1m.place", "`ring_cp` to `ring_c`"),  # two lines use the name, one as a value and one as an axis
    ("62_nemo_mixtral_8x7b.place", "`edp` to `ed`"),  # a line asks for the axis that has lost its name
    ("74_mt_deepseek_2dfsdp.place", "`mesh` to ``"),  # two axes with roles, which are two `:` out of place now
)
LONGEST = 3_000  # characters of a text
STEP = 23  # every so many words are tried; the slow test tries all

FOLDERS = ("stdlib/strategies", "docs/examples", "tests/cases/configs")
TEXTS = sorted(str(p.relative_to(ROOT)) for folder in FOLDERS for p in (ROOT / folder).rglob("*.place"))


def errors(text: str, name: str) -> list[Diagnostic]:
    """What is wrong with a text, but for what this version does not do, and for a text that places nothing."""
    found = api.load_source(Source(text, name)).diagnostics
    return [d for d in found if d.is_error and d.code != "E112" and (d.code, d.primary) != ("E107", None)]


def slips(text: str, first: int, step: int) -> Iterator[tuple[str, str]]:
    words = WORD.findall(text)
    places = [i for i, word in enumerate(words) if word.strip() and not word.startswith("#")]
    for i in places[first::step]:
        word = words[i]
        shorter = word[:-1] if re.match(r"[a-z]{3}", word) else ""
        for new in ("", f"{word} {word}", f"{word} $", f"{word} = =", shorter):
            yield f"`{word}` to `{new}`", "".join((*words[:i], new, *words[i + 1 :]))


def several(name: str, first: int, step: int) -> list[str]:
    """The slips of a text that are answered with more than one error."""
    text = (ROOT / name).read_text("utf-8")
    if len(text) > LONGEST or errors(text, name):
        return []
    return [
        f"{slip}\n{render.text(found)}"
        for slip, wrong in slips(text, first, step)
        if len(found := errors(wrong, name)) > 1 and not any(name.endswith(n) and slip == s for n, s in TWO)
    ]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("part", range(4))
def test_one_slip_is_one_error(part: int) -> None:
    found = [slip for i, name in enumerate(TEXTS[part::4]) for slip in several(name, i % STEP, STEP)]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_any_slip_is_one_error(name: str) -> None:
    found = several(name, 0, 1)
    assert not found, "\n".join(found)
