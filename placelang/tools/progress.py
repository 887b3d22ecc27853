"""How a run shows that it goes on: a bar on a terminal, a few plain lines elsewhere, nothing beside JSON.

Not for: results, which the commands print when all is done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from placelang.tools.screen import Screen, is_terminal

LINES = 10  # at most about so many, where nothing can be redrawn


class Step(Protocol):
    """One step as the backend reports it."""

    @property
    def step(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def loss(self) -> float: ...
    @property
    def tokens_per_second(self) -> float: ...


@contextmanager
def progress(screen: Screen, steps: int) -> Iterator[Callable[[Step], None]]:
    """A function to call after each step. All of it goes to standard error."""
    if screen.json or screen.silent:
        yield lambda _step: None
    elif screen.plain or not is_terminal(sys.stderr):
        yield lambda step: _line(screen, step)
    else:
        with _bar(screen, steps) as update:
            yield update


def _line(screen: Screen, step: Step) -> None:
    every = -(-step.steps // LINES)
    if step.step % every == 0 or step.step in (1, step.steps):
        done = f"{step.step:>{len(str(step.steps))}}/{step.steps}"
        screen.err(f"  step {done}  loss {step.loss:.4f}  {step.tokens_per_second:,.0f} tokens/s")


@contextmanager
def _bar(screen: Screen, steps: int) -> Iterator[Callable[[Step], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("  step"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TextColumn("loss {task.fields[loss]}  {task.fields[speed]} tokens/s"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, no_color=not screen.color(sys.stderr), highlight=False)
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task("train", total=steps, loss="-", speed="-")

        def update(step: Step) -> None:
            bar.update(task, completed=step.step, loss=f"{step.loss:.4f}", speed=f"{step.tokens_per_second:,.0f}")

        yield update
