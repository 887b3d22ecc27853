"""Each rule on its own: one event it accepts, with the type that it gives, and one it refuses."""

from __future__ import annotations

from fractions import Fraction

import attrs
import pytest

from placelang.check.fault import Ill
from placelang.check.premises import Context, Update
from placelang.check.rules import apply
from placelang.check.sizes import Sizes
from placelang.check.types import COMPLETE, Coefficient, Type
from placelang.check.values import Values
from placelang.plan.mesh import Axis, Mesh, Role
from placelang.program.event import Buf, Event, Label, Layout, Op, Phase
from tests.simulate.strategies import both, ddp, mesh, tiny

ROWS, BATCH = Label("0"), Label("batch", "contiguous")
DP: Layout = (("dp", ROWS),)
DATA: Layout = (("dp", BATCH),)


@pytest.fixture
def ctx() -> Context:
    sizes = Sizes.of(Mesh((Axis("dp", Role.DATA, 2), Axis("tp", Role.TENSOR, 3), Axis("one", Role.DATA, 1))))
    program, _ = both(ddp(mesh(dp=2)), tiny())
    return Context(Values(), sizes, {g.name: g for g in program.groups}, ("dp",), {})


def coefficient(*partial: str, times: Fraction | int = 1) -> Coefficient:
    return Coefficient.of({frozenset(partial): Fraction(times)})


def event(op: Op, ins: int = 1, outs: int = 1, **more: object) -> Event:
    """An event with `ins` and `outs` buffers of the group `embed`."""
    facts = {"phase": Phase.BACKWARD, "dtype": "fp64", **more}
    return Event(
        op=op,
        ins=tuple(Buf(f"i{k}", "embed") for k in range(ins)),
        outs=tuple(Buf(f"o{k}", "embed") for k in range(outs)),
        **facts,  # type: ignore[arg-type]
    )


def params(ctx: Context, layout: Layout = (), group: str = "embed") -> Type:
    return Type.clean(layout, ctx.values.leaf("params", (), group))


def tokens(ctx: Context, layout: Layout = DATA) -> Type:
    return Type.clean(layout, ctx.values.leaf("tokens", (0,)))


def gradient(ctx: Context, *coefficients: Coefficient, layout: Layout = ()) -> Type:
    """One contribution a coefficient, of microbatch 0, 1, ..."""
    made = {ctx.values.made("wgrad", "embed", m, (), "embed"): c for m, c in enumerate(coefficients)}
    return Type.of(layout, made)


def refused(ctx: Context, what: Event, *ins: Type) -> str:
    with pytest.raises(Ill) as ill:
        apply(what, ins, ctx)
    return ill.value.fault.code


def test_forward_keeps_where_x_lies(ctx: Context) -> None:
    out, stash = apply(event(Op.FORWARD, 2, 2), (tokens(ctx), params(ctx)), ctx)
    assert out.layout == stash.layout == DATA
    assert out.value is not None and out.value != stash.value


def test_forward_refuses_a_shard_a_partial_sum_and_split_positions(ctx: Context) -> None:
    forward = event(Op.FORWARD, 2, 2)
    assert refused(ctx, forward, tokens(ctx), params(ctx, DP)) == "E302"
    assert refused(ctx, forward, tokens(ctx), gradient(ctx, coefficient("dp"))) == "E304"
    assert refused(ctx, forward, tokens(ctx, (("tp", Label("seq")),)), params(ctx)) == "E306"


def test_forward_names_its_parameters_by_group_not_by_order(ctx: Context) -> None:
    forward = event(Op.FORWARD, 3, 2)
    a, b = params(ctx), params(ctx, group="head")
    assert apply(forward, (tokens(ctx), a, b), ctx) == apply(forward, (tokens(ctx), b, a), ctx)


def test_loss(ctx: Context) -> None:
    targets = Type.clean(DATA, ctx.values.leaf("targets", (0,)))
    (out,) = apply(event(Op.LOSS, 2), (tokens(ctx), targets), ctx)
    assert out.layout == DATA and out.value is not None
    assert refused(ctx, event(Op.LOSS, 2), tokens(ctx), attrs.evolve(targets, layout=())) == "E306"


