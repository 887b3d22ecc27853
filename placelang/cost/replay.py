"""A pipeline replayed job by job: when each rank runs which forward, backward and weight gradient of which microbatch.

The numbers may be of stages as uneven as one likes; sends take time. Orders are those of the published schedules: fixed
ones (GPipe, arXiv 1811.06965; 1F1B and interleaved, arXiv 2104.04473, section 2.2; zero bubble H1, H2 and V, arXiv
2401.10241, sections 2 and 6). DualPipeV runs by the rule that such schedules are searched with: backward first, then
forward as far as memory allows, weight gradients where nothing else can run; that it also overlaps a forward with a
backward is not replayed. Not for: formulas (`pipeline`), or which layers lie where (`program.stages`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs

FORWARD, BACKWARD, WEIGHT = "F", "B", "W"


@attrs.frozen
class Job:
    """One piece of work of one part of the model: `kind` is "F", "B" or "W". A "B" of a schedule that does not split
    backward is both."""

    kind: str
    microbatch: int
    part: int


@attrs.frozen
class Run:
    """A job with when its rank ran it."""

    job: Job
    rank: int
    begin: float
    end: float


@attrs.frozen
class Timeline:
    """Every job of a step, in the order in which they began."""

    runs: tuple[Run, ...]
    ranks: int

    @property
    def length(self) -> float:
        return max(run.end for run in self.runs)

    def busy(self, rank: int) -> float:
        """Seconds that a rank works."""
        return sum(run.end - run.begin for run in self.runs if run.rank == rank)

    def span(self, rank: int) -> float:
        """Seconds from a rank's first job to the end of its last: what a step costs it where ranks begin the next one
        when they are done, as zero-bubble schedules do (arXiv 2401.10241, section 4)."""
        mine = [run for run in self.runs if run.rank == rank]
        return max(run.end for run in mine) - min(run.begin for run in mine)

    @property
    def cost(self) -> float:
        """The longest span: the time of a step when many follow each other."""
        return max(self.span(rank) for rank in range(self.ranks))

    @property
    def bubble(self) -> float:
        """Seconds of the cost in which the busiest rank idles."""
        return self.cost - max(self.busy(rank) for rank in range(self.ranks))

    def in_flight(self, rank: int) -> int:
        """The most forwards whose weight gradients (whose backward, where that is one) a rank still owes at once."""
        last = WEIGHT if any(run.job.kind == WEIGHT for run in self.runs) else BACKWARD
        steps = [(r.begin, 1) for r in self.runs if r.rank == rank and r.job.kind == FORWARD]
        steps += [(r.end, -1) for r in self.runs if r.rank == rank and r.job.kind == last]
        now = most = 0
        for _, change in sorted(steps):
            now += change
            most = max(most, now)
        return most


SPLIT: Final = frozenset({"zb_h1", "zb_h2", "zbv", "dualpipev"})
"""Schedules that run weight gradients apart from those of inputs."""

V_SHAPED: Final = frozenset({"zbv", "dualpipev"})
"""Schedules that place two parts on each rank, there and back."""

SCHEDULES: Final = ("gpipe", "1f1b", "interleaved_1f1b", *sorted(SPLIT))


def replay(
    schedule: str,
    stages: int,
    microbatches: int,
    forward: Sequence[float],
    backward: Sequence[float],
    weight: Sequence[float],
    send: float = 0.0,
) -> Timeline:
    """The timeline of one step on `stages` ranks.

    `forward`, `backward` and `weight` give seconds of each part for one microbatch, in order of execution: one part a
    rank, or several (interleaved: part k on rank k mod stages; V-shaped: two). `send`: seconds between two ranks.

    Raises:
        ValueError: for an unknown schedule, or numbers of parts that do not fit it.
    """
    parts = len(forward)
    if schedule not in SCHEDULES:
        raise ValueError(f"no schedule is called {schedule}: one of {', '.join(SCHEDULES)}")
    if not (parts == len(backward) == len(weight)) or parts % stages or microbatches < 1:
        raise ValueError(f"{parts} parts do not lie evenly on {stages} ranks")
    chunks = parts // stages
    if (schedule in V_SHAPED and chunks != 2) or (schedule in ("gpipe", "1f1b", "zb_h1", "zb_h2") and chunks != 1):
        raise ValueError(f"{schedule} does not place {chunks} parts on a rank")
    if schedule == "interleaved_1f1b" and microbatches % stages:
        raise ValueError(f"interleaving needs microbatches in rounds of {stages}")
    rank_of = [min(k, 2 * stages - 1 - k) if schedule in V_SHAPED else k % stages for k in range(parts)]
    whole = [b + w for b, w in zip(backward, weight, strict=True)]
    durations = {FORWARD: forward, BACKWARD: backward if schedule in SPLIT else whole, WEIGHT: weight}
    machine = _Machine(rank_of, durations, send)
    if schedule == "dualpipev" or (schedule == "zbv" and microbatches < 2 * stages):
        choose = [_greedy(schedule, stages, microbatches, rank, rank_of, machine) for rank in range(stages)]
    else:
        choose = [_fixed(_order(schedule, stages, microbatches, chunks, rank), machine) for rank in range(stages)]
    return Timeline(tuple(machine.run(choose)), stages)


Next = Callable[[], "tuple[float, int, Job] | None"]
"""The job that a rank would start now, with the earliest time and a rank of preference; None while there is none."""


class _Machine:
    """Which jobs are done and when, as the replay goes on."""

    def __init__(self, rank_of: Sequence[int], durations: dict[str, Sequence[float]], send: float) -> None:
        self.rank_of, self.durations, self.send = rank_of, durations, send
        self.end: dict[Job, float] = {}
        self.free = [0.0] * (max(rank_of) + 1)

    def ready(self, job: Job) -> float | None:
        """When a job's inputs are there; None while that is not known."""
        needs: list[tuple[Job, float]] = []
        here = self.rank_of[job.part]

        def after(part: int, kind: str) -> None:
            needs.append((Job(kind, job.microbatch, part), 0.0 if self.rank_of[part] == here else self.send))

        if job.kind == FORWARD and job.part > 0:
            after(job.part - 1, FORWARD)
        if job.kind == BACKWARD:
            after(job.part, FORWARD)
            if job.part + 1 < len(self.rank_of):
                after(job.part + 1, BACKWARD)
        if job.kind == WEIGHT:
            after(job.part, BACKWARD)
        if any(need not in self.end for need, _ in needs):
            return None
        return max((self.end[need] + wait for need, wait in needs), default=0.0)

    def run(self, choose: Sequence[Next]) -> Iterator[Run]:
        while True:
            found = [(*option, rank) for rank, option in enumerate(pick() for pick in choose) if option is not None]
            if not found:
                return
            ready, _, job, rank = min(found, key=lambda f: (max(f[0], self.free[f[3]]), f[1]))
            begin = max(ready, self.free[rank])
            self.end[job] = self.free[rank] = begin + self.durations[job.kind][job.part]
            yield Run(job, rank, begin, self.free[rank])


