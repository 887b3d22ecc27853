"""Data-parallel strategies, right and wrong, against one device."""

from __future__ import annotations

import attrs
import pytest

from placelang.plan.dtypes import PRECISIONS
from placelang.plan.mesh import Mesh
from placelang.plan.plan import State
from placelang.plan.steps import Gather, Keep, Partial, Reduce, Replicate, Shard, When
from placelang.program.event import Op, Phase
from placelang.simulate import NoDenotation, Outcome, compare, probe, shrink, shrink_plan, simulate
from tests.simulate.strategies import both, ddp, hsdp, mesh, plan, tiny, zero1, zero2, zero3

MESHES = [mesh(dp=1), mesh(dp=2), mesh(dp=3), mesh(a=2, b=2), mesh(dp=6)]
MICROBATCH = When.MICROBATCH


def ids(m):
    return "x".join(str(a.size) for a in m.axes) if isinstance(m, Mesh) else None


SOUND = {
    "ddp": ddp,
    "ddp each microbatch": lambda m, **kw: ddp(m, MICROBATCH, **kw),
    "zero1": zero1,
    "zero2": zero2,
    "zero2 each microbatch": lambda m, **kw: zero2(m, MICROBATCH, **kw),
    "zero3": zero3,
    "zero3 keep step": lambda m, **kw: zero3(m, Keep.STEP, **kw),
    "zero3 keep microbatch": lambda m, **kw: zero3(m, Keep.MICROBATCH, MICROBATCH, **kw),
}


@pytest.mark.parametrize("on", MESHES, ids=ids)
@pytest.mark.parametrize("name", SOUND)
def test_sound_strategies_equal_one_device(name, on):
    assert compare(*both(SOUND[name](on))).outcome is Outcome.EQUAL


@pytest.mark.parametrize("on", [mesh(a=1, b=2), mesh(a=2, b=2), mesh(a=3, b=2), mesh(a=2, b=3)], ids=ids)
def test_hsdp_equals_one_device(on):
    assert compare(*both(hsdp(on))).outcome is Outcome.EQUAL
    assert compare(*both(hsdp(on, MICROBATCH))).outcome is Outcome.EQUAL


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "sgd_momentum"])
@pytest.mark.parametrize("precision", ["fp64", "bf16", "fsdp_mixed"])
def test_optimizers_and_precisions(optimizer, precision):
    for strategy in (zero1, zero3):
        p = strategy(mesh(dp=2), optimizer=optimizer, precision=PRECISIONS[precision])
        assert compare(*both(p)).outcome is Outcome.EQUAL


def broken(on, *reductions, **kw):
    return plan(on, (Replicate(),), (Partial(axes=on.names), *reductions), (Replicate(),), **kw)


def test_no_reduction_differs_and_replicas_diverge():
    found = compare(*both(broken(mesh(dp=2))))
    assert found.outcome is Outcome.DIFFERS and found.difference > 1e-3
    assert found.diverged and found.worst is not None and found.worst.rank in (0, 1)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_scale_errors_differ_and_replicas_agree(optimizer):
    whole = Reduce(axes=("dp",), scatter=False)
    for reductions in ((whole, whole), (attrs.evolve(whole, mean=True),)):
        found = compare(*both(broken(mesh(dp=2), *reductions, optimizer=optimizer)))
        assert found.outcome is Outcome.DIFFERS and not found.diverged


def test_no_refresh_differs():
    p = attrs.evolve(zero1(mesh(dp=2)), update=())
    assert compare(*both(p)).outcome is Outcome.DIFFERS


def test_mean_where_tokens_are_replicated_is_right_and_sum_is_not():
    on = mesh(dp=2)
    for mean in (True, False):
        p = broken(on, Reduce(axes=("dp",), scatter=False, mean=mean), activations=(Replicate(),))
        assert (compare(*both(p)).outcome is Outcome.EQUAL) is mean


def test_compute_on_shards_has_no_denotation():
    p = zero3(mesh(dp=2))
    bare = tuple(attrs.evolve(s, journey=s.journey[:1]) if s.state is State.PARAMS else s for s in p.placed)
    found = compare(*both(attrs.evolve(p, placed=bare)))
    assert found.outcome is Outcome.NO_DENOTATION and "shape" in found.message


def test_swapped_axes_of_gradient_and_parameter_shards():
    """Shards over (a, b) here and over (b, a) there: other rows, so other shapes or other values."""
    on = mesh(a=2, b=2)
    params = (Shard(axes=("a", "b")), Gather(axes=("a", "b")))
    grads = (Partial(axes=("a", "b")), Reduce(axes=("b", "a"), scatter=True))
    assert compare(*both(plan(on, params, grads, (Shard(axes=("a", "b")),)))).outcome is not Outcome.EQUAL


