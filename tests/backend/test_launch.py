"""Ranks as processes: results, failures with names, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from placelang.backend.errors import BackendError, unsupported
from placelang.backend.launch import Rank, launch


def add(rank: Rank, start: float) -> float:
    total = torch.full((1,), start + rank.rank)
    dist.all_reduce(total)
    rank.report(f"from {rank.rank}")
    return float(total)


def raise_one(rank: Rank) -> None:
    if rank.rank == 1:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("a useful message") from error
    dist.all_reduce(torch.ones(1))


def raise_diagnostic(rank: Rank) -> None:
    if rank.rank == 1:
        raise unsupported("what nobody can do", "this instead")
    dist.barrier()


def kill_one(rank: Rank) -> None:
    dist.barrier()
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))


def exit_one(rank: Rank) -> None:
    if rank.rank == 1:
        os._exit(7)
    dist.all_reduce(torch.ones(1))


def hang_one(rank: Rank) -> None:
    if rank.rank == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(1))


def hang_all(rank: Rank) -> None:
    time.sleep(600)


def test_results_come_in_the_order_of_ranks_and_reports_of_rank_0_on_the_way() -> None:
    heard: list[object] = []
    assert launch(add, 3, 1.0, on_report=heard.append) == [6.0, 6.0, 6.0]
    assert heard == ["from 0"]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raise_one, "rank 1 failed: KeyError: 'inner'"),
        (kill_one, "rank 1 was killed by SIGKILL"),
        (exit_one, "rank 1 ended with exit code 7"),
    ],
)
def test_the_rank_at_fault_is_named(function: object, words: str) -> None:
    begin = time.monotonic()
    with pytest.raises(BackendError) as error:
        launch(function, 3, limit=60)  # type: ignore[arg-type]
    assert error.value.diagnostic.code == "E504"
    assert error.value.rank == 1
    assert words in error.value.diagnostic.message
    assert "Traceback" not in str(error.value)
    assert time.monotonic() - begin < 50
    if function is raise_one:
        assert "a useful message" in error.value.trace


def test_a_diagnostic_of_a_rank_arrives_as_it_is() -> None:
    with pytest.raises(BackendError) as error:
        launch(raise_diagnostic, 2, limit=60)
    assert error.value.diagnostic.code == "E501"
    assert error.value.diagnostic.help == "this instead"


def test_a_hung_rank_ends_the_job_and_is_named() -> None:
    with pytest.raises(BackendError) as error:
        launch(hang_one, 2, stall=2, limit=60)
    assert error.value.rank == 1
    assert "rank 1 does not answer" in error.value.diagnostic.message


def test_what_cannot_be_pickled_is_said_so() -> None:
    with pytest.raises(BackendError, match="cannot be sent to other processes"):
        launch(lambda rank: None, 1)
    with pytest.raises(BackendError, match="rank 0 failed"):
        launch(unpicklable, 1, limit=60)


def unpicklable(rank: Rank) -> object:
    return lambda: None


def test_the_whole_job_may_be_bounded() -> None:
    with pytest.raises(BackendError, match="longer than it may"):
        launch(hang_all, 2, limit=1)


def test_standard_output_stays_clean(capfd: pytest.CaptureFixture[str]) -> None:
    launch(add, 2, 0.0)
    assert capfd.readouterr().out == ""


SCRIPT = """
    import signal, sys, time
    from placelang.backend.launch import launch

    # A shell starts what runs in the background with interrupts ignored, and so whatever that starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def talk(rank):
        import os
        print("on standard error", flush=True)
        rank.report(os.getpid())
        time.sleep(600)

    if __name__ == "__main__":
        launch(talk, 1, on_report=lambda pid: print(pid, flush=True))
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_ranks_do_not_outlive_their_caller(sent: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.send_signal(sent)
        try:
            process.wait(30)
        finally:
            process.kill()
    end = time.monotonic() + 30
    while time.monotonic() < end and _alive(child):
        time.sleep(0.05)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


LAUNCHED = """
    import os
    from tests.backend.plans import plan, tiny
    from placelang.backend.errors import BackendError
    from placelang.backend.run import run
    from placelang.backend.verify import verify

    try:
        run(plan("zero3", 3), tiny(), 3, 1)
    except BackendError as error:
        refused = error.diagnostic.code
    result = run(plan("zero3", 2), tiny(), 2, 2)
    report = verify(plan("zero3", 2), tiny(), 2, steps=1)
    line = f"{refused} {report.ok} {result.digest}"
    os.write(1, f"{line}\\n".encode())  # one write: ranks share the pipe
"""


def test_under_torchrun_nothing_is_started(tmp_path: Path) -> None:
    script = tmp_path / "launched.py"
    script.write_text(textwrap.dedent(LAUNCHED))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(torchrun, capture_output=True, text=True, timeout=120, env=environment, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    assert len(set(lines)) == 1
    assert lines[0].startswith("E503 True ")


def test_place_run_under_torchrun(tmp_path: Path) -> None:
    """The command starts nothing itself, takes its ranks from the launcher, and rank 0 alone speaks."""
    text = tmp_path / "train.place"
    text.write_text("mesh (dp = *, tp = 2)\napply zero1(dp) * tensor_parallel(tp)\ntrain (seq = 16, micro_batch = 2)\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "placelang", "run", str(text), "--steps", "2", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["ok"], told["ranks"], told["differences"]) == (True, 2, [0.0, 0.0])
