"""Writes the fitted shares of devices as `stdlib/hardware/reach.place`: `python -m benchmarks.accuracy.publish`.

Not for: fitting (`fit`).
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks.accuracy.fit import CONSTANTS, FIXED
from placelang.hardware.hardware import REACH

FILE: Final = Path(__file__).parents[2] / "stdlib" / "hardware" / "reach.place"

HEAD: Final = """\
# How much of its nominal figures a device reaches: what `reach = ...` of a device names. benchmarks/accuracy writes
# this file from kernels measured one at a time and from a fifth of the published runs on such devices;
# docs/design/time.md says how far they carry. A machine of your own may say its own:
# `h100_sxm(reach = h100_reach(matmul = 0.65))`.
"""

_SIMUMAX = "kernels: MooreThreads/SimuMax configs/system/{} @4dcaae51; all else fitted on public runs on {}"
_MAXTEXT = (
    "fitted on MaxText's public runs on TPU v5e and v5p, whose figures may count work that they do not do: shares above"
    " those of GPUs are doubtful"
)
DEVICES: Final[Mapping[str, tuple[str, str]]] = {
    "a100": ("A100 and A800", _SIMUMAX.format("a100_pcie.json", "A100")),
    "h100": ("H100, H200, H800 and GH200", "fitted on public runs on H100; no table of its kernels was at hand"),
    "b200": (
        "B200, B300, GB200 and GB300, as they run for long: kernels alone are a seventh faster",
        _SIMUMAX.format("b200_bf16_ceperm.json", "B200, B300 and GB200"),
    ),
    "tpu": ("TPU", _MAXTEXT),
}
"""What each set of shares is of, and where they come from."""


def text(constants: Mapping[str, float]) -> str:
    """The file."""
    return "\n".join((HEAD, *_declarations(constants)))


def _declarations(constants: Mapping[str, float]) -> Iterator[str]:
    for name, (of, source) in DEVICES.items():
        docs = [*textwrap.wrap(f"Of {of}.", 117), *textwrap.wrap(f"Source: {source}", 117)]
        figures = [f"  {k} = {_written(k, v)},\n" for k in REACH if (v := _figure(k, name, constants))]
        yield "".join(f"## {line}\n" for line in docs) + f"let {name}_reach = reach(\n{''.join(figures)})\n"


def _figure(figure: str, device: str, constants: Mapping[str, float]) -> float | None:
    if figure in FIXED:
        return FIXED[figure].get(device, FIXED[figure][""])
    return constants.get(f"{figure}.{device}", constants.get(figure))


def _written(figure: str, value: float) -> str:
    return f"{value * 1e6:g}us" if REACH[figure][0] == "seconds" else f"{value:g}"


def main() -> None:
    FILE.write_text(text(json.loads(CONSTANTS.read_text("utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
