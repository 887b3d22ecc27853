"""The options of `backend` lines, which are checked without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from placelang.api import load
from placelang.backend.options import BACKENDS
from placelang.diagnostics.diagnostic import Verdict

PLACED = "\nparams: shard(dp)\ngrads: reduce_scatter(dp)\n"
PAGE = (Path(__file__).parents[2] / "docs" / "language" / "backend.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "code", "help"),
    [
        ("backend torhc (compile = false)", "E101", "did you mean `torch`?"),
        ("backend torch (complie = false)", "E106", "did you mean `compile`?"),
        ("backend torch (compile = 3)", "E106", "`compile = false`"),
        ("backend torch (compile = fast)", "E106", "`compile = false`"),
        ("arg c: bool\nbackend torch (compile = c)", "E121", "`--set c=false`"),
        ("backend torch (compile = true)", "E501", "leave `compile` out"),
        ("backend torch (compile = 1 < 2)", "E501", "leave `compile` out"),
    ],
)
def test_what_the_backend_does_not_know_or_do(line: str, code: str, help: str) -> None:
    strategy = load(line + PLACED)
    assert [(d.code, d.help) for d in strategy.diagnostics] == [(code, help)]
    assert not strategy.ok
    (found,) = strategy.diagnostics
    assert found.primary is not None
    assert found.primary.span.text in line


def test_what_is_not_done_still_has_a_meaning() -> None:
    strategy = load("backend torch (compile = true)" + PLACED)
    assert strategy.verdict is Verdict.NOT_SUPPORTED
    assert strategy.explain().startswith("backend torch (compile = true)\n")


def test_what_is_done_is_accepted() -> None:
    assert load("backend torch (compile = false, cuda_graphs = false, deterministic = false)" + PLACED).ok
    assert load("backend torch" + PLACED).ok


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_page_has_every_option(backend: str) -> None:
    part = PAGE.split(f"## `{backend}`")[1].split("\n## ")[0]
    assert all(f"| `{name}` | {option.doc} |" in part for name, option in BACKENDS[backend].items())


def test_torch_is_not_imported() -> None:
    text = "backend torch (compile = true)" + PLACED
    code = f"import sys, placelang; placelang.load({text!r}).ok; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
