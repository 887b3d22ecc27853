"""A user's own loop: own modules and optimizers, ragged masks, batches that do not fit."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placelang.backend.apply import parallelize
from placelang.backend.build import build
from placelang.backend.errors import BackendError
from placelang.backend.launch import Rank, launch
from placelang.backend.ledger import Ledger
from placelang.backend.parallel import Parallel
from placelang.backend.run import run
from placelang.backend.verify import verify
from placelang.plan.dtypes import PRECISIONS
from tests.backend.plans import plan
from tests.backend.test_build import Own
from tests.backend.texts import GPT, load

IGNORED = -100


class Branchy(nn.Module):
    """One parameter that no loss uses, so that its unit never completes by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, 6)
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.unused = nn.Linear(6, 6)
        self.out = nn.Linear(6, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        logits: Tensor = self.out(x)
        return logits


class Sharded(Own):
    """FSDP2 takes no scalars."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.out.bias = nn.Parameter(torch.zeros(256))


def _batch(step: int) -> tuple[Tensor, Tensor]:
    """8 samples; the ranks' halves have very different numbers of valid targets."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, 256, (8, 10), generator=generator)
    targets = torch.randint(0, 256, (8, 10), generator=generator)
    targets[:4, 2:] = IGNORED
    targets[6, :] = IGNORED
    return tokens, targets


def _loss(logits: Tensor, targets: Tensor, reduction: str) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction=reduction)


def _module(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(3)
    return make().double()


def _alone(make: Callable[[], nn.Module]) -> dict[str, Tensor]:
    module = _module(make)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    for step in range(3):
        tokens, targets = _batch(step)
        _loss(module(tokens), targets, "mean").backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return {name: p.detach() for name, p in module.named_parameters()}


def own_loop(rank: Rank, name: str, microbatches: int, form: str, make: Callable[[], nn.Module]) -> float:
    """The loop that the documentation shows; the largest difference to one device with torch's mean over all tokens."""
    module = _module(make)
    optimizer: object = lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.5)  # noqa: E731
    if form == "instance":
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    strategy = plan(name, 2, microbatches=microbatches, precision="fp64", optimizer="sgd_momentum")
    p = parallelize(strategy, module, optimizer=optimizer)  # type: ignore[arg-type]
    for step in range(3):
        tokens, targets = _batch(step)
        for x, y in p.shard(tokens, targets):
            p.backward(_loss(p.model(x), y, "sum"), (y != IGNORED).sum())
        assert p.step() == int((targets != IGNORED).sum())
    whole = p.full_parameters()
    truth = _alone(make)
    assert truth.keys() == whole.keys()
    return max(float((truth[n] - whole[n]).abs().max()) for n in truth)


@pytest.mark.parametrize(
    ("name", "microbatches", "form", "make"),
    [
        ("ddp", 2, "function", Own),
        ("ddp", 1, "instance", Branchy),
        ("zero1", 2, "instance", Own),
        ("zero2", 2, "function", Branchy),
        ("zero3", 2, "instance", Sharded),
        ("zero3", 1, "function", Branchy),
    ],
)
def test_a_ragged_batch_weighs_every_token_equally(
    name: str, microbatches: int, form: str, make: Callable[[], nn.Module]
) -> None:
    assert max(launch(own_loop, 2, name, microbatches, form, make, limit=90)) < 1e-12


def split_loop(rank: Rank, mesh: str, strategy: str, microbatches: int) -> float:
    """The loop that the documentation shows, on a model whose inside is split, from ragged batches."""
    shape, model = load(f"mesh ({mesh})\napply {strategy}", GPT, microbatches)
    shape = attrs.evolve(shape, train=attrs.evolve(shape.train, precision=PRECISIONS["fp64"]))
    module = build(model, dtype="fp64")
    p = parallelize(shape, module, model=model, optimizer=lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.5))
    alone = build(model, dtype="fp64")
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.5)
    for step in range(2):
        tokens, targets = _batch(step)
        for x, y in p.shard(tokens, targets):
            p.backward(*p.loss(p.model(x), y))
        assert p.step() == int((targets != IGNORED).sum())
        _loss(alone(tokens), targets, "mean").backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    whole = p.full_parameters()
    return max(float((q.detach() - whole[n]).abs().max()) for n, q in alone.named_parameters())


@pytest.mark.parametrize(
    ("mesh", "strategy", "microbatches"),
    [("tp = 2", "megatron_sp(tp)", 2), ("dp = 1, cp = 2", "zero3(dp * cp) * all_gather_cp(cp)", 1)],
)
def test_a_ragged_batch_of_a_model_that_is_split(mesh: str, strategy: str, microbatches: int) -> None:
    assert max(launch(split_loop, 2, mesh, strategy, microbatches, limit=120)) < 1e-12


def test_samples_whose_tokens_do_not_divide() -> None:
    for said in launch(short_samples, 2, limit=60):
        assert "samples of 9 tokens do not divide into 2 runs" in said


