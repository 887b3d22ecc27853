"""What a terminal, a pipe, a signal and a small machine do to commands."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from placelang import load
from tests.tools.place import CARD, EXAMPLES, ROOT, place, process

BIG = "model llama3_70b\nhardware dgx_h100(nodes = 4)\nmesh (dp)\n" + CARD
SIZES = ["--set", "dp=32", "--set", "seq=8192", "--set", "micro_batch=1"]


@pytest.fixture
def big(tmp_path: Path) -> str:
    file = tmp_path / "big.place"
    file.write_text(BIG)
    return str(file)


def test_a_run_far_above_the_memory_is_refused_with_both_numbers(big: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placelang.tools.running._memory", lambda: 16 << 30)
    done = place("run", big, "--nproc", "2")
    said = " ".join(done.stderr.split())
    assert done.exit_code == 1 and not done.stdout
    assert "TiB" in said and "16.00 GiB" in said and "2 processes" in said


def test_cost_holds_the_peak_against_the_device(big: str) -> None:
    assert (
        "does not fit" not in place("cost", EXAMPLES.joinpath("card.place").as_posix(), "--model", "gpt2_124m").stdout
    )
    assert "does not fit" in place("cost", big, *SIZES).stdout
    device = json.loads(place("cost", big, *SIZES, "--json").stdout)["device"]
    assert device["fits"] is False and device["memory"] == 80_000_000_000


def test_cost_fits_a_narrow_terminal(big: str) -> None:
    rows = process("cost", big, *SIZES, COLUMNS="70").stdout.splitlines()
    assert len(max((row for row in rows if " = " not in row and "·" not in row and "_" not in row), key=len)) <= 70


def test_an_empty_text_is_refused_before_the_header(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    done = place("run", str(EXAMPLES / "card.place"), "--nproc", "2", "--text", str(tmp_path / "empty.txt"))
    assert done.exit_code == 1 and not done.stdout and "is empty" in done.stderr


def test_an_own_module_is_told_of_its_own_loop(tmp_path: Path) -> None:
    (tmp_path / "own_mlp.py").write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.Linear(8, 8), nn.ReLU())\n"
    )
    (tmp_path / "own.place").write_text('model "own_mlp:build"\n' + CARD)
    done = place("run", str(tmp_path / "own.place"), "--nproc", "2")
    assert done.exit_code == 1 and not done.stdout and "parallelize" in done.stderr


def test_a_closed_pipe_is_no_refusal() -> None:
    command = [sys.executable, "-m", "placelang", "check", str(EXAMPLES / "card.place")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as running:
        assert running.stdout and running.stderr
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 141


def test_an_interrupted_run_leaves_nothing_behind() -> None:
    command = [
        sys.executable,
        "-m",
        "placelang",
        "run",
        str(EXAMPLES / "card.place"),
        "--nproc",
        "2",
        "--steps",
        "9999",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT) as running:
        assert running.stdout
        running.stdout.readline()  # the header: processes are about to start
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)  # which ends only once no process holds the stream
    assert running.returncode == 130


def test_a_diagnostic_reads_as_one_line_and_a_cost_has_its_peak() -> None:
    assert str(load("params: replicate\ngrads: partial(dp)").diagnostics[0]).startswith("error[E201]: the gradients")
    cost = load(CARD, model="gpt2_124m", dp=2, seq=64, micro_batch=1).cost()
    assert (cost.number(cost.peak) or 0) > 0