def _order(schedule: str, stages: int, microbatches: int, chunks: int, rank: int) -> list[Job]:
    """The jobs of a rank in a schedule of fixed order."""
    if schedule == "gpipe":
        every = range(microbatches)
        return [Job(FORWARD, m, rank) for m in every] + [Job(BACKWARD, m, rank) for m in every]
    if schedule == "zbv":
        return _there_and_back(stages, microbatches, rank)
    if schedule in ("zb_h1", "zb_h2"):
        reach = 1 if schedule == "zb_h1" else 2
        return _split(microbatches, min(reach * (stages - rank - 1), microbatches), reach * rank, rank)
    total, group = microbatches * chunks, stages * chunks
    behind = stages - rank - 1
    warm = min(behind if chunks == 1 else 2 * behind + (chunks - 1) * stages, total)

    def job(kind: str, k: int) -> Job:
        """The k-th of its kind: rounds of `stages` microbatches through each of the chunks."""
        round_, inside = divmod(k, group)
        chunk = inside // stages
        if kind == BACKWARD:
            chunk = chunks - 1 - chunk
        return Job(kind, round_ * stages + inside % stages, chunk * stages + rank)

    if chunks == 1:
        group = total

        def job(kind: str, k: int) -> Job:
            return Job(kind, k, rank)

    order = [job(FORWARD, k) for k in range(warm)]
    for k in range(total - warm):
        order += [job(FORWARD, warm + k), job(BACKWARD, k)]
    return order + [job(BACKWARD, k) for k in range(total - warm, total)]


