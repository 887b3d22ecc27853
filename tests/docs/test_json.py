"""The JSON objects that docs/cli.md documents are those that the commands print: same keys, at every depth."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from placelang.tools.cli import cli
from tests.docs.consoles import ROOT

CARD = str(ROOT / "docs" / "examples" / "card.place")
WRONG = str(ROOT / "docs" / "examples" / "no_reduction.place")
_SECTION = re.compile(r"^### (.+?)\n+```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)

COMMANDS = {
    "check": ["check", CARD],
    "explain FILE": ["explain", CARD],
    "explain CODE": ["explain", "E201"],
    "fmt": ["fmt", "--check", CARD],
    "cost": ["cost", CARD, "--model", "gpt2_124m", "--set", "dp=2", "--set", "seq=64", "--set", "micro_batch=1"],
    "doctor": ["doctor"],
    "run": ["run", CARD, "--nproc", "2", "--steps", "1"],
    "verify": ["verify", CARD, "--nproc", "2", "--steps", "1"],
    "verify --simulate": ["verify", CARD, "--simulate"],
}


def documented() -> dict[str, Any]:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    return {title: json.loads(text) for title, text in _SECTION.findall(page)}


def answer(*arguments: str) -> Any:
    done = CliRunner().invoke(cli, [*arguments, "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return json.loads(done.stdout)


def same_keys(shape: Any, real: Any, path: str = "") -> None:
    """Lists are compared by their first elements; null fits everything; a key in capitals stands for any."""
    if isinstance(shape, dict) and isinstance(real, dict):
        if len(shape) == 1 and next(iter(shape)).isupper():
            shape = dict.fromkeys(real, next(iter(shape.values())))
        assert set(shape) == set(real), path
        for key in shape:
            same_keys(shape[key], real[key], f"{path}.{key}")
    elif isinstance(shape, list) and isinstance(real, list):
        for value in real:
            if shape:
                same_keys(shape[0], value, f"{path}[]")
    elif shape is not None and real is not None:
        assert isinstance(real, (int, float) if isinstance(shape, float) else type(shape)), path


def test_every_command_with_json_is_documented() -> None:
    assert {*COMMANDS, "Diagnostics"} == set(documented())


@pytest.mark.parametrize("title", [t for t in COMMANDS if t not in ("run", "verify", "doctor")])
def test_keys(title: str) -> None:
    same_keys(documented()[title], answer(*COMMANDS[title]))


@pytest.mark.slow
@pytest.mark.parametrize("title", ["run", "verify", "doctor"])
def test_keys_of_what_needs_torch(title: str) -> None:
    same_keys(documented()[title], answer(*COMMANDS[title]))


@pytest.mark.parametrize("command", ["check", "explain", "cost", "run", "verify"])
def test_diagnostics(command: str) -> None:
    told = answer(command, WRONG)
    found = told["files"][0]["diagnostics"] if command == "check" else told["diagnostics"]
    assert [d["code"] for d in found] == ["E201"]
    same_keys(documented()["Diagnostics"], found[0])


@pytest.mark.parametrize("title", ["cost", "run", "verify"])
def test_a_refusal_has_the_same_keys(title: str) -> None:
    arguments = [WRONG if argument == CARD else argument for argument in COMMANDS[title]]
    refused, shape = answer(*arguments), documented()[title]
    assert refused["ok"] is False
    assert {*shape, "verdict"} == {*refused, "verdict"}


def test_cost_of_a_missing_file(tmp_path: Path) -> None:
    told = answer("cost", str(tmp_path / "none.place"))
    assert (told["ok"], told["memory"], told["diagnostics"][0]["code"]) == (False, None, "E002")
