"""What the time of a kernel or a collective needs to know of a machine, as expressions.

The nominal figures are those of `hardware`; what share of them a program reaches is measured, per device, and stands in
`stdlib/hardware` with its source (`hardware.Reach`). Every figure is a number for a machine that a text names, and a
symbol where one wants its derivative, or the machine that would be fast enough. Not for: formulas (`kernels`,
`collectives`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import attrs

from placelang.cost.expr import BYTES, FLOPS, SCALAR, SECONDS, Expr, Unit, constant, symbol
from placelang.hardware.hardware import REACH, Hardware, Reach
from placelang.plan.plan import Assumption

RATE, SPEED = BYTES / SECONDS, FLOPS / SECONDS

FIGURES = {
    "peak": (SPEED, "flop/s of the matrix unit"),
    "memory": (RATE, "bytes/s of device memory"),
    "link": (RATE, "bytes/s of a device inside its node, one way"),
    "network": (RATE, "bytes/s of a device's share of the NICs, one way"),
    "node": (SCALAR, "devices in a node"),
}
"""Nominal figures of a machine: unit, and what each says."""

NARROW = {"fp8": "matmul_fp8", "fp4": "matmul_fp4", "nvfp4": "matmul_fp4"}
"""The share of the peak that products in a narrow format reach."""


@attrs.frozen
class Machine:
    """One device and its way to the others. `reaches` holds the fitted shares by the names of `hardware.Reach`."""

    peak: Expr  # flop/s, dense, of the format that matrices are multiplied in
    memory: Expr  # bytes/s
    link: Expr  # bytes/s one way, of a device to the others of its node
    network: Expr  # bytes/s one way, a device's share of its node's NICs
    node: Expr  # devices in a node
    reaches: Mapping[str, Expr]

    def __getitem__(self, name: str) -> Expr:
        """A fitted figure."""
        return self.reaches[name]


def machine(hardware: Hardware, dtype: str) -> tuple[Machine, tuple[Assumption, ...]] | tuple[None, str]:
    """The machine that computes in `dtype`, with what had to be assumed; or None and what of it is not known."""
    device, node = hardware.device, hardware.node
    peak = device.peak(dtype)
    if peak is None:
        return None, f"no peak of {device.name} in {dtype} is known"
    if device.bandwidth is None:
        return None, f"the memory bandwidth of {device.name} is not known"
    link = node.link.bandwidth or node.link.peer if node.link else None
    network = node.network_bandwidth / node.devices if node.network_bandwidth is not None else None
    if link is None and node.devices > 1:
        return None, f"no link between the devices of {hardware.name} is known"
    if network is None and hardware.nodes > 1:
        return None, f"no network between the nodes of {hardware.name} is known"
    reach = device.reach or Reach()
    said = [] if device.reach else [Assumption("reach", f"nobody measured {device.name}: shares typical of GPUs")]
    if reach.source:
        said.append(Assumption("reach", f"shares of nominal speeds that {device.name} reaches: {reach.source}"))
    figures: dict[str, Fraction | int] = {
        "peak": peak,
        "memory": device.bandwidth,
        "link": link or network or device.bandwidth,
        "network": network or link or device.bandwidth,
        "node": node.devices,
    }
    made = {name: constant(value, FIGURES[name][0]) for name, value in figures.items()}
    shares = reach.figures
    shares["matmul"] = shares[NARROW.get(dtype, "matmul")]
    return Machine(**made, reaches={k: constant(v, _unit(k)) for k, v in shares.items()}), tuple(said)


def symbolic() -> Machine:
    """A machine of which nothing is known: every figure is a symbol of its own name."""
    made = {name: symbol(name, doc, unit) for name, (unit, doc) in FIGURES.items()}
    return Machine(**made, reaches={k: symbol(f"reach_{k}", doc, _unit(k)) for k, (_, _, doc) in REACH.items()})


def _unit(name: str) -> Unit:
    return SECONDS if REACH[name][0] == "seconds" else SCALAR
