"""Refining and overriding: what a statement names is replaced, the rest stays; and products, factor by factor."""

from __future__ import annotations

import pytest

from placelang import api
from placelang.plan.merge import differ, join, ordered, replace, shared
from placelang.plan.mesh import Axis, Mesh, Role, View
from placelang.plan.plan import State
from placelang.plan.steps import (
    Formats,
    Gather,
    Journey,
    Offload,
    Partial,
    Recompute,
    Reduce,
    Replicate,
    Shard,
)
from placelang.plan.text import journey_text

A, B = Axis("a", Role.DATA, 4), Axis("b", Role.TENSOR, 2)
V = View("view", (Axis("v", Role.DATA, 2), Axis("w", Role.EXPERT, 2)), ("a",))
MESH = Mesh((A, B), (V,))


def shard(*axes: str, dim: str = "0") -> Shard:
    return Shard(axes=axes, dim=dim)


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [
        ((shard("a"),), (shard("b"),), (shard("a"), shard("b"))),  # other axes stay
        ((shard("a"), shard("b")), (shard("b", dim="1"),), (shard("a"), shard("b", dim="1"))),
        ((shard("a", "b"),), (Replicate(axes=("b",)),), (shard("a"), Replicate(axes=("b",)))),
        ((shard("a"),), (Replicate(),), (Replicate(),)),  # a word without axes is about all of them,
        (
            (shard("a"), shard("b")),
            (Replicate(),),
            (shard("b"), Replicate(axes=("a",))),
        ),  # but shards that compute uses
        ((shard("a"), Gather(axes=("a",))), (Replicate(),), (Replicate(),)),
        ((shard("a"),), (shard("v"),), (shard("v"),)),  # axes that share ranks
        ((shard("v"),), (shard("w"),), (shard("v"), shard("w"))),  # axes of one view do not
        ((shard("v"),), (shard("a"),), (shard("a"),)),
        ((shard("a"),), (Offload(),), (shard("a"), Offload())),  # the tier alone
        ((shard("a"), Offload(tier="cpu")), (Offload(tier="nvme"),), (shard("a"), Offload(tier="nvme"))),
        ((shard("a"), Offload()), (shard("b"),), (shard("a"), shard("b"), Offload())),
        ((Recompute(policy="full"),), (Recompute(policy="none"),), (Recompute(policy="none"),)),
        ((shard("a"), Formats(master="fp32")), (Formats(master="bf16"),), (shard("a"), Formats(master="bf16"))),
        ((shard("a"), Gather(axes=("a",))), (Offload(),), (shard("a"), Gather(axes=("a",)), Offload())),
        ((), (shard("a"),), (shard("a"),)),
    ],
)
def test_replace(base: Journey, new: Journey, expected: Journey) -> None:
    assert set(replace(base, new, MESH)) == set(expected)


def test_forms_stand_before_what_happens_to_them() -> None:
    gather = Gather(axes=("a",))
    assert ordered((gather, shard("a"))) == (shard("a"), gather)
    assert ordered((Replicate(), shard("a"))) == (shard("a"),)  # the unit of `*`
    assert ordered((Replicate(), Replicate())) == (Replicate(),)
    assert ordered((Replicate(axes=("b",)), shard("a"))) == (Replicate(axes=("b",)), shard("a"))


def test_the_forms_of_a_journey_have_one_format() -> None:
    base = (Shard(axes=("a",), dtype="fp32"),)
    assert replace(base, (shard("b"),), MESH) == (Shard(axes=("a",), dtype="fp32"), Shard(axes=("b",), dtype="fp32"))
    assert {s.dtype for s in replace(base, (Shard(axes=("b",), dtype="bf16"),), MESH)} == {"bf16"}


def test_factors_join_and_share_no_axis() -> None:
    a, b = (shard("a"), Gather(axes=("a",))), (shard("b"),)
    assert shared(a, b) is None
    assert join(a, b) == (shard("a"), shard("b"), Gather(axes=("a",)))
    assert shared(a, (shard("b"), Gather(axes=("a",)))) == ("a", shard("a"), Gather(axes=("a",)))


