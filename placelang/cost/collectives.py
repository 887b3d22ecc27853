"""Seconds of one collective by kind, bytes, group and the links that it crosses.

alpha-beta: a latency for each hop, and what a rank sends over its rate. Rings send 2(n-1)/n X for an all_reduce and
(n-1)/n X for a gather or scatter, X being the whole (Patarasuk and Yuan 2009; Thakur et al. 2005); an all_to_all as
much as a scatter. The rate of a group that lies over several nodes is that of its narrowest link: r ranks of it in each
node share r NICs ("striping", what NCCL does with one ring for each NIC), where the stack builds such rings. Trees have
the same rate and fewer hops, which is what latency counts between nodes. Not for: which collectives a
step runs (`work`), or how much of them hides (`overlap`).
"""

from __future__ import annotations

from fractions import Fraction

import attrs

from placelang.cost.expr import Expr, ceil, floor, maximum, minimum
from placelang.cost.machine import Machine

HOPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "send": 1}
"""Passes over the group that each kind makes."""

LEVELS = Fraction(1, 3)
"""Hops between n nodes count as n to this power: within a third of log2 n, the depth of a tree, up to 4,096 nodes."""


@attrs.frozen
class Reached:
    """A group of `ranks`, `stride` apart: `inside` of them in each node, over `rate` bytes/s a rank."""

    ranks: Expr
    inside: Expr
    rate: Expr
    latency: Expr  # of one pass over the group


def reached(ranks: Expr, stride: Expr, machine: Machine, striped: Expr | int = 1) -> Reached:
    """How a group reaches itself. `striped` 0: one NIC a node carries the whole ring."""
    inside = minimum(ranks, maximum(1, floor(machine.node / stride)))
    near = machine.link * machine["link"]
    nics = 1 + (inside - 1) * striped
    far = minimum(near, nics * machine.network * machine["network"])
    nodes = ranks / inside
    across = minimum(1, ceil(nodes) - 1)
    rate = 1 / ((1 - across) / near + across / far)
    latency = (inside - 1) * machine["link_latency"] + across * nodes**LEVELS * machine["network_latency"]
    return Reached(ranks, inside, rate, latency)


def ring(kind: str, size: Expr, group: Reached) -> Expr:
    """Seconds of one collective over `size` bytes on the unsharded side."""
    sent = (2 if kind == "all_reduce" else 1) * size * (group.ranks - 1) / group.ranks
    return sent / group.rate + HOPS[kind] * group.latency


def scattered(size: Expr, group: Reached, machine: Machine) -> Expr:
    """Seconds of an all_to_all of `size` bytes a rank: what stays in the node over links, the rest over the NIC."""
    near = (group.inside - 1) / group.ranks * size / (machine.link * machine["link"])
    far = (group.ranks - group.inside) / group.ranks * size / (machine.network * machine["network"])
    return near + far + group.latency


def sent(size: Expr, stride: Expr, machine: Machine) -> Expr:
    """Seconds of a send to the neighbour `stride` ranks away."""
    away = minimum(1, floor(stride / machine.node))  # the neighbour is in the same node unless a node ends between
    rate = 1 / ((1 - away) / (machine.link * machine["link"]) + away / (machine.network * machine["network"]))
    return size / rate + machine["network_latency"] * away + machine["link_latency"] * (1 - away)
