"""The step of a decoder as one expression: layers, stages, collectives and the update, from the cost room's own terms.

Published rows print sizes and a layout, no text of ours; so this writes the step down from those sizes, with the
kernels, collectives, overlap and schedules of `placelang.cost`, as an expression in the symbols of `rows.Row.numbers`,
of the machine's shares and of the stack's figures. One expression serves all rows at once. For programs that lower,
`placelang.cost.time` finds the same terms in the events (tests/cost/test_time_agrees.py). Not for: which constants
(`fit`).
"""

from __future__ import annotations

from fractions import Fraction

import attrs

from placelang.cost.collectives import reached, ring, scattered, sent
from placelang.cost.expr import SECONDS, Expr, constant, maximum, minimum, symbol
from placelang.cost.kernels import (
    aligned,
    attention_flops,
    byte,
    flash,
    flash_backward,
    grouped,
    matmul,
    moved,
    unfused,
)
from placelang.cost.machine import SPEED, Machine, symbolic
from placelang.cost.overlap import dispatched, overlapped

STRAGGLERS = Fraction(1, 128)
"""A step waits for the slowest rank: a factor (n/8) to this power, 4 % at 1,024 devices."""


@attrs.frozen
class Symbols:
    """Symbols by name, and the machine."""

    machine: Machine
    half: Expr  # flop/s of the 16-bit format

    def __getitem__(self, name: str) -> Expr:
        return symbol(name)

    def seconds(self, name: str) -> Expr:
        return symbol(name, unit=SECONDS)


def symbols() -> Symbols:
    return Symbols(symbolic(), symbol("half", unit=SPEED))


def choose(flag: Expr, yes: Expr, no: Expr) -> Expr:
    """By a flag of 0 or 1."""
    return flag * yes + (1 - flag) * no


@attrs.frozen
class Layer:
    """Seconds on the device for one microbatch, before the host is asked; `linear`: its matrix products alone."""

    forward: Expr
    inputs: Expr  # the gradients of what it reads
    weights: Expr  # those of its parameters
    again: Expr  # what is computed again
    linear: Expr
    attention: Expr
    operations: Expr


def products(g: Expr, out: Expr, into: Expr, m: Machine) -> tuple[Expr, Expr, Expr]:
    """Forward, and the gradients of input and weight, of a product of g rows."""

    def kernel(rows: Expr, columns: Expr, depth: Expr) -> Expr:
        return aligned(matmul(rows, columns, depth, m), columns, depth, machine=m)

    return kernel(g, out, into), kernel(g, into, out), kernel(out, into, g)


def plus(*parts: tuple[Expr, Expr, Expr]) -> tuple[Expr, Expr, Expr]:
    return (
        sum((p[0] for p in parts), constant(0)),
        sum((p[1] for p in parts), constant(0)),
        sum((p[2] for p in parts), constant(0)),
    )


def attention(x: Symbols) -> tuple[Expr, Expr]:
    """Forward and backward of the attention core."""
    m, b, s, t, c = attrs.evolve(x.machine, peak=x.half), x["b"], x["s"], x["t"], x["c"]
    heads, wide = x["a"] / t, x["wide"]
    flops = attention_flops(b, s / c, s, heads, wide)
    kernel = x["flash_share"]
    ours = attrs.evolve(m, reaches={**m.reaches, "attention": m["attention"] * kernel})
    fused = flash(flops, ours), flash_backward(flops, ours)
    scores = x["score_bytes"] * b * s * s / c * heads * byte()
    ragged = x["ragged"]  # heads of a width that is no multiple of 8
    ahead, back = unfused(b, s / c, s, heads, wide, m)
    parts = ahead * ragged + moved(scores, m), back * ragged + 2 * moved(scores, m)
    return choose(x["flash"], fused[0], parts[0]), choose(x["flash"], fused[1], parts[1])


