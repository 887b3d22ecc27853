"""What can't be read as text is refused with one clear error, at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.render import text as rendered
from placelang.source import Source
from placelang.syntax import reader

GOOD = "params: shard(dp)\ngrads: reduce_scatter\n"


def refused(answer: Source | Diagnostic) -> Diagnostic:
    assert isinstance(answer, Diagnostic)
    assert rendered((answer,))
    return answer


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_marks_and_line_ends(mark: str, newline: str, tmp_path: Path) -> None:
    raw = mark + GOOD.replace("\n", newline)
    file = tmp_path / "a.place"
    file.write_bytes(raw.encode())
    assert reader.read_file(file) == Source(GOOD, str(file))
    assert reader.from_text(raw, "a") == Source(GOOD, "a")


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "params: a"])
def test_short_texts(text: str) -> None:
    assert reader.from_text(text) == Source(text)


def test_missing_file_and_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "train.place").write_text(GOOD)
    error = refused(reader.read_file(tmp_path / "trian.place"))
    assert error.code == "E002"
    assert "there is no file" in error.message
    assert "train.place" in error.help
    assert not refused(reader.read_file(tmp_path / "other" / "x.place")).help


def test_directory_and_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "train.place").write_text(GOOD)
    error = refused(reader.read_file(tmp_path))
    assert "is a directory" in error.message
    assert "train.place" in error.help
    assert "not a directory" in refused(reader.read_file(tmp_path / "train.place" / "x")).message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "a named pipe" in refused(reader.read_file(tmp_path / "pipe")).message
    assert "a device" in refused(reader.read_file("/dev/zero")).message


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", deny)
    assert "may not be read" in refused(reader.read_file(tmp_path / "a.place")).message


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "a\x1b[31m", os.fsdecode(b"\xff.place")])
def test_strange_paths(path: str) -> None:
    error = refused(reader.read_file(path))
    assert error.code == "E002"
    assert error.message.isprintable()


def test_size(tmp_path: Path) -> None:
    file = tmp_path / "a.place"
    file.write_bytes(b"#" * reader.MAX_BYTES)
    assert isinstance(reader.read_file(file), Source)
    file.write_bytes(b"#" * (10 << 20))
    assert refused(reader.read_file(file)).code == "E003"
    assert refused(reader.from_text("#" * (10 << 20))).code == "E003"


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"\x7fELF\0\0\0", "binary"),
        ("params: a".encode("utf-16"), "UTF-16"),
        (b"params: a\n# caf\xe9\n", "byte 0xe9 at offset 15, in line 2"),
        (b"\xff", "byte 0xff at offset 0, in line 1"),
        (b"\xed\xa0\x80", "not UTF-8"),
    ],
)
def test_not_text(raw: bytes, says: str) -> None:
    error = refused(reader.from_bytes(raw, "a.place"))
    assert error.code == "E002"
    assert says in error.message


@pytest.mark.parametrize("bad", ["\x1b", "\x0b", "\x0c", "\x7f", "\x85", "\u2028", "\u202e", "\u200b", "\ud800", "\0"])
def test_characters_that_cannot_be_shown(bad: str) -> None:
    error = refused(reader.from_text(f"params: a\ngrads: {bad}b\n"))
    assert error.code == "E007"
    assert f"U+{ord(bad):04X}" in error.message
    assert error.primary is not None
    assert error.primary.span.source.line_col(error.primary.span.start) == (2, 8)
