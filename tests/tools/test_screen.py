"""Colour only where it belongs, tables that are aligned and fit, and progress that suits where it goes."""

import io
import sys

import attrs
import pytest

from placelang.tools.progress import progress
from placelang.tools.screen import KEEP, Screen, columns, folded


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Both standard streams become a terminal. Not a fixture: the streams are captured anew for each test's body."""
    stream = Terminal()
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_colour_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    assert Screen().paint("good", "x") == "\x1b[32mx\x1b[0m"
    assert Screen(plain=True).paint("good", "x") == "x"
    assert Screen(json=True).paint("good", "x") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Screen().paint("good", "x") == "x"
    monkeypatch.setenv("NO_COLOR", "")
    assert Screen().color()
    monkeypatch.setenv("TERM", "dumb")
    assert not Screen().color()
    monkeypatch.delenv("TERM")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert not Screen().color()


def test_json_and_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    Screen(json=True).out("no")
    Screen(json=True).err("no")
    Screen(json=True, silent=True).answer({"no": 1})
    Screen(silent=True).out("no")
    Screen().answer({"no": 1})
    assert terminal.getvalue() == ""


def test_columns_are_aligned() -> None:
    assert columns([("a", "1"), ("bcd", "22")], right=(1,)) == ["  a     1", "  bcd  22"]
    assert columns([]) == []


def test_folding_breaks_at_blanks_within_the_width() -> None:
    rows = folded("one two three four", "- ", "  ", width=9)
    assert rows == ["- one two", "  three", "  four"]
    assert folded("x" * 200, "- ", "  ", width=9) == ["- " + "x" * 200]
    assert folded(f"a{KEEP}b c", "", "", width=3) == ["a b", "c"]


@attrs.frozen
class Step:
    step: int
    steps: int = 100
    loss: float = 1.5
    tokens_per_second: float = 1234.0


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with progress(Screen(), 100) as told:
        for i in range(100):
            told(Step(i + 1))
    assert "100/100" in terminal.getvalue()
    assert "loss 1.5000" in terminal.getvalue()


def test_progress_is_a_few_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress(Screen(), 100) as told:
        for i in range(100):
            told(Step(i + 1))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[-1] == "  step 100/100  loss 1.5000  1,234 tokens/s"
    with progress(Screen(json=True), 100) as told:
        told(Step(1))
    assert len(stream.getvalue().splitlines()) == 11
