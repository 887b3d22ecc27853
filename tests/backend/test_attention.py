"""Attention over ranks that have parts of the sequence, against attention on one device: values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from placelang.backend.attention import Core, attend
from placelang.backend.comm import Groups
from placelang.backend.dealt import Dealt, part
from placelang.backend.launch import Rank, launch
from placelang.backend.ledger import Ledger
from placelang.backend.wiring import Move
from placelang.plan.mesh import Axis, Mesh, Role
from placelang.program.event import Op

SEQ = 16


def operands(kv_heads: int) -> tuple[Tensor, ...]:
    """q, k, v and a gradient of the result."""
    generator = torch.Generator().manual_seed(5)
    shapes = [(2, heads, SEQ, 6) for heads in (4, kv_heads, kv_heads, 4)]
    return tuple(torch.randn(s, dtype=torch.float64, generator=generator) for s in shapes)


def gradients(run: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, dy: Tensor) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    y = run(*leaves)
    y.backward(dy)  # type: ignore[no-untyped-call]
    return [y.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def worst(rank: Rank, kind: str, kv_heads: int) -> tuple[float, list[str]]:
    """The largest difference of this rank's part, and the kinds of collectives that it took."""
    groups = Groups(Mesh((Axis("cp", Role.SEQUENCE, rank.world),)), "cpu")
    gather = (Move(Op.ALL_GATHER, Op.REDUCE_SCATTER, ("cp",), "seq"),)
    there = (Move(Op.ALL_TO_ALL, Op.ALL_TO_ALL, ("cp",), "seq", "heads"),)
    back = (Move(Op.ALL_TO_ALL, Op.ALL_TO_ALL, ("cp",), "heads", "seq"),)
    hops = (Move(Op.ALL_GATHER, Op.REDUCE_SCATTER, ("cp",), "seq", hops=True),)
    deal = (("cp", "headtail" if "balanced" in kind else "contiguous"),)
    run: Callable[..., Tensor] = {
        "gather": Core(((), gather, gather), (), groups, deal),
        "balanced gather": Core(((), gather, gather), (), groups, deal),
        "ulysses": Core((there, there, there), back, groups, deal),
        "balanced ulysses": Core((there, there, there), back, groups, deal),
        "fused ulysses": Core((there,), back, groups, deal),
        "ring": Core(((), hops, hops), (), groups, deal),
        "balanced ring": Core(((), hops, hops), (), groups, deal),
    }[kind]
    whole = operands(kv_heads)
    mine = Dealt(deal, groups).positions(SEQ // rank.world)
    with Ledger(groups.mesh) as ledger:
        found = gradients(run, *(t[:, :, mine] for t in whole))
    wanted = [t[:, :, mine] for t in gradients(attend, *whole)]
    kinds = [f"{e.phase} {e.kind} {e.bytes}" for e in ledger.entries]
    return max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True)), kinds


KINDS = ["gather", "balanced gather", "ulysses", "balanced ulysses", "fused ulysses", "ring", "balanced ring"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_equal_to_one_device(kind: str, kv_heads: int) -> None:
    for difference, _ in launch(worst, 2, kind, kv_heads, limit=60):
        assert difference < 1e-14


@pytest.mark.parametrize(("kind", "kv_heads"), [("ulysses", 4), ("gather", 1), ("ring", 1), ("balanced ring", 2)])
def test_equal_on_four_ranks(kind: str, kv_heads: int) -> None:
    for difference, _ in launch(worst, 4, kind, kv_heads, limit=60):
        assert difference < 1e-14


def test_hops_of_a_ring() -> None:
    """n - 1 hops of keys, and of values, each way; their gradients go once more, home."""
    piece = (2 * 2 * (SEQ // 4) * 6) * 8  # batch, heads, positions, width; fp64
    for _, kinds in launch(worst, 4, "ring", 2, limit=60):
        assert sorted(kinds) == sorted([f"forward ring {piece}"] * 6 + [f"backward ring {piece}"] * (6 + 8))


def test_balanced_ranks_see_equally_many_keys() -> None:
    for partition, equal in (("headtail", True), ("contiguous", False)):
        places = [part(torch.arange(SEQ), 0, partition, 4, rank) for rank in range(4)]
        assert sorted(torch.cat(places).tolist()) == list(range(SEQ))
        assert (len({int((p + 1).sum()) for p in places}) == 1) == equal
