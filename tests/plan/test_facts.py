"""The `train` line: kinds of facts, `--set`, and the batch identity in every direction."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from placelang import api
from placelang.plan.plan import Train

Z3 = "\nparams: shard(dp) ; grads: reduce_scatter"


def train(line: str, mesh: str = "mesh (dp = 8)", **sets: object) -> Train:
    strategy = api.load(f"{mesh}\n{line}{Z3}", **sets)
    assert strategy.plan is not None, strategy.diagnostics
    return strategy.plan.train


def codes(line: str, mesh: str = "mesh (dp = 8)", **sets: object) -> list[str]:
    return [d.code for d in api.load(f"{mesh}\n{line}{Z3}", **sets).diagnostics]


def test_what_is_not_said_is_assumed_and_said_so() -> None:
    strategy = api.load("params: shard(dp)")
    assert strategy.plan is not None
    assert strategy.plan.train == Train()
    assert [a.name for a in strategy.plan.assumptions] == ["precision", "optimizer"]


def test_facts() -> None:
    found = train(
        'train (optimizer = muon, precision = bf16, seq = 2048, loss = samples, clip = 1.5, frozen = ["a", "b"])'
    )
    assert (found.optimizer, found.precision.name, found.seq, found.loss) == ("muon", "bf16", 2048, "samples")
    assert (found.clip, found.frozen) == (Fraction(3, 2), ("a", "b"))


@pytest.mark.parametrize("said", list(product((True, False), repeat=3)))
def test_two_of_three_give_the_third(said: tuple[bool, bool, bool]) -> None:
    micro, count, whole = said
    facts = [f for f, on in zip(("micro_batch = 2", "microbatches = 3", "global_batch = 48"), said, strict=True) if on]
    found = train(f"train ({', '.join(facts)})" if facts else "")
    known = sum(said) >= 2
    assert found.microbatches == (3 if known or count else 1)
    assert found.micro_batch == (2 if known or micro else None)
    assert found.global_batch == (48 if whole and not count else None)


@pytest.mark.parametrize("whole", [1, 8, 15, 24, 100])
@pytest.mark.parametrize("micro", [1, 2, 3])
@pytest.mark.parametrize("mesh", ["mesh (dp = 4)", "mesh (dp = 2, ep = 2)", "mesh (dp = 4, tp = 2, cp = 3)"])
def test_the_identity_counts_the_ranks_that_read_other_samples(whole: int, micro: int, mesh: str) -> None:
    line = f"train (micro_batch = {micro}, global_batch = {whole})"
    if whole % (4 * micro):
        assert codes(line, mesh)[0] == "E401"
    else:
        assert api.load(f"{mesh}\n{line}\nparams: replicate").plan.train.microbatches == whole // (4 * micro)  # type: ignore[union-attr]


def test_the_axes_that_read_other_samples_are_those_that_split_the_batch() -> None:
    text = "mesh (dp = 2, tp = 4)\ntrain (micro_batch = 1, global_batch = 16)\nactivations: shard(dp * tp, dim = batch)"
    plan = api.load(text).plan
    assert plan is not None
    assert plan.train.microbatches == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("train (micro_batch = 2, microbatches = 3, global_batch = 47)", ["E401"]),
        ("train (microbatches = 3, global_batch = 47)", ["E401"]),
        ("train (micro_batch = 2, global_batch = 15)", ["E401"]),
        ("train (micro_batch = 1, micro_batch = 1)", ["E119"]),
        ("train (seq = 0)", ["E105"]),
        ("train (seq = 1.5)", ["E105"]),
        ("train (seq = 4KB)", ["E105"]),
        ("train (clip = 0)", ["E105"]),
        ("train (loss_scale = -1)", ["E105"]),
        ("train (dropout = 2)", ["E105"]),
        ("train (optimizer = 3)", ["E101"]),
        ("train (optimizer = adamx)", ["E101"]),
        ("train (frozen = 3)", ["E105"]),
        ("train (epochs = 3)", ["E106"]),
        ("train (3)", ["E107"]),
    ],
)
def test_refusals(line: str, expected: list[str]) -> None:
    assert codes(line) == expected


def test_sizes_that_are_not_known_are_asked_for() -> None:
    assert codes("train (micro_batch = 1, global_batch = 8)", "") == ["E121"]
    assert train("train (micro_batch = 1, global_batch = 8)", "", dp=4).microbatches == 2
    assert train("train (microbatches = 4)", "").microbatches == 4
    assert train("train (micro_batch = n, microbatches = 4)", "arg n: int").micro_batch is None


def test_set_stands_in_place_of_the_text() -> None:
    assert train("train (seq = 8)", seq=16).seq == 16
    assert train("", seq=16, precision="bf16").precision.name == "bf16"
    assert codes("", seq="many") == ["E105"]
    assert codes("", sequence=16) == ["E101"]