def test_backward_is_linear_in_dy(ctx: Context) -> None:
    dy = gradient(ctx, coefficient("tp"), coefficient(times=2), layout=DATA)
    (dx,) = apply(event(Op.BACKWARD, 3), (dy, tokens(ctx), params(ctx)), ctx)
    assert dx.layout == DATA
    assert {c for _, c in dx.terms} == {coefficient("tp"), coefficient(times=2)}
    assert refused(ctx, event(Op.BACKWARD, 3), dy, tokens(ctx, ()), params(ctx)) == "E306"
    assert refused(ctx, event(Op.BACKWARD, 3), dy, dy, params(ctx)) == "E304"


def test_wgrad_is_partial_over_what_splits_the_tokens(ctx: Context) -> None:
    (dw,) = apply(event(Op.WGRAD, 3), (tokens(ctx), tokens(ctx), params(ctx)), ctx)
    assert dw.layout == ()
    assert [c for _, c in dw.terms] == [coefficient("dp")]
    assert refused(ctx, event(Op.WGRAD, 3), tokens(ctx), tokens(ctx), params(ctx, DP)) == "E302"


def test_acc_adds_equal_contributions_and_lists_distinct_ones(ctx: Context) -> None:
    one, two = gradient(ctx, COMPLETE), gradient(ctx, COMPLETE, COMPLETE)
    (total,) = apply(event(Op.ACC), (one, two), ctx)
    assert sorted(c.multiplicity(frozenset()) for _, c in total.terms) == [1, 2]
    assert refused(ctx, event(Op.ACC), one, gradient(ctx, COMPLETE, layout=DP)) == "E306"


def test_all_reduce_completes_and_counts_again(ctx: Context) -> None:
    reduce = event(Op.ALL_REDUCE, axes=("dp",))
    (complete,) = apply(reduce, (gradient(ctx, coefficient("dp")),), ctx)
    assert [c for _, c in complete.terms] == [COMPLETE]
    (twice,) = apply(reduce, (complete,), ctx)
    assert [c for _, c in twice.terms] == [coefficient(times=2)]
    assert refused(ctx, reduce, gradient(ctx, COMPLETE, layout=DP)) == "E207"


def test_mean_is_idempotent(ctx: Context) -> None:
    mean = event(Op.ALL_REDUCE, axes=("tp",), mean=True)
    (same,) = apply(mean, (gradient(ctx, COMPLETE),), ctx)
    assert same == gradient(ctx, COMPLETE)
    (scaled,) = apply(mean, (gradient(ctx, coefficient("tp")),), ctx)
    assert [c for _, c in scaled.terms] == [coefficient(times=Fraction(1, 3))]


def test_reduce_scatter_splits_innermost(ctx: Context) -> None:
    scatter = event(Op.REDUCE_SCATTER, axes=("tp",), label=ROWS)
    (out,) = apply(scatter, (gradient(ctx, coefficient("tp"), layout=DP),), ctx)
    assert out.layout == (*DP, ("tp", ROWS))
    assert [c for _, c in out.terms] == [COMPLETE]
    assert refused(ctx, attrs.evolve(scatter, axes=("dp",)), gradient(ctx, COMPLETE, layout=DP)) == "E207"
    assert refused(ctx, attrs.evolve(scatter, label=Label("2")), gradient(ctx, COMPLETE)) == "E105"
    assert refused(ctx, attrs.evolve(scatter, label=BATCH), gradient(ctx, COMPLETE)) == "E105"


def test_all_gather_undoes_the_innermost_split(ctx: Context) -> None:
    whole = (*DP, ("tp", ROWS))
    gather = event(Op.ALL_GATHER, axes=("tp",), label=ROWS)
    assert apply(gather, (params(ctx, whole),), ctx) == (params(ctx, DP),)
    assert apply(attrs.evolve(gather, axes=("dp", "tp")), (params(ctx, whole),), ctx) == (params(ctx),)
    assert refused(ctx, attrs.evolve(gather, axes=("dp",)), params(ctx, whole)) == "E306"
    assert refused(ctx, attrs.evolve(gather, axes=("tp", "dp")), params(ctx, whole)) == "E306"
    assert refused(ctx, attrs.evolve(gather, label=Label("1")), params(ctx, whole)) == "E306"


