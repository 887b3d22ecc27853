"""Fits the shares that devices reach and the figures of stacks to calibration rows, and freezes them.

`python -m benchmarks.accuracy.fit` rewrites `calibration.txt` and `constants.json`. Calibration rows are those whose
digest says so, a fifth of each file, of which a file counts as at most twelve; every other row is held out. Least
squares on log error, tamed by pseudo-Huber, with priors that stand in `PRIORS`: what a constant is where nobody
measured it, and how far the data may move it. One constant is of a device family or of a stack figure, never of a row,
a model or a file. Not for: reading rows, or the table (`__main__`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.layers import step, symbols
from benchmarks.accuracy.rows import Row, read
from benchmarks.accuracy.stacks import STACKS
from placelang.cost.expr import Compiled, compile_exprs

Array = NDArray[np.float64]

FOLDER: Final = Path(__file__).parent.parent / "facts"
CALIBRATION: Final = Path(__file__).parent / "calibration.txt"
CONSTANTS: Final = Path(__file__).parent / "constants.json"
MOST: Final = 12.0
"""Rows that one file counts as, at most."""

FAMILIES: Final[Mapping[str, str]] = {
    "a100": "a100", "a800": "a100", "v100": "a100", "h100": "h100", "h800": "h100", "h200": "h100",
    "b200": "b200", "b300": "b200", "gb200": "b200", "gb300": "b200", "tpu": "tpu",
}  # fmt: skip
"""The family whose shares a device has."""

FIXED: Final[Mapping[str, Mapping[str, float]]] = {
    "depth": {"": 122.0, "b200": 187.0},
    "waves": {"": 0.77, "b200": 0.2, "tpu": 0.75},
    "multiprocessors": {"": 132.0, "a100": 108.0, "b200": 148.0, "tpu": 1.0},
    "attention_floor": {"": 60e-6, "tpu": 0.0},
    "attention_back": {"": 0.7},
    "expert": {"": 6.8e-6, "a100": 19.7e-6},
    "link_latency": {"": 5e-6, "b200": 9e-6},
    "network_latency": {"": 15e-6},
}
"""Shares that kernels and collectives measured alone give (`kernels`), by family."""

PRIORS: Final[Mapping[str, tuple[float, float]]] = {
    "matmul.a100": (0.77, 0.01),
    "matmul.h100": (0.72, 0.03),
    "matmul.b200": (0.48, 0.04),
    "matmul.tpu": (1.0, 0.05),
    "matmul_fp8.h100": (0.68, 0.06),
    "matmul_fp8.b200": (0.56, 0.1),
    "matmul_fp4.b200": (0.40, 0.2),
    "attention.a100": (0.62, 0.05),
    "attention.h100": (0.46, 0.1),
    "attention.b200": (0.52, 0.1),
    "attention.tpu": (0.5, 0.3),
    "memory.a100": (0.85, 0.03),
    "memory.h100": (0.85, 0.03),
    "memory.b200": (0.85, 0.03),
    "memory.tpu": (0.85, 0.03),
    "link.a100": (0.77, 0.05),
    "link.h100": (0.75, 0.05),
    "link.b200": (0.70, 0.05),
    "link.tpu": (0.75, 0.15),
    "network.a100": (0.8, 0.15),
    "network.h100": (0.9, 0.1),
    "network.b200": (0.75, 0.1),
    "network.tpu": (0.8, 0.15),
    "misaligned": (1.35, 0.05),
    "fusion.fused_2021": (0.8, 0.1),
    "fusion.plain_2021": (3.0, 0.3),
    "fusion.eager_bytes": (1.5, 0.25),
    "fusion.compiled": (1.6, 0.2),
    "host.eager": (40e-6, 0.3),
    "host.lean": (12e-6, 0.5),
    "host.graphed": (4e-6, 0.5),
    "host.traced": (1e-6, 0.1),
    "flash.fa2.h100": (0.8, 0.1),
    "flash.triton.a100": (0.75, 0.2),
    "flash.triton.h100": (0.6, 0.2),
    "logit_bytes.logits": (12.0, 0.3),
    "logit_bytes.logits_eager": (20.0, 0.3),
    "logit_bytes.logits_torch": (25.0, 0.2),
    "score_bytes": (9.0, 0.2),
    "ragged": (2.0, 0.3),
    "tensor_behind": (0.6, 0.2),
    "send_behind": (0.3, 0.3),
    "tax": (0.55, 0.2),
    "cast": (0.16, 0.3),
    "dealt_share": (0.8, 0.5),
    "permuting.permuted": (14.0, 0.3),
    "permuting.permuted_fused": (6.0, 0.3),
    "kernel": (3e-6, 0.5),
    "fixed": (0.011, 0.3),
}
"""Value where nothing is known, and one standard deviation of its logarithm."""


def chosen(rows: Sequence[Row]) -> list[str]:
    """The rows that may be fitted on: of each file those whose names have the lowest digests, at most a fifth."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.family, []).append(_name(row))
    lowest = (sorted(names, key=_digest)[: len(names) // 5] for names in found.values())
    return sorted(name for names in lowest for name in names)


def _name(row: Row) -> str:
    return f"{row.family}/{row.id}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


@cache
def frozen() -> frozenset[str]:
    """The list of calibration rows as it was when the constants were fitted."""
    return frozenset(CALIBRATION.read_text("utf-8").split("\n"))


def calibrates(row: Row) -> bool:
    """Whether a constant was fitted on a row."""
    return _name(row) in frozen()


class Rows:
    """Rows as arrays, and the step compiled over them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)
        self.measured = np.array([r.seconds for r in rows])
        names = sorted({name for r in rows for name in r.numbers})
        self.known = {name: np.array([float(r.numbers.get(name, 0.0)) for r in rows]) for name in names}
        self.known["ragged_width"] = (self.known["w"] % 8 != 0).astype(float)
        self.device = np.array([FAMILIES[r.device] for r in rows])
        self.stack = [STACKS[r.stack] for r in rows]
        self.made = _compiled()

    def values(self, constants: Mapping[str, float]) -> dict[str, Any]:
        """Every symbol of the step over the rows."""

        def of_family(name: str) -> Array:
            return np.array(
                [
                    constants.get(f"{name}.{f}", FIXED.get(name, {}).get(f, FIXED.get(name, {}).get("", 1.0)))
                    for f in self.device
                ]
            )

        found: dict[str, Any] = dict(self.known)
        for name in (*FIXED, "attention", "memory", "link", "network"):
            found[f"reach_{name}"] = of_family(name)
        matmul = of_family("matmul")
        for narrow in ("fp8", "fp4"):
            matmul = np.where(self.known[narrow] > 0, of_family(f"matmul_{narrow}"), matmul)
        found["reach_matmul"] = matmul
        found["reach_kernel"] = constants["kernel"]
        found["reach_misaligned"] = np.where(self.device == "tpu", 1.0, constants["misaligned"])
        found["fusion"] = np.array([constants[f"fusion.{s.fusion}"] for s in self.stack])
        found["host"] = np.array([constants[f"host.{s.host}"] for s in self.stack])
        found["flash_share"] = np.array(
            [constants.get(f"flash.{s.flash}.{f}", 1.0) for s, f in zip(self.stack, self.device, strict=True)]
        )
        found["logit_bytes"] = np.array([constants[f"logit_bytes.{s.logits}"] for s in self.stack])
        found["permuting"] = np.array([constants[f"permuting.{s.permuting}"] for s in self.stack])
        found["ragged"] = np.where(self.known["ragged_width"] > 0, constants["ragged"], 1.0)
        for name in ("score_bytes", "tensor_behind", "send_behind", "tax", "cast", "dealt_share", "fixed"):
            found[name] = constants[name]
        return found

    def seconds(self, constants: Mapping[str, float]) -> Array:
        return np.asarray(self.made(self.values(constants))[0])

    def error(self, constants: Mapping[str, float]) -> Array:
        """Predicted over measured, less one."""
        off: Array = self.seconds(constants) / self.measured - 1
        return off


def _compiled() -> Compiled:
    return compile_exprs([step(symbols()).total])


def weights(rows: Sequence[Row]) -> Array:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.family] = counts.get(row.family, 0) + 1
    return np.array([min(1.0, MOST / counts[row.family]) for row in rows])


NOISE: Final = 0.05
"""Log error that counts as usual: of priors one standard deviation counts as much as a row that is off by this."""


def fitted(rows: Sequence[Row], start: Mapping[str, float] | None = None) -> dict[str, float]:
    """Constants that fit the rows best."""
    data, names = Rows(rows), list(PRIORS)
    centre = np.log([PRIORS[n][0] for n in names])
    spread = np.array([PRIORS[n][1] for n in names])
    root = np.sqrt(weights(rows))

    def residual(point: Array) -> Array:
        off = np.log(data.seconds(dict(zip(names, np.exp(point), strict=True))) / data.measured) / NOISE
        tame = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + (off / 2) ** 2) - 1)) * 2
        return np.concatenate([root * tame, (point - centre) / spread])

    point = minimised(residual, centre)
    return {n: float(f"{v:.4g}") for n, v in zip(names, np.exp(point), strict=True)}


def minimised(residual: Callable[[Array], Array], start: Array, rounds: int = 60) -> Array:
    """Levenberg-Marquardt with differences."""
    point: Array = start.copy()
    damp, now = 1e-2, residual(start)
    for _ in range(rounds):
        slope = np.stack([(residual(point + e) - now) / 1e-4 for e in np.eye(len(point)) * 1e-4], axis=1)
        square, gradient = slope.T @ slope, slope.T @ now
        for _ in range(12):
            move = np.linalg.solve(square + damp * np.diag(np.diag(square) + 1e-9), -gradient)
            after = residual(point + move)
            if after @ after < now @ now:
                gain = 1 - (after @ after) / (now @ now)
                point, now, damp = point + move, after, damp / 4
                break
            damp *= 4
        else:
            return point
        if gain < 1e-6:
            return point
    return point


def main() -> None:
    rows, _ = read(FOLDER)
    CALIBRATION.write_text("\n".join(chosen(rows)) + "\n", encoding="utf-8")
    frozen.cache_clear()
    constants = fitted([r for r in rows if calibrates(r)])
    CONSTANTS.write_text(json.dumps(constants, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(constants, indent=1))


if __name__ == "__main__":
    main()
