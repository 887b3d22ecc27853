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
class Reach(Frozen):
    """How much of its nominal figures a device reaches, as measured. What is not given is typical of GPUs.

    Shares are of the figure of the same name; what each of them means in a formula says `cost.kernels` and
    `cost.collectives`.
    """

    given: tuple[tuple[str, Fraction], ...] = ()
    source: str = ""

    @property
    def figures(self) -> dict[str, Fraction]:
        """Every figure, in seconds where it is a time."""
        return {name: default for name, (_, default, _) in REACH.items()} | dict(self.given)

    @staticmethod
    def docs() -> dict[str, str]:
        return {name: doc for name, (_, _, doc) in REACH.items()}


_US = Fraction(1, 1_000_000)

REACH: Final = {
    "matmul": ("number", Fraction(74, 100), "of the peak, of large matrix products"),
    "matmul_fp8": ("number", Fraction(66, 100), "the same in fp8, of its own peak"),
    "matmul_fp4": ("number", Fraction(45, 100), "the same in fp4, of its own peak"),
    "depth": (
        "number",
        Fraction(120),
        "length of a contraction at which a matrix product spends half its time outside it",
    ),
    "waves": ("number", Fraction(75, 100), "of a partly filled last wave of tiles that is lost"),
    "multiprocessors": ("number", Fraction(132), "multiprocessors that share the tiles of a matrix product"),
    "misaligned": ("number", Fraction(14, 10), "factor where sizes are not multiples of 64"),
    "attention": ("number", Fraction(55, 100), "of the peak, of fused attention forward"),
    "attention_back": ("number", Fraction(75, 100), "of that, of its backward"),
    "memory": ("number", Fraction(80, 100), "of the memory's bandwidth"),
    "link": ("number", Fraction(75, 100), "of the link's bandwidth, of collectives inside a node"),
    "network": ("number", Fraction(80, 100), "of the NICs' bandwidth, of collectives between nodes"),
    "kernel": ("seconds", 5 * _US, "of a launch of a matrix product"),
    "attention_floor": ("seconds", 60 * _US, "of fused attention, however short"),
    "expert": ("seconds", 7 * _US, "of each group of a grouped matrix product"),
    "link_latency": ("seconds", 5 * _US, "of a hop inside a node"),
    "network_latency": ("seconds", 15 * _US, "of a hop between nodes"),
}
"""Figures of a `Reach`: what each takes, what is typical, and what it says."""


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
    reach: Reach | None = None  # None: nobody measured it

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


Part = Device | Link | Network | Host | Reach | Hardware
"""Whatever a name of the catalogue may stand for."""
