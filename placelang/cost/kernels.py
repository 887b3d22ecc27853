"""Seconds of one kernel by its shape: matrix products, attention, and what only moves bytes.

    matmul     2mnk / (peak·matmul) · (1 + depth/k) · (1 - waves + waves·wave(m, n)) + kernel

with wave(m, n) the tiles of the last, partly filled wave over all multiprocessors, `depth` the length of the
contraction at which a kernel spends half its time outside of it, and `kernel` the floor of a launch. Forms and shares
were fitted on kernels measured one at a time (docs/design/time). A launch floor of the host, which no kernel sees
alone, belongs to whole layers: `overlap.dispatched`. Not for: which kernels an event runs (`work`).
"""

from __future__ import annotations

from fractions import Fraction

from placelang.cost.expr import BYTES, FLOPS, Expr, ceil, compare, constant, maximum, minimum, piecewise
from placelang.cost.machine import Machine

FLOP = constant(1, FLOPS)
TILES = (((128, 256), 1), ((128, 128), Fraction(125, 100)))
"""Rows and columns of the output tiles that matrix kernels of NVIDIA's libraries work on, and what the smaller one,
which fills the last wave better, costs for all of them (fitted with the shares)."""

ALIGNED, HALF_ALIGNED = 64, 8
"""Sizes that are multiples of these run at full speed, and at the speed of `misaligned`; others at `odd`."""


def matmul(m: Expr, n: Expr, k: Expr, machine: Machine) -> Expr:
    """C[m, n] = A[m, k] B[k, n]."""
    flops = 2 * m * n * k * FLOP
    slower = (1 + machine["depth"] / k) * (1 + machine["waves"] * (wave(m, n, machine) - 1))
    return flops / (machine.peak * machine["matmul"]) * slower + machine["kernel"]


def wave(m: Expr, n: Expr, machine: Machine) -> Expr:
    """Time of all waves of tiles over that of the part of them which is filled, with the better of the tiles."""
    units, found = machine["multiprocessors"], []
    for (rows, columns), penalty in TILES:
        waves = ceil(ceil(m / rows) * ceil(n / columns) / units)
        found.append(waves * units * penalty * rows * columns / (m * n))
    return minimum(*found)


def grouped(groups: Expr, m: Expr, n: Expr, k: Expr, machine: Machine) -> Expr:
    """`groups` products of one shape in one kernel, such as experts: each costs a fixed time more."""
    flops = 2 * groups * m * n * k * FLOP
    return flops / (machine.peak * machine["matmul"]) * (1 + machine["depth"] / k) + groups * machine["expert"]


def aligned(time: Expr, *sizes: Expr, machine: Machine) -> Expr:
    """The same kernel where its sizes need not be multiples of what tensor cores read at once."""
    worst = [compare(ceil(size / ALIGNED) * ALIGNED, "!=", size) for size in sizes]
    return time * piecewise(*((case, machine["misaligned"]) for case in worst), otherwise=1)


def attention_flops(samples: Expr, queries: Expr, keys: Expr, heads: Expr, width: Expr, causal: bool = True) -> Expr:
    """Of both products of a forward, half of the square where attention is causal. `width`: of queries or of values,
    whichever is wider, since kernels pad the other."""
    return 4 * samples * queries * keys * heads * width * FLOP * (Fraction(1, 2) if causal else 1)


def flash(flops: Expr, machine: Machine) -> Expr:
    """Forward of fused attention (Dao et al. 2022, arXiv 2205.14135)."""
    return flops / (machine.peak * machine["attention"]) + machine["attention_floor"]


def flash_backward(flops: Expr, machine: Machine) -> Expr:
    """Five products instead of two, at a lower share of the peak. `flops`: those of the forward."""
    return 2.5 * flops / (machine.peak * machine["attention"] * machine["attention_back"]) + machine["attention_floor"]


def unfused(samples: Expr, queries: Expr, keys: Expr, heads: Expr, width: Expr, machine: Machine) -> tuple[Expr, Expr]:
    """Forward and backward of attention as batched products with a softmax between, over the whole square: scores
    contract over a head's width, all else over keys or queries. What the softmax moves is not in it."""
    once = 2 * samples * queries * keys * heads * width * FLOP / (machine.peak * machine["matmul"])
    over_width, over_keys = once * (1 + machine["depth"] / width), once * (1 + machine["depth"] / keys)
    return over_width + over_keys, over_width + 3 * over_keys


def moved(size: Expr, machine: Machine) -> Expr:
    """A kernel that reads and writes `size` bytes and computes next to nothing."""
    return size / (machine.memory * machine["memory"])


def bound(compute: Expr, size: Expr, machine: Machine) -> Expr:
    """Whichever is slower, arithmetic or memory (the roofline)."""
    return maximum(compute, moved(size, machine))


def byte(count: Expr | int = 1) -> Expr:
    return constant(1, BYTES) * count
