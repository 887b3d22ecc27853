"""Kernels, collectives and overlap: limits, orders, units, and the algebra that they are made in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.cost.collectives import reached, ring, scattered, sent
from placelang.cost.expr import BYTES, SECONDS, Expr, constant, derivative, evaluate, free, symbol
from placelang.cost.kernels import attention_flops, flash, flash_backward, matmul, moved, unfused, wave
from placelang.cost.machine import Machine, machine, symbolic
from placelang.cost.overlap import dispatched, overlapped, smooth
from placelang.hardware import catalogue
from placelang.hardware.hardware import REACH, Hardware


def on(name: str = "dgx_a100", dtype: str = "bf16") -> Machine:
    found = catalogue.lookup(name)
    assert isinstance(found, Hardware)
    made, said = machine(found, dtype)
    assert made is not None, said
    return made


def number(expr: Expr) -> float:
    return float(evaluate(expr, {}))


A100 = on()


@given(st.integers(1, 20000), st.integers(1, 20000), st.integers(1, 20000))
def test_a_product_is_never_faster_than_the_peak(m: int, n: int, k: int) -> None:
    seconds = number(matmul(constant(m), constant(n), constant(k), A100))
    assert seconds >= 2 * m * n * k / 312e12
    assert seconds >= 1e-6  # a launch takes its time


def test_large_products_reach_the_measured_share() -> None:
    n = constant(108 * 128)
    share = 2 * (108 * 128) ** 3 / 312e12 / number(matmul(n, n, n, A100))
    assert share == pytest.approx(number(A100["matmul"]), rel=0.02)


def test_a_wave_that_is_hardly_begun_costs_a_whole_one() -> None:
    full = number(wave(constant(108 * 128), constant(256), A100))
    over = number(wave(constant(109 * 128), constant(256), A100))
    assert full == pytest.approx(1)
    assert over > 1.2


@given(st.integers(128, 65536), st.integers(1, 64))
def test_attention_grows_with_the_square(s: int, heads: int) -> None:
    def seconds(length: int) -> float:
        sizes = constant(1), constant(length), constant(length), constant(heads), constant(128)
        return number(flash(attention_flops(*sizes), A100)) - number(A100["attention_floor"])

    assert seconds(2 * s) == pytest.approx(4 * seconds(s))


def test_backward_of_attention_costs_more_than_forward() -> None:
    flops = attention_flops(constant(8), constant(4096), constant(4096), constant(32), constant(128))
    assert 2.5 < number(flash_backward(flops, A100)) / number(flash(flops, A100)) < 4.5
    ahead, back = unfused(constant(8), constant(4096), constant(4096), constant(32), constant(128), A100)
    assert number(ahead) > number(flash(flops, A100))
    assert 1.5 < number(back) / number(ahead) < 2.5


@given(st.sampled_from(["all_gather", "reduce_scatter", "all_reduce"]), st.integers(2, 1024), st.integers(10, 34))
def test_rings_cost_latency_and_bytes(kind: str, n: int, log_size: int) -> None:
    group = reached(constant(n), constant(1), A100)
    small, large = (number(ring(kind, constant(size, BYTES), group)) for size in (2**log_size, 2 ** (log_size + 1)))
    assert small < large <= 2 * small
    least = (2 if kind == "all_reduce" else 1) * 2**log_size * (n - 1) / n / 300e9
    assert small >= least


def test_one_all_reduce_is_a_scatter_and_a_gather() -> None:
    group, size = reached(constant(64), constant(1), A100), constant(2**30, BYTES)
    parts = [number(ring(kind, size, group)) for kind in ("reduce_scatter", "all_gather")]
    assert number(ring("all_reduce", size, group)) == pytest.approx(sum(parts))


def test_ranks_of_one_node_share_their_nics() -> None:
    """Eight ranks a node stripe a ring over eight NICs; one rank a node has one."""
    whole, one = (reached(constant(16), constant(stride), A100) for stride in (1, 8))
    assert number(whole.rate) == pytest.approx(8 * number(one.rate), rel=0.2)
    assert number(reached(constant(16), constant(1), A100, striped=0).rate) == pytest.approx(number(one.rate))


def test_a_group_inside_a_node_does_not_use_the_network() -> None:
    inside = reached(constant(8), constant(1), A100)
    assert number(inside.rate) == pytest.approx(300e9 * number(A100["link"]))
    assert number(reached(constant(1), constant(1), A100).latency) == 0
    size = constant(2**20, BYTES)
    assert number(sent(size, constant(1), A100)) < number(sent(size, constant(8), A100))
    assert number(scattered(size, inside, A100)) < number(
        scattered(size, reached(constant(16), constant(1), A100), A100)
    )


@given(st.floats(0.001, 10), st.floats(0.001, 10), st.floats(0, 1))
def test_overlap_hides_what_its_window_holds(a: float, window: float, tax: float) -> None:
    found = overlapped(constant(a, SECONDS), constant(window, SECONDS), constant(tax))
    hidden, exposed = number(found.hidden), number(found.exposed)
    assert hidden + exposed == pytest.approx(a)
    assert hidden <= window * (1 + 1e-9)
    assert number(found.tax) == pytest.approx(tax * hidden)


@given(st.floats(0.001, 10), st.floats(0.001, 10))
def test_the_host_is_waited_for_where_it_is_slower(device: float, host: float) -> None:
    both = number(smooth(constant(device, SECONDS), constant(host, SECONDS)))
    assert max(device, host) <= both * (1 + 1e-9)
    assert both <= 1.2 * max(device, host)
    assert number(dispatched(constant(device, SECONDS), 0, constant(host, SECONDS))) == pytest.approx(device)


def test_a_machine_of_symbols_gives_formulas() -> None:
    m = symbolic()
    seconds = matmul(symbol("m"), symbol("n"), symbol("k"), m)
    assert seconds.unit is SECONDS
    assert {"peak", "reach_matmul", "reach_kernel"} <= free(seconds)
    slope = derivative(moved(constant(2**30, BYTES), m), "memory")
    at = {"memory": 2e12, "reach_memory": 0.8}
    assert float(evaluate(slope, at)) == pytest.approx(-(2**30) / (0.8 * 2e12**2))


@pytest.mark.parametrize("name", ["dgx_h100", "dgx_b200", "tpu_v5p", "mi300x"])
def test_every_device_with_figures_has_a_machine(name: str) -> None:
    made = on(name)
    assert set(made.reaches) == set(REACH)


def test_what_is_not_known_is_said() -> None:
    found = catalogue.lookup("dgx_a100")
    assert isinstance(found, Hardware)
    assert machine(found, "fp8") == (None, "no peak of a100_sxm_80gb in fp8 is known")
    mi300x = catalogue.lookup("mi300x")
    assert isinstance(mi300x, Hardware)
    _, said = machine(mi300x, "bf16")
    assert any("nobody measured" in a.text for a in said if not isinstance(a, str))
