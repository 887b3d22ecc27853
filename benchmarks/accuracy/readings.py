"""What the facts leave to prose, read once for each source: the stack that ran, its network, and what is not printed.

A reading holds for a whole source, or for the rows of it that a rule names; never for one row, one model or one size.
`assumed` says which of it nobody printed. Not for: numbers of a case, which win over all of this (`rows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

GB = 1e9


@attrs.frozen
class Reading:
    """Of one source: the stack (a name of `stacks`), defaults of a case, and bytes/s of NICs for each device."""

    stack: str
    run: Mapping[str, Any] = attrs.field(factory=dict)
    layout: Mapping[str, Any] = attrs.field(factory=dict)
    model: Mapping[str, Any] = attrs.field(factory=dict)
    network: float | None = None  # bytes/s of a device; None: that of `NETWORK`
    gpu: Mapping[str, str] = attrs.field(factory=dict)  # ids that are no device, and the device they mean
    assumed: str = ""
    sharded: str = ""  # the stack of rows with fully sharded parameters, where it is another, and their defaults
    sharded_run: Mapping[str, Any] = attrs.field(factory=dict)
    later: tuple[str, str] = ("", "")  # a release, and the stack of rows from it on

    def is_sharded(self, case: Mapping[str, Any]) -> bool:
        layout = case.get("layout", {})
        return bool(self.sharded) and (layout.get("zero_stage") == 3 or bool(layout.get("fsdp")))

    def run_of(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """The facts of a run, as printed or else as read."""
        return {**self.run, **(self.sharded_run if self.is_sharded(case) else {}), **case.get("run", {})}

    def stack_of(self, case: Mapping[str, Any]) -> str:
        if self.is_sharded(case):
            return self.sharded
        release, stack = self.later
        return stack if release and str(case.get("at", "")).partition(", ")[2] >= release else self.stack


FINEST: Final = {"finest": True}  # chunks as many as a stage has layers

NETWORK: Final[Mapping[str, float]] = {
    "v100": 12.5 * GB,
    "a100": 25 * GB,
    "a800": 25 * GB,
    "h100": 50 * GB,
    "h200": 50 * GB,
    "h800": 50 * GB,
    "b200": 50 * GB,
    "b300": 100 * GB,
    "gb200": 50 * GB,
    "gb300": 100 * GB,
    "tpu": 3.125 * GB,
}
"""Share of the NICs of the usual node of a device family (stdlib/hardware/dgx.place, tpu.place)."""

READINGS: Final[Mapping[str, Reading]] = {
    "megatron-sc21": Reading(
        "megatron_2021",
        sharded="deepspeed_2021",
        assumed="micro-batch and chunks of Table 1 as in the authors' script "
        "(NVIDIA/Megatron-LM examples/academic_paper_scripts/sc21/run_table_1.sh)",
    ),
    "megatron-jan2021": Reading("megatron_2021", assumed="micro-batch and chunks as in the paper that followed"),
    "megatron-2020-tables": Reading(
        "megatron_2021",
        run={"seq_len": 1024, "recompute": "full"},
        model={"vocab": 51200},
        assumed="sequences of 1,024 and a vocabulary of 51,200, as in that release's example; full recomputation",
    ),
    "nemo-long-context": Reading(
        "nemo", run={"recompute": "none", "micro_batch": 1}, model=FINEST, assumed="micro-batch 1"
    ),
    "korthikanti-2022": Reading("megatron_2022"),
    "zero-bubble-2023": Reading(
        "megatron_2022",
        run={"recompute": "none"},
        model={"vocab": 50304},
        network=25 * GB,
        assumed="vocabulary of GPT-2, padded",
    ),
    "vtrain-a100": Reading(
        "megatron_deepspeed",
        run={"recompute": "full"},
        model={"vocab": 50257},
        network=12.5 * GB,
        gpu={"a100": "a100-sxm-80gb"},
        assumed="boards of 80 GB, fp16, plain data parallel",
    ),
    "bigscience-bloom": Reading("megatron_deepspeed_alibi", network=6.25 * GB),
    "bigscience-v100": Reading("megatron_deepspeed", network=12.5 * GB),
    "mosaic-llm-foundry": Reading("composer", assumed="network of the H100 clusters as in a DGX H100"),
    "nvidia-dgxc": Reading(
        "nemo",
        run={"recompute": "none"},
        model=FINEST,
        sharded="paxml",
        sharded_run={"recompute": "minimal"},
        assumed="no recomputation, half of the products again in PaxML runs; finest interleaving where not printed",
    ),
    "megatron-bridge-perf": Reading(
        "nemo_2025", later=("26.06", "nemo_2026"), run={"recompute": "none"}, assumed="no recomputation"
    ),
    "nemo-2024": Reading(
        "nemo",
        run={"recompute": "none"},
        model={"vocab": 51200},
        assumed="no recomputation; vocabulary of Megatron's GPT",
    ),
    "megatron-core-h100-2024": Reading(
        "nemo",
        run={"micro_batch": 1, "recompute": "none"},
        model=FINEST,
        assumed="micro-batch 1, no recomputation, finest interleaving",
    ),
    "simumax-b200": Reading("megatron_plain"),
    "maxtext-tpu": Reading("maxtext"),
    "torchtitan-h100": Reading("torchtitan"),
    "llama3-2024": Reading(
        "llama3", run={"micro_batch": 1, "recompute": "none"}, assumed="micro-batch 1, finest interleaving"
    ),
    "xtuner": Reading(
        "xtuner", run={"recompute": "full", "micro_batch": 1}, assumed="full recomputation and ZeRO-3 of long sequences"
    ),
    "fms-fsdp": Reading("fms", run={"recompute": "none"}),
    "internevo": Reading("internevo", assumed="fused attention"),
    "torchao-training": Reading("torchtitan"),
}
"""By the id of the source."""

OTHER = Reading("torchtitan", assumed="the stack of PyTorch, as nothing is known of the source")
"""For a source that nobody has read."""

SC21: Final[Mapping[int, tuple[int, int]]] = {
    2304: (16, 1),
    3072: (16, 1),
    4096: (16, 1),
    6144: (8, 1),
    8192: (4, 1),
    10240: (2, 3),
    12288: (2, 2),
    16384: (1, 2),
    20480: (1, 3),
    25600: (1, 1),
}
"""Micro-batch and chunks a stage of that script, by hidden size; Table 2 has stages of its own (chunks as here where
they divide the layers)."""


NAMED: Final[Mapping[str, Mapping[str, Any]]] = {
    r"(?i)^llama": {"mlp": "swiglu"},
    r"(?i)nemotron": {"mlp": "squared-relu", "vocab": 256000},
    r"^GPT-?3[- ]5B$": {"layers": 24, "hidden": 4096, "heads": 32, "ffn": 16384, "vocab": 51200},
    r"^internlm-7b$": {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "mlp": "swiglu", "vocab": 103168},
}
"""What a model of that name has, where a case does not print it: names of published models."""
