"""`place fmt` gives a file its canonical layout, and loses nothing whatever happens."""

import json
import os
import stat
from pathlib import Path

import pytest

from placelang.tools import fmt
from tests.tools.place import place

UGLY = "params:shard( dp ) # why\n"
NEAT = "params: shard(dp)  # why\n"


@pytest.fixture
def ugly(tmp_path: Path) -> Path:
    file = tmp_path / "ugly.place"
    file.write_text(UGLY)
    return file


def test_formats_in_place_and_once(ugly: Path) -> None:
    done = place("fmt", str(ugly))
    assert (done.exit_code, done.stdout) == (0, "")
    assert ugly.read_text() == NEAT
    assert "formatted" in done.stderr
    assert place("fmt", str(ugly)).output == ""


def test_check_writes_nothing_and_exits_1(ugly: Path) -> None:
    done = place("fmt", "--check", str(ugly))
    assert done.exit_code == 1
    assert "would be formatted" in done.stderr
    assert ugly.read_text() == UGLY
    ugly.write_text(NEAT)
    assert (place("fmt", "--check", str(ugly)).exit_code, place("fmt", "--check", str(ugly)).output) == (0, "")


def test_diff_writes_nothing(ugly: Path) -> None:
    done = place("fmt", "--diff", str(ugly))
    assert done.exit_code == 0
    assert "-params:shard( dp ) # why" in done.stdout
    assert "+params: shard(dp)" in done.stdout
    assert ugly.read_text() == UGLY


def test_standard_input_goes_to_standard_output() -> None:
    assert place("fmt", "-", input=UGLY).stdout == NEAT
    assert place("fmt", "-", input="").stdout == ""
    assert place("fmt", "--check", "-", input=UGLY).exit_code == 1


def test_syntax_errors_leave_the_file_alone(ugly: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.place"
    broken.write_text("params:shard( dp\n")
    done = place("fmt", str(broken), str(ugly))
    assert done.exit_code == 1
    assert "error[E001]" in done.stderr
    assert broken.read_text() == "params:shard( dp\n"
    assert ugly.read_text() == NEAT, "the others are formatted all the same"


def test_line_ends_and_mark_become_canonical(tmp_path: Path) -> None:
    file = tmp_path / "crlf.place"
    file.write_bytes(b"\xef\xbb\xbfparams: shard(dp)\r\n")
    assert place("fmt", "--check", str(file)).exit_code == 1
    assert place("fmt", str(file)).exit_code == 0
    assert file.read_bytes() == b"params: shard(dp)\n"


def test_mode_and_link_stay(ugly: Path, tmp_path: Path) -> None:
    ugly.chmod(0o640)
    link = tmp_path / "link.place"
    link.symlink_to(ugly)
    assert place("fmt", str(link)).exit_code == 0
    assert link.is_symlink()
    assert ugly.read_text() == NEAT
    assert stat.S_IMODE(ugly.stat().st_mode) == 0o640


def test_a_write_that_fails_changes_nothing(ugly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    done = place("fmt", str(ugly))
    assert done.exit_code == 1
    assert "cannot be written: No space left on device" in done.stderr
    assert ugly.read_text() == UGLY
    assert os.listdir(ugly.parent) == [ugly.name], "no scratch file stays behind"


def test_a_text_that_would_not_say_the_same_is_refused(ugly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "format_file", lambda file: "params: replicate\n")
    done = place("fmt", str(ugly))
    assert done.exit_code == 1
    assert "would not say the same" in done.stderr
    assert ugly.read_text() == UGLY


def test_a_lost_comment_is_refused(ugly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "format_file", lambda file: "params: shard(dp)\n")
    assert place("fmt", str(ugly)).exit_code == 1
    assert ugly.read_text() == UGLY


def test_json(ugly: Path) -> None:
    told = json.loads(place("fmt", "--check", "--json", str(ugly)).stdout)
    assert told["ok"] is False
    assert [(f["changed"], f["text"]) for f in told["files"]] == [(True, NEAT)]


def test_the_standard_library_can_be_formatted() -> None:
    from placelang._resources import data

    for file in data("stdlib").rglob("*.place"):
        assert not fmt.formatted(str(file)).refused, file
