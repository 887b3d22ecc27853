"""The surrogate's hand-derived gradients against finite differences, and its promises."""

from __future__ import annotations

import numpy as np
import pytest

from placelang.simulate.arrays import NoDenotation, draw
from placelang.simulate.sizes import SEQ, WIDTH
from placelang.simulate.units import backward, forward, loss_gradient, wgrad
from tests.simulate.strategies import both, ddp, mesh, tiny

GROUPS = {g.name: g for g in both(ddp(mesh(dp=1)))[0].groups}
READS = ("head", "embed")
STEP = 1e-6


def views():
    return {name: {t.name: draw(("v", name, t.name), t.shape) for t in GROUPS[name].tensors} for name in READS}


def x():
    return draw(("x",), (3, SEQ, WIDTH))


def loss(x, views):
    y, _ = forward("head", GROUPS, x, views)
    return float((y * draw(("dy",), y.shape)).sum())


def test_backward_is_the_gradient_of_forward():
    dx = backward("head", GROUPS, draw(("dy",), x().shape), forward("head", GROUPS, x(), views())[1], views())
    for where in np.ndindex(x().shape):
        bump = np.zeros(x().shape)
        bump[where] = STEP
        numeric = (loss(x() + bump, views()) - loss(x() - bump, views())) / (2 * STEP)
        assert dx[where] == pytest.approx(numeric, abs=1e-7)


def test_wgrad_is_the_gradient_of_every_parameter():
    stash = forward("head", GROUPS, x(), views())[1]
    grads = wgrad("head", GROUPS, draw(("dy",), x().shape), stash, views())
    for name in READS:
        for tensor in GROUPS[name].tensors:
            assert np.abs(grads[name][tensor.name]).min() > 0, "every element of every parameter matters"
            for where in np.ndindex(tensor.shape):
                bump = np.zeros(tensor.shape)
                bump[where] = STEP
                up, down = views(), views()
                up[name][tensor.name] = up[name][tensor.name] + bump
                down[name][tensor.name] = down[name][tensor.name] - bump
                numeric = (loss(x(), up) - loss(x(), down)) / (2 * STEP)
                assert grads[name][tensor.name][where] == pytest.approx(numeric, abs=1e-7)


def test_loss_gradient_is_the_gradient_of_the_weighted_squared_error():
    y, target, weight = x(), draw(("t",), x().shape), np.abs(draw(("w",), x().shape[:2]))

    def value(y):
        return float((weight[..., None] * (y - target) ** 2).sum() / 2 / 10.0)

    dy = loss_gradient(y, target, weight, 10.0)
    for where in np.ndindex(y.shape):
        bump = np.zeros(y.shape)
        bump[where] = STEP
        assert dy[where] == pytest.approx((value(y + bump) - value(y - bump)) / (2 * STEP), abs=1e-7)


def test_batch_rows_are_independent_and_positions_are_not():
    whole, _ = forward("head", GROUPS, x(), views())
    part, _ = forward("head", GROUPS, x()[1:2], views())
    assert np.allclose(whole[1:2], part, atol=1e-14)
    cut, _ = forward("head", GROUPS, x()[:, :1], views())
    assert not np.allclose(whole[:, :1], cut)


def test_sites_differ_and_gradients_are_linear():
    a, _ = forward("head", GROUPS, x(), views())
    b, _ = forward("blocks", GROUPS, x(), views())
    assert not np.allclose(a, b)
    stash = forward("head", GROUPS, x(), views())[1]
    dy = draw(("dy",), x().shape)
    one, three = (wgrad("head", GROUPS, k * dy, stash, views())["embed"]["embed.weight"] for k in (1, 3))
    assert np.allclose(3 * one, three)


def test_compute_on_a_shard_or_on_another_stash_has_no_denotation():
    short = views()
    short["embed"]["embed.weight"] = short["embed"]["embed.weight"][:3]
    with pytest.raises(NoDenotation, match="of shape"):
        forward("head", GROUPS, x(), short)
    other = forward(
        "blocks", GROUPS, x(), {"blocks": {t.name: draw((t.name,), t.shape) for t in tiny().stacks[1].tensors}}
    )
    with pytest.raises(NoDenotation, match="stash"):
        backward("head", GROUPS, x(), other[1], views())
