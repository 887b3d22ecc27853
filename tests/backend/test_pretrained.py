"""Models of the `transformers` library, unchanged, under every kind of axis that their inside knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from placelang.backend.apply import model_of, parallelize
from placelang.backend.errors import BackendError
from placelang.backend.launch import Rank, launch
from placelang.backend.pretrained import described
from placelang.backend.verify import verify
from placelang.model.model import generic
from tests.backend import pretrained
from tests.backend.pretrained import gpt2, llama, mixtral, qwen2, qwen3
from tests.backend.texts import load

pytest.importorskip("transformers")
slow = pytest.mark.slow

CASES = [
    pytest.param("tp = 2", "megatron_sp(tp)", llama, id="llama-sp"),
    pytest.param("cp = 2", "ddp(cp) * ulysses(cp)", gpt2, id="gpt2-ulysses"),
    pytest.param("dp = 2", "zero3(dp)", mixtral, id="mixtral-zero3"),
    pytest.param("tp = 2", "tensor_parallel(tp)", gpt2, id="gpt2-tp"),
    pytest.param(
        "dp = 2, tp = 2",
        "zero3(dp) * megatron_sp(tp)\nactivations: recompute",
        qwen3,
        id="qwen3-zero3-sp",
        marks=slow,
    ),
    pytest.param("tp = 2", "megatron_sp(tp)", gpt2, id="gpt2-sp", marks=slow),
    pytest.param("tp = 2", "megatron_sp(tp)", qwen2, id="qwen2-sp", marks=slow),
    pytest.param("tp = 2", "tensor_parallel(tp)", llama, id="llama-tp", marks=slow),
    pytest.param("cp = 2", "zero1(cp) * all_gather_cp(cp)", qwen3, id="qwen3-cp", marks=slow),
    pytest.param("dp = 2", "zero3(dp)\nactivations: recompute", llama, id="llama-zero3", marks=slow),
    pytest.param("dp = 2", "zero1(dp)\nactivations: recompute", mixtral, id="mixtral-zero1", marks=slow),
    pytest.param("dp = 2", "ddp(dp)", gpt2, id="gpt2-ddp", marks=slow),
    pytest.param(
        "cp = 2, tp = 2",
        "zero1(cp) * all_gather_cp(cp) * megatron_sp(tp)\nactivations: recompute",
        llama,
        id="llama-cp-sp",
        marks=slow,
    ),
    pytest.param(
        "dp = 2, cp = 2, tp = 2", "zero3(dp * cp) * ulysses(cp) * megatron_sp(tp)", gpt2, id="gpt2-3d", marks=slow
    ),
]


@pytest.mark.parametrize(("mesh", "strategy", "make"), CASES)
def test_predicted_is_real(mesh: str, strategy: str, make: Callable[[], nn.Module]) -> None:
    text = f"mesh ({mesh})\napply {strategy}"
    plan, _ = load(text, generic(), 2)
    with torch.device("meta"):
        model, _ = model_of(plan, make())
    plan, _ = load(text, model, 2)
    report = verify(plan, make, plan.mesh.world or 1, steps=2, limit=240)
    bad = [row for row in (*report.collectives, *report.memory, *report.parity, report.data) if not row.ok]
    assert report.ok, bad


@pytest.mark.parametrize("make", [llama, qwen2, qwen3, gpt2])
def test_every_tensor_has_its_place(make: Callable[[], nn.Module]) -> None:
    with torch.device("meta"):
        module = make()
    model, names = described(module)
    real = {name: tuple(p.shape) for name, p in module.named_parameters()}
    assert {names.tensor(n): names.shape(n, t) for n, t in model.named() if t.tied is None} == real


def with_dropout() -> nn.Module:
    return gpt2(0.1)


def windowed() -> nn.Module:
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(**pretrained.SIZES, sliding_window=4))


@pytest.mark.parametrize(
    ("make", "words"), [(mixtral, "the inside of `mixtral`"), (with_dropout, "dropout"), (windowed, "window")]
)
def test_what_their_inside_does_beside_the_model_is_refused(make: Callable[[], nn.Module], words: str) -> None:
    with torch.device("meta"):
        module = make()
    with pytest.raises(BackendError, match=words) as error:
        described(module)
    assert error.value.diagnostic.code == "E501"


def misused(rank: Rank) -> list[str]:
    plan, _ = load("mesh (tp = 2)\napply tensor_parallel(tp)", generic())
    torch.manual_seed(0)
    p = parallelize(plan, llama())
    tokens = torch.zeros(2, 16, dtype=torch.int64)
    said = []
    for misuse in (
        lambda: p.model(tokens, attention_mask=torch.ones(2, 16)),
        lambda: p.model(tokens, labels=tokens),
        lambda: nn.functional.cross_entropy(p.model(tokens).logits.flatten(0, 1), tokens.flatten()),
    ):
        try:
            misuse()
            said.append("")
        except BackendError as error:
            said.append(error.diagnostic.message)
    return said


def test_what_would_train_the_wrong_thing_without_a_word_is_refused() -> None:
    for mask, labels, loss in launch(misused, 2, limit=120):
        assert "mask" in mask
        assert "loss inside" in labels
        assert "cross_entropy" in loss
