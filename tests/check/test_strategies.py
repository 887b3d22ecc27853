"""Whole strategies: what is sound, what is not, and the code, counterexample and fixes of each mistake."""

from __future__ import annotations

from fractions import Fraction

import attrs
import pytest

from placelang.check import Checked, check_plan
from placelang.diagnostics.codes import Verdict
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.plan.dtypes import PRECISIONS
from placelang.plan.mesh import Axis, Mesh, Role
from placelang.plan.plan import Plan
from placelang.plan.steps import AllGather, Gather, Keep, Partial, Reduce, Replicate, Shard, When
from tests.simulate.strategies import ddp, hsdp, mesh, plan, tiny, zero1, zero2, zero3

A = ("dp",)
SUM = Reduce(axes=A, scatter=False)
MEAN = Reduce(axes=A, scatter=False, mean=True)
SCATTER = Reduce(axes=A, scatter=True, when=When.MICROBATCH)
OWN = Partial(axes=A)
FULL, SPLIT = (Replicate(),), (Shard(axes=A),)
SYMBOLIC = Mesh((Axis("dp", Role.DATA), Axis("tp", Role.TENSOR)))
ROWS_OF_BATCH = (Shard(axes=A, dim="batch"),)


def only(checked: Checked) -> Diagnostic:
    (diagnostic,) = checked.diagnostics
    return diagnostic


def titles(diagnostic: Diagnostic) -> list[str]:
    assert all(fix.checked for fix in diagnostic.fixes)
    return [fix.title for fix in diagnostic.fixes]


SOUND = {
    "ddp": ddp(mesh(dp=2)),
    "ddp-each": ddp(mesh(dp=2), When.MICROBATCH),
    "zero1": zero1(mesh(dp=2)),
    "zero1-scatter": zero2(mesh(dp=2), When.STEP),
    "zero2": zero2(mesh(dp=2), When.MICROBATCH),
    "zero3": zero3(mesh(dp=3)),
    "zero3-each": zero3(mesh(dp=3), when=When.MICROBATCH, microbatches=1),
    "zero3-microbatch": zero3(mesh(dp=2), Keep.MICROBATCH, microbatches=5),
    "zero3-step": zero3(mesh(a=2, b=3), Keep.STEP),
    "hsdp": hsdp(mesh(outer=2, inner=2)),
    "one-rank": zero3(mesh(dp=1)),
    "no-mesh": ddp(mesh()),
}


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "bf16_fp32_grads", "fsdp_mixed"])
def test_sound(name: str, tied: bool, precision: str) -> None:
    job = SOUND[name]
    train = attrs.evolve(job.train, precision=PRECISIONS[precision])
    checked = check_plan(attrs.evolve(job, train=train), tiny(tied))
    assert (checked.verdict, checked.diagnostics) == (Verdict.SOUND, ())
    assert checked.ok


def test_sound_whatever_the_sizes() -> None:
    assert check_plan(ddp(Mesh((Axis("dp", Role.DATA),))), tiny()).ok
    assert check_plan(zero3(Mesh((Axis("a", Role.DATA), Axis("b", Role.DATA)))), tiny()).ok


def test_no_reduction() -> None:
    checked = check_plan(plan(mesh(dp=2), FULL, (OWN,), FULL), tiny())
    d = only(checked)
    assert (checked.verdict, d.code, checked.ok) == (Verdict.UNSOUND, "E201", False)
    assert d.message == "the gradients stay partial over `dp`"
    assert d.counterexample == "rank (dp=0) lacks the contribution of (dp=1)"
    assert titles(d) == ["`grads: all_reduce(dp)`"]
    found = checked.faults[0].counterexample
    assert found is not None
    assert (found.rank, found.contribution, found.multiplicity) == ((("dp", 0),), (("dp", 1),), 0)


def test_no_reduction_before_a_slice() -> None:
    d = only(check_plan(plan(mesh(dp=2), FULL, (OWN,), SPLIT, (AllGather(axes=A),)), tiny()))
    assert d.code == "E201"
    assert titles(d) == ["`grads: reduce_scatter(dp, when = step)`", "`grads: reduce_scatter(dp)`"]


def test_one_axis_of_two_is_reduced() -> None:
    both = ("dp", "cp")
    d = only(check_plan(plan(mesh(dp=2, cp=2), FULL, (Partial(axes=both), SUM), FULL), tiny()))
    assert (d.code, d.counterexample) == ("E201", "rank (cp=0) lacks the contribution of (cp=1)")
    assert titles(d)[0] == "`grads: all_reduce(dp * cp)`"


def test_reduced_twice_with_sum_and_with_mean() -> None:
    d = only(check_plan(plan(mesh(dp=2), FULL, (OWN, SUM, SUM), FULL), tiny()))
    assert (d.code, d.counterexample) == ("E202", "rank (dp=0) holds 2 x the contribution of (dp=1)")
    assert titles(d) == ["`grads: all_reduce(dp)`"]
    assert check_plan(plan(mesh(dp=2), FULL, (OWN, SUM, MEAN), FULL), tiny()).ok


