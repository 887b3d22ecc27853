"""A ready training loop: a plan, a model and real text on N processes of this machine, step by step.

Not for: training that matters (a user's own loop with `parallel` does that), or comparing with one device (`verify`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping

import attrs
import torch
import torch.distributed as dist
from torch import Tensor, nn

from placelang.backend.apply import MakeOptimizer, default_optimizer, model_of, parallelize, with_ranks
from placelang.backend.build import DTYPES, build
from placelang.backend.launch import Rank, launch
from placelang.backend.ledger import phase
from placelang.backend.parallel import Parallel
from placelang.backend.predicted import Traffic, traffic
from placelang.backend.recipe import Recipe, divides, recipe
from placelang.backend.sound import step_program
from placelang.backend.text import Text, text
from placelang.model.model import Model
from placelang.plan.plan import Plan
from placelang.program.program import Program

Subject = Model | Callable[[], nn.Module]
"""What is trained: a catalogue model, or a picklable function that makes a module from tokens (batch, seq) to
logits."""

SEQ = 64  # tokens of a sample where the text says none
MICRO_BATCH = 2  # samples of a rank in a microbatch where the text says none


@attrs.frozen
class Progress:
    """One step as rank 0 saw it. `loss`: mean over the tokens of the whole batch, in nats."""

    step: int
    steps: int
    loss: float
    tokens_per_second: float


@attrs.frozen
class Result:
    """What a run left. `digest` is the SHA-256 of rank 0's parameters; `differences` are the largest differences of
    each rank's parameters from rank 0's, all 0.0 where replicas agree; `parameters` only if asked for."""

    losses: tuple[float, ...]
    tokens_per_second: float
    digest: str
    differences: tuple[float, ...]
    parameters: Mapping[str, Tensor] | None = attrs.field(default=None, repr=False, eq=False)


@attrs.frozen
class Job:
    """Everything a rank needs to know; it is pickled."""

    plan: Plan  # with numbers
    subject: Subject
    steps: int
    seed: int
    lr: float | None
    source: bytes | None = attrs.field(repr=False)
    force: bool
    parameters: bool = False

    @property
    def seq(self) -> int:
        longest = self.model().size("max_seq_len") or SEQ
        return self.plan.train.seq or min(SEQ, longest)

    def batch(self, recipe_: Recipe) -> int:
        ranks = self.plan.mesh.size(recipe_.batch) or 1
        return (self.plan.train.micro_batch or MICRO_BATCH) * ranks * recipe_.microbatches

    def text(self, recipe_: Recipe) -> Text:
        vocab = self.model().size("vocab") or 256
        return text(self.seq, self.batch(recipe_), vocab, self.seed, self.source)

    def module(self, dtype: str) -> nn.Module:
        """The same values on every rank and in every dtype."""
        if isinstance(self.subject, Model):
            return build(self.subject, seed=self.seed, dtype=dtype)
        torch.manual_seed(self.seed)
        return self.subject().to(DTYPES[dtype])

    def model(self) -> Model:
        if isinstance(self.subject, Model):
            return self.subject
        with torch.device("meta"):
            return model_of(self.plan, self.subject())[0]

    def program(self) -> Program:
        return step_program(self.plan, self.model(), self.force)

    def traffic(self, program: Program) -> tuple[Traffic, ...]:
        """What the collectives of a step are predicted to be."""
        return traffic(program, self.model(), self.plan.train.micro_batch or MICRO_BATCH, self.seq)

    def parallel(self, plan: Plan, make: MakeOptimizer | None = None) -> Parallel:
        """The placed module; every token of the text is valid, so their number is promised."""
        recipe_ = recipe(self.program())
        tokens = self.batch(recipe_) * self.seq
        train, module = plan.train, self.module(plan.train.precision.rest)
        return parallelize(
            plan,
            module,
            model=self.model(),
            optimizer=make or (lambda params: default_optimizer(train.optimizer, params, self.lr)),
            tokens=tokens,
            force=self.force,
        )


def prepare(
    plan: Plan,
    subject: Subject,
    nproc: int,
    steps: int,
    *,
    seed: int = 0,
    lr: float | None = None,
    source: bytes | None = None,
    force: bool = False,
    parameters: bool = False,
) -> Job:
    """Everything that can be refused is refused here, before any process starts. Raises BackendError."""
    job = Job(with_ranks(plan, nproc), subject, steps, seed, lr, source, force, parameters)
    if isinstance(subject, Model):
        build(subject, device="meta")
    program = job.program()
    found = recipe(program)
    divides(found, program, job.model(), job.seq)
    job.text(found)
    return job


def run(
    plan: Plan,
    subject: Subject,
    nproc: int,
    steps: int,
    *,
    seed: int = 0,
    lr: float | None = None,
    source: bytes | None = None,
    progress: Callable[[Progress], None] | None = None,
    force: bool = False,
    parameters: bool = False,
    limit: float | None = None,
) -> Result:
    """Train for `steps` steps on `nproc` processes; `progress` is called after each.

    `source`: the bytes of a text of one's own. `limit`: seconds for the whole. `force`: run a plan that `check`
    refuses, literally. Raises BackendError (E501, E503, E201 before a process starts; E504 naming the rank that
    failed).
    """
    job = prepare(plan, subject, nproc, steps, seed=seed, lr=lr, source=source, force=force, parameters=parameters)

    def told(value: object) -> None:
        if progress is not None and isinstance(value, Progress):
            progress(value)

    found = launch(_train, nproc, job, on_report=told, limit=limit)
    result: Result = found[0]
    return result


def step(p: Parallel, *batch: Tensor) -> float:
    """One step on a global batch of tokens and targets; the loss of this rank's share, per token."""
    total, tokens = 0.0, 0
    for x, y in p.shard(*batch):
        loss, count = p.loss(p.model(x), y)
        p.backward(loss, count)
        total, tokens = total + float(loss.detach()), tokens + y.numel()
    p.step()
    return total / tokens


def _train(rank: Rank, job: Job) -> Result:
    p = job.parallel(job.plan)
    data = job.text(recipe(p.program))
    size = job.batch(recipe(p.program))
    losses: list[float] = []
    begin = time.perf_counter()
    for i in range(job.steps):
        batch = data.batch(i, size)
        losses.append(p.mean(step(p, batch.tokens, batch.targets)))
        speed = (i + 1) * size * job.seq / (time.perf_counter() - begin)
        rank.report(Progress(i + 1, job.steps, losses[-1], speed))
    elapsed = time.perf_counter() - begin
    whole = p.full_parameters()
    return Result(
        losses=tuple(losses),
        tokens_per_second=job.steps * size * job.seq / elapsed if job.steps else 0.0,
        digest=digest(whole),
        differences=differences(whole),
        parameters={n: t.clone() for n, t in whole.items()} if job.parameters and rank.rank == 0 else None,
    )


def digest(parameters: Mapping[str, Tensor]) -> str:
    """SHA-256 over the values in the order of names."""
    found = hashlib.sha256()
    for name in sorted(parameters):
        found.update(name.encode())
        found.update(parameters[name].detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def differences(parameters: Mapping[str, Tensor]) -> tuple[float, ...]:
    """The largest difference of each rank's parameters from rank 0's. All ranks call it together."""
    worst = torch.zeros(1, dtype=torch.float64)
    with phase("report"):
        for name in sorted(parameters):
            mine = parameters[name].detach().to(torch.float64)
            first = mine.clone()
            dist.broadcast(first, src=0)
            worst = torch.maximum(worst, (mine - first).abs().max())
        everyone = [torch.zeros_like(worst) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, worst)
    return tuple(float(w) for w in everyone)
