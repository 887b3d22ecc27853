"""Each event on small arrays: padding, groups, order of axes, and what has no denotation."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.program.event import Buf, Event, Label, Op, Phase
from placelang.simulate.arrays import NoDenotation, Ranks, piece, rows, whole
from placelang.simulate.ops import execute
from placelang.simulate.run import start
from tests.simulate.strategies import both, ddp, mesh

W, V = Buf("w", "embed"), Buf("view", "embed")
DIM0 = Label("0")


def machine(**sizes):
    return start(both(ddp(mesh(**sizes)))[0])


def event(op, ins=(), outs=(), **kw):
    return Event(op=op, ins=ins, outs=outs, **{"phase": Phase.FORWARD, "dtype": "fp64", **kw})


def fill(m, buf, arrays):
    for rank, array in enumerate(arrays):
        m.put(rank, buf, {"embed.weight": np.asarray(array, dtype=float)})


def values(m, buf):
    return [m.get(r, buf)["embed.weight"] for r in range(m.ranks.count)]


@given(st.integers(0, 40), st.integers(1, 9))
def test_shards_are_blocks_of_ceil_rows(size, parts):
    cuts = [rows(size, parts, r, "padded") for r in range(parts)]
    assert [i for c in cuts for i in range(size)[c]] == list(range(size))
    assert all(c.start == min(r * -(-size // parts), size) for r, c in enumerate(cuts))


@given(st.integers(1, 11), st.permutations(["a", "b", "c"]), st.integers(0, 3))
def test_pieces_make_up_the_whole(size, order, depth):
    ranks = Ranks.of(mesh(a=2, b=3, c=1))
    layout = tuple((axis, DIM0) for axis in order[:depth])
    full = np.arange(size * 2.0).reshape(size, 2)
    pieces = {r: piece(full, layout, ranks, r, ()) for r in range(6)}
    assert all(np.array_equal(whole(pieces, layout, ranks, r, ()), full) for r in range(6))


def test_gather_undoes_slice_and_counts_padding():
    m = machine(dp=3)
    full = np.arange(15.0).reshape(5, 3)
    fill(m, W, [full] * 3)
    shard = Buf("s", "embed")
    execute(m, event(Op.SLICE, (W,), (shard,), axes=("dp",), label=DIM0))
    assert [a.shape[0] for a in values(m, shard)] == [2, 2, 1]
    m.meters[0].begin()
    execute(m, event(Op.ALL_GATHER, (shard,), (V,), axes=("dp",), label=DIM0))
    assert all(np.array_equal(a, full) for a in values(m, V))
    (traffic,) = m.meters[0].traffic
    assert (traffic.op, traffic.axes, traffic.count, traffic.bytes) == (Op.ALL_GATHER, ("dp",), 1, 6 * 3 * 8)


def test_reduce_scatter_is_all_reduce_and_slice():
    m = machine(dp=3)
    summands = [np.full((5, 3), 10.0**r) for r in range(3)]
    for mean, scale in ((False, 1), (True, 3)):
        fill(m, W, summands)
        m.meters[0].begin()
        execute(m, event(Op.REDUCE_SCATTER, (W,), (V,), axes=("dp",), label=DIM0, mean=mean))
        execute(m, event(Op.ALL_REDUCE, (W,), (W,), axes=("dp",), mean=mean))
        assert [a.shape[0] for a in values(m, V)] == [2, 2, 1]
        assert all(np.allclose(a, 111 / scale) for a in (*values(m, V), *values(m, W)))
        moved = {t.op: t.bytes for t in m.meters[0].traffic}
        assert moved == {Op.REDUCE_SCATTER: 6 * 3 * 8, Op.ALL_REDUCE: 5 * 3 * 8}


def test_groups_and_the_order_of_axes():
    m = machine(a=2, b=2)
    fill(m, W, [np.full((5, 3), 10.0**r) for r in range(4)])
    execute(m, event(Op.ALL_REDUCE, (W,), (V,), axes=("b",)))
    assert [a[0, 0] for a in values(m, V)] == [11, 11, 1100, 1100]
    execute(m, event(Op.ALL_REDUCE, (W,), (V,), axes=("a",)))
    assert [a[0, 0] for a in values(m, V)] == [101, 1010, 101, 1010]
    full = np.arange(15.0).reshape(5, 3)
    fill(m, W, [full] * 4)
    execute(m, event(Op.SLICE, (W,), (V,), axes=("a", "b"), label=DIM0))
    assert [a[:, 0].tolist() for a in values(m, V)] == [[0, 3], [6], [9], [12]]
    shards = values(m, V)
    fill(m, V, shards)
    execute(m, event(Op.ALL_GATHER, (V,), (W,), axes=("b", "a"), label=DIM0))
    assert not any(np.array_equal(a, full) for a in values(m, W)), "inner and outer swapped: rows out of order"
    execute(m, event(Op.ALL_GATHER, (V,), (W,), axes=("b",), label=DIM0))
    execute(m, event(Op.ALL_GATHER, (W,), (W,), axes=("a",), label=DIM0))
    assert all(np.array_equal(a, full) for a in values(m, W))


def test_two_scatters_make_the_shards_of_one_over_both_axes():
    m = machine(a=2, b=2)
    fill(m, W, [np.arange(15.0).reshape(5, 3)] * 4)
    execute(m, event(Op.REDUCE_SCATTER, (W,), (V,), axes=("a", "b"), label=DIM0))
    execute(m, event(Op.REDUCE_SCATTER, (W,), (W,), axes=("a",), label=DIM0))
    execute(m, event(Op.REDUCE_SCATTER, (W,), (W,), axes=("b",), label=DIM0))
    assert all(np.array_equal(a, b) for a, b in zip(values(m, V), values(m, W), strict=True))


def test_init_draws_by_logical_index_and_zero_is_empty():
    m = machine(dp=2)
    assert np.array_equal(*values(m, W))
    execute(m, event(Op.INIT, (), (V,), layout=(("dp", DIM0),)))
    assert np.array_equal(np.concatenate(values(m, V)), values(m, W)[0])
    execute(m, event(Op.ZERO, (), (V,), layout=(("dp", DIM0),)))
    assert [a.shape for a in values(m, V)] == [(3, 3), (2, 3)] and not any(a.any() for a in values(m, V))


def test_acc_adds_without_touching_copies():
    m = machine(dp=1)
    before = values(m, W)[0]
    execute(m, event(Op.COPY, (W,), (V,)))
    execute(m, event(Op.ACC, (W,), (V,)))
    assert np.array_equal(values(m, V)[0], 2 * before) and np.array_equal(values(m, W)[0], before)


def test_free_deletes():
    m = machine(dp=1)
    execute(m, event(Op.COPY, (W,), (V,)))
    execute(m, event(Op.FREE, (V,)))
    with pytest.raises(NoDenotation, match="no view:embed"):
        execute(m, event(Op.COPY, (V,), (W,)))


BLOCK = Buf("w", "blocks", (0,))
NO_DENOTATION = {
    "missing": event(Op.COPY, (V,), (W,)),
    "unknown axis": event(Op.ALL_REDUCE, (W,), (V,), axes=("tp",)),
    "axis twice": event(Op.ALL_REDUCE, (W,), (V,), axes=("dp", "dp")),
    "no label": event(Op.ALL_GATHER, (W,), (V,), axes=("dp",)),
    "unknown dim": event(Op.SLICE, (W,), (V,), axes=("dp",), label=Label("heads")),
    "dim out of range": event(Op.SLICE, (W,), (V,), axes=("dp",), label=Label("2")),
    "unknown partition": event(Op.SLICE, (W,), (V,), axes=("dp",), label=Label("0", "spiral")),
    "uneven contiguous": event(Op.SLICE, (W,), (V,), axes=("dp",), label=Label("0", "contiguous")),
    "operands": event(Op.COPY, (W, W), (V,)),
    "add other tensors": event(Op.ACC, (BLOCK,), (W,)),
    "opt of other tensors": event(Op.OPT, (W, BLOCK, Buf("o", "embed")), (W, Buf("o", "embed"))),
    "opt with two inputs": event(Op.OPT, (W, W), (W, Buf("o", "embed"))),
    "forward of parameters": event(Op.FORWARD, (W, W), (V, Buf("stash", "embed")), site="embed"),
    "loss of parameters": event(Op.LOSS, (W, W), (V,)),
    "init of a gradient": event(Op.INIT, (), (Buf("g", "embed"),)),
    "zero of no group": event(Op.ZERO, (), (Buf("g", "nothing"),)),
}


@pytest.mark.parametrize("name", NO_DENOTATION)
def test_the_impossible_has_no_denotation(name):
    with pytest.raises(NoDenotation):
        execute(machine(dp=2), NO_DENOTATION[name])


def test_summands_must_agree_in_shape():
    m = machine(dp=2)
    fill(m, W, [np.zeros((5, 3)), np.zeros((4, 3))])
    with pytest.raises(NoDenotation, match="does not fit"):
        execute(m, event(Op.ALL_REDUCE, (W,), (V,), axes=("dp",)))


def test_an_axis_without_size_has_no_denotation():
    program = both(ddp(mesh(dp=2)))[0]
    axes = tuple(attrs.evolve(a, size=None) for a in program.mesh.axes)
    with pytest.raises(NoDenotation, match="no size"):
        start(attrs.evolve(program, mesh=attrs.evolve(program.mesh, axes=axes)))
