"""Published figures that follow from formulas, row by row of benchmarks/facts: the tool's own numbers equal them to the
last printed digit, or `unequal_rows.toml` says why not.

Every number is the cost of a strategy's text. Where a paper states another set of assumptions than the tool's (dropout,
no fused attention), the row is costed under the paper's. Not for: measured rows (`benchmarks.accuracy`), or what papers
say beside their tables (`test_stated_identities`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from fractions import Fraction
from pathlib import Path

import pytest

from placelang.cost import memory as memory_room
from placelang.cost.expr import SECONDS, constant, evaluate
from placelang.cost.pipeline import fill
from placelang.cost.replay import replay
from placelang.cost.time import Time
from tests.cost.published import Row, alg, at_rest, cost, formula, number, pipelined, printed, rows, table, wire, zero

UNEQUAL = table(Path(__file__).with_name("unequal_rows.toml"))

Figures = Iterator[tuple[str, bool]]
"""Keys of what a row publishes, each with whether the tool says the same."""


def _named(part: str, file: str, row: Row) -> list[Row]:
    return [r for r in UNEQUAL[part] if r["file"] == file and any(fnmatch(row["id"], p) for p in r["ids"])]


ROWS = tuple(rows())
EQUAL = [(file, row) for file, row in ROWS if not _named("row", file, row)]


def zero_2020(row: Row) -> Figures:
    """arXiv 1910.02054: Tables 1 and 2, section 7."""
    layout, expect = row["layout"], row["expect"]
    stage = layout["zero_stage"]
    if "model_state_bytes" in expect:
        state = at_rest(zero(stage, row["model"]["params"], layout["dp"]))
        yield "model_state_bytes", printed(state / 10**9, row["printed"]["model_state"])
    elif "max_params" in expect:  # the authors multiply what one model-parallel rank holds, rounded, by the ranks
        whole, tp = 10**12, layout["tp"]
        each = Fraction(row["hardware"]["mem_bytes"] * whole, tp) / at_rest(zero(stage, whole, layout["dp"], tp))
        most = tp * Fraction(f"{float(each / 10**9):.1f}")
        text = row["printed"]["max_model_size"]
        yield "max_params", printed(most / (1000 if text.endswith("T") else 1), text)
    else:
        volume = alg(zero(stage, 7_500_000_000, 64)) / 2 / 7_500_000_000
        against = alg(zero(0, 7_500_000_000, 64)) / 2 / 7_500_000_000
        if "ratio_to_dp" in expect:
            yield "ratio_to_dp", volume / against == Fraction(str(expect["ratio_to_dp"]))
        else:
            yield "comm_volume_per_step_in_psi", volume == expect["comm_volume_per_step_in_psi"]


def ultrascale(row: Row) -> Figures:
    state = at_rest(zero(0, row["model"]["params"], 1, precision="bf16"))
    yield "model_state_bytes", state == row["expect"]["model_state_bytes"]


MEGATRON = {
    "22B": "megatron_22b",
    "175B": "megatron_175b",
    "gpt3-175b": "megatron_175b",
    "530B": "megatron_530b",
    "mt-nlg-530b": "megatron_530b",
    "1T": "megatron_1t",
}
LAYERS = {"megatron_22b": 48, "megatron_175b": 96, "megatron_530b": 105, "megatron_1t": 128}
RECOMPUTE = {"none": "", "full": " * recompute_full", "selective-attention": " * recompute_attention"}


def layers_keep(row: Row, *, pipelined: bool = False) -> Fraction:
    """Bytes of activations that the layers of a model keep on the first stage, as those that twice as many keep more;
    without a pipeline, all of them."""
    layout = {"tp": 1, "sp": False, "pp": 1, "vpp": 1, **row.get("layout", {})}
    run = {"micro_batch": 1, "global_batch": 1, **row["run"]}
    name, tp = MEGATRON[row["model"]["name"]], layout["tp"]
    stages = layout["pp"] if pipelined else 1
    split = ("megatron_sp(tp)" if layout["sp"] else "tensor_parallel(tp)") if tp > 1 else "ddp(dp)"
    if stages > 1:
        schedule = f"interleaved_1f1b({layout['vpp']})" if layout["vpp"] > 1 else "1f1b"
        split += f" * pipelined(pp, schedule = {schedule}) * tied_stages(pp)"
    many = run["global_batch"] // run["micro_batch"] if stages > 1 else 1
    train = (
        f"train (precision = fp16, seq = {run['seq_len']}, micro_batch = {run['micro_batch']}, microbatches = {many})"
    )

    def kept(layers: int) -> Fraction:
        found = cost(
            f"model {name}(layers = {layers})\n{train}\nmesh (pp = {stages}, dp = 1, tp = {tp})\n"
            f"apply {split}{RECOMPUTE[run['recompute']]}"
        )
        first = dict(found.stages).get(0, found)
        assert first.memory.activations is not None
        return number(first, first.memory.activations)

    return kept(2 * LAYERS[name]) - kept(LAYERS[name])


def sbh(row: Row) -> int:
    return int(row["run"]["seq_len"] * row["run"].get("micro_batch", 1) * row["model"]["hidden"])


def korthikanti(row: Row) -> Figures:
    """arXiv 2205.05198: Table 2 and section 5, with dropout and without a fused kernel."""
    expect = row["expect"]
    layers = LAYERS[MEGATRON[row["model"]["name"]]]
    if "activation_bytes_per_layer" in expect:
        yield "activation_bytes_per_layer", layers_keep(row) / layers == expect["activation_bytes_per_layer"]
    first = row.get("derived", {}).get("first_stage_activation_bytes")
    if first is not None:
        yield "first_stage_activation_bytes", layers_keep(row, pipelined=True) == first
    if "attention_term_5as_over_h" in expect:
        whole = layers_keep({**row, "run": {**row["run"], "recompute": "none"}})
        saved = whole - layers_keep(row)
        yield "attention_term_5as_over_h", saved / layers / sbh(row) == expect["attention_term_5as_over_h"]
        yield "activation_saving_fraction", printed(100 * saved / whole, row["printed"]["saving"])


LONG = """
model transformer(layers = {layers}, hidden = 1024, heads = 8, ffn = 4096, vocab = 1024)
train (precision = bf16, seq = 8192, micro_batch = 1)
"""


def of_block() -> tuple[Fraction, Fraction, int, int]:
    """Of one block of a ring in one layer: FLOPs of its attention, without a mask, and bytes of its keys and values;
    tokens of the block and hidden size."""
    found = cost(LONG.format(layers=1) + "hardware dgx_a100 ; mesh (cp = 8) ; apply zero1(cp) * ring(cp)")
    cp, c, d = 8, 8192 // 8, 1024
    forward = [t for t in found.traffic if t.kind == "ring" and t.phase == "forward"]
    hops = number(found, *(t.count for t in forward)) / 2  # keys and values
    assert isinstance(found.time, Time)
    terms = [t for s in found.time.spans if s.phase == "forward" for t in s.terms if t.kind == "attention"]
    flops = 2 * number(found, *(t.flops for t in terms)) / cp  # of a causal kernel that skips half
    return flops, alg(found, tuple(forward)) / hops, c, d


def long_context(row: Row) -> Figures:
    """arXiv 2309.14509; arXiv 2310.01889, section 3 and Table 2."""
    expect = row["expect"]
    if "ratio_megatron_to_ulysses" in expect:
        for ranks in (2, 4, 8):
            sent: dict[tuple[str, int], Fraction] = {}
            texts = {
                "ulysses": "mesh (cp = {n}) ; apply zero1(cp) * ulysses(cp)",
                "megatron": "mesh (tp = {n}) ; apply megatron_sp(tp)",
            }
            for (name, text), layers in itertools.product(texts.items(), (1, 2)):
                found = cost(LONG.format(layers=layers) + text.format(n=ranks))
                sent[name, layers] = alg(found, tuple(t for t in found.traffic if t.phase == "forward"))
            megatron, ulysses = (sent[name, 2] - sent[name, 1] for name in ("megatron", "ulysses"))
            yield (
                "ratio_megatron_to_ulysses",
                megatron / ulysses == formula(expect["ratio_megatron_to_ulysses"], P=ranks),
            )
        return
    flops, moved, c, d = of_block()
    if "attention_flops_per_block" in expect:
        yield "attention_flops_per_block", flops == formula(expect["attention_flops_per_block"], c=c, d=d)
        yield "kv_bytes_per_block", moved == formula(expect["kv_bytes_per_block"], c=c, d=d)
    elif "condition" in expect:
        left, right = re.findall(r"4\S+/[FB]", expect["condition"])
        peak, link = 300, 7
        yield "condition", flops / peak == formula(left, c=c, d=d, F=peak)
        yield "condition", moved / link == formula(right, c=c, d=d, B=link)
    else:
        peak, link = Fraction(row["hardware"]["peak_flops"]), Fraction(row["hardware"]["link_bytes_per_s"])
        least = c * (moved / link) / (flops / peak)  # FLOPs grow with the square of a block, bytes with the block
        yield "min_block_tokens", printed(least / 1000, row["printed"]["block"])


NAMES = {"1f1b": "1f1b", "zb-h1": "zb_h1", "zb-h2": "zb_h2", "zb-v": "zbv", "dualpipev": "dualpipev"}
CHUNKS = {"zbv": 2, "dualpipev": 2}


def bubbles(schedule: str, p: int, m: int, times: tuple[Fraction, Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    """Seconds of bubble and of the step, replayed; of DualPipeV by formula, as a replay may beat it."""
    closed = fill(schedule, 1, [tuple(constant(t, SECONDS) for t in times)], [p])  # type: ignore[list-item]
    if schedule == "dualpipev":
        return Fraction(evaluate(closed, {})), Fraction(0)
    chunks = CHUNKS.get(schedule, 1)
    played = replay(schedule, p, m, *([float(t / chunks)] * (p * chunks) for t in times))
    assert Fraction(played.bubble) == evaluate(closed, {})
    return Fraction(played.bubble), Fraction(played.cost)


def pipeline_schedules(row: Row) -> Figures:
    expect, schedule = row["expect"], NAMES[row["run"]["schedule"]]
    times = [(1, 1, 1), (2, 3, 1)] if schedule != "zbv" else [(1, 1, 1)]
    for p, rounds, (f, b, w) in itertools.product((2, 4, 8), (2, 5), times):
        m = p * rounds
        bubble, step = bubbles(schedule, p, m, (Fraction(f), Fraction(b), Fraction(w)))
        names = {"p": p, "m": m, "TF": f, "TB": b, "TW": w, "PP": p, "F": f, "B": b + w, "W": w, "F_and_B": 0}
        if schedule == "dualpipev":  # two parts of the model on each rank; none of its passes overlap here
            half = Fraction(1, 2)
            names |= {"PP": 2 * p, "F": f * half, "B": (b + w) * half, "W": w * half, "F_and_B": (f + b + w) * half}
        if "bubble_time" in expect:
            yield "bubble_time", bubble == formula(expect["bubble_time"], **names)
        if "bubble_over_ideal" in expect:
            yield "bubble_over_ideal", bubble / (m * (f + b + w)) == formula(expect["bubble_over_ideal"], **names)
        if "bubble_rate" in expect:
            yield "bubble_rate", bubble / step == formula(expect["bubble_rate"], **names)
        if (f, b, w) != (1, 1, 1):
            continue
        found = pipelined(schedule, p, m)
        unit = 2 if schedule == "dualpipev" else 1  # activations and parameters of a PP-th of the model
        for key in ("peak_activation_in_mb", "peak_activation"):
            if key in expect:
                yield key, found.in_flight * unit == formula(str(expect[key]), **names)
        if "param_copies" in expect:
            yield "param_copies", found.copies * unit == expect["param_copies"]
        if "activation_vs_1f1b" in expect:
            plain = pipelined("1f1b", p, m)
            yield "activation_vs_1f1b", found.in_flight / plain.in_flight == Fraction(str(expect["activation_vs_1f1b"]))
            yield "pp_comm_vs_1f1b", found.sent / plain.sent == Fraction(str(expect["pp_comm_vs_1f1b"]))


def pytorch_fsdp(row: Row) -> Figures:
    """arXiv 2304.11277, section 3.2.2, of one rank a host."""
    for ranks in (2, 8, 64):
        found = zero(0, 7_500_000_000, ranks)
        sent = wire(found, found.traffic)
        yield "cross_host_per_gpu", sent == formula(row["expect"]["cross_host_per_gpu"], M=15_000_000_000, W=ranks)


HELD: dict[str, Callable[[Row], Figures]] = {
    "hf-ultrascale-playbook": ultrascale,
    "korthikanti-2022": korthikanti,
    "long-context-comm": long_context,
    "pipeline-schedules": pipeline_schedules,
    "pytorch-fsdp": pytorch_fsdp,
    "zero-2020": zero_2020,
}


@pytest.fixture
def as_in_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations with dropout and all that attention keeps without a fused kernel."""
    monkeypatch.setattr(memory_room, "CONDITIONS", ("dropout", "eager_attention"))


