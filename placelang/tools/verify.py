"""`place verify`: a short run held against its prediction and against one device, as one table.

Not for: measuring (`backend.verify`) or predicting (`program`, `cost`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from placelang.tools.running import attempt, of_this_rank, ready, refuse
from placelang.tools.screen import Screen, columns

if TYPE_CHECKING:
    from placelang.backend.verify import Report

STEPS = 3
_NOTHING: Mapping[str, Any] = {
    "model": None,
    "ranks": None,
    "collectives": [],
    "memory": [],
    "parity": [],
    "data": None,
}


def verify(
    screen: Screen,
    file: str,
    sets: Mapping[str, str],
    model: str | None,
    *,
    nproc: int | None,
    steps: int | None,
    text: str | None,
    force: bool = False,
) -> bool:
    """Verify and say so; whether everything was as predicted. A run that is forced shows what is wrong with it."""
    screen = of_this_rank(screen)
    job = ready(file, sets, model, nproc=nproc, text=text, force=force)
    if isinstance(job, tuple):
        return refuse(screen, file, job, _NOTHING)
    from placelang.backend.verify import verify as compare

    if job.forced:
        screen.show(job.strategy.diagnostics)
        screen.err("forced: this run does not train like one device\n")
    screen.out(job.head)
    count = steps or STEPS
    report = attempt(
        screen,
        lambda: compare(job.plan, job.model, job.nproc, steps=count, source=job.source, force=job.forced),
    )
    if isinstance(report, tuple):
        return refuse(screen, file, report, _NOTHING)
    screen.answer({"file": file, "diagnostics": [], **report.json_value()})
    for row in table(screen, report):
        screen.out(row)
    return report.ok


def table(screen: Screen, report: Report) -> list[str]:
    """Predicted against real, at most 80 columns wide."""

    def mark(ok: bool) -> str:
        return screen.paint("good", "ok") if ok else screen.paint("bad", "NOT AS PREDICTED")

    def section(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]], oks: list[bool]) -> list[str]:
        first, *rest = columns([head, *rows], right=range(1, len(head)))
        body = [f"{line}  {mark(ok)}" for line, ok in zip(rest, oks, strict=True)]
        return ["", screen.paint("strong", title), screen.paint("dim", first), *body]

    lines = section(
        "collectives of a step, predicted and real",
        ("", "count", "real", "bytes", "real"),
        [
            (
                f"{r.phase} {r.kind} {r.axis}",
                *(f"{n:,}" for n in (r.predicted_count, r.real_count, r.predicted_bytes, r.real_bytes)),
            )
            for r in report.collectives
        ],
        [r.ok for r in report.collectives],
    )
    lines += section(
        "bytes at rest on the rank that holds most, predicted and real",
        ("", "bytes", "real"),
        [(r.state, f"{r.predicted:,}", f"{r.real:,}") for r in report.memory],
        [r.ok for r in report.memory],
    )
    bar = report.parity[0].bar if report.parity else 0.0
    lines += section(
        f"gradient and parameters in float64, largest difference (bar {bar:.0e})",
        ("", "steps", "to one device", "between ranks"),
        [(r.optimizer, str(r.steps), f"{r.difference:.1e}", f"{r.between_ranks:.1e}") for r in report.parity],
        [r.ok for r in report.parity],
    )
    d = report.data
    lines += section(
        "samples read by the ranks together",
        ("", "samples", "missing", "twice"),
        [("data", str(d.samples), str(d.missing), str(d.repeated))],
        [d.ok],
    )
    verdict = screen.paint("good", "verified") if report.ok else screen.paint("bad", "not verified")
    return [*lines, "", f"{verdict}: {'the run did what the text says' if report.ok else 'see the marked rows'}"]
