"""Bad input of any kind gets a clear error and exit 1 or 2: never a traceback, never a hang, never silence."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.place import CARD, place, process

READING = ["check", "explain", "fmt", "cost", "run", "verify"]

BAD = {
    "empty": b"",
    "blank": b" \n\t\n",
    "binary": bytes(range(256)) * 40,
    "10 MB": b"params: shard(dp)\n" * 600_000,
    "deep brackets": b"params: " + b"(" * 50_000,
    "deep blocks": b"strategy a { " * 20_000,
    "deep operators": b"let x = " + b"-" * 50_000 + b"1",
    "not UTF-8": "params: shard(dp) # café".encode("latin-1"),
    "UTF-16": CARD.encode("utf-16"),
    "one long line": b"a" * 900_000,
    "unclosed": b"params: shard(dp",
    "only a comment": b"# nothing\n",
    "bidi": "params: shard(dp) # \u202e".encode(),
}


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("kind", BAD)
def test_bad_text(command: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.place"
    file.write_bytes(BAD[kind])
    done = place(command, str(file))
    if command == "fmt" and kind in ("empty", "blank", "only a comment"):
        assert done.exit_code == 0
        return
    assert done.exit_code in (1, 2)
    assert "error[E" in done.output
    if command == "fmt":
        assert file.read_bytes() == BAD[kind]


@pytest.mark.parametrize("kind", BAD)
def test_bad_text_on_standard_input(kind: str) -> None:
    done = place("check", "-", input=BAD[kind])
    assert done.exit_code == 1
    assert "error[E" in done.stdout


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("name", ["none.place", "no/such/folder.place", "", ".", "a\nb", "x" * 5000, "card.place/x"])
def test_bad_path(command: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "card.place").write_text(CARD)
    done = place(command, str(tmp_path / name))
    assert done.exit_code in (1, 2)
    assert "error[E002]" in done.output


def test_a_folder_names_the_texts_in_it(tmp_path: Path) -> None:
    (tmp_path / "card.place").write_text(CARD)
    assert "card.place" in place("check", str(tmp_path)).output


def test_a_slip_of_the_pen_in_a_path(tmp_path: Path) -> None:
    (tmp_path / "card.place").write_text(CARD)
    assert "did you mean" in place("check", str(tmp_path / "cart.place")).output


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    file = tmp_path / "secret.place"
    file.write_text(CARD)
    file.chmod(0)
    done = place("check", str(file))
    assert done.exit_code == 1
    assert "permission denied" in done.output


def test_no_permission_as_the_system_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from placelang.syntax import reader

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(reader.os, "open", refuse)
    done = place("check", "secret.place")
    assert done.exit_code == 1
    assert "permission denied" in done.output


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert place("check", str(tmp_path / "pipe")).exit_code == 1


@pytest.mark.parametrize(
    "text", [CARD.replace("\n", "\r\n"), "\ufeff" + CARD, CARD.replace(" ; ", "\r"), CARD.rstrip()]
)
def test_line_ends_and_byte_order_marks_are_fine(text: str, tmp_path: Path) -> None:
    file = tmp_path / "card.place"
    file.write_bytes(text.encode())
    assert place("check", str(file)).exit_code == 0


WORDS = (
    *(
        "params",
        "grads",
        "optimizer",
        "activations",
        "update",
        ":",
        ";",
        "|",
        "*",
        "=",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
    ),
    *("shard(dp)", "replicate", "partial(dp)", "gather", "reduce_scatter", "all_reduce(dp)", "mesh", "(dp = 2)"),
    *("model gpt2_124m", "train", "apply", "zero3", "strategy", "let", "arg", "on", "as", "with", "override", "\n"),
    *(
        '"layers.*"',
        "40GB/s",
        "16_384",
        "1f1b",
        "-1",
        "0",
        "999999999999999999999",
        "#",
        "place 1",
        "hardware dgx_a100",
    ),
)

texts = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from(WORDS), max_size=30).map(lambda words: " ".join(words).encode()),
    st.tuples(st.integers(0, len(CARD)), st.binary(max_size=4)).map(
        lambda cut: CARD.encode()[: cut[0]] + cut[1] + CARD.encode()[cut[0] :]
    ),
)


@settings(deadline=None, max_examples=150)
@given(texts, st.sampled_from(["check", "explain", "fmt", "cost"]))
def test_any_bytes(raw: bytes, command: str) -> None:
    model = ["--model", "nano_gpt"] if command == "cost" else []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "any.place"
        file.write_bytes(raw)
        done = place(command, str(file), *model)
        assert done.exit_code in (0, 1, 2), done.output
        assert done.exit_code == 0 or done.output
        if command == "fmt" and done.exit_code:
            assert file.read_bytes() == raw


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=20), st.text(max_size=20))
def test_any_option(name: str, value: str) -> None:
    done = place("check", "-", "--set", f"{name}={value}", "--model", value or "x", input=CARD)
    assert done.exit_code in (0, 1, 2), done.output


def test_a_whole_process_shows_no_traceback() -> None:
    done = process("check", "-", input=BAD["binary"])
    assert (done.returncode, done.stderr) == (1, "")
    assert "error[E002]" in done.stdout
