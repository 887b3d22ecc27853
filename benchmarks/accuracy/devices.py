"""The figures of a row's machine: of the catalogue, of the case where it prints them, and of its source's reading.

Not for: shares of these figures (`fit`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from benchmarks.accuracy.readings import NETWORK, Reading
from placelang.hardware import catalogue
from placelang.hardware.hardware import Device


class Skip(Exception):
    """Why a row is not graded."""


def figures(gpu: str, hardware: Mapping[str, Any], reading: Reading, m: Mapping[str, float]) -> dict[str, float]:
    """Nominal figures by the names of `layers`. Raises Skip where one is not known."""
    device = catalogue.part(re.sub("[-.]", "_", gpu))
    if not isinstance(device, Device):
        raise Skip(f"no figures of {gpu}")
    own = family(gpu)
    if own not in NETWORK:
        raise Skip(f"nobody measured {gpu}")
    like = {
        "h100_sxm_hbm2e_96gb": "h100_sxm",
        "h800_sxm": "h100_sxm",
        "a800_80gb": "a100_sxm_80gb",
        "v100_sxm2_32gb": "v100_sxm3_32gb",
        "v100_sxm2_16gb": "v100_sxm3_32gb",
    }
    base = catalogue.part(like.get(device.name, device.name))
    assert isinstance(base, Device)
    dense = device.peak("bf16") or base.peak("bf16") or device.peak("fp16") or base.peak("fp16")
    narrow = (
        (device.peak("fp4") or base.peak("fp4"))
        if m["fp4"]
        else (device.peak("fp8") or base.peak("fp8"))
        if m["fp8"]
        else dense
    )
    bandwidth = hardware.get("hbm_bytes_per_s") or device.bandwidth or base.bandwidth
    link = device.link or base.link
    if dense is None or bandwidth is None or link is None or narrow is None:
        raise Skip(f"the figures of {gpu} are not complete")
    near = float(link.bandwidth or (link.peer or 0) * 2 * max(1, len(link.torus)))
    node = hardware.get("gpus_per_node") or (256 if own == "tpu" else 72 if gpu.startswith("gb") else 8)
    network = (
        hardware.get("internode_bytes_per_s_per_gpu") or _network(hardware, node) or reading.network or NETWORK[own]
    )
    if device.name == "h100_sxm_hbm2e_96gb":
        dense, narrow = dense * SLOWER_H100, narrow * SLOWER_H100
    return {
        "peak": float(narrow), "half": float(dense), "memory": float(bandwidth), "link": near,
        "network": float(network),
        "node": min(node, m["n"]) if node > m["n"] else node,
    }  # fmt: skip


SLOWER_H100 = Fraction(989 + 835, 2 * 989)
"""The H100 of 96 GB of HBM2e has a peak "between SXM and NVL" (its users' words): halfway is assumed."""


def _network(hardware: Mapping[str, Any], node: int) -> float | None:
    """Bytes/s of a device, where the network of a node is printed in words."""
    said = str(hardware.get("internode", ""))
    if said == "GCP A3":
        return 12.5e9
    if each := re.search(r"(\d+)\s*x\s*(?:Omni-Path\s*)?(\d+)\s*(?:Gb)?", said):
        return int(each[1]) * int(each[2]) / 8 * 1e9 / node
    if whole := re.search(r"(\d+)\s*Gbps per node", said):
        return int(whole[1]) / 8 * 1e9 / node
    return None


def family(gpu: str) -> str:
    return re.split("[-_]", gpu)[0] if not gpu.startswith("tpu") else "tpu"
