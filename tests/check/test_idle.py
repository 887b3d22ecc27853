"""Axes over which nothing is split are told, and no others."""

from __future__ import annotations

import re

import pytest

from placelang.api import load_source
from placelang.diagnostics.codes import Verdict
from placelang.plan import library
from placelang.source import Source


def warned(text: str) -> list[str]:
    """The axes that a text is warned of."""
    found = load_source(Source(text, "mine.place"))
    assert found.verdict in (Verdict.SOUND, Verdict.NO_BENEFIT)
    return [d.primary.span.text for d in found.diagnostics if d.code == "W401" and d.primary]


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("mesh (dp = 8, tp = 4)\napply ddp(dp)\n", ["tp"]),
        ("mesh (dp = 8, tp, pp = 2)\napply ddp(dp)\n", ["tp", "pp"]),
        ("mesh (dp = 8, tp = 1)\napply ddp(dp)\n", []),
        ("mesh (dp = 8, cp = 2)\napply zero1(dp * cp) * ring(cp)\n", []),
        ("mesh (dp = 2, tp = 4)\nmodel llama3_8b\napply zero1(dp) * megatron_sp(tp)\n", []),
        ("mesh (dp = 2, tp = 2)\nmesh moe (ep = 4) over (dp, tp)\nmodel mixtral_8x7b\napply ddp(dp)\n", ["tp"]),
    ],
)
def test_forgotten_axes(text: str, axes: list[str]) -> None:
    assert [name.partition(" ")[0] for name in warned(text)] == axes


@pytest.mark.parametrize("name", library.names())
def test_no_example_of_the_catalogue_forgets_one(name: str) -> None:
    strategy = library.strategy(name)
    assert strategy is not None
    shown = re.search(r"Example: `([^`]+)`$", " ".join(strategy.doc.split()))
    assert shown
    found = load_source(Source(shown[1].replace(" ; ", "\n"), "mine.place")).diagnostics
    assert not [d.message for d in found if "nothing is split over" in d.message]
