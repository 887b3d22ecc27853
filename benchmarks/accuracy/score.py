"""Scores of predictions: errors, rank correlation, and regret of choosing by them. Not for: making predictions."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.rows import Row

Array = NDArray[np.float64]


@attrs.frozen
class Score:
    """Errors are of predicted over measured, less one, in percent of it."""

    rows: int
    mean: float
    median: float
    p90: float
    worst: float
    bias: float
    ranked: float  # Spearman's correlation
    regret: float  # of a choice among layouts of one job, mean
    most_regret: float
    choices: int


def score(rows: Sequence[Row], predicted: Array, measured: Array) -> Score:
    off = 100 * (predicted / measured - 1)
    size = np.abs(off)
    regrets = [_regret(predicted[i], measured[i]) for i in _jobs(rows)]
    return Score(
        len(rows),
        float(size.mean()),
        float(np.median(size)),
        float(np.percentile(size, 90)),
        float(size.max()),
        float(off.mean()),
        _spearman(predicted, measured),
        100 * float(np.mean(regrets)) if regrets else float("nan"),
        100 * max(regrets, default=float("nan")),
        len(regrets),
    )


JOB = ("h", "a", "f", "V", "L", "E", "s", "B", "n", "fp8", "fp4", "peak", "memory", "lora")


def _jobs(rows: Sequence[Row]) -> list[list[int]]:
    """Rows that train one model on the same devices, of which one may choose: at least three layouts."""
    found: dict[tuple[object, ...], list[int]] = {}
    for index, row in enumerate(rows):
        found.setdefault((row.stack, *(row.numbers[k] for k in JOB)), []).append(index)
    several = (k for k in found.values() if len({str(sorted(rows[i].numbers.items())) for i in k}) > 2)
    return list(several)


def _regret(predicted: Array, measured: Array) -> float:
    """How much slower the layout that is predicted to be fastest really is than the fastest."""
    return float(measured[int(np.argmin(predicted))] / measured.min() - 1)


def _spearman(a: Array, b: Array) -> float:
    if len(a) < 3:
        return float("nan")
    ranks = np.stack([np.argsort(np.argsort(x)).astype(np.float64) for x in (a, b)])
    return float(np.asarray(np.corrcoef(ranks))[0, 1])
