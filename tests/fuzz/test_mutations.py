"""Whatever a text says, `load` answers: no exception, no hang, and no plan without a reason."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from placelang import api
from placelang.diagnostics import render
from placelang.source import Source
from placelang.syntax import reader
from tests.fuzz.mutations import ROOT, mutants

LONGEST = 2.0  # seconds of this process; a usual text takes some milliseconds


def answer(text: str) -> None:
    source = reader.from_text(text, "tests/fuzz/mutant.place")
    if not isinstance(source, Source):
        assert source.is_error
        return
    found = api.load_source(source)
    assert render.text(found.diagnostics).endswith("\n") or not found.diagnostics
    assert found.plan is not None or any(d.is_error for d in found.diagnostics)
    if found.plan is not None:
        found.explain()


def check(seed: int, count: int) -> None:
    for i, text in enumerate(mutants(seed, count)):
        start = process_time()
        try:
            answer(text)
        except Exception as error:
            raise AssertionError(f"mutant {i} of seed {seed}:\n{text}") from error
        took = process_time() - start
        assert took < LONGEST, f"mutant {i} of seed {seed} took {took:.1f} s:\n{text}"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(ROOT))


@pytest.mark.parametrize("seed", range(4))
def test_mutants(seed: int) -> None:
    check(seed, 500)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_mutants(seed: int) -> None:
    check(seed, 5_000)
