"""The values that say what a machine is: devices, links, networks, hosts, nodes, and nodes together.

Figures are those that vendors print, not what a program reaches. Rates are one way: vendors often print the sum of both
directions. What no source gives is None and never guessed, so that a cost that needs it can name it. Not for: how a
text says a machine (`constructors`, `values`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import attrs

from placelang.frozen import Frozen
from placelang.source import Span


@attrs.frozen(eq=False, repr=False)
class HardwareError(Frozen):
    """Why there is no such machine. A value, never raised: rooms to the right make a diagnostic of it."""

    message: str
    suggestion: str = ""
    argument: str = ""  # the argument at fault
    span: Span | None = attrs.field(default=None, eq=False, repr=False)  # where the fault stands, if in a text


DTYPES: Final = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "nvfp4", "int8")
"""Formats that a peak is known for. `fp32` is the vector unit's; `tf32` the matrix unit's on fp32 operands."""


@attrs.frozen(eq=False, repr=False)
class Link(Frozen):
    """What joins the devices of a node, or a device and its host.

    A switched link (NVLink) gives its whole bandwidth to any peer, and `peer` is None. A direct one gives `peer` to
    each neighbour: XGMI joins all pairs, ICI the neighbours on a torus.
    """

    kind: str  # "nvlink", "pcie", "xgmi", "ici", or "link"
    bandwidth: Fraction | None = None  # bytes/s, one way, all that one device sends
    peer: Fraction | None = None  # bytes/s, one way, to one neighbour, where that is less
    torus: tuple[int, ...] = ()  # the largest torus of direct links; empty: every device reaches every other
    latency: Fraction | None = None  # seconds


@attrs.frozen(eq=False, repr=False)
class Network(Frozen):
    """What joins nodes."""

    kind: str  # "infiniband", "roce", "efa", "ethernet", "omni_path", or "network"
    bandwidth: Fraction  # bytes/s, one way, of one NIC
    nics: int | None = None  # of one node; None: as many as it has devices
    latency: Fraction | None = None  # seconds


@attrs.frozen(eq=False, repr=False)
class Host(Frozen):
    """The CPU side of one node."""

    memory: Fraction | None = None  # bytes
    pcie: Fraction | None = None  # bytes/s, one way, between host and each device
    disk: Fraction | None = None  # bytes of local disk
    disk_read: Fraction | None = None  # bytes/s, all local disks together
    disk_write: Fraction | None = None


@attrs.frozen(eq=False, repr=False)
class Device(Frozen):
    """One accelerator, as a framework counts them: a TPU chip, both dies of an MI250X."""

    name: str
    kind: str  # "gpu" or "tpu"
    memory: Fraction | None = None  # bytes
    bandwidth: Fraction | None = None  # bytes/s of its memory
    peaks: tuple[tuple[str, Fraction], ...] = ()  # (dtype, flop/s), dense
    link: Link | None = None  # to its peers, where the board has one
    host_link: Link | None = None
    source: str = ""

    def peak(self, dtype: str) -> Fraction | None:
        """Dense flop/s in that format."""
        return dict(self.peaks).get(dtype)


@attrs.frozen(eq=False, repr=False)
class Node(Frozen):
    """Equal devices that one link joins, and what they share. A rack that NVLink joins is one node."""

    devices: int
    device: Device
    link: Link | None = None
    network: Network | None = None
    host: Host = Host()

    @property
    def nics(self) -> int | None:
        """None where no network is known."""
        return None if self.network is None else self.network.nics or self.devices

    @property
    def network_bandwidth(self) -> Fraction | None:
        """Bytes/s, one way, of all NICs of the node together."""
        return None if self.network is None else self.network.bandwidth * (self.network.nics or self.devices)

    @property
    def host_bandwidth(self) -> Fraction | None:
        """Bytes/s, one way, between the host and each device."""
        if self.host.pcie is not None or self.device.host_link is None:
            return self.host.pcie
        return self.device.host_link.bandwidth


@attrs.frozen(eq=False, repr=False)
class Hardware(Frozen):
    """Equal nodes: what a `hardware` line says."""

    node: Node
    nodes: int = 1
    name: str = "hardware"
    source: str = ""  # where the figures come from

    @property
    def devices(self) -> int:
        """Of all nodes."""
        return self.nodes * self.node.devices

    @property
    def device(self) -> Device:
        return self.node.device


Part = Device | Link | Network | Host | Hardware
"""Whatever a name of the catalogue may stand for."""