def short_samples(rank: Rank) -> str:
    shape, model = load("mesh (tp = 2)\napply megatron_sp(tp)", GPT)
    p = parallelize(shape, build(model), model=model)
    try:
        p.shard(torch.zeros(2, 9, dtype=torch.int64))
    except BackendError as error:
        return error.diagnostic.message
    return ""


def test_a_module_of_ones_own_is_verified() -> None:
    for name, make in (("ddp", Own), ("zero3", Sharded)):
        report = verify(plan(name, 2, microbatches=2), make, 2, steps=2, limit=90)
        assert report.ok, report
        assert report.model == make.__name__


def test_a_scalar_is_not_sharded() -> None:
    with pytest.raises(BackendError, match="without a dim: scale"):
        verify(plan("zero3", 2), Own, 2)


def promised(rank: Rank) -> tuple[list[str], list[str]]:
    """Kinds of collectives in the update, with the tokens counted and with their number promised."""
    kinds = []
    for tokens in (None, int((_batch(0)[1] != IGNORED).sum())):
        p = parallelize(plan("ddp", 2, precision="fp64"), _module(Branchy), tokens=tokens)
        with Ledger(p.mesh) as ledger:
            x, y = _batch(0)
            for a, b in p.shard(x, y):
                p.backward(_loss(p.model(a), b, "sum"), (b != IGNORED).sum())
            try:
                p.step()
            except BackendError as error:
                return kinds[0], [error.diagnostic.code]
        kinds.append([e.kind for e in ledger.entries if e.phase == "update"])
    return kinds[0], kinds[1]


def test_a_broken_promise_about_tokens_is_noticed() -> None:
    for counted, broken in launch(promised, 2, limit=60):
        assert counted == ["all_reduce"]
        assert broken == ["E212"]


@pytest.fixture
def alone() -> Parallel:
    """In this process: a mesh of one rank needs no launcher."""
    return parallelize(plan("ddp", 1, microbatches=2), Own())


def test_batches_that_do_not_fit(alone: Parallel) -> None:
    for batch, words in (
        ((torch.zeros(3, 4),), "3 samples does not divide over 1 ranks x 2 microbatches"),
        ((torch.zeros(0, 4),), "0 samples"),
        ((torch.zeros(4, 4), torch.zeros(2, 4)), "4 and 2 samples"),
    ):
        with pytest.raises(BackendError, match=words) as error:
            alone.shard(*batch)
        assert error.value.diagnostic.code == "E401"


def test_microbatches_are_counted(alone: Parallel) -> None:
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(BackendError, match="0 of 2 microbatches"):
        alone.step()
    for _ in range(2):
        alone.backward(alone.model(tokens).sum(), 4)
    with pytest.raises(BackendError, match="more than 2 times"):
        alone.backward(alone.model(tokens).sum(), 4)
    assert alone.step() == 8


def test_a_loss_that_is_no_sum_and_a_batch_without_tokens(alone: Parallel) -> None:
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(BackendError, match="not one sum"):
        alone.backward(alone.model(tokens), 4)
    for _ in range(2):
        alone.backward(alone.model(tokens).sum() * 0, 0)
    with pytest.raises(BackendError, match="no rank has a valid token"):
        alone.step()


def test_another_number_of_processes_than_ranks() -> None:
    with pytest.raises(BackendError) as error:
        launch(apply_three, 2, limit=60)
    assert error.value.diagnostic.code == "E503"


def apply_three(rank: Rank) -> None:
    parallelize(plan("ddp", 3), Own())


def test_an_optimizer_with_a_past_or_of_another_module() -> None:
    module = Own()
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
    optimizer.step()
    with pytest.raises(BackendError, match="already stepped"):
        parallelize(plan("ddp", 1), module, optimizer=optimizer)
    with pytest.raises(BackendError, match="that the module has not"):
        parallelize(plan("ddp", 1), Own(), optimizer=torch.optim.AdamW(Own().parameters()))


def test_loss_falls_on_real_text_and_replicas_agree() -> None:
    from tests.backend.plans import tiny

    seen: list[float] = []
    result = run(
        plan("zero3", 2, seq=32, micro_batch=4), tiny(), 2, 12, lr=1e-2, progress=lambda p: seen.append(p.loss)
    )
    assert tuple(seen) == result.losses
    assert result.losses[0] == pytest.approx(5.55, abs=0.1)  # ln 257: a model that knows nothing
    assert result.losses[-1] < result.losses[0] - 0.5
    assert result.differences == (0.0, 0.0)


def test_a_forced_run_without_reduction_leaves_replicas_that_differ() -> None:
    from tests.backend.plans import tiny

    result = run(plan("none", 2), tiny(), 2, 2, force=True, parameters=True)
    assert result.differences[0] == 0.0
    assert result.differences[1] > 1e-4
    assert result.parameters is not None
    assert result.parameters["head.weight"].shape == (257, 32)
