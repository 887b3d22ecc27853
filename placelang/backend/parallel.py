"""What a user's own training loop holds: the placed model, its optimizer, and the three points where exactness is lost.

Slicing the batch, the denominator of the loss and the number of microbatches are owned here, because each trains the
wrong thing without a word when it is off (docs/design/torch.md, "Runs that finish and train the wrong thing"). A loop:

    p = placelang.load("train.place").parallelize(model, optimizer=torch.optim.AdamW)
    for tokens, targets in batches:                     # the batch of the whole mesh, the same on every rank
        for x, y in p.shard(tokens, targets):           # this rank's part, a microbatch at a time
            loss, count = p.loss(p.model(x), y)         # the sum over valid tokens, and how many these are
            p.backward(loss, count)
        p.step()                                        # trains on the mean over the whole batch

Not for: placing (`apply`), or a ready loop (`run`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from placelang.backend import comm
from placelang.backend.clip import clip_
from placelang.backend.comm import Groups
from placelang.backend.dealt import Dealt
from placelang.backend.errors import failed
from placelang.backend.ledger import phase
from placelang.backend.loss import IGNORED, loss_sum
from placelang.backend.recipe import Recipe
from placelang.backend.runtime import Runtime
from placelang.backend.splits import Split, join
from placelang.program.program import Program


class Parallel:
    """A placed model. `model` and `optimizer` are ordinary torch objects; `program` is what they carry out."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        program: Program,
        recipe: Recipe,
        runtime: Runtime,
        groups: Groups,
        tokens: int | None,
        splits: Mapping[str, Split] | None = None,
        parts: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.model, self.optimizer, self.program = model, optimizer, program
        self.runtime, self.mesh = runtime, groups.mesh
        self._groups, self._recipe, self._fixed = groups, recipe, tokens
        self._splits, self._parts = splits or {}, parts or {}
        self._dealt = Dealt(recipe.deal, groups)
        self._ranks = groups.size(recipe.data)
        self._done = 0
        self._tokens: Tensor | int = 0

    def shard(self, *batch: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """This rank's microbatches of tensors whose dim 0 is the batch of the whole mesh: microbatch by microbatch, and
        in each rank after rank. Raises BackendError (E401) for a batch that does not divide."""
        count, ranks = self._recipe.microbatches, self._groups.size(self._recipe.batch)
        parts = self._recipe.tokenwise(self.program.mesh)
        for tensor in batch:
            if len(tensor) != len(batch[0]):
                raise failed("E401", f"tensors of one batch have {len(batch[0])} and {len(tensor)} samples")
            if len(tensor) % (count * ranks) or not len(tensor):
                raise failed(
                    "E401",
                    f"a batch of {len(tensor)} samples does not divide over {ranks} ranks x {count} microbatches",
                    f"a multiple of {count * ranks}",
                    "uneven shares would weigh samples unequally",
                )
            if tensor.dim() > 1 and tensor.shape[1] % parts:
                text = f"samples of {tensor.shape[1]} tokens do not divide into {parts} runs"
                raise failed("E401", text, f"a multiple of {parts}")
        return self._microbatches(batch)

    def _microbatches(self, batch: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, ...]]:
        r, groups = self._recipe, self._groups
        for m in range(r.microbatches):
            parts = (t.chunk(r.microbatches)[m].chunk(groups.size(r.batch))[groups.place(r.batch)] for t in batch)
            yield tuple(self._dealt.own(p, 1) if p.dim() > 1 else p for p in parts)

    def loss(self, output: Any, targets: Tensor, ignored: int = IGNORED) -> tuple[Tensor, Tensor]:
        """The sum of cross entropies over this rank's valid tokens, and their number. `output`: the logits (batch, seq,
        vocab), or what has them as `.logits`. A vocabulary that is split over ranks is whole here."""
        axes = self._recipe.wiring.loss
        group = self._groups.group(axes) if axes else None
        logits = getattr(output, "logits", output)
        return loss_sum(logits, targets, group, ignored), (targets != ignored).sum()

    def backward(self, loss_sum: Tensor, tokens: Tensor | int) -> None:
        """Backward of one microbatch. `loss_sum` is the sum over this rank's valid tokens, `tokens` how many these are.

        The division by the tokens of the whole batch happens in `step`, when they are known (or here, when they were
        promised), so ragged masks weigh every token equally. Raises BackendError (E401) for one microbatch too many.
        """
        if self._done == self._recipe.microbatches:
            raise failed(
                "E401", f"backward ran more than {self._done} times: the strategy has {self._done} microbatches"
            )
        if loss_sum.dim():
            raise failed(
                "E212", f"the loss is a tensor of shape {tuple(loss_sum.shape)}, not one sum", 'reduction="sum"'
            )
        self._done += 1
        self._tokens = self._tokens + (tokens.detach() if isinstance(tokens, Tensor) else tokens)
        last = self._done == self._recipe.microbatches
        self.runtime.before(last)
        with phase("backward"):
            (loss_sum / self._fixed if self._fixed else loss_sum).backward()  # type: ignore[no-untyped-call]
            self.runtime.after(last)

    def step(self) -> int:
        """The optimizer's step on the mean over all valid tokens of the whole batch; returns their number.

        Raises BackendError: E401 when microbatches are missing, E212 when the batch has no valid token or not the
        number that was promised.
        """
        wanted = self._recipe.microbatches
        if self._done != wanted:
            raise failed("E401", f"{self._done} of {wanted} microbatches went through backward before the step")
        with phase("update"):
            tokens = self._count()
            self.runtime.ready(1.0 if self._fixed else float(tokens))
            if self._recipe.clip is not None:
                made = {name: p.grad for name, p in self.runtime.updates.items() if p.grad is not None}
                clip_(made, self._parts, self._groups, self._recipe.clip)
            self.optimizer.step()
            self.runtime.refresh()
        self._done, self._tokens = 0, 0
        return tokens

    def _count(self) -> int:
        """Valid tokens of the whole batch. A promised number costs no collective, so it is checked rank by rank."""
        if self._fixed:
            mine = int(self._tokens)
            if mine * self._ranks != self._fixed:
                raise failed(
                    "E212",
                    f"this rank has {mine:,} valid tokens, not {self._fixed:,} / {self._ranks} as was promised",
                    "leave `tokens` out: then ranks count theirs together",
                )
            return self._fixed
        total = torch.as_tensor(self._tokens, dtype=torch.int64, device=self.mesh.device_type).reshape(1).clone()
        if self._ranks > 1:
            comm.all_reduce(total, self._groups.group(self._recipe.data)).wait()
        if not int(total):
            raise failed("E212", "no rank has a valid token in this batch")
        return int(total)

    def full_parameters(self) -> Mapping[str, Tensor]:
        """Every parameter whole, by name. All ranks call it together."""
        with phase("report"), torch.no_grad():
            whole = self.runtime.full()
            return {
                name: join(t, self._splits[name], self._groups) if name in self._splits else t
                for name, t in whole.items()
            }

    def mean(self, value: float) -> float:
        """The mean of a number over the data ranks, for display. All ranks call it together."""
        if self._ranks == 1:
            return value
        with phase("report"):
            total = torch.tensor([value], dtype=torch.float64, device=self.mesh.device_type)
            dist.all_reduce(total, group=self._groups.group(self._recipe.data))
        return float(total) / self._ranks