@pytest.mark.parametrize(
    ("a", "b", "where"),
    [
        ((shard("a"),), (shard("a"),), ""),
        ((shard("a"),), (shard("b"),), ""),
        ((shard("a"),), (shard("a", dim="1"),), "over `a`"),
        ((shard("a"),), (shard("a"), Gather(axes=("a",))), ""),  # one says more
        ((shard("a"), Gather(axes=("a",))), (shard("a"), Gather(axes=("a",), prefetch=2)), "over `a`"),
        ((shard("a"),), (Replicate(),), "over `a`"),
        ((shard("b"),), (Replicate(),), ""),  # which compute uses as it is
        ((Shard(axes=("a",), dtype="fp32"),), (shard("a"),), ""),
        ((Shard(axes=("a",), dtype="fp32"),), (Shard(axes=("b",), dtype="bf16"),), "in format"),
        ((Offload(tier="cpu"),), (Offload(tier="nvme"),), "in tier"),
        ((Offload(tier="cpu"),), (shard("a"),), ""),
        ((Recompute(policy="full"),), (Recompute(policy="none"),), "in lifetime"),
    ],
)
def test_where_two_journeys_differ(a: Journey, b: Journey, where: str) -> None:
    assert differ(a, b, MESH) == differ(b, a, MESH) == where


# --- as a text says it ----------------------------------------------------------------------------------------------

BIG = "mesh (dp = 4, tp = 2)\n"
BIG += "strategy big { params: shard(dp) * shard(tp, dim = 1) | gather(dp) ; optimizer: shard(dp) }\n"


def said(text: str, state: State) -> str:
    plan = api.load(BIG + text).plan
    assert plan is not None, api.load(BIG + text).diagnostics
    return journey_text(plan.journey(state), full=False)


@pytest.mark.parametrize(
    ("words", "params"),
    [
        ("params: offload(cpu)", "shard(dp) * shard(tp, dim = 1) | gather(dp) | offload(cpu)"),
        ("params: shard(tp)", "shard(dp) * shard(tp) | gather(dp)"),
        ("params: replicate", "shard(tp, dim = 1)"),
    ],
)
def test_with_replaces_what_it_names(words: str, params: str) -> None:
    inside = said(f"apply big with {{ override {words} }}", State.PARAMS)
    named = said(f"strategy cheap = big with {{ override {words} }}\napply cheap", State.PARAMS)
    beside = said(f"apply big\noverride {words}", State.PARAMS)
    assert {frozenset(t.replace(" | ", " * ").split(" * ")) for t in (inside, named, beside)} == {
        frozenset(params.replace(" | ", " * ").split(" * "))
    }
    assert said(f"apply big with {{ override {words} }}", State.OPTIMIZER) == "shard(dp)" or "tp" in params


def test_a_text_is_one_more_factor_beside_its_apply() -> None:
    assert said("apply big\ngrads: reduce_scatter(dp)", State.GRADS) == "partial(dp) | reduce_scatter(dp)"
    codes = [d.code for d in api.load(BIG + "apply big\nparams: replicate(dp)").diagnostics]
    assert codes == ["E104"]


def test_products_keep_the_order_of_factors() -> None:
    text = (
        "mesh (a: data = 2, b: data = 2)\n"
        "strategy one(d: axis) { params: shard(d) | gather(d) ; grads: reduce_scatter(d) ; optimizer: shard(d) }\n"
    )
    for order in (("a", "b"), ("b", "a")):
        plan = api.load(f"{text}apply {' * '.join(f'one({d})' for d in order)}").plan
        assert plan is not None
        assert [a for s in plan.journey(State.PARAMS) if isinstance(s, Shard) for a in s.axes] == list(order)
        assert [s.axes for s in plan.journey(State.GRADS) if isinstance(s, Reduce)] == [(order[0],), (order[1],)]
        assert [s.axes for s in plan.journey(State.GRADS) if isinstance(s, Partial)] == [("a", "b")]
