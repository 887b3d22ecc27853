"""`make demo`: the whole way on real input. Every step is a `place` command, shown and then really run.

A line of text is checked, costed for a real model, trained on two processes, and held against one device; then the
reduction is taken away, and the text is refused, and a forced run shows that the refusal was right. Exits 1 if any step
does not do what it should. Not for: benchmarks.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import attrs

from placelang.tools.screen import Screen

CARD, PLAIN, WRONG = (f"docs/examples/{name}.place" for name in ("card", "data_parallel", "no_reduction"))
ROOT = Path(__file__).parents[2]


@attrs.frozen
class Step:
    """One command and how it must end. `says` must be part of what it prints."""

    title: str
    command: str
    code: int = 0
    says: str = ""


STEPS = (
    Step("One line places everything. Is it sound?", f"check {CARD}", says="trains like one device"),
    Step(
        "What does it cost? GPT-2 on two devices, as formula and as number.",
        f"cost {CARD} --model gpt2_124m --set dp=2 --set seq=1024 --set micro_batch=1",
        says="P_pad(dp)",
    ),
    Step("Train a small transformer with it, on two processes: sharded, by FSDP2.", f"run {CARD} --nproc 2 --steps 60"),
    Step("The same with plain data parallelism.", f"run {PLAIN} --nproc 2 --steps 60"),
    Step(
        "Did it do what was predicted, and train like one device?",
        f"verify {CARD} --nproc 2",
        says="verified",
    ),
    Step("The same with plain data parallelism.", f"verify {PLAIN} --nproc 2", says="verified"),
    Step("The same file without its reduction is refused.", f"check {WRONG}", code=1, says="counterexample"),
    Step("Forced to run, the replicas really drift apart.", f"run {WRONG} --nproc 2 --steps 20 --force", says="DIFFER"),
)


def main() -> None:
    if not (ROOT / CARD).is_file():
        sys.exit("the demo needs a checkout of the project: its examples are in docs/examples")
    screen = Screen()
    begin = time.monotonic()
    failed = [step.command for step in STEPS if not _show(screen, step)]
    screen.out(screen.paint("strong", f"{len(STEPS)} commands in {time.monotonic() - begin:.0f} s"))
    if failed:
        screen.err("".join(f"did not do what it should: place {command}\n" for command in failed))
        sys.exit(1)


def _show(screen: Screen, step: Step) -> bool:
    """Run a step before the reader's eyes; whether it ended as it must."""
    screen.out(screen.paint("strong", f"# {step.title}"))
    screen.out(screen.paint("good", f"$ place {step.command}"))
    command = [sys.executable, "-m", "placelang", *shlex.split(step.command)]
    # Errors go to the terminal as they are, so that a progress bar can draw itself; results pass line by line.
    said = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        for line in process.stdout:
            screen.out(line.rstrip("\n"))
            said += line
    screen.out()
    ok = process.returncode == step.code and step.says in said
    if not ok:
        screen.err(f"ended with {process.returncode}, expected {step.code} and the words {step.says!r}")
    return ok


if __name__ == "__main__":
    main()
