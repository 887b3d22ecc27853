"""What no line says: elaboration gives a plan or a reason, its explanation is a fixed point, and where some filling of
the gaps is sound, the rules find one."""

from __future__ import annotations

from itertools import product

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang import api
from placelang.plan.explain import explain
from placelang.plan.plan import Plan, State
from placelang.plan.text import journey_text
from placelang.source import Source
from placelang.syntax.parser import parse
from tests.plan.partial import ONE, TWO, Triple, elaborated, menus, sound, text

TEXTS_OF_ONE = [t for t in product(*menus(ONE)) if any(t)]
TEXTS_OF_TWO = st.tuples(*(st.sampled_from(menu) for menu in menus(TWO))).filter(any)


def gaps(said: Triple) -> list[Triple]:
    """The texts that say less."""
    fewer = product(*((journey, None) if journey else (None,) for journey in said))
    return [t for t in fewer if any(t) and t != said]


def check_fixed_point(plan: Plan) -> None:
    explained = explain(plan)
    again, problems = elaborated(explained)
    assert again is not None, (explained, problems)
    assert attrs.evolve(again, assumptions=()) == attrs.evolve(plan, assumptions=())
    assert _without_reasons(explain(again)) == _without_reasons(explained)


def _without_reasons(explained: str) -> list[str]:
    return [line for line in explained.splitlines() if not line.startswith("#")]


def check_total(axes: tuple[str, ...], said: Triple) -> None:
    plan, problems = elaborated(text(axes, said))
    assert (plan is None) == any(d.is_error for d in problems)
    if plan is not None:
        check_fixed_point(plan)


@pytest.mark.parametrize("said", TEXTS_OF_ONE, ids=str)
def test_one_axis(said: Triple) -> None:
    check_total(ONE, said)
    if sound(ONE, said):
        assert all(sound(ONE, fewer) for fewer in gaps(said))


@given(TEXTS_OF_TWO)
def test_two_axes(said: Triple) -> None:
    check_total(TWO, said)
    if sound(TWO, said):
        assert all(sound(TWO, fewer) for fewer in gaps(said))


@pytest.mark.slow
def test_every_text_over_two_axes() -> None:
    for said in product(*menus(TWO)):
        if any(said):
            check_total(TWO, said)
            lost = [fewer for fewer in gaps(said) if not sound(TWO, fewer)] if sound(TWO, said) else []
            assert not lost, (said, lost)


# --- the rules, one by one ------------------------------------------------------------------------------------------


def journeys(written: str) -> dict[str, str]:
    plan, problems = elaborated(written)
    assert plan is not None, problems
    found = {s.value: journey_text(plan.journey(s), full=False) for s in State}
    return found | {"update": journey_text(plan.update, full=False)}


def test_the_card() -> None:
    assert journeys("params: shard(dp) ; grads: reduce_scatter") == {
        "params": "shard(dp) | gather(dp)",
        "grads": "partial(dp) | reduce_scatter(dp)",
        "optimizer": "shard(dp)",
        "activations": "shard(dp, dim = batch)",
        "update": "",
    }