def elementwise(x: Symbols, g: Expr, inner: Expr, experts: Expr) -> Expr:
    """Bytes that norms, sums and activation functions read and write at least, in 16 bits: two norms and two sums of
    what flows between them, the MLP's function, and queries, keys and values once more."""
    sp = choose(x["sp"], x["t"], constant(1))
    inside = (4 + 2 * x["gated"]) * inner / x["t"] + 4 * x["into"] / x["t"]
    return g * (20 * x["h"] / sp + inside + experts) * byte()


def dense_layer(x: Symbols, g: Expr, f: Expr) -> tuple[Expr, Expr, Expr]:
    m, h, t = x.machine, x["h"], x["t"]
    return plus(products(g, (1 + x["gated"]) * f / t, h, m), products(g, h, f / t, m))


def routed(x: Symbols, g: Expr) -> tuple[Expr, Expr, Expr]:
    """Products of the experts of a rank: rows spread evenly, experts not split."""
    m, h, e = x.machine, x["h"], x["e"]
    groups = x["E"] / e
    rows = maximum(g / x["t"] * x["k"] * e / x["E"], 1)
    wide, f = (1 + x["gated"]) * x["fm"], x["fm"]
    return (
        grouped(groups, rows, wide, h, m) + grouped(groups, rows, h, f, m),
        grouped(groups, rows, h, wide, m) + grouped(groups, rows, f, h, m),
        grouped(groups, wide, h, rows, m) + grouped(groups, h, f, rows, m),
    )


def layer(x: Symbols, g: Expr, moe: bool) -> Layer:
    m, h, t = x.machine, x["h"], x["t"]
    linear = plus(products(g, x["into"] / t, h, m), products(g, h, x["out"] / t, m))
    last = products(g, h, x["f"] / t, m)[0]  # whose result no gradient needs
    if moe:
        last = grouped(x["E"] / x["e"], maximum(g / t * x["k"] * x["e"] / x["E"], 1), h, x["fm"], m)
        linear = plus(linear, routed(x, g))
        shared = minimum(x["fs"], 1)
        extra = dense_layer(x, g, maximum(x["fs"], 64))
        linear = plus(linear, (shared * extra[0], shared * extra[1], shared * extra[2]))
        size = elementwise(x, g, x["fs"] + x["k"] * x["fm"], x["permuting"] * x["k"] * h / t)
    else:
        linear = plus(linear, dense_layer(x, g, x["f"]))
        size = elementwise(x, g, x["f"], constant(0))
    size = size * x["fusion"] * (1 + x["cast"] * (x["fp8"] + x["fp4"]))
    operations = (
        12
        + 4 * x["bias"]
        + 3 * (1 - x["flash"])
        + 10 * x["split_softmax"]
        + x["gated"]
        + 2 * minimum(t - 1, 1)
        + (12 if moe else 0)
    )
    light = moved(size, m) + operations * m["kernel"]
    core = attention(x)
    again = choose(
        x["replay"],
        linear[0] + core[0] + light - x["early_stop"] * last,
        x["attention_again"] * core[0] + x["half_again"] * (linear[0] / 2 + light / 2),
    )
    back = choose(x["lora"], constant(1), constant(17) / 10)
    # Biases: their gradients read what flows back once more; dropout writes and reads masks of a byte.
    biased = x["bias"] * g * (2 * (x["into"] + x["f"]) / t + 4 * h + 4 * h) * byte() * x["fusion"]
    light_back = back * light + moved(biased, m)
    return Layer(
        linear[0] + core[0] + light,
        linear[1] + core[1] + light_back,
        (1 - x["lora"]) * linear[2],
        again,
        linear[0],
        core[0],
        operations,
    )


@attrs.frozen
class Exchange:
    """Seconds of collectives of one layer and microbatch that stay exposed, forward and backward."""

    forward: Expr
    backward: Expr