def _split(microbatches: int, warm: int, late: int, part: int) -> list[Job]:
    """Forwards run ahead by `warm`, weight gradients behind by `late`: (p - i + 1) activations and i - 1 gradients are
    held on worker i under H1, (2p - 2i + 1) and 2i - 2 under H2 (arXiv 2401.10241, section 2.3)."""
    order = [Job(FORWARD, m, part) for m in range(warm)]
    for m in range(microbatches):
        order += [Job(FORWARD, warm + m, part)] if warm + m < microbatches else []
        order += [Job(BACKWARD, m, part)]
        order += [Job(WEIGHT, m - late, part)] if m >= late else []
    return order + [Job(WEIGHT, m, part) for m in range(max(0, microbatches - late), microbatches)]


def _there_and_back(stages: int, microbatches: int, rank: int) -> list[Job]:
    """ZB-V (arXiv 2401.10241, section 6): a rank holds a part of the way there and one of the way back.

    It starts with as many forwards there as the way to the end and back is long, takes those that come back in turn
    with new ones, and then for each microbatch runs backward of the way back, of the way there, and their weight
    gradients at once; at the end weight gradients wait until no backward is left to hand on."""
    there, back = rank, 2 * stages - 1 - rank
    order: list[Job] = []
    done = {(kind, part): 0 for kind in (FORWARD, BACKWARD, WEIGHT) for part in (there, back)}

    def add(kind: str, part: int) -> None:
        if done[kind, part] < microbatches:
            order.append(Job(kind, done[kind, part], part))
            done[kind, part] += 1

    for _ in range(2 * (stages - rank) - 1):
        add(FORWARD, there)
    for _ in range(rank):
        add(FORWARD, back)
        add(FORWARD, there)
    for _ in range(stages - rank):
        for kind in (FORWARD, BACKWARD, WEIGHT):
            add(kind, back)
    while done[FORWARD, back] < microbatches:
        add(FORWARD, there)
        for kind, part in ((BACKWARD, there), (WEIGHT, there), (FORWARD, back), (BACKWARD, back), (WEIGHT, back)):
            add(kind, part)
    for _ in range(rank):
        add(BACKWARD, there)
        add(BACKWARD, back)
    while done[BACKWARD, there] < microbatches:
        add(BACKWARD, there)
        add(WEIGHT, there)
    for part in (back, there):
        while done[WEIGHT, part] < microbatches:
            add(WEIGHT, part)
    return order


def _fixed(order: list[Job], machine: _Machine) -> Next:
    place = 0

    def pick() -> tuple[float, int, Job] | None:
        nonlocal place
        while place < len(order) and order[place] in machine.end:
            place += 1
        if place == len(order):
            return None
        ready = machine.ready(order[place])
        return None if ready is None else (ready, 0, order[place])

    return pick


def _greedy(
    schedule: str, stages: int, microbatches: int, rank: int, rank_of: Sequence[int], machine: _Machine
) -> Next:
    """Backward first, then forward, then weight gradients; forwards only while few enough are in flight."""
    mine = [k for k, r in enumerate(rank_of) if r == rank]
    held = {"zbv": 2 * stages, "dualpipev": 2 * stages + 1}[schedule]
    done = {kind: dict.fromkeys(mine, 0) for kind in (FORWARD, BACKWARD, WEIGHT)}

    def count(kind: str) -> int:
        return sum(done[kind].values())

    def options() -> Iterator[tuple[float, int, Job]]:
        for part in reversed(mine):
            for preference, kind in enumerate((BACKWARD, FORWARD, WEIGHT)):
                k = done[kind][part]
                if k == microbatches:
                    continue
                room = held - (part == mine[0])  # one place is kept for those that come back, or all would wait
                if kind == FORWARD and count(FORWARD) - count(WEIGHT) >= room:
                    continue
                job = Job(kind, k, part)
                ready = machine.ready(job)
                if ready is not None:
                    yield max(ready, machine.free[rank]), preference, job

    def pick() -> tuple[float, int, Job] | None:
        for kind, counts in done.items():
            for part in mine:
                while Job(kind, counts[part], part) in machine.end:
                    counts[part] += 1
        return min(options(), key=lambda o: o[:2], default=None)

    return pick
