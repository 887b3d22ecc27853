"""Starting ranks: a function on N processes of this machine, or in this process when a launcher has started it.

Under torchrun (RANK and WORLD_SIZE are set) nothing is started. Otherwise N processes meet through a file, talk over
the loopback interface and share the cores. A rank that raises or dies ends the job with one error that names it; no
process outlives the caller. Whatever ranks print goes to standard error. Not for: several machines (use torchrun).
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing as mp
import os
import pickle
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from multiprocessing.connection import wait
from typing import Any, NoReturn

import attrs

from placelang.backend.errors import BackendError, failed

Report = Callable[[object], None]
_GRACE = 2.0  # seconds in which other ranks may still say why, once one has failed
_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting", "Socket", "recv")


@attrs.frozen
class Rank:
    """Where a function runs. `report` sends a value to the caller while the job goes on (rank 0's are delivered)."""

    rank: int
    world: int
    report: Report


def launch(
    function: Callable[..., Any],
    nproc: int,
    *args: object,
    on_report: Report | None = None,
    limit: float | None = None,
    stall: float = 120.0,
    threads: int | None = None,
) -> list[Any]:
    """`function(Rank, *args)` on every rank; what they return, in the order of ranks.

    `function` and `args` are pickled. `limit` bounds the whole job and `stall` one collective, in seconds; `threads` is
    per rank (default: cores // nproc). Raises BackendError: E504 naming the rank and its message, with the traceback in
    `.trace`; a BackendError of a rank as it is; E503 where torchrun started another number of processes.
    """
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return _launched(function, nproc, args, on_report, stall)
    try:
        pickle.dumps((function, args))
    except Exception as error:
        why = " ".join(str(error).split())[:200]
        help = "functions at the top of a module that can be imported"
        raise failed("E504", f"what is to run cannot be sent to other processes: {why}", help) from None
    threads = threads or max(1, _cores() // nproc)
    with tempfile.TemporaryDirectory(prefix="placelang-") as folder, _Job() as job:
        store = os.path.join(folder, "store")
        for rank in range(nproc):
            job.start(rank, (rank, nproc, store, threads, stall, function, args))
        return job.results(on_report, None if limit is None else time.monotonic() + limit)


class _Job:
    """The processes of one job. Leaving it ends them, whatever happened."""

    def __init__(self) -> None:
        self.context: Any = mp.get_context("forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn")
        if hasattr(self.context, "set_forkserver_preload"):
            # torch's optimizers import the second at their first step, on every rank.
            self.context.set_forkserver_preload(["placelang.backend.verify", "torch._dynamo"])
        self.ranks: dict[int, tuple[Any, Any]] = {}

    def __enter__(self) -> _Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, Exception):
            _end_forkserver()  # before the ranks: one may be about to fork
        for process, _ in self.ranks.values():
            if process.is_alive():
                process.kill()
        for process, pipe in self.ranks.values():
            process.join()
            pipe.close()

    def start(self, rank: int, args: tuple[Any, ...]) -> None:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_entry, args=(theirs, *args), name=f"rank {rank}", daemon=True)
        with contextlib.redirect_stdout(sys.stderr):
            process.start()
        theirs.close()
        self.ranks[rank] = (process, ours)

    def results(self, on_report: Report | None, end: float | None) -> list[Any]:
        done: dict[int, Any] = {}
        failures: dict[int, BackendError] = {}
        while len(done) + len(failures) < len(self.ranks):
            open_ = [r for r in self.ranks if r not in done and r not in failures]
            waited: dict[Any, int] = {self.ranks[r][1]: r for r in open_}
            ready = wait(list(waited), None if end is None else max(0.0, end - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                rank = waited[pipe]
                kind, value = self._receive(rank)
                if kind == "report":
                    if on_report is not None and rank == 0:
                        on_report(value)
                elif kind == "done":
                    done[rank] = value
                else:
                    failures[rank] = value
                    end = min(end or float("inf"), time.monotonic() + _GRACE)
        if failures:
            silent = [r for r in self.ranks if r not in done and r not in failures]
            raise _culprit(failures, silent)
        if len(done) < len(self.ranks):
            late = ", ".join(str(r) for r in self.ranks if r not in done)
            raise failed("E504", f"the job took longer than it may; not finished: rank {late}")
        return [done[r] for r in sorted(done)]

    def _receive(self, rank: int) -> tuple[str, Any]:
        process, pipe = self.ranks[rank]
        try:
            kind, value = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            process.join(_GRACE)
            return "failed", _died(rank, process.exitcode)
        return kind, value


def _end_forkserver() -> None:
    """End the server that forks ranks, and with it the tracker that waits for it.

    After an interrupt it would live on until its imports are done, and hold the caller's streams open until then.
    """
    from multiprocessing import forkserver

    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _culprit(failures: Mapping[int, BackendError], silent: Sequence[int]) -> BackendError:
    """The failure that others are the echo of; a rank that says nothing while others waited in vain is at fault."""

    def echo(error: BackendError) -> bool:
        return bool(error.trace) and any(word in error.diagnostic.message for word in _LOST)

    first = min(failures.values(), key=lambda error: (echo(error), error.rank or 0))
    if echo(first) and silent:
        late = ", ".join(map(str, silent))
        text = f"rank {late} does not answer: rank {first.rank} waited for it in vain"
        return BackendError(failed("E504", text, cause=first.diagnostic.message).diagnostic, rank=silent[0])
    return first


def _died(rank: int, code: int | None) -> BackendError:
    if code is not None and code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
    else:
        how = "ended" if code is None else f"ended with exit code {code}"
    error = failed("E504", f"rank {rank} {how} before it had finished")
    return BackendError(error.diagnostic, rank=rank)


def _raised(rank: int, error: BaseException) -> BackendError:
    trace = "".join(traceback.format_exception(error))
    if isinstance(error, BackendError):
        return BackendError(error.diagnostic, rank=rank, trace=trace)
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    words = re.sub(r"^\[\S+:\d+\] ", "", " ".join(str(root).split()))[:500]  # without the place in a C++ file
    return BackendError(
        failed("E504", f"rank {rank} failed: {type(root).__name__}: {words}").diagnostic, rank=rank, trace=trace
    )


# --- in the ranks ----------------------------------------------------------------------------------------------------


def _entry(
    pipe: Any,
    rank: int,
    world: int,
    store: str,
    threads: int,
    stall: float,
    function: Callable[..., Any],
    args: tuple[object, ...],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller ends us
    os.dup2(2, 1)
    threading.Thread(target=_die_with_caller, args=(pipe,), daemon=True).start()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(threads)
    os.environ["GLOO_SOCKET_IFNAME"] = _loopback()
    lock = threading.Lock()

    def send(kind: str, value: object) -> None:
        # Plain pickle: what multiprocessing would do with tensors needs this process to live on.
        message = pickle.dumps((kind, value))
        with lock:
            pipe.send_bytes(message)

    try:
        with quiet():
            dist.init_process_group(
                "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=stall)
            )
        result = function(Rank(rank, world, lambda value: send("report", value)), *args)
        dist.barrier()
        dist.destroy_process_group()
        send("done", result)
    except BaseException as error:
        with contextlib.suppress(OSError):
            send("failed", _raised(rank, error))
        os._exit(1)


def _launched(
    function: Callable[..., Any], nproc: int, args: tuple[object, ...], on_report: Report | None, stall: float
) -> list[Any]:
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world != nproc:
        raise failed(
            "E503",
            f"the mesh has {nproc} ranks and the launcher started {world}",
            f"`torchrun --nproc-per-node {nproc}`",
        )
    if not dist.is_initialized():
        # Left as it is until the process ends: a second start over the same rendezvous never meets its peers.
        with quiet():
            dist.init_process_group("gloo", timeout=timedelta(seconds=stall))
        atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())
    try:
        everyone: list[Any] = [None] * world
        result = function(Rank(rank, world, on_report if on_report and rank == 0 else lambda value: None), *args)
        dist.all_gather_object(everyone, result)
        return everyone
    except Exception as error:
        raise _raised(rank, error) from None


def leave(code: int) -> NoReturn:
    """End a process that a launcher started, at once, after its peers have come as far.

    gloo's threads let go of the last tensors in their own time. Where the interpreter is gone by then they wait for it
    in vain and the process aborts (torch 2.13, seen in one exit of five).
    """
    import torch.distributed as dist

    if code == 0 and dist.is_initialized():
        dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _die_with_caller(pipe: Any) -> None:
    """The caller never sends; the end of its pipe says that it is gone."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv()
    os._exit(1)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """gloo greets on standard output from C++; nothing else is said while groups are made."""
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _loopback() -> str:
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name.startswith("lo")), "lo")