def exchange(x: Symbols, g: Expr, y: Layer, moe: bool) -> Exchange:
    """Tensor, sequence and expert parallelism inside a layer."""
    m, h, t, c, e = x.machine, x["h"], x["t"], x["c"], x["e"]
    width = 2 * byte()
    group = reached(t, constant(1), m, x["striped"])
    once = ring("all_reduce", g * h * width, group)  # or a gather and a scatter, which send as much
    several = minimum(t - 1, 1)
    count = 2 if not moe else 1  # experts are not split over tensor ranks: their half of the layer has none
    exposed = several * (1 - x["tensor_hidden"] * x["tensor_behind"]) * once * count
    forward, backward = exposed, exposed + x["replay"] * exposed
    around = reached(c, t, m, x["striped"])
    tokens = (c - 1) * g * 2 * x["kv"] * x["w"] / t * width
    passed = tokens / around.rate + (c - 1) * around.latency
    turned = scattered(g * (x["into"] + x["out"]) / t * width, around, m)
    hidden = overlapped(passed, y.attention * Fraction(4, 5)).exposed
    sequence = minimum(c - 1, 1) * choose(x["ulysses"], turned, hidden)
    forward, backward = forward + sequence, backward + sequence * (2 + x["replay"])
    if moe:
        experts = reached(e, constant(1), m, x["striped"])
        token = g / t * h * width
        nodes = experts.ranks / experts.inside
        copies = x["k"] * (1 - 1 / nodes)  # that leave the node; a dispatcher may send one to each node
        far = choose(x["once_a_node"], minimum(copies, nodes - 1), copies)
        near = x["k"] * (experts.inside - 1) / experts.inside
        links = token * near / (m.link * m["link"]) + token * far / (m.network * m["network"])
        dealt = (links + experts.latency) * minimum(e - 1, 1) * x["dealt_share"]
        forward, backward = forward + 2 * dealt, backward + (2 + 2 * x["replay"]) * dealt
    return Exchange(forward, backward)


@attrs.frozen
class Step:
    """Seconds of a step and of its parts."""

    total: Expr
    parts: dict[str, Expr]


