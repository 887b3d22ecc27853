"""Published models by name, read from `stdlib/models/*.place`, one file a family.

A look-up scans the files for the line that declares the name, and parses that one file. Names are the usual ones with
`-` and `.` as `_`: `llama3_8b`, `qwen2_5_7b`, `gpt2_xl`. Not for: models that a text defines itself (`values`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from placelang import _resources
from placelang.diagnostics.suggest import did_you_mean
from placelang.model.model import Model, ModelError
from placelang.model.values import Given, model_of
from placelang.source import Source
from placelang.syntax import ast

_DECLARED: Final = re.compile(r"^let[ ]+(\w+)[ ]*=", re.MULTILINE)
_SOURCE: Final = re.compile(r"Source:\s*(.*)", re.DOTALL)
_NOTHING: Final[Given] = MappingProxyType({})


@cache
def index() -> Mapping[str, Path]:
    """Every name of the catalogue, in alphabetical order, with the file that declares it."""
    files = sorted((_resources.data("stdlib") / "models").glob("*.place"))
    return dict(sorted((name, file) for file in files for name in _DECLARED.findall(file.read_text("utf-8"))))


def names() -> tuple[str, ...]:
    return tuple(index())


def lookup(name: str, given: Given = _NOTHING) -> Model | ModelError:
    """The model of that name; `given` replaces arguments of its constructor: `lookup("llama3_8b", {"layers": 4})`."""
    file = index().get(name)
    if file is None:
        near = did_you_mean(name, names())
        own = "`transformer(layers = ..., ...)` builds one of your own"
        return ModelError(f"no model is named `{name}`", f"did you mean `{near}`?" if near else own)
    lets = _lets(file)
    if name not in lets:
        return ModelError(f"the declaration of `{name}` is damaged", f"restore {file}")
    declared = lets[name]
    while isinstance(declared.value, ast.Name) and declared.value.text in lets:  # an alias: the name it stands for
        declared = lets[declared.value.text]
    source = _SOURCE.search(_documented(declared, lets).doc)
    return model_of(
        declared.value,
        {n: let.value for n, let in lets.items()},
        lookup,
        given,
        name=declared.name.text,
        family=file.stem,
        source=" ".join(source[1].split()) if source else "",
    )


def _documented(let: ast.Let, lets: Mapping[str, ast.Let]) -> ast.Let:
    """The declaration whose doc names the source: a variant, `llama3_8b(...)`, has its original's."""
    while isinstance(let.value, ast.Call) and let.value.func.text in lets:
        let = lets[let.value.func.text]
    return let


@cache
def _lets(file: Path) -> Mapping[str, ast.Let]:
    from placelang.syntax.parser import parse  # the parser is needed only once a model is named

    tree, _ = parse(Source(file.read_text("utf-8"), str(file)))
    return {s.name.text: s for s in tree.statements if isinstance(s, ast.Let)}