def test_sequence_cannot_be_split_for_free():
    p = ddp(mesh(dp=2))
    placed = tuple(
        attrs.evolve(s, journey=(Shard(axes=("dp",), dim="seq"),)) if s.state is State.ACTIVATIONS else s
        for s in p.placed
    )
    assert compare(*both(attrs.evolve(p, placed=placed))).outcome is Outcome.DIFFERS


@pytest.mark.parametrize("on", [mesh(dp=2), mesh(dp=3)], ids=ids)
def test_traffic_is_padded_and_counted_once(on):
    """Psi padded = sum over tensors of n ceil(d0 / n) times their other dims (semantics, section 2)."""
    n = on.world
    shapes = [t.shape for s in tiny().stacks for _ in range(s.count) for t in s.tensors if t.tied is None]
    padded = sum(n * -(-s[0] // n) * (s[1] if len(s) > 1 else 1) for s in shapes) * 8
    program = both(zero3(on, when=MICROBATCH, microbatches=2))[0]
    moved = {(t.op, t.phase): t.bytes for t in simulate(program).traffic}
    assert moved == {
        (Op.ALL_GATHER, Phase.FORWARD): 2 * padded,
        (Op.ALL_GATHER, Phase.BACKWARD): 2 * padded,
        (Op.REDUCE_SCATTER, Phase.BACKWARD): 2 * padded,
    }


def test_memory_at_rest_and_at_its_peak():
    on = mesh(dp=2)
    whole = sum(s.count * s.elements for s in tiny().stacks) * 8
    replicated = simulate(both(ddp(on))[0])
    assert replicated.rest == 4 * whole  # parameters, gradients, two moments
    assert replicated.rest < replicated.peak
    sharded = simulate(both(zero3(on, when=MICROBATCH))[0])
    assert whole * 2 < sharded.rest < replicated.rest
    assert sharded.peak < replicated.peak


def test_one_rank_moves_nothing():
    assert simulate(both(zero3(mesh(dp=1)))[0]).traffic == ()


@pytest.mark.parametrize("on", [mesh(dp=2), mesh(dp=3), mesh(a=2, b=2)], ids=ids)
def test_coefficients_of_sound_programs_are_one(on):
    found = probe(*both(zero3(on)))
    assert len(found) > 20
    assert all(c.value == pytest.approx(1, abs=1e-9) and c.residual < 1e-9 for c in found)


def coefficients(p):
    return {(c.rank, c.microbatch, c.source): c.value for c in probe(*both(p)) if c.group == "blocks"}


def test_coefficients_of_broken_programs():
    whole = Reduce(axes=("dp",), scatter=False)
    for rank, _, source in (none := coefficients(broken(mesh(dp=2)))):
        assert none[rank, _, source] == pytest.approx(1.0 if rank in source else 0.0, abs=1e-9)
    assert set(map(_whole, coefficients(broken(mesh(dp=3), whole, whole)).values())) == {3}
    mean = coefficients(broken(mesh(dp=2), attrs.evolve(whole, mean=True)))
    assert all(v == pytest.approx(0.5) for v in mean.values())


def _whole(value):
    assert value == pytest.approx(round(value), abs=1e-9)
    return round(value)


def test_every_program_of_a_seed_sees_the_same_data():
    program = both(ddp(mesh(dp=2)))[0]
    a, b, c = (simulate(program, seed=s) for s in (0, 0, 1))
    buf = next(buf for _, buf in a.states())
    name = next(iter(a.held(0, buf)))
    assert (a.held(0, buf)[name] == b.held(1, buf)[name]).all()
    assert not (a.held(0, buf)[name] == c.held(0, buf)[name]).all()


def test_states_assemble_from_their_shards():
    program, reference = both(zero3(mesh(dp=3)))
    a, b = simulate(program), simulate(reference)
    for rest, buf in a.states():
        for name, array in a.full(rest, buf, rank=2).items():
            assert abs(array - b.held(0, buf)[name]).max() < 1e-9


def test_a_state_that_a_step_loses_has_no_denotation():
    program, reference = both(ddp(mesh(dp=2)))
    lost = attrs.evolve(program, setup=tuple(e for e in program.setup if e.outs[0].kind != "o"))
    found = compare(lost, reference)
    assert found.outcome is Outcome.NO_DENOTATION and "no o:" in found.message
    with pytest.raises(NoDenotation):
        probe(lost, reference)


def test_a_real_model_shrinks_to_one_of_the_same_structure():
    from placelang.model.model import generic

    small = shrink(generic())
    assert [s.name for s in small.stacks] == [s.name for s in generic().stacks]
    assert max(s.count for s in small.stacks) <= 2 and small.params < 500
    p = shrink_plan(zero3(mesh(dp=65), microbatches=8))
    assert (p.mesh["dp"].size, p.train.microbatches) == (3, 2)
    assert compare(*both(p, small)).outcome is Outcome.EQUAL