def step(x: Symbols) -> Step:
    m, h, t, p, c, d, v = x.machine, x["h"], x["t"], x["p"], x["c"], x["d"], x["v"]
    g = x["b"] * x["s"] / c
    width = 2 * byte()
    routed_share = 1 - x["Ld"] / x["L"]
    tax = x["tax"]

    # One layer, dense or with experts; of a stage, as many as the model has of each.
    passes: dict[str, Expr] = {}
    totals = []
    for moe in (False, True):
        y = layer(x, g, moe)
        sent_in = exchange(x, g, y, moe)
        device = y.forward + y.inputs + y.weights + y.again
        host = x.seconds("host")
        trips = Fraction(26, 10) + x["replay"]
        busy = device + sent_in.forward + sent_in.backward
        whole = dispatched(busy, y.operations * trips, host)
        slower = whole / busy
        share = routed_share if moe else 1 - routed_share
        for name, value in {
            "layer": whole,
            "forward": (y.forward + sent_in.forward) * slower,
            "weights": y.weights * slower,
            "exchange": sent_in.forward + sent_in.backward,
        }.items():
            passes[name] = passes.get(name, constant(0)) + share * value
        totals.append(y)
    one, ahead, w = passes["layer"], passes["forward"], passes["weights"]

    # The head, on the last stage.
    logits = g * x["V"] / t
    head = sum(products(g, x["V"] / t, h, attrs.evolve(m, peak=x.half))[:3], constant(0))
    head = (
        head
        - x["lora"] * matmul(x["V"] / t, h, g, attrs.evolve(m, peak=x.half))
        + moved(x["logit_bytes"] * logits * byte(), m)
    )

    # Sharded parameters: gathered before each layer's forward and backward, gradients scattered after it.
    experts = 3 * x["E"] * x["fm"] * h / x["e"] * t
    weights = (
        h * (x["into"] + x["out"])
        + (1 - routed_share) * (2 + x["gated"]) * h * x["f"]
        + routed_share * ((2 + x["gated"]) * h * x["fs"] + experts)
    )
    local = weights / t
    fsdp = reached(x["shard"], t, m, x["striped"])
    several = minimum(d * c - 1, 1)
    gathered = ring("all_gather", local * width, fsdp)
    reduced = (1 - x["lora"]) * ring("reduce_scatter", local * choose(x["pure"], width, x["gradient"] * byte()), fsdp)
    in_forward = overlapped(gathered, ahead, tax)
    in_backward = overlapped((1 - x["keeps"]) * gathered + reduced, one - ahead, tax)
    sharded = x["full"] * several * (in_forward.exposed + in_forward.tax + in_backward.exposed + in_backward.tax)
    one = one + sharded

    # Stages.
    longest = maximum(x["most"] * one, x["last"] * one + head)
    stage = choose(minimum(p - 1, 1), longest, x["L"] * one + head)
    mean = (x["L"] * one + head) / p
    hop = sent(g * h / t * width, t * c * d, m) * minimum(p - 1, 1)
    crossing = 2 * v * hop * choose(x["send_hidden"], x["send_behind"], constant(1))
    filled = minimum(x["weightless"], 1) * (1 + minimum(x["weightless"], 2)) * w * x["L"] / p
    emptied = minimum(maximum(x["weightless"] - 2, 0), 1)
    drain = (p - 1) / v * (mean + 2 * hop) - (p - 1) * filled
    pipeline = x["m"] * (stage + crossing) + maximum((1 - emptied) * drain, 0)

    # Replicas: what is left to reduce after a step, and to gather before the next.
    params = (x["L"] / p * local + x["V"] * h / t / maximum(1, p / 2)) * (1 - x["full"]) * (1 - x["lora"])
    own_experts = routed_share * 3 * x["E"] * x["fm"] * h / x["e"] * x["L"] / p * (1 - x["full"]) * (1 - x["lora"])
    plain = maximum(params - own_experts, 0)
    wire = choose(x["pure"], width, x["gradient"] * byte())
    replicas = reached(d * c, t, m, x["striped"])
    apart = reached(maximum(d * c * t / x["e"], 1), maximum(x["e"], 1), m, x["striped"])

    def both(kind: str, size: Expr) -> Expr:
        return ring(kind, plain * size, replicas) + ring(kind, own_experts * size, apart)

    scatter = both("reduce_scatter", wire)
    gather = choose(x["zero"], both("all_gather", width), both("all_gather", wire))
    window = x["L"] / p * (one - ahead)
    late = overlapped(scatter, window * x["data_hidden"] * Fraction(9, 10), tax)
    early = overlapped(gather, ahead * x["L"] / p * x["data_hidden"] * Fraction(9, 10), tax)
    exposed = several * (late.exposed + late.tax + early.exposed + early.tax)
    groups = reached(maximum(d * c / x["shard"], 1), t * x["shard"], m, x["striped"])
    across = (
        x["full"]
        * (1 - x["lora"])
        * ring("all_reduce", (x["L"] / p * local + x["V"] * h / t) / x["shard"] * wire, groups)
    )
    embeddings = x["full"] * several * 2 * ring("all_gather", x["V"] * h / t * width, fsdp)

    # The update.
    owned = (x["L"] / p * local + x["V"] * h / t / maximum(1, p / 2)) / choose(
        x["full"], x["shard"], choose(x["zero"], d * c, constant(1))
    )
    update = moved(30 * owned * byte() * (1 - x["lora"]), m)

    parts = {
        "compute": pipeline,
        "replicas": exposed + across,
        "embeddings": embeddings,
        "update": update,
        "fixed": x.seconds("fixed"),
    }
    waiting = maximum(x["n"] / 8, 1) ** STRAGGLERS
    total = sum(parts.values(), constant(0)) * waiting
    return Step(
        total, {**parts, "layer": one, "exchange": passes["exchange"], "head": head, "stage": stage, "sharded": sharded}
    )
