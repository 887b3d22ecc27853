"""From expressions to models: what a text may write after `model` or `let`."""

from __future__ import annotations

from fractions import Fraction

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


def test_adapters_and_routing_groups() -> None:
    named = meaning("let on = [attn, mlp.down]\nmodel gpt2(lora = lora(rank = 4 * 2, on = on))")
    assert isinstance(named, Model)
    assert named.size("lora_rank") == 8
    fused = meaning("model gpt2(lora = lora(8, on = attn.q))")
    assert fused == ModelError("no layer of gpt2_124m is attn.q", "leave `on` out", "lora")


@pytest.mark.parametrize(
    ("group", "axes"),
    [("", None), (", group = dp", ("dp",)), (", group = dp * (ep * cp)", ("dp", "ep", "cp")), (", group = global", ())],
)
def test_a_routing_group_is_names_of_axes(group: str, axes: tuple[str, ...] | None) -> None:
    model = meaning(f"model mixtral_8x7b(capacity = 5 / 4{group})")
    assert isinstance(model, Model)
    assert (model.routing.capacity, model.routing.group) == (Fraction(5, 4), axes)
    assert not model.routing.tokenwise


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model mixtral_8x7b(group = dp)", "`group` says nothing without `capacity` or `balance`"),
        ("model gpt2(capacity = 1)", "`capacity` says nothing without experts"),
        ("model mixtral_8x7b(capacity = 0)", "`capacity` is `0`, not a positive number"),
        ("model mixtral_8x7b(capacity = 1, group = 3)", "`group` is `3`, not an axis"),
        ("model mixtral_8x7b(capacity = 1, group = dp * dp)", "`group` names an axis twice"),
        ("model gpt2(lora = lora(rank = 4, rank = 5))", "`lora` is `lora(rank = 16, on = [attn, mlp])`"),
        ("model gpt2(lora = lora(4, where = attn))", "`lora` is `lora(rank = 16, on = [attn, mlp])`"),
    ],
)
def test_what_changes_nothing_or_means_nothing_is_refused(text: str, message: str) -> None:
    error = meaning(text)
    assert isinstance(error, ModelError)
    assert error.message == message
