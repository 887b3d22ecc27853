"""Whether a run does what was predicted: its collectives and bytes, and its parameters against one device.

Two kinds of runs on real processes. The first, in the plan's own precision, is counted: every collective of a steady
step, the bytes of each state at rest, the tokens that each rank reads. The others, in float64, are compared with a
plain loop on one device over the same global batches: the gradient that the optimizer is given, and parameters after
steps of SGD and of AdamW. AdamW alone hardly sees a gradient of the wrong scale, and any lower precision hides small
errors. Not for: proofs (`check`), or time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import torch
import torch.distributed as dist
from torch import Tensor, nn

from placelang.backend.apply import default_optimizer
from placelang.backend.launch import Rank, launch
from placelang.backend.ledger import Ledger
from placelang.backend.loss import loss_sum
from placelang.backend.parallel import Parallel
from placelang.backend.predicted import Traffic, rest_bytes
from placelang.backend.recipe import recipe
from placelang.backend.run import Job, Subject, differences, prepare, step
from placelang.backend.runtime import stored
from placelang.backend.text import Batch
from placelang.plan.dtypes import PRECISIONS
from placelang.plan.plan import Plan, State

BAR = 1e-10
OPTIMIZERS = ("sgd", "adamw")
GRADIENT = "gradient"
_SMALL = 1e-4  # of the largest gradient of all: what is below counts as this, since some are zero but for rounding


@attrs.frozen
class CollectiveRow:
    """One kind of collective on one axis in one phase of a step, on the rank that differs most from the prediction."""

    kind: str
    axis: str
    phase: str
    predicted_count: int
    real_count: int
    predicted_bytes: int
    real_bytes: int

    @property
    def ok(self) -> bool:
        return (self.predicted_count, self.predicted_bytes) == (self.real_count, self.real_bytes)


@attrs.frozen
class MemoryRow:
    """Bytes at rest of one state on the rank that holds most."""

    state: str
    predicted: int
    real: int

    @property
    def ok(self) -> bool:
        return self.predicted == self.real


@attrs.frozen
class ParityRow:
    """After `steps` steps in float64: the largest difference of any parameter to one device, and between ranks. For
    "gradient": of any gradient, over the largest element of its tensor."""

    optimizer: str
    steps: int
    difference: float
    tensor: str  # where it is
    between_ranks: float
    bar: float = BAR

    @property
    def ok(self) -> bool:
        return self.difference <= self.bar and self.between_ranks <= self.bar


@attrs.frozen
class DataRow:
    """Whether the ranks together read every sample of each global batch exactly once."""

    samples: int
    missing: int
    repeated: int

    @property
    def ok(self) -> bool:
        return not self.missing and not self.repeated


@attrs.frozen
class Report:
    """Predicted against real. `ok`: all rows are."""

    model: str
    ranks: int
    collectives: tuple[CollectiveRow, ...]
    memory: tuple[MemoryRow, ...]
    parity: tuple[ParityRow, ...]
    data: DataRow

    @property
    def ok(self) -> bool:
        rows: tuple[CollectiveRow | MemoryRow | ParityRow | DataRow, ...]
        rows = (*self.collectives, *self.memory, *self.parity, self.data)
        return all(row.ok for row in rows)

    def json_value(self) -> dict[str, Any]:
        """`{ok, model, ranks, collectives, memory, parity, data}`: rows with the names of their fields, and `ok`."""

        def row(value: Any) -> dict[str, Any]:
            return {**attrs.asdict(value), "ok": value.ok}

        return {
            "ok": self.ok,
            "model": self.model,
            "ranks": self.ranks,
            "collectives": [row(r) for r in self.collectives],
            "memory": [row(r) for r in self.memory],
            "parity": [row(r) for r in self.parity],
            "data": row(self.data),
        }


@attrs.frozen
class _Seen:
    """What one rank saw in the counted run."""

    table: tuple[Traffic, ...]
    rest: Mapping[State, int]
    read: tuple[tuple[tuple[int, int], ...], ...]  # of each step, samples with the places of the tokens read
    batch: tuple[tuple[int, ...], ...]  # sample numbers of each global batch


@attrs.frozen
class _Parity:
    difference: float
    tensor: str
    between_ranks: float


def verify(
    plan: Plan,
    subject: Subject,
    nproc: int,
    *,
    steps: int = 3,
    seed: int = 0,
    source: bytes | None = None,
    force: bool = False,
    limit: float | None = None,
) -> Report:
    """Run, count and compare. `steps` is that of the parity runs; the counted run looks at its third step.

    Raises BackendError as `run.run` does; a mismatch is no error but a row whose `ok` is False.
    """
    job = prepare(plan, subject, nproc, steps, seed=seed, source=source, force=force)
    program = job.program()
    seen: list[tuple[_Seen, dict[str, _Parity]]] = launch(_both, nproc, job, limit=limit)
    counted = [s for s, _ in seen]
    predicted_rest = rest_bytes(program)
    return Report(
        model=job.model().name,
        ranks=nproc,
        collectives=_collectives(job.traffic(program), [s.table for s in counted]),
        memory=tuple(
            MemoryRow(state.value, size, max(s.rest[state] for s in counted)) for state, size in predicted_rest.items()
        ),
        parity=tuple(
            ParityRow(name, 1 if name == GRADIENT else steps, p.difference, p.tensor, p.between_ranks)
            for name, p in seen[0][1].items()
        ),
        data=_data(counted),
    )


def _collectives(predicted: tuple[Traffic, ...], real: list[tuple[Traffic, ...]]) -> tuple[CollectiveRow, ...]:
    wanted = {(t.kind, t.axis, t.phase): t for t in predicted}
    tables = [{(t.kind, t.axis, t.phase): t for t in table} for table in real]
    rows = []
    for key in sorted({*wanted, *(k for table in tables for k in table)}):
        nothing = Traffic(*key, 0, 0)
        want = wanted.get(key, nothing)
        got = max(
            (t.get(key, nothing) for t in tables), key=lambda g: (abs(g.bytes - want.bytes), abs(g.count - want.count))
        )
        rows.append(CollectiveRow(*key, want.count, got.count, want.bytes, got.bytes))
    return tuple(rows)


def _data(seen: list[_Seen]) -> DataRow:
    """Every token of a batch is read by equally many ranks: by one, times the ranks that no data axis tells apart."""
    samples = missing = repeated = 0
    for i, batch in enumerate(seen[0].batch):
        read = Counter(token for s in seen for token in s.read[i])
        copies = len(seen) // (len({s.read[i] for s in seen}) or 1)
        width = len(batch) and sum(len(s.read[i]) for s in seen) // (len(batch) * copies)
        samples += len(batch)
        for sample in batch:
            times = [read.pop((sample, k), 0) for k in range(width)]
            missing += not times or min(times) < copies
            repeated += bool(times) and max(times) > copies
        missing += len({sample for sample, _ in read})
    return DataRow(samples, missing, repeated)


# --- in the ranks ----------------------------------------------------------------------------------------------------


def _both(rank: Rank, job: Job) -> tuple[_Seen, dict[str, _Parity]]:
    return _count(job), {GRADIENT: _gradient(rank, job), **{name: _parity(rank, job, name) for name in OPTIMIZERS}}


def _count(job: Job) -> _Seen:
    """Three steps; the last one, when all buffers and states exist, is what the ledger and the scales see."""
    p = job.parallel(job.plan)
    recipe_ = recipe(p.program)
    data, size = job.text(recipe_), job.batch(recipe_)
    grads = 0
    ready = p.runtime.ready

    def weighed(divisor: float) -> None:
        nonlocal grads
        grads = stored(p.runtime.gradients_at_rest())
        ready(divisor)

    p.runtime.ready = weighed  # type: ignore[method-assign]
    read: list[tuple[tuple[int, int], ...]] = []
    batches: list[tuple[int, ...]] = []
    ledger = Ledger(p.mesh)
    for i in range(3):
        batch = data.batch(i, size)
        tokens = batch.index[:, None] * job.seq + torch.arange(job.seq)
        own = torch.cat([part.flatten() for (part,) in p.shard(tokens)]).tolist()
        read.append(tuple((n // job.seq, n % job.seq) for n in own))
        batches.append(tuple(batch.index.tolist()))
        if i < 2:
            step(p, batch.tokens, batch.targets)
        else:
            with ledger:
                step(p, batch.tokens, batch.targets)
    rest = {State.PARAMS: stored(p.model.parameters()), State.GRADS: grads, State.OPTIMIZER: _optimizer_bytes(p)}
    return _Seen(ledger.table(), rest, tuple(read), tuple(batches))


def _optimizer_bytes(p: Parallel) -> int:
    """Moments and masters. Step counters, one number a tensor, are no state of the model and left out."""
    moments = [
        v for state in p.optimizer.state.values() for k, v in state.items() if k != "step" and isinstance(v, Tensor)
    ]
    trained = [q for group in p.optimizer.param_groups for q in group["params"]]
    at_rest = {id(q) for q in p.model.parameters()}
    masters = [q for q in trained if id(q) not in at_rest] if p.program.train.precision.master else []
    return stored(moments) + stored(masters)


class _Show(torch.optim.Optimizer):
    """Parameters become the gradients that an optimizer is given, which so come back whole like any update."""

    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                param.copy_(param.grad)


def _gradient(rank: Rank, job: Job) -> _Parity:
    """The largest difference of a gradient to that on one device, each tensor by its own size."""
    p = job.parallel(_in_float64(job, "sgd"), _Show)
    recipe_ = recipe(p.program)
    batch = job.text(recipe_).batch(0, job.batch(recipe_))
    step(p, batch.tokens, batch.targets)
    whole = p.full_parameters()
    between = max(differences(whole))
    worst, where = 0.0, ""
    if rank.rank == 0:
        module = job.module("fp64")
        _alone(module, batch, recipe_.clip)
        grads = {n: torch.zeros_like(q) if q.grad is None else q.grad for n, q in module.named_parameters()}
        floor = _SMALL * max(float(g.abs().max()) for g in grads.values())
        for name, grad in grads.items():
            gap = float((grad - whole[name]).abs().max()) / max(float(grad.abs().max()), floor)
            if not where or gap > worst:
                worst, where = gap, name
    dist.barrier()
    return _Parity(worst, where, between)


def _in_float64(job: Job, optimizer: str) -> Plan:
    train = attrs.evolve(job.plan.train, precision=PRECISIONS["fp64"], optimizer=optimizer)
    return attrs.evolve(job.plan, train=train)


def _alone(module: nn.Module, batch: Batch, limit: float | None) -> None:
    """The gradient of a global batch on one device, clipped to a norm of `limit`."""
    output = module(batch.tokens)
    loss = loss_sum(getattr(output, "logits", output), batch.targets) / batch.targets.numel()
    loss.backward()  # type: ignore[no-untyped-call]
    if limit is not None:
        nn.utils.clip_grad_norm_(module.parameters(), limit)


def _parity(rank: Rank, job: Job, optimizer: str) -> _Parity:
    """The largest difference to a plain loop on one device, which rank 0 runs alone."""
    p = job.parallel(_in_float64(job, optimizer))
    recipe_ = recipe(p.program)
    data, size = job.text(recipe_), job.batch(recipe_)
    for i in range(job.steps):
        batch = data.batch(i, size)
        step(p, batch.tokens, batch.targets)
    whole = p.full_parameters()
    between = max(differences(whole))
    worst, where = 0.0, ""
    if rank.rank == 0:
        module = job.module("fp64")
        alone = default_optimizer(optimizer, module.parameters(), job.lr)
        for i in range(job.steps):
            batch = data.batch(i, size)
            _alone(module, batch, recipe_.clip)
            alone.step()
            alone.zero_grad()
        for name, param in module.named_parameters():
            gap = float((param.detach() - whole[name]).abs().max())
            if not where or gap > worst:
                worst, where = gap, name
    dist.barrier()
    return _Parity(worst, where, between)
