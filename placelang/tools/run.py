"""`place run`: train a model as the file says, on processes of this machine, with a progress bar.

Not for: training that matters; that is a user's own loop over `Strategy.parallelize`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from placelang.tools.progress import progress
from placelang.tools.running import attempt, of_this_rank, ready, refuse
from placelang.tools.screen import Screen

STEPS = 30
_NOTHING: Mapping[str, Any] = {
    "model": None,
    "ranks": None,
    "forced": False,
    "losses": [],
    "tokens_per_second": None,
    "seconds": None,
    "differences": [],
    "digest": None,
}


def run(
    screen: Screen,
    file: str,
    sets: Mapping[str, str],
    model: str | None,
    *,
    nproc: int | None,
    steps: int | None,
    text: str | None,
    force: bool,
) -> bool:
    """Run and say how it went; whether it ran (and, unless forced, left equal parameters on all ranks)."""
    screen = of_this_rank(screen)
    job = ready(file, sets, model, nproc=nproc, text=text, force=force)
    if isinstance(job, tuple):
        return refuse(screen, file, job, _NOTHING)
    from placelang.backend.run import run as train

    count = steps or STEPS
    if job.forced:
        screen.show(job.strategy.diagnostics)
        screen.err("forced: this run does not train like one device\n")
    screen.out(f"{job.head}, {count} steps")
    begin = time.perf_counter()
    with progress(screen, count) as told:
        result = attempt(
            screen,
            lambda: train(job.plan, job.model, job.nproc, count, source=job.source, progress=told, force=job.forced),
        )
    if isinstance(result, tuple):
        return refuse(screen, file, result, _NOTHING)
    worst = max(result.differences, default=0.0)
    ok = job.forced or worst == 0
    screen.answer(
        {
            "file": file,
            "ok": ok,
            "diagnostics": [],
            "model": job.model.name,
            "ranks": job.nproc,
            "forced": job.forced,
            "losses": list(result.losses),
            "tokens_per_second": result.tokens_per_second,
            "seconds": time.perf_counter() - begin,
            "differences": list(result.differences),
            "digest": result.digest,
        }
    )
    first, last = result.losses[0], result.losses[-1]
    screen.out(f"loss {first:.4f} -> {last:.4f} nats a token, {result.tokens_per_second:,.0f} tokens/s")
    if worst == 0:
        screen.out(f"parameters: {screen.paint('good', 'equal on all ranks')}, sha256 {result.digest[:12]}")
    else:
        rank = max(range(len(result.differences)), key=lambda r: result.differences[r])
        screen.out(f"parameters: {screen.paint('bad', 'DIFFER')}, on rank {rank} by up to {worst:.1e} from rank 0's")
    return ok
