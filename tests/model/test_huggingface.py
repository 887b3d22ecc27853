"""Models from `config.json`: counts equal instantiated ones, and no config makes a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.model.catalogue import lookup
from placelang.model.huggingface import ARCHITECTURES, from_config, load
from placelang.model.model import Model, ModelError

MEASURED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "huggingface.json").read_text())["models"]


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: str(row["config"]["model_type"]))
def test_counts_equal_those_of_transformers(row: dict[str, Any]) -> None:
    model = from_config(row["config"])
    assert isinstance(model, Model), model
    assert model.params == row["params"]


def test_every_architecture_was_measured() -> None:
    assert {row["config"]["model_type"] for row in MEASURED} == set(ARCHITECTURES)


def test_a_real_config_is_the_model_of_the_catalogue() -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 8192,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": 128256,
    }
    model, ours = from_config(config), lookup("llama3_8b")
    assert isinstance(model, Model) and isinstance(ours, Model)
    assert (model.stacks, model.sizes) == (ours.stacks, ours.sizes)


def test_a_head_of_its_own_is_counted_for_t5_too() -> None:
    row = next(r["config"] for r in MEASURED if r["config"]["model_type"] == "t5")
    tied, own = from_config(row), from_config({**row, "tie_word_embeddings": False})
    assert isinstance(tied, Model) and isinstance(own, Model)
    assert own.params - tied.params == row["vocab_size"] * row["d_model"]


@pytest.mark.parametrize(
    ("config", "message", "suggestion"),
    [
        ({}, "the config has no `model_type`", "is this the config.json of a Hugging Face model?"),
        ({"model_type": "lama"}, "no architecture is named `lama` here", "did you mean `llama`?"),
        ({"model_type": "llama"}, "the config lacks `num_attention_heads`", ""),
    ],
)
def test_what_cannot_be_read_is_said(config: dict[str, Any], message: str, suggestion: str) -> None:
    error = from_config(config)
    assert isinstance(error, ModelError)
    assert (error.message, error.suggestion) == (message, suggestion)


def test_an_unknown_architecture_names_the_known_ones() -> None:
    error = from_config({"model_type": "mamba"})
    assert isinstance(error, ModelError)
    assert all(f"`{kind}`" in error.suggestion for kind in ARCHITECTURES)


def test_what_is_not_known_of_an_architecture_is_refused() -> None:
    row = next(r["config"] for r in MEASURED if r["config"]["model_type"] == "qwen3_moe")
    error = from_config({**row, "mlp_only_layers": [0]})
    assert isinstance(error, ModelError) and error.argument == "mlp_only_layers"
    row = next(r["config"] for r in MEASURED if r["config"]["model_type"] == "llama")
    error = from_config({**row, "hidden_act": "tanh"})
    assert isinstance(error, ModelError) and error.argument == "hidden_act"


values = st.one_of(
    st.none(), st.booleans(), st.integers(-4, 4), st.text(max_size=4), st.floats(), st.just([]), st.just({})
)


@given(st.sampled_from(MEASURED), st.data())
def test_a_damaged_config_gives_a_value(row: dict[str, Any], data: st.DataObject) -> None:
    config = dict(row["config"])
    for key in data.draw(st.lists(st.sampled_from([*config, "head_dim", "tie_word_embeddings"]), max_size=3)):
        config[key] = data.draw(values)
    assert isinstance(from_config(config), Model | ModelError)


@pytest.mark.parametrize("path", ["/dev/zero", "/no/such/place", "a\0b"])
def test_what_is_no_file_is_refused(path: str) -> None:
    assert isinstance(load(Path(path)), ModelError)


def test_files(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    assert isinstance(load(folder), ModelError)
    file = folder / "config.json"
    for damaged in (b"", b"\xff\xfe", b"[1]", b"[" * 100_000, b'{"model_type": 3}'):
        file.write_bytes(damaged)
        assert isinstance(load(folder), ModelError)
    file.write_text(json.dumps(MEASURED[0]["config"]))
    model = load(folder)
    assert isinstance(model, Model) and model.name == "tiny"
    assert load(file) == model
