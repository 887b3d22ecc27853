"""The norm of a gradient whose tensors are split in different ways, against torch's function on one device."""

from __future__ import annotations

import attrs
import pytest
import torch
from torch import Tensor, nn

import placelang
from placelang.backend.apply import parallelize
from placelang.backend.build import build
from placelang.backend.clip import clip_, parts
from placelang.backend.comm import Groups
from placelang.backend.launch import Rank, launch
from placelang.backend.loss import loss_sum
from placelang.backend.recipe import recipe
from placelang.backend.sound import step_program
from placelang.backend.units import units
from placelang.backend.verify import verify
from placelang.plan.dtypes import PRECISIONS
from placelang.plan.mesh import Axis, Mesh, Role
from tests.backend.texts import GPT, GROUPED, load


def _part(tensor: Tensor, axes: tuple[str, ...], groups: Groups) -> Tensor:
    for axis in axes:
        parts = [*tensor.split(-(-len(tensor) // 2)), tensor[:0]]
        tensor = parts[groups.place((axis,))]
    return tensor


def difference(rank: Rank, limit: float) -> tuple[float, float]:
    """2 x 2 ranks; one tensor whole, one split by `tp`, one by `dp`, one by both, with an empty part somewhere."""
    groups = Groups(Mesh((Axis("dp", Role.DATA, 2), Axis("tp", Role.TENSOR, 2))), "cpu")
    split = {"whole": (), "tp": ("tp",), "dp": ("dp",), "both": ("tp", "dp")}
    generator = torch.Generator().manual_seed(1)
    rows = {"whole": 3, "tp": 4, "dp": 1, "both": 8}
    full = {name: torch.randn(n, 5, dtype=torch.float64, generator=generator) for name, n in rows.items()}
    mine = {}
    for name, tensor in full.items():
        mine[name] = _part(tensor, split[name], groups).clone()
    norm = clip_(mine, split, groups, limit)
    params = [nn.Parameter(torch.zeros_like(t)) for t in full.values()]
    for p, gradient in zip(params, full.values(), strict=True):
        p.grad = gradient.clone()
    wanted = nn.utils.clip_grad_norm_(params, limit)
    gap = 0.0
    for p, (name, tensor) in zip(params, mine.items(), strict=True):
        assert p.grad is not None
        gap = max([gap, *(_part(p.grad, split[name], groups) - tensor).abs().flatten().tolist()])
    return abs(float(norm - wanted)), gap


def placed(rank: Rank) -> tuple[float, float]:
    """The gradients that a placed model's optimizer is given, and their norm on one device."""
    plan, model = load("mesh (dp = 2, tp = 2)\napply zero1(dp) * megatron_sp(tp)", GPT)
    plan = attrs.evolve(plan, train=attrs.evolve(plan.train, precision=PRECISIONS["fp64"]))
    module = build(model, dtype="fp64")
    found = parts(units(module, model, inside=True), recipe(step_program(plan, model)))
    p = parallelize(plan, module, model=model)
    tokens = torch.arange(4 * 16).reshape(4, 16)
    for x, y in p.shard(tokens, tokens):
        p.backward(*p.loss(p.model(x), y))
    groups = Groups(plan.mesh, "cpu")
    p.runtime.ready(float(tokens.numel()))
    gradients = {name: q.grad for name, q in p.runtime.updates.items() if q.grad is not None}
    norm = clip_(gradients, found, groups, 0.5)
    alone = build(model, dtype="fp64")
    (loss_sum(alone(tokens), tokens) / tokens.numel()).backward()  # type: ignore[no-untyped-call]
    return float(norm), float(nn.utils.clip_grad_norm_(alone.parameters(), 0.5))


def test_the_norm_of_a_placed_model_is_that_of_one_device() -> None:
    for norm, wanted in launch(placed, 4, limit=120):
        assert norm == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_as_torch_clips_on_one_device(limit: float) -> None:
    for norm, gradient in launch(difference, 4, limit, limit=60):
        assert norm < 1e-13
        assert gradient < 1e-14


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("mesh (dp = 2)\napply zero1(dp)", 2),
        pytest.param("mesh (dp = 2)\napply zero3(dp)", 2, marks=pytest.mark.slow),
        pytest.param("mesh (dp = 2, tp = 2)\napply zero1(dp) * megatron_sp(tp)", 4, marks=pytest.mark.slow),
    ],
)
def test_a_clipped_run_is_what_one_device_does(text: str, ranks: int) -> None:
    """A limit that every step meets; the reductions of the norm are among the collectives that are predicted."""
    job = "\ntrain (seq = 16, micro_batch = 2, microbatches = 2, clip = 0.05)\n"
    strategy = placelang.load(text + job, model=GROUPED)
    assert strategy.ok and strategy.plan, strategy.diagnostics
    report = verify(strategy.plan, strategy.model, ranks, steps=2, limit=240)
    assert report.ok, [row for row in (*report.collectives, *report.parity) if not row.ok]
    assert any(row.phase == "update" and row.kind == "all_reduce" for row in report.collectives)
