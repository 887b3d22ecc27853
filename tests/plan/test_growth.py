"""Texts whose values would grow without end are read or refused in time that follows their length."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest

from placelang.api import load
from placelang.plan.elaborate import elaborate
from placelang.source import Source
from placelang.syntax.parser import parse

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


def long(lines: int) -> str:
    """A text of so many lines, with a little of everything."""
    block = (
        "## number {i}\n"
        "strategy s{i}(d: axis = dp, n: int = {i}) {{\n"
        "  params:    shard(d) | gather(d, prefetch = 2)  # ahead\n"
        "  grads:     reduce_scatter(d)\n"
        "  optimizer: shard(d) | offload(cpu)\n"
        "}}\n"
        "let a{i} = {i} * 2 + 1\n"
        "arg b{i}: int = a{i}\n"
        'require b{i} > 0, "a count"\n'
        "strategy t{i} = s{i}(dp) with {{ override optimizer: offload(nvme) }}\n"
    )
    return "mesh (dp = 4, tp = 2)\nparams: shard(dp)\n" + "".join(block.format(i=i) for i in range(lines // 10))


def calls(work: Callable[[], object]) -> int:
    """How many functions of ours a piece of work calls: a measure of time that is the same on every machine."""
    count = 0

    def profile(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("wrong", ["", "params: shard(dp\n"])
def test_the_work_follows_the_length_of_a_text(wrong: str) -> None:
    texts = [long(lines) + wrong for lines in (500, 4000)]
    files = [parse(Source(text))[0] for text in texts]  # which loads whatever is loaded once
    assert all((elaborate(file)[0] is not None) == (not wrong) or wrong for file in files)
    read = [calls(lambda text=text: parse(Source(text))) for text in texts]  # type: ignore[misc]
    made = [calls(lambda file=file: elaborate(file)) for file in files]  # type: ignore[misc]
    for few, many in (read, made):
        assert many < 8.5 * few, "eight times the lines"


@pytest.mark.parametrize("wrong", ["", "params: shard(dp\n"])
def test_a_parse_leaves_no_cycles_and_is_not_searched_for_them(wrong: str) -> None:
    source = Source(long(500) + wrong)
    parse(source)
    gc.collect()
    before = sum(generation["collections"] for generation in gc.get_stats())
    file, _ = parse(source)
    assert sum(generation["collections"] for generation in gc.get_stats()) - before <= 2, "those around the parse"
    assert gc.isenabled()
    gc.disable()
    try:
        gc.collect()
        again = parse(source)
        assert gc.collect() == 0
        assert not gc.isenabled(), "whoever turned the search off keeps it off"
    finally:
        gc.enable()
    assert again[0] == file


@pytest.mark.parametrize("head", ["params", "activations"])
def test_many_selections_are_compared_in_time_that_follows_their_number(head: str) -> None:
    word = "replicate(tp)" if head == "params" else "recompute(full)"

    def text(count: int) -> str:
        lines = "".join(f'{head}["layers.{i}"]: {word}\n' for i in range(count))
        return f"mesh (dp = 4, tp = 2)\nparams: shard(dp)\n{lines}"

    files = [parse(Source(text(count)))[0] for count in (50, 400)]
    few, many = (calls(lambda file=file: elaborate(file)) for file in files)  # type: ignore[misc]
    assert many < 8.5 * few
