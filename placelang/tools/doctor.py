"""`place doctor`: what is installed, what works here, and what would not and why.

Not for: repairing anything. The facts about torch and the kernel come from `backend`.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import attrs

import placelang
from placelang._resources import data
from placelang.tools.screen import WIDTH, Screen, folded

GOOD, LACKING, BAD = "ok", "missing", "broken"


@attrs.frozen
class Finding:
    """One thing looked at. `effect` says what does not work without it; `missing` is allowed, `broken` is not."""

    name: str
    state: str
    found: str
    effect: str = ""


def doctor(screen: Screen) -> bool:
    """Look at everything and say so; whether checking and costing work (running may lack torch)."""
    findings = list(examine())
    ok = all(f.state != BAD for f in findings)
    can_run = all(f.state == GOOD for f in findings if f.name in ("torch", "numpy", "gloo"))
    screen.answer({"ok": ok, "can_run": can_run, "findings": [attrs.asdict(f) for f in findings]})
    widest = max(len(f.name) for f in findings)
    for f in findings:
        mark = {GOOD: screen.paint("good", "ok     "), LACKING: screen.paint("warn", "missing")}
        before = f"  {mark.get(f.state, screen.paint('bad', 'broken '))}  {f.name:<{widest}}  "
        hang = " " * (widest + 15)
        lines = folded(f.found, hang, hang, WIDTH + 15)
        screen.out(before + lines[0][len(hang) :])
        for line in (*lines[1:], *(folded(f.effect, hang, hang, WIDTH + 15) if f.effect else ())):
            screen.out(line)
    screen.out()
    screen.out("Checking and costing work." if ok else "Something is broken: see above.")
    screen.out("Running works." if can_run else "Running does not work here: see above.")
    return ok


def examine() -> Iterator[Finding]:
    """Everything that a command may need, in the order in which commands need it."""
    yield Finding("placelang", GOOD, f"{placelang.__version__} in {os.path.dirname(placelang.__file__)}")
    yield Finding("python", GOOD, f"{platform.python_version()} in {sys.executable}")
    for package in ("attrs", "lark", "click", "rich", "prompt_toolkit"):
        yield _package(package)
    yield from _data()
    yield from _torch()
    yield _kernel()
    yield Finding("cores", GOOD, f"{_cores()} for this process, {platform.machine()}")
    yield Finding("memory", GOOD, _memory())


def _package(name: str) -> Finding:
    try:
        return Finding(name, GOOD, version(name))
    except PackageNotFoundError:
        return Finding(name, BAD, "not installed", "install placelang again")


def _data() -> Iterator[Finding]:
    from placelang.model import catalogue
    from placelang.plan import library
    from placelang.syntax import table

    try:
        models, strategies = len(catalogue.names()), len(library.names())
        yield Finding("standard library", GOOD, f"{models} models, {strategies} strategies in {data('stdlib')}")
    except OSError as error:
        yield Finding(
            "standard library", BAD, str(error), "models and strategies have no names; install placelang again"
        )
    try:
        fresh = table.fresh()
    except OSError as error:
        yield Finding("grammar", BAD, str(error), "no text can be read; install placelang again")
        return
    if fresh:
        yield Finding("grammar", GOOD, f"its table is fresh, in {data('grammar')}")
    else:
        why = "its table was made by another lark or for another grammar"
        yield Finding("grammar", LACKING, why, "every command starts about 0.1 s later")


def _torch() -> Iterator[Finding]:
    from placelang.backend import probe

    found, numpy = probe.torch(), probe.numpy()
    no_run = f"`place run` and `place verify` do not work: {probe.INSTALL}"
    yield Finding("numpy", GOOD, numpy) if numpy else Finding("numpy", LACKING, "not installed", no_run)
    if found.version is None:
        yield Finding("torch", LACKING if found.why == "not installed" else BAD, found.why, no_run)
        return
    where = ", ".join(found.devices) or "no accelerator, runs use the CPU"
    yield Finding("torch", GOOD, f"{found.version}, {found.threads} threads; {where}")
    if found.gloo:
        yield Finding("gloo", GOOD, "processes of this machine can talk to each other")
    else:
        yield Finding("gloo", LACKING, "this torch was built without it", "runs on more than one process do not work")


def _kernel() -> Finding:
    from placelang.backend.offload import kernel

    if kernel.available():
        return Finding("offload kernel", GOOD, f"{kernel.isa()}, {kernel.threads()} threads")
    why = kernel.why_not() or "no reason given"
    return Finding("offload kernel", LACKING, why, "the optimizer on the host runs in plain torch, more slowly")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> str:
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        whole, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return "not known on this system"
    return f"{whole / 2**30:.1f} GiB, {free / 2**30:.1f} GiB of it free"
