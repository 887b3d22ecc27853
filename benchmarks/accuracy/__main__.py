"""How near predicted times come to published ones: `python -m benchmarks.accuracy [--facts DIR] [--json FILE]`.

Steps are graded on rows that no constant was fitted on; of another folder than our own, on all of them. What is not
graded is listed with the reason. `--apart` fits again without each device, and without each stack, and grades those.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np

from benchmarks.accuracy import kernels
from benchmarks.accuracy.fit import CONSTANTS, FAMILIES, FOLDER, PRIORS, Rows, calibrates, fitted
from benchmarks.accuracy.rows import Left, Row, read
from benchmarks.accuracy.score import Score, score
from benchmarks.harness import write


def group(row: Row) -> str:
    """The line of the table that a row counts in: its file, or a part of it that is another kind of run."""
    if row.family.startswith("vtrain"):
        return (
            "vtrain, one node"
            if row.numbers["n"] <= row.numbers["node"] and row.id.startswith("s-")
            else "vtrain, many nodes"
        )
    part = ", LoRA" if row.task == "lora" else ", experts" if row.moe else ""
    if row.family == "megatron-sc21" and row.numbers["full"]:
        part = ", ZeRO-3"
    return row.family + part


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy")
    parser.add_argument("--facts", type=Path, default=FOLDER)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", action="store_true", help="every row with both times")
    parser.add_argument("--apart", action="store_true", help="fit without each device and each stack, and grade those")
    given = parser.parse_args()
    rows, left = read(given.facts)
    constants = json.loads(CONSTANTS.read_text("utf-8"))
    graded = [row for row in rows if given.facts != FOLDER or not calibrates(row)]
    results = _steps(graded, constants)
    measured = list(kernels.read(given.facts))
    _table("step time, rows that nothing was fitted on" if given.facts == FOLDER else "step time", results)
    _kernels(measured)
    if given.rows:
        _rows(graded, constants)
    if given.apart:
        _table("step time of a device, fitted without it", _apart(rows, lambda r: FAMILIES[r.device]))
        _table("step time of a stack, fitted without it", _apart(rows, lambda r: r.stack))
    _left(rows, left)
    write(given.json, {
        "steps": {name: attrs.asdict(s) for name, s in results.items()},
        "calibration": [f"{r.family}/{r.id}" for r in rows if calibrates(r)] if given.facts == FOLDER else [],
        "left_out": [attrs.asdict(x) for x in left],
    })  # fmt: skip


def show(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """A plain table: first column to the left, the others to the right."""
    wide = [max(len(line[i]) for line in (header, *lines)) for i in range(len(header))]
    print(f"\n{title}")
    for line in (header, *lines):
        print(
            "  " + "  ".join([line[0].ljust(wide[0]), *(c.rjust(w) for c, w in zip(line[1:], wide[1:], strict=True))])
        )


def _steps(rows: Sequence[Row], constants: Mapping[str, float]) -> dict[str, Score]:
    if not rows:
        return {}
    data = Rows(rows)
    predicted, names = data.seconds(constants), np.array([group(r) for r in rows])
    found = {}
    for name in (*sorted(set(names)), "all"):
        chosen = names == name if name != "all" else np.full(len(rows), True)
        part = [row for row, c in zip(rows, chosen, strict=True) if c]
        found[name] = score(part, predicted[chosen], data.measured[chosen])
    return found


def _apart(rows: Sequence[Row], of: Callable[[Row], str]) -> dict[str, Score]:
    """Each value of `of` with constants that were fitted on the calibration rows of all others; what only it would
    have told stands at its prior."""
    found = {}
    for name in sorted({of(r) for r in rows}):
        constants = fitted([r for r in rows if calibrates(r) and of(r) != name])
        mine = [r for r in rows if of(r) == name]
        data = Rows(mine)
        found[name] = score(mine, data.seconds(constants), data.measured)
    return found


def _table(title: str, results: Mapping[str, Score]) -> None:
    header = ("percent", "rows", "mean", "median", "p90", "worst", "bias", "rank", "regret", "worst", "choices")
    lines = [
        (
            name, str(s.rows), *(f"{x:.1f}" for x in (s.mean, s.median, s.p90, s.worst)), f"{s.bias:+.1f}",
            f"{s.ranked:.3f}", f"{s.regret:.1f}", f"{s.most_regret:.1f}", str(s.choices),
        )
        for name, s in results.items()
    ]  # fmt: skip
    show(title, header, [[cell.replace("+nan", "").replace("nan", "") for cell in line] for line in lines])


def _kernels(measured: Sequence[kernels.Kernel]) -> None:
    lines = []
    for name in sorted({k.family for k in measured}):
        off = np.array([100 * (k.predicted / k.seconds - 1) for k in measured if k.family == name])
        size = np.abs(off)
        figures = (size.mean(), np.median(size), np.percentile(size, 90), size.max())
        lines.append((name, str(len(off)), *(f"{x:.1f}" for x in figures), f"{off.mean():+.1f}"))
    show("kernels and collectives, one at a time", ("percent", "rows", "mean", "median", "p90", "worst", "bias"), lines)


def _rows(rows: Sequence[Row], constants: Mapping[str, float]) -> None:
    data = Rows(rows)
    predicted = data.seconds(constants)
    lines = [
        (f"{r.family}/{r.id}", f"{m:.4g}", f"{p:.4g}", f"{100 * (p / m - 1):+.1f}")
        for r, m, p in zip(rows, data.measured, predicted, strict=True)
    ]
    show("every row", ("row", "measured s", "predicted s", "percent"), lines)


def _left(rows: Sequence[Row], left: Sequence[Left]) -> None:
    counts = Counter((x.family, x.reason) for x in left)
    lines = [(f"{family}: {reason}", str(n)) for (family, reason), n in sorted(counts.items())]
    share = 100 * len(left) / max(1, len(rows) + len(left))
    show(f"not graded: {len(left)} of {len(rows) + len(left)} rows ({share:.1f} %)", ("why", "rows"), lines)
    print(f"{len(PRIORS)} fitted constants; {sum(calibrates(r) for r in rows)} calibration rows")


if __name__ == "__main__":
    main()