def test_axes_of_different_dims_are_gathered_in_any_order(ctx: Context) -> None:
    split = (("dp", ROWS), ("tp", Label("1")))
    gather = event(Op.ALL_GATHER, axes=("dp",), label=ROWS)
    assert apply(gather, (params(ctx, split),), ctx) == (params(ctx, (("tp", Label("1")),)),)


def test_a_flat_run_is_cut_last(ctx: Context) -> None:
    split = (("tp", ROWS), ("dp", Label("flat")))
    assert refused(ctx, event(Op.ALL_GATHER, axes=("tp",), label=ROWS), params(ctx, split)) == "E306"
    rows = event(Op.SLICE, axes=("tp",), label=ROWS)
    assert refused(ctx, rows, params(ctx, (("dp", Label("flat")),))) == "E105"


def test_slice_drops_nothing_that_is_missing_elsewhere(ctx: Context) -> None:
    cut = event(Op.SLICE, axes=("dp",), label=ROWS)
    assert apply(cut, (params(ctx),), ctx) == (params(ctx, DP),)
    assert refused(ctx, cut, gradient(ctx, coefficient("dp"))) == "E201"
    other = Type.of((), {ctx.values.leaf("params", (), "embed"): coefficient("dp")})
    assert refused(ctx, cut, other) == "E208"
    assert refused(ctx, cut, params(ctx, DP)) == "E306"


def test_copy_init_and_zero(ctx: Context) -> None:
    assert apply(event(Op.COPY), (params(ctx, DP),), ctx) == (params(ctx, DP),)
    made = Event(op=Op.INIT, outs=(Buf("w", "embed"),), phase=Phase.INIT, layout=DP, dtype="fp64")
    assert apply(made, (), ctx) == (params(ctx, DP),)
    assert apply(event(Op.ZERO, 0, layout=DP), (), ctx) == (Type.of(DP, {}),)
    assert refused(ctx, attrs.evolve(made, layout=(("xp", ROWS),))) == "E102"
    assert refused(ctx, attrs.evolve(made, layout=(*DP, *DP))) == "E104"


def test_opt_reads_the_whole_family_once(ctx: Context) -> None:
    theta, state = params(ctx), Type.clean((), ctx.values.leaf("optimizer", (), "embed"))
    family = gradient(ctx, COMPLETE, COMPLETE)
    assert theta.value is not None and state.value is not None
    ctx.updates[theta.value, state.value] = Update(tuple(v for v, _ in family.terms))
    opt = event(Op.OPT, 3, 2)
    new, moments = apply(opt, (theta, family, state), ctx)
    assert new.value not in (None, theta.value) and moments.value not in (None, state.value)
    assert refused(ctx, opt, theta, gradient(ctx, COMPLETE), state) == "E204"
    assert refused(ctx, opt, theta, gradient(ctx, COMPLETE, coefficient("dp")), state) == "E201"
    assert refused(ctx, opt, theta, gradient(ctx, COMPLETE, coefficient(times=2)), state) == "E202"
    assert refused(ctx, opt, theta, gradient(ctx, COMPLETE, coefficient(times=Fraction(1, 2))), state) == "E203"
    assert refused(ctx, opt, theta, gradient(ctx, COMPLETE, COMPLETE, COMPLETE), state) == "E209"
    assert refused(ctx, opt, new, family, state) == "E209"
    assert refused(ctx, opt, theta, attrs.evolve(family, layout=DP), state) == "E206"


def test_axes_of_size_one_are_inert(ctx: Context) -> None:
    alone = event(Op.REDUCE_SCATTER, axes=("one",), label=ROWS)
    assert apply(alone, (params(ctx),), ctx) == (params(ctx),)
    assert apply(event(Op.ZERO, 0, layout=(("one", ROWS),)), (), ctx) == (Type.of((), {}),)


@pytest.mark.parametrize("op", [op for op in Op if op is not Op.FREE])
def test_malformed_events_are_ill(ctx: Context, op: Op) -> None:
    assert refused(ctx, event(op, 7, 9), *(params(ctx) for _ in range(7))) == "E306"


def test_unknown_and_repeated_axes_are_ill(ctx: Context) -> None:
    assert refused(ctx, event(Op.ALL_REDUCE, axes=("xp",)), params(ctx)) == "E102"
    assert refused(ctx, event(Op.ALL_REDUCE, axes=("dp", "dp")), params(ctx)) == "E104"
