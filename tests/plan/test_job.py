"""The model and machine of a text: own, imported, computed and set values, and what is said of those that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from placelang.api import Strategy, load, load_source
from placelang.diagnostics.diagnostic import Verdict
from placelang.model.model import Model
from placelang.source import Source
from tests.plan.elaborated import is_fixed_point

PLACED = "\nparams: shard(dp)\ngrads: reduce_scatter(dp)\n"
OWN = """
let tiny = transformer(layers = 4, hidden = 256, heads = 8, kv_heads = 2, ffn = 1024, vocab = 1000, tied = true)
let card = gpu(memory = 80GiB, bf16 = 989TFLOP/s, bandwidth = 3.35TB/s)
let box = node(devices = 8, device = card, link = nvlink(450GB/s), network = roce(400Gb/s),
               host = host(memory = 2TiB, pcie = 64GB/s))
"""


def codes(strategy: Strategy) -> list[str]:
    return [d.code for d in strategy.diagnostics if d.is_error]


def model_of(strategy: Strategy) -> Model:
    assert strategy.plan is not None, strategy.diagnostics
    assert strategy.plan.model is not None
    return strategy.plan.model


def test_own_values() -> None:
    strategy = load(f"{OWN}model tiny(layers = 2)\nhardware box(nodes = 4)\nmesh (dp = *)" + PLACED)
    assert model_of(strategy).size("layers") == 2
    assert strategy.plan is not None
    assert strategy.plan.mesh["dp"].size == 32
    is_fixed_point(strategy)


def test_arguments_of_the_text_reach_models_and_machines() -> None:
    text = f"{OWN}arg depth: int\narg nodes = 2\nmodel tiny(layers = 2 * depth)\nhardware box(nodes = nodes)" + PLACED
    strategy = load(text, depth=3, nodes=5)
    assert model_of(strategy).size("layers") == 6
    assert strategy.plan is not None
    assert strategy.plan.hardware is not None
    assert strategy.plan.hardware.nodes == 5
    assert "arg depth: int = 3\n" in strategy.explain()
    assert "arg nodes = 5\n" in strategy.explain()
    is_fixed_point(strategy)
    assert codes(load(text)) == ["E121"]


@pytest.mark.parametrize("use", ['use "./house.place" (box, tiny as small)', 'use "./house.place"\nlet small = tiny'])
def test_imported_values(tmp_path: Path, use: str) -> None:
    house = f'{OWN.replace("layers = 4", "layers = n")}let n = 3\nuse "./deeper.place" (chip)'
    (tmp_path / "house.place").write_text(house, encoding="utf-8")
    (tmp_path / "deeper.place").write_text("let nodes = 7\nlet chip = gpu(memory = 1GiB)", encoding="utf-8")
    text = f"{use}\nlet n = 9\nmodel small\nhardware box(nodes = n, device = h100)" + PLACED
    if "(box" not in use:
        text = text.replace("let n = 9\n", "").replace("nodes = n", "nodes = 9")
    strategy = load_source(Source(text, str(tmp_path / "text.place")))
    assert model_of(strategy).size("layers") == 3
    assert strategy.plan is not None
    assert strategy.plan.hardware is not None
    assert (strategy.plan.hardware.nodes, strategy.plan.hardware.device.name) == (9, "h100_sxm")
    is_fixed_point(strategy)


def test_lines_may_be_set() -> None:
    text = "model gpt2\nmesh (dp = *)" + PLACED
    strategy = load_source(Source(text), sets={"model": "llama3_8b(layers = 2)", "hardware": "dgx_a100(nodes = 4)"})
    assert model_of(strategy).size("layers") == 2
    assert strategy.plan is not None
    assert strategy.plan.mesh.world == 32
    is_fixed_point(strategy)
    wrong = load_source(Source(text), sets={"hardware": "dgx_a101"})
    assert (codes(wrong), wrong.diagnostics[0].help) == (["E101"], "did you mean `dgx_a100`?")
    assert codes(load_source(Source(text), sets={"hardware": "-2 / 3"})) == ["E105"]
    assert codes(load_source(Source(f"arg model = 2\n{text}"), sets={"model": "3", "dp": "2"})) == []


def test_a_model_beside_the_text() -> None:
    for model in ("llama3_8b(layers = 2)", "transformer(layers = 2, hidden = 64, heads = 4, ffn = 64, vocab = 99)"):
        strategy = load("model gpt2" + PLACED, model=model)
        assert model_of(strategy).size("layers") == 2
        assert strategy.explain().startswith("model ")
        is_fixed_point(strategy)
    assert codes(load(PLACED, model="gpt2_124n")) == ["E101"]
    assert codes(load(PLACED, model="gpt2; params: replicate")) == ["E101"]
    assert codes(load(PLACED, model="nowhere/config.json")) == ["E120"]
    assert codes(load(PLACED, model=str(Path(__file__).parent / "test_job.py"))) == ["E120"], "no config"
    given = load(PLACED, model=model_of(load(PLACED, model="gpt2")))
    assert given.explain().startswith("# the model is gpt2_124m")


GROUPS = [
    ("dp", ("dp",)),
    ("dp * ep", ("dp", "ep")),
    ("all", ("dp", "ep")),
    ("global", ()),
]


@pytest.mark.parametrize(("group", "axes"), GROUPS)
def test_a_routing_group_is_read_as_axes(group: str, axes: tuple[str, ...]) -> None:
    text = f"mesh (dp = 2, ep = 2)\naxis all = dp * ep\nmodel mixtral_8x7b(capacity = 1.25, group = {group})" + PLACED
    strategy = load(text)
    assert model_of(strategy).routing.group == axes
    is_fixed_point(strategy)


def test_a_routing_group_must_be_axes_and_unsaid_it_is_asked_for() -> None:
    wrong = load("model mixtral_8x7b(capacity = 1.25, group = tq)" + PLACED)
    assert codes(wrong) == ["E102"]
    assert wrong.diagnostics[0].primary is not None
    assert wrong.diagnostics[0].primary.span.text == "group = tq"
    unsaid = load("model mixtral_8x7b(capacity = 1.25)" + PLACED)
    assert (codes(unsaid), unsaid.verdict) == (["E213"], Verdict.UNDECIDED)
    assert codes(load("model mixtral_8x7b(balance = 0.01, group = global)" + PLACED)) == ["E112"]
    assert load("model mixtral_8x7b" + PLACED).ok


def test_adapters_are_trainable_and_the_rest_frozen() -> None:
    strategy = load(
        "strategy lora { params[frozen]: shard(dp) as nf4 | gather as bf16; params[trainable]: replicate"
        "; grads[trainable]: all_reduce(dp) }\nmodel llama3_70b(lora = 16)\napply lora"
    )
    assert strategy.plan is not None
    assert [d.code for d in strategy._front] == []  # no selector is empty
    is_fixed_point(strategy)
    # without adapters nothing is frozen, which is said and no error
    assert "N101" in [d.code for d in load("model llama3_70b\nparams[frozen]: shard(dp)" + PLACED)._front]


def test_claims_of_strategies_stand_in_the_elaboration() -> None:
    strategy = load(
        "model gpt2\nlet most = 12\nstrategy s(d: axis = dp) { params: replicate; grads: all_reduce(d)"
        '; require heads % d == 0 and heads <= most, "whole" }\nmesh (dp = 4)\napply s(dp)\nassert memory.peak <= 80GiB'
    )
    text = strategy.explain()
    assert "let most = 12\n" in text
    assert 'require heads % dp == 0 and heads <= most, "whole"' in text
    assert "assert memory.peak <= 80GiB" in text
    is_fixed_point(strategy)


def test_a_config_beside_the_text(tmp_path: Path) -> None:
    config = '{"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 99, "n_positions": 32}'
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    strategy = load_source(Source('model "config.json"' + PLACED, str(tmp_path / "text.place")))
    assert model_of(strategy).size("layers") == 2
    is_fixed_point(strategy)
    assert codes(load('model "./nowhere.json"' + PLACED)) == ["E120"]


@pytest.mark.parametrize(
    "line", ["hardware dgx_h100(nodes = n)", "model transformer(layers = n, hidden = 64, heads = 4)"]
)
def test_a_line_that_waits_for_a_value_says_so(line: str) -> None:
    strategy = load_source(Source(f"arg n: int\n{line}\nmesh (dp = 2){PLACED}"))
    assert strategy.plan is None
    assert codes(strategy) == ["E121"]
