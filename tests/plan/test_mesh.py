"""Meshes: sizes, `*`, roles, views and their common refinement."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang import api
from placelang.plan.mesh import Mesh, Role, atomic

Z3 = "\nparams: shard(dp) ; grads: reduce_scatter"


def mesh(text: str, **sets: object) -> Mesh:
    plan = api.load(text + Z3, **sets).plan
    assert plan is not None, api.load(text + Z3, **sets).diagnostics
    return plan.mesh


def code(text: str, **sets: object) -> str:
    (found,) = api.load(text + Z3, **sets).diagnostics
    return found.code


def sizes(found: Mesh) -> dict[str, int | None]:
    return {a.name: a.size for a in found.axes} | {a.name: a.size for v in found.views for a in v.axes}


def test_axes_are_as_written_outermost_first() -> None:
    found = mesh("mesh (pods: data = 2, dp = 4, tp)")
    assert sizes(found) == {"pods": 2, "dp": 4, "tp": None}
    assert [a.role for a in found.axes] == [Role.DATA, Role.DATA, Role.TENSOR]
    assert found.world is None


def test_without_a_mesh_line_an_axis_is_one_that_is_used() -> None:
    assert sizes(mesh("")) == {"dp": None}
    assert sizes(mesh("", dp=4)) == {"dp": 4}


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_star_is_what_is_left(nodes: int) -> None:
    found = mesh(f"hardware dgx_a100(nodes = {nodes})\nmesh (pp = 1, dp = *, tp = 4)")
    assert sizes(found) == {"pp": 1, "dp": 2 * nodes, "tp": 4}
    assert found.world == 8 * nodes


def test_sizes_come_from_arguments_and_sets() -> None:
    text = "arg n: int = 2\nmesh (dp = n * 2, tp = 2)"
    assert sizes(mesh(text)) == {"dp": 4, "tp": 2}
    assert sizes(mesh(text, n=3)) == {"dp": 6, "tp": 2}
    assert sizes(mesh(text, tp=8)) == {"dp": 4, "tp": 8}
    assert sizes(mesh("arg n: int\nmesh (dp = n)")) == {"dp": None}


def test_a_set_size_stands_in_place_of_a_star() -> None:
    assert sizes(mesh("mesh (dp = *, tp = 2)", dp=4)) == {"dp": 4, "tp": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mesh (dp = *)", "E121"),
        ("hardware dgx_a100(nodes = 2)\nmesh (dp = 8)", "E109"),
        ("hardware dgx_a100(nodes = 2)\nmesh (dp = *, tp = 3)", "E109"),
        ("hardware dgx_a100(nodes = 2)\nmesh (dp = *, tp = *)", "E109"),
        ("hardware dgx_a100(nodes = 2)\nmesh (dp = *, tp)", "E121"),
        ("mesh (dp = 0)", "E109"),
        ("mesh (dp = 8, dp = 2)", "E103"),
        ("mesh (dp = 8, rows = 2)", "E113"),
        ("mesh (dp = 8, sp = 2)", "E114"),
    ],
)
def test_refusals(text: str, expected: str) -> None:
    assert code(text) == expected


# --- folds and views ------------------------------------------------------------------------------------------------

MOE = "mesh (dp = 4, cp = 2, tp = 2)\nmesh moe (efsdp = *, ep = 4) over (dp, cp)"


def test_a_view_has_the_ranks_of_its_axes() -> None:
    found = mesh(MOE)
    assert sizes(found) == {"dp": 4, "cp": 2, "tp": 2, "efsdp": 2, "ep": 4}
    assert found.world == 16
    assert found.names == ("dp", "cp", "tp")
    assert "ep" in found
    assert found["ep"].role is Role.EXPERT


def test_axes_that_share_ranks() -> None:
    found = mesh(MOE + "\nmesh kv (kv_tp: tensor = 2) over (tp)")
    assert found.shared("tp") == {"tp", "kv_tp"}
    assert found.shared("ep") == {"ep", "dp", "cp"}
    assert found.shared("dp") == {"dp", "efsdp", "ep"}
    assert found.shared("kv_tp") == {"kv_tp", "tp"}


def test_a_fold_is_its_factors() -> None:
    plan = api.load("mesh (dp = 4, cp = 2)\naxis all = dp * cp\nparams: shard(all) ; grads: reduce_scatter(all)").plan
    same = api.load("mesh (dp = 4, cp = 2)\nparams: shard(dp * cp) ; grads: reduce_scatter(dp * cp)").plan
    assert plan is not None
    assert plan == same


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        (((16, 4), (2, 32)), (2, 8, 4)),  # docs/design/semantics, section 1
        (((2, 3), (3, 2)), None),
        (((4, 2), (2, 4)), (2, 2, 2)),
        (((8,), (2, 4), (4, 2)), (2, 2, 2)),
        (((5,), (5,)), (5,)),
        (((1, 6), (6, 1)), (6,)),
        (((), ()), ()),
    ],
)
def test_common_refinement(sides: tuple[tuple[int, ...], ...], expected: tuple[int, ...] | None) -> None:
    assert atomic(sides) == expected


factorisations = st.lists(st.integers(1, 6), max_size=4).map(tuple)


@given(factorisations, factorisations)
def test_a_refinement_makes_every_axis_of_both(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    if prod(a) != prod(b):
        a, b = (*a, prod(b)), (prod(a), *b)
    found = atomic((a, b))
    if found is None:
        assert atomic((a, a)) is not None
        return
    for axes in (a, b):
        parts = list(found)
        for size in axes:  # outer first: each axis is the product of the atoms that come next
            taken = 1
            while taken < size:
                taken *= parts.pop(0)
            assert taken == size
        assert not parts


def test_views_that_refine_are_accepted_and_others_are_not() -> None:
    for a, b in product((1, 2, 3, 4, 6, 12), repeat=2):
        text = f"mesh (dp = {a}, cp = {12 // a})\nmesh moe (efsdp = {b}, ep = {12 // b}) over (dp, cp)"
        fits = atomic(((a, 12 // a), (b, 12 // b))) is not None
        assert [d.code for d in api.load(text + Z3).diagnostics if d.code == "E117"] == ([] if fits else ["E117"])


# --- how many devices there are to run on -----------------------------------------------------------------------------

BATCH = "\ntrain (global_batch = 8, micro_batch = 2)"
H100S = "hardware dgx_h100(nodes = 2)\n"


@pytest.mark.parametrize(
    "text", ["", "mesh (dp)", "mesh (dp = *)", f"{H100S}mesh (dp = *)", "arg n: int\nmesh (dp = n)"]
)
def test_devices_size_the_axis_that_has_no_size(text: str) -> None:
    plan = api.load(text + BATCH + Z3, devices=2).plan
    assert plan is not None
    assert (sizes(plan.mesh), plan.train.microbatches) == ({"dp": 2}, 2)
    assert plan.hardware is None, "two devices are not the machine that the text describes"


def test_devices_are_shared_with_axes_that_have_a_size() -> None:
    plan = api.load(f"{H100S}mesh (dp = *, tp = 4){Z3}", devices=16).plan
    assert plan is not None
    assert sizes(plan.mesh) == {"dp": 4, "tp": 4}
    assert plan.hardware is not None, "there are as many as the text says"
    plan = api.load("mesh (dp, tp = 4)\nrequire dp == 2" + Z3, devices=8).plan
    assert plan is not None
    assert sizes(plan.mesh) == {"dp": 2, "tp": 4}


def test_several_axes_without_a_size_keep_none() -> None:
    plan = api.load("apply hsdp", devices=4).plan
    assert plan is not None
    assert set(sizes(plan.mesh).values()) == {None}
    assert sizes(api.load("apply hsdp", devices=4, dp_shard=2).plan.mesh) == {"dp_shard": 2, "dp_replicate": 2}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mesh (dp = 4)" + Z3, "E503"),
        ("mesh (dp, tp = 3)" + BATCH + Z3, "E503"),
        ("mesh (dp = *, tp = 3)" + Z3, "E109"),
        ("params: replicate", "E503"),
        (f"{H100S}mesh (dp = 4)" + Z3, "E503"),
        ("params: shard(foo)", "E102"),
    ],
)
def test_devices_that_do_not_fit_are_one_fault(text: str, expected: str) -> None:
    assert [d.code for d in api.load(text, devices=2).diagnostics] == [expected]


def test_what_stands_for_devices_is_a_count() -> None:
    for wrong in (0, -1, True, "2", 2.0):
        assert [d.code for d in api.load(Z3, devices=wrong).diagnostics] == ["E105"]  # type: ignore[arg-type]
