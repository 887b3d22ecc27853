"""The catalogue: every published shape counts exactly what others counted, and unknown names get help."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placelang import _resources
from placelang.model import catalogue
from placelang.model.model import ROLES, Model, ModelError
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.parser import parse

PUBLISHED: dict[str, Any] = json.loads((Path(__file__).parent / "counts.json").read_text())
COUNTS: list[dict[str, Any]] = PUBLISHED["models"]
FILES = sorted((_resources.data("stdlib") / "models").glob("*.place"))


def known(name: str, **given: object) -> Model:
    model = catalogue.lookup(name, given)
    assert isinstance(model, Model), model
    return model


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: str(row["id"]))
def test_counts_are_exact(row: dict[str, Any]) -> None:
    model = known(re.sub("[-.]", "_", row["id"]))
    assert model.params == row["params"]
    if "params_active" in row:
        assert model.params_active == row["params_active"]


def rows(model: Model, name: str) -> int | None:
    """How many rows a table of the embedding has."""
    return next((t.shape[0] for stack in model.stacks for t in stack.tensors if t.name == name), None)


def norms(model: Model) -> int:
    layer = next(stack for stack in model.stacks if stack.indexed)
    return sum(t.role == "norm" and t.name.endswith("norm.weight") for t in layer.tensors)


def holds(pattern: str) -> Callable[[Model], bool]:
    return lambda model: any(re.fullmatch(pattern, t.name) for stack in model.stacks for t in stack.tensors)


SHAPES: dict[str, Callable[[Model], object]] = {
    "tied_embedding": lambda m: any(t.tied for stack in m.stacks for t in stack.tensors),
    "qkv_bias": holds(r"attn\.w(q|qkv)\.bias"),
    "qk_norm": holds(r"attn\.q_norm\.weight"),
    "attention_sinks": holds(r"attn\.sinks"),
    "embedding_layernorm": holds(r"embed\.norm\.weight"),
    "parallel_block": lambda m: m.trait("block") == "parallel",
    "norms_per_layer": norms,
    "learned_positions": lambda m: rows(m, "embed.positions.weight"),
    "type_vocab": lambda m: rows(m, "embed.types.weight"),
    "q_lora_rank": lambda m: m.size("q_lora_rank") or 0,
    "shared_experts": lambda m: (m.size("shared_ffn") or 0) // (m.size("moe_ffn") or 1),
    "encoder_layers": lambda m: m.size("layers"),
    "image_size": lambda m: round(((m.size("tokens") or 1) - 1) ** 0.5) * (m.size("patch_size") or 0),
}
"""What a shape says that is neither a size nor a trait of a model."""


@pytest.mark.parametrize("row", COUNTS, ids=lambda row: str(row["id"]))
def test_shapes_are_as_published(row: dict[str, Any]) -> None:
    model = known(re.sub("[-.]", "_", row["id"]))
    found = dict(model.traits) | dict(model.sizes)
    assert {name: SHAPES[name](model) if name in SHAPES else found.get(name) for name in row["dims"]} == row["dims"]


def test_what_is_published_and_not_compared_says_why() -> None:
    assert len(COUNTS) == 75 and all(row["dims"] for row in COUNTS)
    assert all(PUBLISHED["left_out"].values())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_say_the_count_and_the_source_of_each_model(file: Path) -> None:
    tree, diagnostics = parse(Source(file.read_text(encoding="utf-8"), str(file)))
    assert not diagnostics
    for let in tree.statements:
        assert isinstance(let, ast.Let)
        if isinstance(let.value, ast.Call) and let.value.func.text in (
            "transformer",
            "encoder",
            "encoder_decoder",
            "vision",
        ):
            model = known(let.name.text)
            assert f"{model.params:,} parameters" in " ".join(let.doc.split())
            assert model.params_active == model.params or f"{model.params_active:,} of them" in " ".join(
                let.doc.split()
            )
            assert model.source and model.family == file.stem


@pytest.mark.parametrize("name", catalogue.names())
def test_every_model_is_whole(name: str) -> None:
    model = known(name)
    named = dict(model.named())
    assert len(named) == sum(s.count * len(s.tensors) for s in model.stacks), "full names are unique"
    assert sum(t.elements for t in named.values() if t.tied is None) == model.params
    assert all(t.role in ROLES and len(t.dims) == len(t.shape) for t in named.values())
    assert all(named[t.tied].shape == t.shape for t in named.values() if t.tied)
    assert len({s.label for s in model.stacks}) == len(model.stacks)
    sized = {"batch", "seq"} | dict(model.sizes).keys()
    assert all(set(s.dims) <= sized for stack in model.stacks for s in stack.saved)


def test_aliases_are_the_model_they_stand_for() -> None:
    assert known("gpt2") == known("gpt2_124m")
    assert known("llama3_405b").name == "llama3_1_405b"
    assert known("llama3_3_70b").name == "llama3_1_70b"


def test_a_variant_replaces_arguments_and_keeps_the_source() -> None:
    assert known("llama3_1_8b").size("max_seq_len") == 131_072
    assert known("llama3_1_8b").params == known("llama3_8b").params
    assert known("llama3_1_8b").source == known("llama3_8b").source
    assert known("llama3_8b", layers=4).size("layers") == 4
    assert known("llama3_1_8b", max_seq_len=1024).size("max_seq_len") == 1024


def test_one_look_up_parses_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue._lets.cache_clear()
    known("mixtral")
    assert catalogue._lets.cache_info().currsize == 1


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("lama3_8b", "llama3_8b"),
        ("gpt2-xl", "gpt2_xl"),
        ("llama3.1_405b", "llama3_1_405b"),
        ("qwen25_7b", "qwen2_5_7b"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, suggestion: str) -> None:
    error = catalogue.lookup(name)
    assert isinstance(error, ModelError)
    assert error.suggestion == f"did you mean `{suggestion}`?"


def test_a_name_near_nothing_is_refused() -> None:
    assert isinstance(catalogue.lookup("x" * 500), ModelError)
    assert isinstance(catalogue.lookup(""), ModelError)


def test_arguments_of_a_published_model_are_checked() -> None:
    error = catalogue.lookup("llama3_8b", {"layer": 4})
    assert error == ModelError("`transformer` has no argument `layer`", "did you mean `layers`?", "layer")