@pytest.mark.usefixtures("as_in_the_paper")
@pytest.mark.parametrize(("file", "row"), EQUAL, ids=[f"{file}-{row['id']}" for file, row in EQUAL])
def test_row(file: str, row: Row) -> None:
    found = list(HELD[file](row))
    assert not [key for key, same in found if not same]
    left = {key for part in _named("part", file, row) for key in part["keys"]}
    assert {key for key, _ in found} - {"first_stage_activation_bytes"} == row["expect"].keys() - left


def test_every_exception_is_of_a_row_and_has_a_reason() -> None:
    for part in ("row", "part"):
        for entry in UNEQUAL[part]:
            assert len(entry["reason"]) > 10
            rows = [row for file, row in ROWS if file == entry["file"]]
            for pattern in entry["ids"]:
                assert any(fnmatch(row["id"], pattern) for row in rows), f"{pattern} of {entry['file']} is no row"


SEQUENCE_PARALLEL = [row for file, row in ROWS if file == "korthikanti-2022" and row.get("layout", {}).get("sp")]


@pytest.mark.usefixtures("as_in_the_paper")
@pytest.mark.parametrize("row", SEQUENCE_PARALLEL, ids=[row["id"] for row in SEQUENCE_PARALLEL])
def test_stashed_inputs_are_all_that_differs_under_sequence_parallelism(row: Row) -> None:
    t, layers = row["layout"]["tp"], LAYERS[MEGATRON[row["model"]["name"]]]
    more = 4 * sbh(row) * (1 - Fraction(1, t))
    kept = row["expect"]["activation_bytes_per_layer"]
    assert layers_keep(row) / layers - more == kept
    first = row["derived"]["first_stage_activation_bytes"]
    assert layers_keep(row, pipelined=True) == first + more * Fraction(first, kept)
