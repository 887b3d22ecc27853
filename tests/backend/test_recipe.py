"""What this backend runs, and in which words it refuses the rest before a process starts."""

from __future__ import annotations

import attrs
import pytest

from placelang.backend.apply import with_ranks
from placelang.backend.errors import BackendError
from placelang.backend.recipe import Reduction, recipe
from placelang.backend.sound import step_program
from placelang.plan.mesh import Axis, Mesh, Role, View
from placelang.plan.plan import Plan
from placelang.program.lower import lower
from tests.backend.plans import plan, tiny


def found(strategy: Plan) -> object:
    return recipe(lower(strategy, tiny()))


def test_the_table_of_a_few() -> None:
    ddp = recipe(lower(plan("ddp", 2), tiny()))
    assert (ddp.shard, ddp.keep, ddp.each, ddp.once) == ((), "", (), (Reduction(False, ("dp",), False, "fp32"),))
    hsdp = recipe(lower(plan("zero3", 2, 3, precision="fsdp_mixed"), tiny()))
    assert (hsdp.shard, hsdp.keep, hsdp.optimizer) == (("dp_shard",), "unit", ("dp_shard",))
    assert hsdp.each == (
        Reduction(True, ("dp_shard",), False, "fp32"),
        Reduction(False, ("dp_replicate",), False, "fp32"),
    )
    zero1 = recipe(lower(plan("zero1", 4), tiny()))
    assert (zero1.optimizer, zero1.refresh, zero1.once[0].scatter) == (("dp",), ("dp",), True)
    assert recipe(lower(plan("zero3_kept", 2), tiny())).keep == "microbatch"


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (plan("flat", 2), "optimizer split along `flat`"),
        (plan("no_update", 2), "updates do not return"),
        (plan("zero3_once", 2), "scattered once a step"),
        (plan("zero1", 2, precision="fsdp_mixed"), "whose views have another dtype"),
        (plan("zero3", 2, precision="bf16_fp32_grads"), "FSDP2 accumulates"),
        (plan("ddp", 2, optimizer="lamb"), "the optimizer `lamb`"),
        (plan("ddp", 2, frozen=("layers.0",)), "frozen parameters"),
    ],
)
def test_refused_with_what_is_supported_instead(strategy: Plan, words: str) -> None:
    with pytest.raises(BackendError) as error:
        found(strategy)
    diagnostic = error.value.diagnostic
    assert diagnostic.code == "E501"
    assert words in diagnostic.message
    assert diagnostic.help


def test_axes_of_other_roles_are_refused_unless_they_have_one_rank() -> None:
    base = plan("ddp", 2)
    for role, size, refused in ((Role.EXPERT, 1, False), (Role.EXPERT, 2, True), (Role.TENSOR, 2, False)):
        strategy = attrs.evolve(base, mesh=Mesh((*base.mesh.axes, Axis("x", role, size))))
        if not refused:
            found(strategy)
            continue
        with pytest.raises(BackendError, match=f"axis `x` of role {role.value}"):
            found(strategy)


def test_an_unsound_plan_is_refused_unless_forced_and_axes_of_one_rank_do_no_harm() -> None:
    with pytest.raises(BackendError, match="`dp`") as error:
        step_program(plan("none", 2), tiny())
    assert error.value.diagnostic.code == "E201"
    assert step_program(plan("none", 2), tiny(), force=True)
    with pytest.raises(BackendError, match="`dp_replicate`"):
        step_program(plan("ddp_inner", 2, 2), tiny())


def test_an_axis_without_a_size_gets_what_is_left() -> None:
    assert with_ranks(plan("ddp", None), 3).mesh.world == 3
    assert with_ranks(plan("zero3", None, 2), 6).mesh.size(("dp_replicate",)) == 3
    for strategy, ranks, code in (
        (plan("ddp", 2), 3, "E503"),
        (plan("zero3", None, 2), 3, "E503"),
        (plan("zero3", None, None), 4, "E121"),
    ):
        with pytest.raises(BackendError) as error:
            with_ranks(strategy, ranks)
        assert error.value.diagnostic.code == code


def test_an_axis_without_a_size_leaves_views_as_they_are() -> None:
    base = plan("ddp", None)
    view = View("other", (Axis("a", Role.EXPERT, 2), Axis("b", Role.DATA)), ("dp",))
    assert with_ranks(attrs.evolve(base, mesh=attrs.evolve(base.mesh, views=(view,))), 4).mesh.views == (view,)


def test_a_size_that_nobody_gave() -> None:
    with pytest.raises(BackendError) as error:
        found(plan("ddp", None))
    assert error.value.diagnostic.code == "E121"
