"""Cross entropy over a vocabulary that is split, against torch's on one device; and losses that would be wrong."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from placelang.backend.errors import BackendError
from placelang.backend.launch import Rank, launch
from placelang.backend.loss import SplitLogits, loss_sum


def difference(rank: Rank, scale: float) -> float:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(2, 5, 12, dtype=torch.float64, generator=generator) * scale
    targets = torch.randint(0, 12, (2, 5), generator=generator)
    targets[0, 1:3] = -100
    whole = logits.clone().requires_grad_()
    wanted = F.cross_entropy(whole.flatten(0, 1), targets.flatten(), reduction="sum")
    wanted.backward()  # type: ignore[no-untyped-call]
    own = logits.chunk(rank.world, -1)[rank.rank].clone().requires_grad_()
    found = loss_sum(own.as_subclass(SplitLogits), targets, dist.group.WORLD)  # type: ignore[no-untyped-call]
    (found * 1.0).backward()  # type: ignore[no-untyped-call]
    assert whole.grad is not None and own.grad is not None
    gap = (whole.grad.chunk(rank.world, -1)[rank.rank] - own.grad).abs().max()
    return max(abs(float(found - wanted)), float(gap))


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_a_split_vocabulary_gives_the_loss_of_the_whole(scale: float) -> None:
    assert max(launch(difference, 3, scale, limit=60)) < 1e-11 * scale


def test_arithmetic_of_split_logits_is_refused() -> None:
    logits = torch.zeros(2, 3, 4).as_subclass(SplitLogits)  # type: ignore[no-untyped-call]
    assert logits[:, 1:].flatten(0, 1).shape == (4, 4)
    targets = torch.zeros(6, dtype=torch.int64)
    for wrong in (
        lambda: F.cross_entropy(logits.flatten(0, 1), targets),
        lambda: logits.softmax(-1),
        lambda: logits.argmax(-1),
        lambda: logits + 1,
    ):
        with pytest.raises(BackendError, match="split over ranks") as error:
            wrong()
        assert "p.loss" in error.value.diagnostic.help