def test_mean_of_a_normalised_loss() -> None:
    checked = check_plan(plan(mesh(dp=4), FULL, (OWN, MEAN), FULL), tiny())
    d = only(checked)
    assert (d.code, d.counterexample) == ("E203", "rank (dp=0) holds 1/4 x the contribution of (dp=1)")
    assert [(fix.title, fix.cost) for fix in d.fixes] == [("`grads: all_reduce(dp)`", "the same traffic")]
    found = checked.faults[0].counterexample
    assert found is not None and found.multiplicity == Fraction(1, 4)


def test_unknown_sizes_never_cancel() -> None:
    grads = (OWN, Reduce(axes=("tp",), scatter=False), MEAN)
    d = only(check_plan(plan(SYMBOLIC, FULL, grads, FULL, activations=ROWS_OF_BATCH), tiny()))
    assert (d.code, d.counterexample) == ("E202", "rank (dp=0) holds tp/dp x the contribution of (dp=1)")
    grads = (OWN, Reduce(axes=("dp", "tp"), scatter=False))
    d = only(check_plan(plan(SYMBOLIC, FULL, grads, FULL, activations=ROWS_OF_BATCH), tiny()))
    assert (d.code, d.cause) == ("E202", "every `tp` rank computes the same gradient")
    assert d.counterexample == "rank (dp=0) holds tp x the contribution of (dp=1)"
    assert titles(d) == ["`grads: all_reduce(dp)`"]


def test_no_refresh() -> None:
    d = only(check_plan(plan(mesh(dp=2), FULL, (OWN, SUM), SPLIT), tiny()))
    assert d.code == "E301"
    assert titles(d) == ["`update: all_gather(dp)`"]


def test_no_gather() -> None:
    d = only(check_plan(plan(mesh(dp=2), SPLIT, (OWN, SCATTER), SPLIT), tiny()))
    assert d.code == "E302" and "`dp`" in d.message
    assert titles(d) == ["`params: shard(dp) | gather(dp)`"]


def test_axes_in_another_order() -> None:
    ab, ba = ("a", "b"), ("b", "a")
    on = mesh(a=2, b=3)
    grads = (Partial(axes=ab), Reduce(axes=ba, scatter=True))
    params = (Shard(axes=ab), Gather(axes=ab))
    d = only(check_plan(plan(on, params, grads, (Shard(axes=ab),)), tiny()))
    assert d.code == "E206" and "shard(b * a)" in d.message
    assert titles(d)[0] == "`grads: reduce_scatter(a * b, when = step)`"
    params = (Shard(axes=ab), Gather(axes=ba))
    d = only(check_plan(plan(on, params, (Partial(axes=ab), Reduce(axes=ab, scatter=True)), (Shard(axes=ab),)), tiny()))
    assert d.code == "E306"
    assert titles(d) == ["`params: shard(a * b) | gather(a * b)`"]


def test_reduces_what_it_has_scattered() -> None:
    d = only(check_plan(plan(mesh(dp=2), FULL, (OWN, SCATTER, SUM), FULL), tiny()))
    assert d.code == "E207"
    assert titles(d) == ["`grads: all_reduce(dp)`"]


def test_positions_need_an_algorithm() -> None:
    seq = (Shard(axes=A, dim="seq"),)
    d = only(check_plan(plan(mesh(dp=2), FULL, (OWN, SUM), FULL, activations=seq), tiny()))
    assert d.code == "E306" and "positions" in d.message and "split the batch" in d.help


def test_unread_gradients_of_an_axis_that_splits_nothing() -> None:
    job = plan(mesh(dp=2), FULL, (Reduce(axes=A, scatter=False),), FULL, activations=FULL)
    d = only(check_plan(job, tiny()))
    assert (d.code, d.cause) == ("E202", "every `dp` rank computes the same gradient")


@pytest.mark.parametrize("layers", [1, 2, 3, 50])
def test_the_verdict_does_not_depend_on_the_number_of_layers(layers: int) -> None:
    model = tiny()
    stacks = tuple(attrs.evolve(s, count=layers) if s.block else s for s in model.stacks)
    deep = attrs.evolve(model, stacks=stacks)
    bad = plan(mesh(dp=2), FULL, (OWN,), FULL)
    assert check_plan(zero3(mesh(dp=2)), deep).ok
    assert only(check_plan(bad, deep)).message == only(check_plan(bad, model)).message


def test_two_mistakes_are_two_messages() -> None:
    both: Plan = plan(mesh(dp=2), FULL, (OWN, MEAN), SPLIT)
    checked = check_plan(both, tiny())
    assert [d.code for d in checked.diagnostics] == ["E203", "E301"]
    assert not any(d.fixes for d in checked.diagnostics)  # no single edit makes it sound
