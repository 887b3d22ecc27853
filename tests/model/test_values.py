"""From expressions to models: what a text may write after `model` or `let`."""

from __future__ import annotations

import pytest

from placelang.model import catalogue
from placelang.model.model import Model, ModelError
from placelang.model.values import model_of
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.parser import parse

TINY = (
    "let tiny = transformer(layers = 4, hidden = 256, heads = 8, kv_heads = 2, ffn = 1024, vocab = 1000, tied = true)"
)


def meaning(text: str) -> Model | ModelError:
    """The model of the text's `model` statement."""
    tree, diagnostics = parse(Source(text))
    assert not diagnostics
    lets = {s.name.text: s.value for s in tree.statements if isinstance(s, ast.Let)}
    fact = next(s for s in tree.statements if isinstance(s, ast.Fact))
    return model_of(fact.value, lets, catalogue.lookup)


def params(text: str) -> int:
    model = meaning(text)
    assert isinstance(model, Model), model
    return model.params


def test_a_value_of_the_text() -> None:
    assert params(f"{TINY}\nmodel tiny") == 4 * (2 * 256 * 256 + 2 * 64 * 256 + 3 * 1024 * 256 + 2 * 256) + 1001 * 256


def test_a_value_built_again() -> None:
    assert params(f"{TINY}\nmodel tiny(layers = 8)") > params(f"{TINY}\nmodel tiny")


def test_a_constructor_and_a_published_name() -> None:
    assert params("model gpt2") == 124_439_808
    assert params("model llama3_8b(layers = 16)") < params("model llama3_8b")


def test_arguments_compute() -> None:
    text = "let h = 64\nmodel transformer(layers = 2, hidden = h, heads = h / 16, ffn = 4 * h, vocab = (1000 - 1) + 1)"
    same = "model transformer(layers = 2, hidden = 64, heads = 4, ffn = 256, vocab = 1000)"
    assert params(text) == params(same)


@pytest.mark.parametrize(
    ("text", "message", "argument"),
    [
        ("model transformer(12)", "`transformer` takes arguments by name", ""),
        ("model gpt2(layers = 1, layers = 2)", "`layers` is given twice", "layers"),
        ("model gpt2(layers = 2GiB)", "`layers` is a count and has no unit", "layers"),
        ("model gpt2(layers = 5 / 2)", "`layers` is `5/2`, not a whole number", "layers"),
        ("model gpt2(layers = 5 / 0)", "`layers` divides by zero", "layers"),
        ("model gpt2(layers = 2 * rope)", "`layers` computes with something that is not a number", "layers"),
        ("model gpt2(layers = [1])", "`layers` has a value that no model has", "layers"),
        ("model gpt2(positions = learned(rope))", "a position table has a whole number of rows", "positions"),
        ("model 12", "this is not a model", ""),
        ("let a = b\nlet b = a\nmodel a", "`a` is defined by itself", ""),
        ("let a = a\nmodel gpt2(layers = a)", "`a` is defined by itself", "layers"),
    ],
)
def test_what_is_no_model_is_refused(text: str, message: str, argument: str) -> None:
    error = meaning(text)
    assert isinstance(error, ModelError)
    assert (error.message, error.argument) == (message, argument)
