"""`place explain`: the complete strategy of a file with its reasons, runtime profile and assumptions; or a code's page.

Not for: finding what is inferred (`plan.explain`) or the pages themselves (`diagnostics/explain`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from placelang.diagnostics import codes, render
from placelang.diagnostics.codes import Code
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.suggest import did_you_mean
from placelang.program.profile import PROFILES
from placelang.tools import inputs
from placelang.tools.check import verdict_line
from placelang.tools.screen import Screen, folded

_LOOKS_LIKE_A_CODE = re.compile(r"[EWNewn]\d{1,4}|[a-z]+(-[a-z]+)+")


def explain(screen: Screen, target: str, sets: Mapping[str, str], model: str | None) -> bool:
    """Explain a file or a code; whether there was something to explain."""
    if not os.path.isfile(target) and target != inputs.STDIN:
        if (code := codes.find(target)) is not None:
            return _page(screen, code)
        if _LOOKS_LIKE_A_CODE.fullmatch(target):
            return _no_code(screen, target)
    return _file(screen, target, sets, model)


def _page(screen: Screen, code: Code) -> bool:
    page = codes.explain(code.code)
    screen.answer(
        {
            "code": code.code,
            "name": code.name,
            "title": code.title,
            "group": code.group,
            "severity": code.severity.value,
            "verdict": code.verdict.value,
            "page": page,
        }
    )
    for line in page.splitlines():
        screen.out(screen.paint("strong", line) if line.startswith("#") else line)
    return True


def _no_code(screen: Screen, word: str) -> bool:
    known = {name: name for code in codes.CODES.values() for name in (code.code, code.name)}
    near = did_you_mean(word, known)
    help = f"did you mean `{near}`?" if near else ""
    diagnostic = Diagnostic("E101", f"there is no code and no file `{word}`", help=help)
    screen.answer({"ok": False, "diagnostics": render.json_value([diagnostic])})
    screen.show([diagnostic])
    return False


def _file(screen: Screen, file: str, sets: Mapping[str, str], model: str | None) -> bool:
    strategy = inputs.strategy(file, sets, model)
    plan = strategy.plan
    answer: dict[str, Any] = {
        "file": file,
        "ok": strategy.ok,
        "verdict": strategy.verdict.value,
        "diagnostics": render.json_value(strategy.diagnostics),
        "elaborated": None,
        "profile": None,
        "assumptions": [],
    }
    if plan is None:
        screen.answer(answer)
        screen.show(strategy.diagnostics)
        return False
    profile = PROFILES["torch"] if strategy.gaps else strategy.program.profile
    elaborated = strategy.explain()
    answer["elaborated"] = elaborated
    answer["profile"] = {"name": profile.name, "text": profile.text}
    answer["assumptions"] = [{"name": a.name, "text": a.text} for a in plan.assumptions]
    screen.answer(answer)
    screen.show(strategy.diagnostics)
    # All of it is a valid text: what is no statement is a comment.
    for row in elaborated.splitlines():
        screen.out(screen.paint("dim", row) if row.startswith("#") else row)
    screen.out()
    said = [f"verdict: {verdict_line(Screen(plain=True), strategy)}", f"runtime profile: {profile.text}"]
    said += [f"assumed {a.name}: {a.text}" for a in plan.assumptions]
    for text in said:
        for row in folded(text, "# ", "#   "):
            screen.out(screen.paint("dim", row))
    return strategy.ok
