"""The functions that a text may call for a machine of its own: `node(devices = 8, device = gpu(...), ...)`.

Not for: published machines (`catalogue`), or what an expression around a call means (`values`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from placelang.hardware.facts import MOST_DEVICES, Arg, Facts, Given, Refused, read
from placelang.hardware.hardware import DTYPES, REACH, Device, Hardware, Host, Link, Network, Node, Part, Reach

Builder = Callable[[str, str, str, Facts], Part]
"""From the name that a text calls with, the name of the constructor, the source of the figures, and the arguments."""


def _device(name: str, kind: str, source: str, facts: Facts) -> Device:
    peaks = ((dtype, facts.number(dtype)) for dtype in DTYPES)
    return Device(
        name,
        kind,
        facts.number("memory"),
        facts.number("bandwidth"),
        tuple((dtype, peak) for dtype, peak in peaks if peak is not None),
        facts.link("link"),
        facts.link("host_link"),
        source,
        facts.reach("reach"),
    )


def _reach(name: str, kind: str, source: str, facts: Facts) -> Reach:
    given = ((figure, facts.number(figure)) for figure in REACH)
    return Reach(tuple((figure, value) for figure, value in given if value is not None), source)


def _link(name: str, kind: str, source: str, facts: Facts) -> Link:
    bandwidth, peer = facts.number("bandwidth"), facts.number("peer")
    if bandwidth is None and peer is None:
        raise Refused(f"`{name}` needs `bandwidth` or `peer`", f"`{kind}(450GB/s)`")
    if bandwidth is not None and peer is not None and peer > bandwidth:
        raise Refused("one peer gets more than all together", "`peer` is a part of `bandwidth`", "peer")
    return Link(kind, bandwidth, peer, facts.sizes("torus"), facts.number("latency"))


def _network(name: str, kind: str, source: str, facts: Facts) -> Network:
    bandwidth = facts.number("bandwidth")
    assert bandwidth is not None, "a required argument"
    return Network("infiniband" if kind == "ib" else kind, bandwidth, facts.count("nics"), facts.number("latency"))


def _host(name: str, kind: str, source: str, facts: Facts) -> Host:
    return Host(*(facts.number(argument) for argument in _HOST))


def _node(name: str, kind: str, source: str, facts: Facts) -> Hardware:
    devices, device = facts.count("devices"), facts.values["device"]
    network, host = facts.values.get("network"), facts.values.get("host")
    assert devices is not None and isinstance(device, Device), "required arguments"
    nodes = facts.count("nodes") or 1
    if devices * nodes > MOST_DEVICES:
        raise Refused(f"{devices * nodes:,} devices are more than any machine has", argument="nodes")
    node = Node(
        devices,
        device,
        facts.link("link") or device.link,
        network if isinstance(network, Network) else None,
        host if isinstance(host, Host) else Host(),
    )
    return Hardware(node, nodes, name, source)


_DEVICE: Final = {
    "memory": Arg("bytes", "capacity of its memory"),
    "bandwidth": Arg("bytes/s", "of its memory"),
    **{dtype: Arg("flops/s", f"dense peak in {dtype}") for dtype in DTYPES},
    "link": Arg("link", "to the other devices of its node"),
    "host_link": Arg("link", "to its host"),
    "reach": Arg("reach", "how much of these figures programs reach, as measured"),
}
_LINK: Final = {
    "bandwidth": Arg("bytes/s", "all that one device sends, one way"),
    "peer": Arg("bytes/s", "to one neighbour, one way, where that is less than all"),
    "latency": Arg("seconds", "of one hop"),
    "torus": Arg("sizes", "the largest torus that the links form"),
}
_NETWORK: Final = {
    "bandwidth": Arg("bytes/s", "of one NIC, one way", required=True),
    "nics": Arg("count", "NICs of one node; as many as devices unless said"),
    "latency": Arg("seconds", "between two nodes"),
}
_HOST: Final = {
    "memory": Arg("bytes", "main memory of one node"),
    "pcie": Arg("bytes/s", "between host and each device, one way"),
    "disk": Arg("bytes", "local disks of one node"),
    "disk_read": Arg("bytes/s", "all local disks together"),
    "disk_write": Arg("bytes/s", "all local disks together"),
}
_NODE: Final = {
    "devices": Arg("count", "devices of one node", required=True),
    "device": Arg("device", "what each of them is", required=True),
    "link": Arg("link", "between its devices; that of the device unless said"),
    "network": Arg("network", "to other nodes"),
    "host": Arg("host", "the CPU side"),
    "nodes": Arg("count", "equal nodes; one unless said"),
}


_REACH: Final = {name: Arg(kind, doc) for name, (kind, _, doc) in REACH.items()}


@attrs.frozen
class Constructor:
    """A function of the language: its arguments, of which the first `positional` may stand without a name."""

    build: Builder
    args: Mapping[str, Arg]
    positional: int = 0


CONSTRUCTORS: Final[Mapping[str, Constructor]] = {
    "gpu": Constructor(_device, _DEVICE),
    "tpu": Constructor(_device, _DEVICE),
    "node": Constructor(_node, _NODE),
    "host": Constructor(_host, _HOST),
    "reach": Constructor(_reach, _REACH),
    **{kind: Constructor(_link, _LINK, 1) for kind in ("nvlink", "pcie", "xgmi", "ici", "link")},
    **{
        kind: Constructor(_network, _NETWORK, 1)
        for kind in ("infiniband", "ib", "roce", "efa", "ethernet", "omni_path", "network")
    },
}
"""Every function, by name. `link` and `network` are for kinds that have no name here; `ib` is `infiniband`."""


def build(constructor: str, levels: Sequence[Sequence[Given]], name: str, source: str) -> Part:
    """What `constructor(...)` says, given the argument lists of every call that led to it, outermost first.

    Raises Refused. `name` is what the text calls the result, so that a message about `h100_sxm(nodes = 2)` names it.
    """
    function = CONSTRUCTORS[constructor]
    called = f"`{constructor}`" if name == constructor else f"`{name}`, which is a `{constructor}`,"
    if function.build is _device:
        for given in (one for level in levels for one in level if one.name in ("devices", "nodes")):
            more = f"`node(devices = 8, device = {name}, nodes = 4)`"
            raise Refused(f"{called} is a single device and has no `{given.name}`", more, given.name or "", given.span)
    facts = read(called, function.args, function.positional, levels)
    return function.build(name, constructor, source, facts)
