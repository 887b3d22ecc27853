"""What the benchmarks share: interleaved timing, medians of ratios, the table and the JSON file."""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def interleave(jobs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every job in every round. All jobs run once unmeasured first; then each round runs each job once, in
    alternating order, so that a machine that drifts or is shared treats all of them alike."""
    for job in jobs.values():
        job()
    names = list(jobs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            begin = time.perf_counter()
            jobs[name]()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def ratio(seconds: Sequence[float], base: Sequence[float]) -> float:
    """Median over the rounds of ``seconds / base``: both of a round saw the same state of the machine."""
    return statistics.median(a / b for a, b in zip(seconds, base, strict=True))


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is text, the others numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def write(path: Path | None, result: Mapping[str, object]) -> None:
    """Write the result as JSON if a file was asked for."""
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
