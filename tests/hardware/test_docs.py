"""The reference page: its texts mean machines, and it names every constructor and argument."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from placelang.hardware import catalogue
from placelang.hardware.constructors import CONSTRUCTORS
from placelang.hardware.hardware import Hardware
from placelang.hardware.values import hardware_of
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.parser import parse

PAGE = (Path(__file__).parents[2] / "docs" / "language" / "hardware.md").read_text(encoding="utf-8")
TEXTS = re.findall(r"^```place\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_mean_machines(text: str) -> None:
    tree, diagnostics = parse(Source(text))
    assert not diagnostics
    lets = {s.name.text: s.value for s in tree.statements if isinstance(s, ast.Let)}
    facts = [s for s in tree.statements if isinstance(s, ast.Fact)]
    assert facts
    for fact in facts:
        assert isinstance(hardware_of(fact.value, lets, catalogue.declared), Hardware)


def test_names_in_the_page_exist() -> None:
    listed = PAGE.split("| file | holds |")[1].split("\n\n")[0]
    names = set(re.findall(r"`(\w+)`", listed)) - {"nvidia", "dgx", "amd", "tpu", "clusters", "links", "reach"}
    assert names <= set(catalogue.names())


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_every_argument_is_described(name: str) -> None:
    headings = {n: part for part in PAGE.split("\n### ")[1:] for n in re.findall(r"`(\w+)`", part.split("\n")[0])}
    table = "".join(line for line in headings[name].split("\n") if line.startswith("|"))
    assert all(f"`{argument}`" in table for argument in CONSTRUCTORS[name].args)