RULES = """
grads: all_reduce(dp)                                                        => params: replicate
params: shard(dp, dim = flat)                                                => params: shard(dp, dim = flat) | gather(dp)
params: shard(tp) ; grads: all_reduce(dp)                                    => params: shard(tp)
params: shard(dp, dim = heads)                                               => params: shard(dp, dim = heads) | gather(dp)
params: shard(cp, dim = vocab)                                               => params: shard(cp, dim = vocab) | gather(cp)
params: shard(tp, dim = heads)                                               => params: shard(tp, dim = heads)
params: shard(tp) * replicate(dp)                                            => params: shard(tp)
params: shard(pp, dim = layer) * shard(dp) ; optimizer: replicate ; schedule: 1f1b => optimizer: shard(pp, dim = layer) * replicate(dp)
params: shard(pp, dim = layer) * shard(dp) ; schedule: 1f1b                  => params: shard(pp, dim = layer) * shard(dp) | gather(dp)
optimizer: replicate                                                         => params: replicate
grads: reduce_scatter(dp)                                                    => optimizer: shard(dp)
grads: all_reduce(dp)                                                        => optimizer: replicate
params: shard(dp) ; grads: all_reduce(dp)                                    => optimizer: shard(dp)
params[attn.qkv]: colwise(tp) ; grads: reduce_scatter(dp, when = step)       => optimizer: shard(dp)
params: shard(dp_shard) ; grads: reduce_scatter(dp_shard * dp_replicate)     => optimizer: shard(dp_shard) * shard(dp_replicate)
optimizer: shard(dp_shard) ; grads: reduce_scatter(dp_replicate * dp_shard)  => optimizer: shard(dp_replicate) * shard(dp_shard)
optimizer: shard(dp_shard) ; grads: reduce_scatter(dp_shard * dp_replicate)  => optimizer: shard(dp_shard) * shard(dp_replicate)
optimizer: shard(dp)                                                         => grads: partial(dp) | reduce_scatter(dp)
mesh (tp = 2) ; params: replicate                                            => grads:
mesh (dp = 2, cp = 2) ; optimizer: shard(dp)                                 => grads: partial(dp * cp) | reduce_scatter(dp) | all_reduce(cp)
optimizer: shard(dp)                                                         => update: all_gather(dp)
params: shard(dp_shard) ; optimizer: shard(dp_shard * dp_replicate)          => update: all_gather(dp_replicate)
params: shard(dp) ; optimizer: shard(dp)                                     => update:
mesh (dp = 2, cp = 2) ; params: replicate                                    => activations: shard(dp, dim = batch) * shard(cp, dim = seq)
mesh (dp = 2, ep = 2, tp = 2) ; params: replicate                            => activations: shard(dp * ep, dim = batch)
mesh (tp = 2) ; params: replicate                                            => activations: replicate
"""  # noqa: E501


@pytest.mark.parametrize("rule", RULES.strip().splitlines())
def test_rules(rule: str) -> None:
    written, _, follows = rule.partition("=>")
    state, _, expected = follows.partition(":")
    assert journeys(written)[state.strip()] == expected.strip()


def test_reasons_are_given_for_what_is_inferred_and_only_for_that() -> None:
    plan, _ = elaborated("params: shard(dp)\noptimizer: shard(dp)")
    assert plan is not None
    assert [s.why != "" for s in plan.journey(State.PARAMS)] == [False, True]
    assert [s.why != "" for s in plan.journey(State.OPTIMIZER)] == [False]


def test_tier_lifetime_and_format_are_never_inferred() -> None:
    file, _ = parse(Source("params: shard(dp) as fp32 | offload(cpu) | gather as bf16"))
    plan = api.load_source(file.source).plan
    assert plan is not None
    assert journey_text(plan.journey(State.OPTIMIZER), full=False) == "shard(dp)"


@pytest.mark.parametrize(
    ("written", "other"),
    [
        ("mesh (dp = 2) ; params: replicate", "samples"),
        ("mesh (dp = 2, ep = 2) ; params: replicate", "samples"),
        ("mesh (cp = 2) ; params: replicate", "positions"),
        ("mesh (dp = 2, cp = 2) ; params: replicate", "samples or positions"),
        ("mesh (cp = 2) ; params: replicate ; activations: shard(cp, dim = batch)", "samples"),
    ],
)
def test_the_reason_of_a_partial_gradient_says_what_ranks_see(written: str, other: str) -> None:
    plan, _ = elaborated(written)
    assert plan is not None
    assert plan.journey(State.GRADS)[0].why == f"each rank of these axes sees other {other}"


@pytest.mark.parametrize("journey", ["reduce_scatter", "all_reduce", "all_reduce(mean)", "reduce_scatter(when = step)"])
def test_a_reduction_needs_an_axis_somewhere(journey: str) -> None:
    plan, problems = elaborated(f"params: replicate\ngrads: {journey}")
    assert plan is None
    (found,) = problems
    word = journey.partition("(")[0]
    assert (found.code, found.help) == ("E107", f"`{word}(dp)`, or a line `mesh (dp)`")
    assert found.primary is not None and found.primary.span.text == journey


@pytest.mark.parametrize("written", ["params: replicate", "mesh (tp = 2)\nparams: replicate\ngrads: all_reduce"])
def test_gradients_that_nothing_reduces_are_a_comment(written: str) -> None:
    plan, _ = elaborated(written)
    assert plan is not None
    assert "# grads: whole where it is produced, so nothing reduces it\n" in explain(plan)
    check_fixed_point(plan)
