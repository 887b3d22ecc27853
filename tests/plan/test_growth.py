"""Texts whose values would grow without end are read or refused in time that follows their length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from placelang.api import load

PLACED = "\nparams: replicate\ngrads: all_reduce(dp)\n"
LINES = 1000


def chain(first: str, line: Callable[[str, str], str], last: str, *, lines: int = LINES, word: str = "let") -> str:
    """`let a0 = first`, then `lines` declarations of which each names the one before it, then `last` of the last."""
    steps = (f"{word} a{i + 1} = {line(f'a{i}', f'a{i}')}" for i in range(lines))
    return "\n".join((f"{word} a0 = {first}", *steps, last.format(f"a{lines}"))) + PLACED


MESH = "mesh (dp = {})"
MODEL = "model transformer(layers = {}, hidden = 64, heads = 4, ffn = 64, vocab = 100)"
HARDWARE = "hardware dgx_a100(nodes = {})"


@pytest.mark.parametrize("last", [MESH, "let x = 1\nmesh (dp = {})"])
@pytest.mark.parametrize("word", ["let", "arg"])
def test_a_long_chain_of_values_is_read(last: str, word: str) -> None:
    strategy = load(chain("3", lambda a, b: f"{a} + {b} - {a}", last, word=word))
    assert strategy.plan is not None
    assert strategy.plan.mesh["dp"].size == 3


def test_the_order_of_declarations_does_not_matter() -> None:
    lines = chain("3", lambda a, b: f"{a} + {b} - {a}", "").splitlines()
    strategy = load("\n".join((*reversed(lines), f"mesh (dp = a{LINES})")))
    assert strategy.plan is not None
    assert strategy.plan.mesh["dp"].size == 3


def test_a_long_circle_is_named() -> None:
    text = chain(f"a{LINES}", lambda a, _: a, MESH)
    assert {d.code for d in load(text).diagnostics} == {"E115"}


@pytest.mark.parametrize(
    ("first", "line"),
    [
        ("2", "{} * {}"),
        ("1 / 3", "{} * {}"),
        ("2GiB", "{} + {}"),
        ("2", "[{}, {}]"),
        ("2", "f({}, {})"),
        ("dp", "{} * {}"),
    ],
)
def test_what_doubles_with_every_line_is_refused(first: str, line: str) -> None:
    found = load(chain(first, line.format, "")).diagnostics
    assert "E105" in {d.code for d in found if d.is_error}


@pytest.mark.parametrize(("last", "codes"), [(MODEL, {"E106", "E105"}), (HARDWARE, {"E105", "E106"})])
@pytest.mark.parametrize("line", ["{} + {} - 1", "{} * {}", "{}"])
def test_models_and_machines_read_each_name_once(line: str, last: str, codes: set[str]) -> None:
    strategy = load(chain("1", line.format, last, lines=30))
    assert strategy.plan is not None, strategy.diagnostics
    refused = load(chain("1", line.format, last)).diagnostics
    assert {d.code for d in refused if d.is_error} <= codes
    grown = load(chain("10", "{} * {}".format, last, lines=60)).diagnostics
    assert {d.code for d in grown if d.is_error} <= codes


def test_a_chain_of_models_is_read() -> None:
    text = "\n".join(("let a0 = gpt2", *(f"let a{i + 1} = a{i}(layers = 2)" for i in range(LINES)), f"model a{LINES}"))
    strategy = load(text + PLACED)
    assert strategy.plan is not None
    assert strategy.plan.model is not None
    assert strategy.plan.model.size("layers") == 2


def test_a_strategy_of_strategies_is_expanded_once() -> None:
    steps = "".join(f"strategy a{i + 1} = a{i} * a{i}\n" for i in range(40))
    claim = 'require heads % 2 == 0, "even heads"'
    strategy = load(
        f"model gpt2\nstrategy a0 {{ params: replicate; {claim} }}\n{steps}apply a40\ngrads: all_reduce(dp)"
    )
    assert strategy.plan is not None, strategy.diagnostics
    assert len(strategy.plan.claims) == 1


def test_strategies_are_not_endlessly_deep() -> None:
    steps = "".join(f"strategy a{i + 1} = a{i}\n" for i in range(LINES))
    found = load(f"strategy a0 {{ params: replicate }}\n{steps}apply a{LINES}\ngrads: all_reduce(dp)").diagnostics
    assert [d.code for d in found if d.is_error] == ["E115"]


def test_a_declaration_does_not_see_parameters() -> None:
    body = "strategy s(dp: axis = fsdp) { params: shard(x); grads: reduce_scatter(x) }"
    strategy = load(f"mesh (dp = 2, fsdp = 4)\nlet x = dp\n{body}\napply s")
    assert strategy.plan is not None, strategy.diagnostics
    assert {a for p in strategy.plan.placed if p.state.value == "params" for s in p.journey for a in s.axes} == {"dp"}
