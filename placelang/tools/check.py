"""`place check`: the verdict of each file, what was inferred, and what is wrong.

Not for: judging (`check` the room) or wording errors (`diagnostics`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from placelang.api import Strategy
from placelang.diagnostics.diagnostic import Verdict
from placelang.plan.explain import Line, lines
from placelang.tools import inputs
from placelang.tools.screen import Screen, folded, message_width

SAYS: Mapping[Verdict, str] = {
    Verdict.SOUND: "trains like one device",
    Verdict.UNSOUND: "would not train like one device",
    Verdict.INEXACT: "trains like one device but for what it asks to lose",
    Verdict.NO_BENEFIT: "trains like one device, but a part of it changes nothing",
    Verdict.NOT_SUPPORTED: "means something that this version does not do",
    Verdict.UNDECIDED: "depends on a fact that the text does not give",
    Verdict.REFUSED: "a `require` or `assert` of the text does not hold",
    Verdict.INVALID: "cannot be judged until this is put right",
}


def check(screen: Screen, files: Sequence[str], sets: Mapping[str, str], model: str | None) -> bool:
    """Check each file and say so; whether all are sound."""
    found = [(file, inputs.strategy(file, sets, model)) for file in dict.fromkeys(files)]
    if screen.json:
        screen.answer({"ok": all(s.ok for _, s in found), "files": [as_json(file, s) for file, s in found]})
    else:
        for i, (file, strategy) in enumerate(found):
            if i:
                screen.out()
            _say(screen, file, strategy, named=len(found) > 1)
    return all(s.ok for _, s in found)


def sarif(screen: Screen, files: Sequence[str], sets: Mapping[str, str], model: str | None) -> bool:
    """Check each file and print one SARIF 2.1.0 log, as code hosts and editors take it; whether all are sound."""
    import json

    from placelang import __version__
    from placelang.diagnostics import render

    found = [inputs.strategy(file, sets, model) for file in dict.fromkeys(files)]
    screen.out(json.dumps(render.sarif([d for s in found for d in s.diagnostics], version=__version__), indent=2))
    return all(s.ok for s in found)


def as_json(file: str, strategy: Strategy) -> dict[str, Any]:
    """What `place check --json` says of one file."""
    from placelang.diagnostics import render

    return {
        "file": file,
        "ok": strategy.ok,
        "verdict": strategy.verdict.value,
        "diagnostics": render.json_value(strategy.diagnostics),
        "elaborated": strategy.explain() if strategy.plan else None,
    }


def verdict_line(screen: Screen, strategy: Strategy, name: str = "") -> str:
    """`sound: trains like one device`, after the name of the file if there are several."""
    style = "good" if strategy.verdict is Verdict.SOUND else "warn" if strategy.ok else "bad"
    verdict = screen.paint(style, strategy.verdict.value)
    return f"{name + ': ' if name else ''}{verdict}: {SAYS[strategy.verdict]}"


def _say(screen: Screen, file: str, strategy: Strategy, named: bool) -> None:
    diagnostics = strategy.diagnostics
    if strategy.ok and strategy.plan:
        screen.out(verdict_line(screen, strategy, file if named else ""))
        screen.out()
        for row in inferred(screen, lines(strategy.plan)):
            screen.out(row)
        if diagnostics:
            screen.out()
            screen.show(diagnostics, result=True)
        return
    from placelang.diagnostics import render

    screen.show(diagnostics, result=True)
    screen.out()
    screen.out(f"{verdict_line(screen, strategy, file if named else '')} ({render.summary(diagnostics)})")


def inferred(screen: Screen, elaborated: Iterable[Line]) -> list[str]:
    """The complete strategy, `+` before what was inferred in whole or part, its reasons below."""
    rows = []
    for line in elaborated:
        mark = screen.paint("added", "+") if line.why else " "
        first, *rest = line.text.split("\n")
        rows += [f"  {mark} {first}", *(f"    {row}" for row in rest)]
        for reason in line.why:
            rows += [screen.paint("dim", row) for row in folded(reason, "      # ", "      #   ", message_width())]
    return rows
