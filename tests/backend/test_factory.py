"""Models of Python factories, and what is said of those that make none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from placelang.api import Strategy, load_source
from placelang.backend import factory
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.model.model import Model
from placelang.source import Source

PLACED = "\nparams: shard(dp)\ngrads: reduce_scatter(dp)\n"
CODE = """
import torch
from torch import nn

def build():
    print("building")
    body = [nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)) for _ in range(3)]
    return nn.Sequential(nn.Embedding(100, 16), *body, nn.Linear(16, 100))

def tuned():
    made = build()
    made[0].requires_grad_(False)
    return made

def huge(): return nn.Linear(10**6, 10**6)
def raises(): raise ValueError("no\\nsuch thing")
def leaves(): raise SystemExit(3)
def number(): return 3
def empty(): return nn.ReLU()
def takes(x): return x

class Models:
    build = staticmethod(build)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own_models.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "damaged.py").write_text("def build(:\n", encoding="utf-8")
    (tmp_path / "needing.py").write_text("import surely_not_there\n", encoding="utf-8")
    (tmp_path / "json.py").write_text("def build(): ...\n", encoding="utf-8")
    return tmp_path


def made(folder: Path, path: str) -> Strategy:
    return load_source(Source(f'model "{path}"' + PLACED, str(folder / "text.place")))


def test_a_factory_makes_the_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strategy = made(folder, "own_models:build")
    assert strategy.plan is not None, strategy.diagnostics
    assert strategy.ok
    model = strategy.plan.model
    assert model is not None
    assert model.params == 100 * 16 + 3 * (2 * 16 + 2 * 16 * 64 + 64 + 16) + 101 * 16 + 84
    assert model.params_trainable == model.params
    assert capsys.readouterr().out == "", "what the code prints must not mix with what a command answers"


def test_attributes_frozen_parameters_and_size(folder: Path) -> None:
    assert isinstance(factory.load("own_models:Models.build", folder), Model)
    tuned = factory.load("own_models:tuned", folder)
    assert isinstance(tuned, Model)
    assert tuned.params - tuned.params_trainable == 1600
    huge = factory.load("own_models:huge", folder)
    assert isinstance(huge, Model)
    assert huge.params == 10**12 + 10**6


@pytest.mark.parametrize(
    ("path", "message", "help"),
    [
        ("own_models:biuld", "`own_models` has no `biuld`", "did you mean `build`?"),
        ("own_models:raises", "`own_models:raises()` raises ValueError: no such thing (own_models.py:16)", ""),
        ("own_models:leaves", "`own_models:leaves()` raises SystemExit: 3 (own_models.py:17)", ""),
        ("own_models:number", "`own_models:number()` returns int, not an nn.Module", "a factory takes no arguments"),
        ("own_models:empty", "the module of `own_models:empty()` has no parameters", ""),
        (
            "own_models:takes",
            "`own_models:takes()` raises TypeError: takes() missing 1 required positional argument: 'x'",
            "",
        ),
        ("damaged:build", "importing `damaged` raises SyntaxError: invalid syntax (damaged.py, line 1)", ""),
        (
            "needing:build",
            "importing `needing` raises ModuleNotFoundError: No module named 'surely_not_there' (needing.py:1)",
            "",
        ),
        ("json:build", "`json` is the name of another module, which is loaded already", "give yours another name"),
    ],
)
def test_what_makes_no_model(folder: Path, path: str, message: str, help: str) -> None:
    found = factory.load(path, folder)
    assert found == Diagnostic("E120", message, help=help)
    strategy = made(folder, path)
    assert [d.code for d in strategy.diagnostics] == ["E120"]
    assert strategy.diagnostics[0].primary is not None


def test_a_module_that_is_not_there(folder: Path) -> None:
    for path in ("surely_not_there:build", "surely_not_there.inner:build"):
        found = factory.load(path, folder)
        assert isinstance(found, Diagnostic)
        assert (found.code, found.help) == ("E120", f"it is looked for in {folder} first")


def test_without_torch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "find_spec", lambda name: None)
    found = factory.load("own_models:build", folder)
    assert isinstance(found, Diagnostic)
    assert found.code == "E502"


def test_nothing_is_left_behind(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = list(sys.path)
    assert isinstance(factory.load("own_models:build", folder), Model)
    assert sys.path == before
    assert "own_models" not in sys.modules
    other = tmp_path_factory.mktemp("other")
    (other / "own_models.py").write_text(
        "from torch import nn\ndef build(): return nn.Linear(2, 3)\n", encoding="utf-8"
    )
    second = factory.load("own_models:build", other)
    assert isinstance(second, Model)
    assert second.params == 9
