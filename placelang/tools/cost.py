"""`place cost`: memory per device by state, traffic by axis, and the time of a step, within 80 columns.

Not for: the formulas (`cost` the room) or how numbers and formulas are written (`cost.format`, `cost.render`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placelang.api import Strategy
from placelang.cost.cost import Cost, as_json, of_time
from placelang.cost.expr import Clause, Expr, bytes_text, count_text, seconds_text, symbols, text, total
from placelang.cost.time import UNCERTAIN, Untimed
from placelang.cost.traffic import Traffic
from placelang.diagnostics import render
from placelang.tools import inputs
from placelang.tools.screen import KEEP, Screen, columns, folded, table_width

_CONVENTIONS = (
    "bytes: gathered, scattered or reduced, an all_reduce counted twice; on the wire: what one rank sends in a ring,"
    " (n - 1)/n of that"
)
_UNKNOWN = "?"
_HOW = {"s": "seq=1024", "b": "micro_batch=1"}  # symbols whose fact has another name
NOTHING: Mapping[str, Any] = {"memory": None, "comm": None, "time": None, "assumptions": [], "formulas": {}}


def cost(screen: Screen, file: str, sets: Mapping[str, str], model: str | None) -> bool:
    """Cost a file and say so; whether it was sound and has a cost."""
    strategy = inputs.strategy(file, sets, model)
    diagnostics = strategy.diagnostics
    lacks = strategy.lacks if strategy.sound else ()
    diagnostics = (*diagnostics, *lacks)
    ok = strategy.ok and not lacks
    known = strategy.cost() if strategy.sound and not lacks else None  # a failed assert wants its numbers seen
    screen.answer(
        {
            "file": file,
            "ok": ok,
            "verdict": strategy.verdict.value,
            "diagnostics": render.json_value(diagnostics),
            "unknown": sorted(hint.partition("=")[0] for hint in hints(known)) if known else [],
            **(as_json(known) if known else NOTHING),
            "device": _device(strategy, known),
        }
    )
    screen.show(diagnostics)
    if known is not None:
        for row in table(screen, strategy, known):
            screen.out(row)
    return ok


def table(screen: Screen, strategy: Strategy, cost: Cost) -> list[str]:
    """The whole answer, at most 80 columns wide."""
    clauses: dict[str, Clause] = {}
    rows = [*_title(screen, strategy), "", *_memory(screen, cost, clauses), *_fits(screen, strategy, cost)]
    rows += ["", *_traffic(screen, cost, clauses)]
    rows += _time(screen, strategy, cost)
    rows += ["", screen.paint("strong", "where")]
    for clause in clauses.values():
        if clause.name not in cost.by_state:
            rows += folded(
                f"{clause.name} = {clause.body}" + (f" ({clause.doc})" if clause.doc else ""), "  ", "      "
            )
    rows += folded(", ".join(_sizes(cost)), "  ", "      ")
    rows += ["", screen.paint("strong", "assumed")]
    named = strategy.plan is not None and strategy.plan.hardware is not None
    for assumption in (*cost.assumptions, *(of_time(cost) if named else ())):
        rows += folded(f"{assumption.name}: {assumption.text}", "  ", "      ")
    if given := hints(cost):
        wanted = " ".join(f"--set{KEEP}{hint}" for hint in given)
        rows += ["", *folded(f"{_UNKNOWN} needs sizes that are not given: {wanted}", "", "  ")]
    return rows


def _title(screen: Screen, strategy: Strategy) -> list[str]:
    model = strategy.model
    axes = strategy.plan.mesh.axes if strategy.plan else ()
    mesh = ", ".join(f"{a.name} = {a.size or _UNKNOWN}" for a in axes) or "one device"
    return [screen.paint("strong", f"{model.name}, {count_text(model.params)} parameters, over {mesh}")]


def _memory(screen: Screen, cost: Cost, clauses: dict[str, Clause]) -> list[str]:
    parts: list[tuple[str, Expr | None]] = [*cost.by_state.items(), ("peak", cost.memory.peak)]
    numbers = [(name, _bytes(cost, expr), expr) for name, expr in parts if expr is None or cost.number(expr) != 0]
    head = ("memory of a device", "", "formula")
    names = max(len(name) for name, *_ in numbers)
    sizes = max(len(number) for _, number, _ in numbers)
    rows = [screen.paint("strong", f"{head[0]:<{names + sizes + 4}}  {head[2]}")]
    for name, number, expr in numbers:
        before = f"  {name:<{names}}  {number:>{sizes}}  "
        formula = "the model does not say what its layers keep" if expr is None else _formula(expr, clauses)
        hang = len(before) + 2 if len(before) + 2 < table_width() // 2 else 4
        rows += folded(formula, before, " " * hang)
    return rows


def _device(strategy: Strategy, cost: Cost | None) -> dict[str, object] | None:
    """Whether the peak fits in the memory of the device that the text names; None where it names none."""
    hardware = strategy.plan.hardware if strategy.plan else None
    if cost is None or hardware is None or hardware.node.device.memory is None:
        return None
    memory = int(hardware.node.device.memory)
    peak = cost.number(cost.memory.peak)
    return {"name": hardware.node.device.name, "memory": memory, "fits": None if peak is None else peak <= memory}


def _fits(screen: Screen, strategy: Strategy, cost: Cost) -> list[str]:
    """The peak against the memory of the device, where both are known."""
    device = _device(strategy, cost)
    if device is None or device["fits"] is None:
        return []
    peak, memory = _bytes(cost, cost.memory.peak), bytes_text(int(str(device["memory"])))
    said = screen.paint("good", "fits") if device["fits"] else screen.paint("bad", "does not fit")
    return [f"  {peak} of {memory} on {device['name']}: {said}"]


def _traffic(screen: Screen, cost: Cost, clauses: dict[str, Clause]) -> list[str]:
    if not cost.traffic:
        return ["traffic of a step: none"]
    rows: list[str] = []
    for axes in cost.axes:
        moved = cost.on(axes)
        table = [("phase", "collective", "count", "bytes", "on the wire"), *_collectives(cost, moved)]
        head, *lines = columns(table, right=(2, 3, 4))
        rows += [screen.paint("strong", f"traffic of a step over {' * '.join(axes)}"), screen.paint("dim", head)]
        for line, t in zip(lines, moved, strict=False):
            formula = _formula(t.alg, clauses)
            if len(line) + 2 + len(formula) <= table_width():
                rows.append(f"{line}  {formula}")
            else:
                rows += [line, *folded(formula, "      = ", "        ")]
        rows += lines[len(moved) :]
    return [*rows, *folded(_CONVENTIONS, "  ", "  ")]


def _time(screen: Screen, strategy: Strategy, cost: Cost) -> list[str]:
    """What a step is made of, where the text names hardware."""
    if strategy.plan is None or strategy.plan.hardware is None:
        return []
    time = cost.time
    if isinstance(time, Untimed):
        return ["", *folded(f"time of a step: not known, as {time.reason}", "", "  ")]
    whole = cost.seconds(time.step)
    rows = [("", "time", "share")]
    for name, expr in time.parts.items():
        part = cost.seconds(expr)
        if part is None or whole is None:
            rows.append((name, _UNKNOWN, ""))
        elif part / whole >= _LEAST:
            rows.append((name, seconds_text(part), f"{100 * part / whole:.1f} %"))
    rows.append(("step", _UNKNOWN if whole is None else seconds_text(whole), ""))
    head, *lines = columns(rows, right=(1, 2))
    found = ["", screen.paint("strong", "time of a step, of the slowest rank"), screen.paint("dim", head), *lines]
    rate, mfu, hidden = (cost.seconds(e) for e in (time.tokens_per_second, time.mfu, time.hidden))
    if rate is None or mfu is None or hidden is None:
        return found
    said = (
        f"{count_text(round(rate))} tokens/s, {100 * mfu:.1f} % of the peak (MFU), {seconds_text(hidden)} of"
        f" communication hidden; half of the published runs lie within {100 * UNCERTAIN[0]:.0f} % of such a time, nine"
        f" in ten within {100 * UNCERTAIN[1]:.0f} %"
    )
    return [*found, *folded(said, "  ", "  ")]


_LEAST = 5e-4
"""A part of a step that is shown."""


def _collectives(cost: Cost, moved: Sequence[Traffic]) -> Iterator[tuple[str, ...]]:
    """A row for each kind of collective, and one for all."""
    for t in moved:
        yield t.phase, f"{t.kind} {t.dtype}", _count(cost, t.count), _bytes(cost, t.alg), _bytes(cost, t.wire)
    alg, wire = total(t.alg for t in moved), total(t.wire for t in moved)
    yield "all", "", _count(cost, total(t.count for t in moved)), _bytes(cost, alg), _bytes(cost, wire)


def _bytes(cost: Cost, expr: Expr | None) -> str:
    number = cost.number(expr)
    return _UNKNOWN if number is None else bytes_text(number)


def _count(cost: Cost, expr: Expr) -> str:
    number = cost.number(expr)
    return _UNKNOWN if number is None else count_text(number)


def _formula(expr: Expr, clauses: dict[str, Clause]) -> str:
    """The formula; the names in it go to `clauses`, under another name where one already means something else."""
    formula = text(expr)
    body, where = formula.body, list(formula.where)
    for i, clause in enumerate(where):
        name = clause.name
        while name in clauses and clauses[name].body != where[i].body:
            name += "'"
        if name != clause.name:
            word = re.compile(rf"(?<!\w){re.escape(clause.name)}(?!\w)")
            body = word.sub(name, body)
            where = [Clause(c.name, word.sub(name, c.body), c.doc) for c in where]
        clauses.setdefault(name, Clause(name, where[i].body, clause.doc))
    return body


def _shown(cost: Cost) -> list[Expr]:
    """Every expression of the answer."""
    states = [expr for expr in (*cost.by_state.values(), cost.memory.peak) if expr is not None]
    times = [] if isinstance(cost.time, Untimed) else [cost.time.step]
    return [*states, *(t.wire for t in cost.traffic), *(t.count for t in cost.traffic), *times]


def _sizes(cost: Cost) -> list[str]:
    """The symbols in the formulas, with their values and what they stand for."""
    found = {s.name: s for s in symbols(*_shown(cost))}
    docs = {name: f" ({s.doc})" if len(name) == 1 and s.doc else "" for name, s in found.items()}
    return [f"{name} = {cost.values.get(name, _UNKNOWN)}".replace(" ", KEEP) + docs[name] for name in found]


def hints(cost: Cost) -> list[str]:
    """How to give each size that a number still needs: what follows `--set`."""
    names = {name for expr in _shown(cost) for name in cost.unknown(expr)}
    return sorted(_HOW.get(name, f"{name}=8") for name in names)
