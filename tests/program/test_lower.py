"""Lowering: goldens of whole step programs, loops that stay loops, layouts, and what is refused by name.

After a change of the lowering, `pytest tests/program --update-goldens` writes `listings/` again; read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from placelang import api
from placelang.model.model import Model
from placelang.model.values import model_of
from placelang.plan.plan import Plan
from placelang.program.event import COLLECTIVES, Op
from placelang.program.layouts import events, layouts
from placelang.program.lower import lower, single_device
from placelang.program.program import Program, flatten, sample
from tests.program.listing import count, listing, shown

LISTINGS = Path(__file__).parent / "listings"
ONE, TWO = "mesh (dp = 2)\n", "mesh (dp_replicate = 2, dp_shard = 2)\n"
Z3 = "params: shard(dp) ; grads: reduce_scatter\n"
TINY = "transformer(layers = 2, hidden = 8, heads = 2, ffn = 16, vocab = 10{more})"

CASES = {
    "ddp": ONE + "apply ddp",
    "zero1": ONE + "apply zero1",
    "zero1_3p": ONE + "apply zero1_3p",
    "zero2": ONE + "apply zero2",
    "zero3": ONE + "apply zero3",
    "hsdp": TWO + "apply hsdp",
    "zero3_both_axes": TWO + "apply zero3(dp_replicate * dp_shard)",
    "zero3_keep_microbatch": ONE + "apply zero3(dp, reshard = false)",
    "zero3_keep_step": ONE + "params: shard(dp) | gather(keep = step) ; grads: reduce_scatter",
    "zero3_reduced_once": ONE + "params: shard(dp) ; grads: reduce_scatter(dp, when = step)",
    "zero3_mean": ONE + "params: shard(dp) ; grads: reduce_scatter(dp, mean)",
    "zero3_tied": ONE + Z3,
    "ddp_tied": ONE + "apply ddp",
    "microbatches": ONE + "train (microbatches = 4)\n" + Z3,
    "precision_bf16": ONE + "train (precision = bf16)\napply zero1",
    "precision_bf16_fp32_grads": ONE + "train (precision = bf16_fp32_grads)\napply zero3",
    "precision_fsdp_mixed": ONE + "train (precision = fsdp_mixed)\napply zero3",
    "wire_bf16": ONE + "params: shard(dp) | gather as bf16 ; grads: reduce_scatter(wire = bf16)",
    "no_reduction": ONE + "params: replicate ; grads: partial(dp)",
    "sgd": ONE + "train (optimizer = sgd)\napply ddp",
}


def model(more: str = "", layers: int = 2) -> Model:
    file = api.load(f"let m = {TINY.format(more=more).replace('layers = 2', f'layers = {layers}')}").file
    found = model_of(file.statements[0].value, {}, lambda name, given: pytest.fail(name))  # type: ignore[union-attr]
    assert isinstance(found, Model)
    return found


def plan(text: str) -> Plan:
    found = api.load(text)
    assert found.plan is not None, found.diagnostics
    assert not found.gaps, found.gaps
    return found.plan


def program(text: str, more: str = "", layers: int = 2) -> Program:
    return lower(plan(text), model(more, layers))


@pytest.mark.parametrize("case", CASES)
def test_listing(case: str, update_goldens: bool) -> None:
    more = f", tied = {'true' if 'tied' in case else 'false'}"
    golden, text = LISTINGS / f"{case}.txt", listing(program(CASES[case], more))
    if update_goldens:
        LISTINGS.mkdir(exist_ok=True)
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


def test_there_is_no_golden_without_a_case() -> None:
    assert {p.stem for p in LISTINGS.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_loops_stay_loops(case: str) -> None:
    small = program(CASES[case])
    deep = program(CASES[case], layers=126)
    wide = program(CASES[case].replace("= 2)", "= 16_384)").replace("= 2,", "= 16_384,"))
    many = program(CASES[case].replace("microbatches = 4", "microbatches = 4096"))
    assert count(small.body) == count(deep.body) == count(wide.body) == count(many.body)


@pytest.mark.parametrize("case", CASES)
def test_one_device_runs_the_same_compute_and_sends_nothing(case: str) -> None:
    whole = plan(CASES[case])
    ours, alone = lower(whole, model()), lower(single_device(whole), model())
    compute = (Op.FORWARD, Op.LOSS, Op.BACKWARD, Op.WGRAD)

    def kinds(p: Program) -> list[tuple[Op, str]]:
        return [(e.op, e.site) for e, _ in events(p.body) if e.op in compute]

    assert kinds(ours) == kinds(alone)
    assert not [e for e, _ in events(alone.body) if e.axes]


@pytest.mark.parametrize("case", CASES)
def test_flattening_runs_every_trip(case: str) -> None:
    p = program(CASES[case])
    flat = list(flatten(p))
    trips = {loop: n or 1 for loop, n in p.loops.items()}
    expected = 0
    for _, loops in events(p.body):
        times = 1
        for loop in loops:
            times *= trips[loop]
        expected += times
    assert len(flat) == expected
    assert all(isinstance(i, int) for e in flat for b in (*e.ins, *e.outs) for i in b.index)
    assert len(list(flatten(p, sample(p)))) <= len(flat)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("ddp", {"w": "", "dw": "", "r0": None, "g": "", "q0": "", "o": ""}),
        ("zero1", {"w": "", "dw": "", "g": "", "q0": "dp/0", "s": "dp/0", "o": "dp/0"}),
        ("zero1_3p", {"w": "", "q0": "", "gs": "dp/0", "s": "dp/0", "o": "dp/0"}),
        ("zero2", {"w": "", "dw": "", "r0": "dp/0", "g": "dp/0", "s": "dp/0", "o": "dp/0"}),
        ("zero3", {"w": "dp/0", "view": "", "dw": "", "r0": "dp/0", "g": "dp/0", "o": "dp/0"}),
        ("hsdp", {"w": "dp_shard/0", "view": "", "r0": "dp_shard/0", "g": "dp_shard/0", "q0": "dp_shard/0"}),
        ("zero3_both_axes", {"w": "dp_replicate/0 dp_shard/0", "view": "", "g": "dp_replicate/0 dp_shard/0"}),
        ("precision_bf16", {"w": "", "master": "dp/0", "o": "dp/0"}),
    ],
)
def test_layouts(case: str, expected: dict[str, str | None]) -> None:
    found = layouts(program(CASES[case]))
    assert {kind: shown(found[kind, "layers"]) if (kind, "layers") in found else None for kind in expected} == expected


UNSUPPORTED = [
    (ONE + "params: shard(dp, dim = flat)", "shard(dp, dim = flat)"),
    (ONE + "params: shard(dp, pad = 128)", "shard(dp, pad = 128)"),
    (ONE + "params: shard(dp, min = 100)", "shard(dp, min = 100)"),
    (ONE + "params: shard(dp) | offload(cpu) | gather", "offload(cpu)"),
    (ONE + "params: shard(dp) | gather(unit = model)", "gather(unit = model)"),
    (ONE + "params: shard(dp) as bf16", "shard(dp)"),
    (ONE + "params: shard(dp) | gather(bucket = 25MB)", "gather(bucket = 25MB)"),
    (ONE + "optimizer: shard(dp) ; update: all_gather(wire = bf16)", "all_gather(wire = bf16)"),
    (ONE + Z3 + "optimizer: shard(dp) | offload(nvme)", "offload(nvme)"),
    (ONE + "params: replicate ; grads: consume", "consume"),
    (ONE + "params: replicate ; grads: all_reduce(dp) | delay(steps = 1)", "delay(steps = 1)"),
    (ONE + Z3 + "params[head]: replicate(dp)", "head"),
    (ONE + "params: replicate ; optimizer: shard(dp) ; update: broadcast(dp)", "broadcast(dp)"),
    (ONE + "train (dropout = 0.1)\n" + Z3, "train (dropout = 0.1)"),
    (ONE + "train (loss = samples)\n" + Z3, "train (loss = samples)"),
]


@pytest.mark.parametrize(("text", "place"), UNSUPPORTED)
def test_what_is_not_lowered_is_refused_where_it_stands(text: str, place: str) -> None:
    found = api.load(text)
    assert found.plan is not None, found.diagnostics
    assert {d.code for d in found.gaps} == {"E112"}
    assert place in [d.primary.span.text for d in found.gaps if d.primary]
    assert all(d.primary for d in found.gaps)
    assert not found.ok
    with pytest.raises(api.NotSound):
        _ = found.program


def test_what_is_sent_has_the_format_of_the_wire() -> None:
    text = "mesh (dp = 2)\nparams: shard(dp) | gather(wire = bf16) ; grads: reduce_scatter(wire = fp16)"
    sent = {(e.op, e.dtype) for e, _ in events(api.load(text).program.body) if e.op in COLLECTIVES}
    assert sent == {(Op.ALL_GATHER, "bf16"), (Op.REDUCE_SCATTER, "fp16")}
