"""Ranks that are about to run different things say so at once, and name the rank and the thing."""

from __future__ import annotations

import time

import attrs
import pytest
import torch

from placelang.backend import handshake
from placelang.backend.apply import parallelize
from placelang.backend.build import build
from placelang.backend.errors import BackendError
from placelang.backend.launch import Rank, launch
from tests.backend.plans import plan, tiny


def differing(rank: Rank, what: str) -> None:
    odd = rank.rank == 1
    strategy = plan("zero1" if odd and what == "strategy" else "ddp", 2)
    model = tiny(layers=3) if odd and what == "model" else tiny()
    module = build(model, seed=int(odd and what == "initial values"))
    if odd and what == "version of torch":
        torch.__version__ = "1.0"
    lr = 0.1 if odd and what == "optimizer" else 0.2
    parallelize(strategy, module, model=model, optimizer=lambda ps: torch.optim.SGD(ps, lr=lr))


@pytest.mark.parametrize("what", ["strategy", "model", "initial values", "version of torch", "optimizer"])
def test_what_differs_is_named(what: str) -> None:
    begin = time.monotonic()
    with pytest.raises(BackendError) as error:
        launch(differing, 2, what, limit=60)
    assert error.value.diagnostic.code == "E504"
    assert f"rank 1 has another {what} than rank 0" in error.value.diagnostic.message
    assert time.monotonic() - begin < 50  # not by a hang


def alone(rank: Rank) -> str:
    if rank.rank == 1:
        time.sleep(3)
        return ""
    try:
        handshake.agree({"x": "y"}, limit=0.5)
    except BackendError as error:
        return error.diagnostic.message
    return ""


def test_a_rank_that_never_begins_is_named() -> None:
    assert "rank 1 did not begin within" in launch(alone, 2, limit=60)[0]


def test_equal_values_have_equal_digests_whatever_the_format() -> None:
    for dtype in ("fp32", "bf16", "fp64"):
        one, same, other = (build(tiny(), seed=seed, dtype=dtype) for seed in (0, 0, 1))
        assert handshake.values(one) == handshake.values(same) != handshake.values(other)


def test_a_strategy_has_one_text_whatever_its_spans() -> None:
    model = tiny()
    module = build(model, device="meta")
    strategy = plan("ddp", 2)
    moved = attrs.evolve(strategy, placed=tuple(attrs.evolve(p, span=None) for p in strategy.placed))
    assert handshake.facts(strategy, model, module) == handshake.facts(moved, model, module)
