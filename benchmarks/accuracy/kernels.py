"""Kernels and collectives measured one at a time, against the formulas of the cost room on the catalogue's devices.

Reads matrix products, grouped ones and attention by shape, and collectives as fits of time over size. Not for: steps
(`rows`, `layers`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs

from placelang.cost.collectives import reached, ring, scattered
from placelang.cost.expr import BYTES, Expr, constant, evaluate
from placelang.cost.kernels import attention_flops, flash, flash_backward, grouped, matmul
from placelang.cost.machine import Machine, machine
from placelang.hardware import catalogue
from placelang.hardware.hardware import Device, Hardware, Link, Node

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@attrs.frozen
class Kernel:
    """One measurement: what it is of, and both times."""

    family: str
    id: str
    seconds: float
    predicted: float


def read(folder: Path) -> Iterator[Kernel]:
    """Every kernel and collective of a folder of facts on a device whose shares are known."""
    for file in sorted(folder.glob("*.toml")):
        facts = tomllib.loads(file.read_text("utf-8"))
        for case in facts.get("case", ()):
            if case.get("kind") == "measured" and "op" in case.get("run", {}):
                yield from _kernel(case)
        for fit in facts.get("collective_fit", ()):
            yield from _collective(fit)


def on(gpu: str, dtype: str = "bf16") -> Machine | None:
    """The device of an id, alone; None where nobody measured it."""
    device = catalogue.part(re.sub("[-.]", "_", gpu))
    if not isinstance(device, Device) or device.reach is None:
        return None
    if device.bandwidth is None:
        return None
    made, _ = machine(Hardware(Node(8, device, device.link or Link("link", Fraction(10**9)))), dtype)
    return made


def _kernel(case: Mapping[str, Any]) -> Iterator[Kernel]:
    run, gpu = case["run"], case.get("hardware", {}).get("gpu", "")
    m = on(gpu, "fp8" if run.get("precision") == "fp8" else "bf16")
    if m is None:
        return
    measured = case.get("derived", {}).get("time_s") or case["expect"].get("time_s")
    match run["op"]:
        case "matmul" if "shape_mxnxk" in run:
            a, b, c = (int(n) for n in run["shape_mxnxk"].split("x"))
            yield _one(
                "matmul, best case of each device",
                case,
                2 * a * b * c / case["expect"]["flops_per_s"],
                matmul(constant(a), constant(b), constant(c), m),
            )
        case "matmul" if "m" in run:
            yield _one(
                f"matmul {gpu}", case, measured, matmul(constant(run["m"]), constant(run["n"]), constant(run["k"]), m)
            )
        case "group_matmul":
            groups, rows, columns, depth = (constant(run[k]) for k in ("ng", "M", "N", "K"))
            yield _one(f"grouped matmul {gpu}", case, measured, grouped(groups, rows, columns, depth, m))
        case "sdp_fwd" | "sdp_bwd":
            heads = constant(max(run["head_num"], run["kv_head_num"]))
            wide = constant(max(run["qk_head_dim"], run["v_head_dim"]))
            s = constant(run["seq_len"])
            flops = attention_flops(constant(run["batch"]), s, s, heads, wide)
            kernel = flash if run["op"] == "sdp_fwd" else flash_backward
            yield _one(f"attention {gpu}", case, measured, kernel(flops, m))
        case "flash attention on one GPU" if run.get("api") == "batch":
            s = constant(run["seq_len"])
            flops = attention_flops(constant(run["batch"]), s, s, constant(run["heads"]), constant(run["head_dim"]))
            both = flash(flops, m) + (flash_backward(flops, m) if "bwd" in run["pass_"] else 0)
            yield _one("attention, FlashAttention 2", case, measured, both)
        case _:
            return


def _one(family: str, case: Mapping[str, Any], measured: float, predicted: Expr) -> Kernel:
    return Kernel(family, case["id"], measured, float(evaluate(predicted, {})))


KINDS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all2all": "all_to_all",
}
SIZES = [2**k for k in range(20, 31, 2)]
"""Buffers that a fit of time over size is asked for: 1 MiB to 1 GiB."""


def _collective(fit: Mapping[str, Any]) -> Iterator[Kernel]:
    m = on(fit["gpu"])
    if m is None or fit["op"] not in KINDS or fit["network"] != "high_intra_node":
        return
    kind, ranks = KINDS[fit["op"]], 8
    rate, share = (
        fit["nominal_bytes_per_s"] * fit["efficiency"],
        (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks,
    )
    for size in SIZES:
        measured = (
            size * share / rate
            + fit["latency_s"] * (ranks - 1) * (2 if kind == "all_reduce" else 1)
            + fit.get("fixed_latency_s", 0)
        )
        group = reached(constant(ranks), constant(1), m)
        sized = constant(size, BYTES)
        predicted = scattered(sized, group, m) if kind == "all_to_all" else ring(kind, sized, group)
        yield Kernel(
            f"collectives {fit['gpu']}, in a node", f"{fit['op']}-{size}", measured, float(evaluate(predicted, {}))
        )
