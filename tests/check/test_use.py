"""What a strategy of another file says is told by the line of the text that applied it, and is mended there."""

from __future__ import annotations

from pathlib import Path

import pytest

import placelang
from placelang.api import load_source
from placelang.diagnostics import render
from placelang.diagnostics.codes import Verdict
from placelang.source import Source
from tests.check.test_messages import edited

UNSOUND = {
    "mesh (dp = 2, cp = 2)\napply ddp(dp) * all_gather_cp(cp)\n": "ddp(dp)",
    "mesh (dp = 2, cp = 2)\nstrategy mine = ddp(dp) *\n  ring(cp)\napply mine\n": "ddp(dp)",
    "mesh (dp = 2)\napply zero1(dp) with { override update: replicate }\n": None,
    "mesh (dp = 2, tp = 2)\nmodel qwen3_8b\napply zero3(dp) * tensor_parallel(tp)\n": "zero3(dp)",
    "mesh (pods = 2, dp = 2)\naxis all = pods * dp\napply zero3(dp)\nactivations: shard(dp, dim = batch)\n": None,
}
"""A text -> the factor that is to blame; None: a line of the text's own, or nothing."""


@pytest.mark.parametrize("text", UNSOUND)
def test_every_message_points_into_the_text_first(text: str) -> None:
    found = load_source(Source(text, "mine.place")).diagnostics
    assert found
    for d in found:
        if d.primary is not None:
            assert d.primary.span.source.name == "mine.place", render.text([d])
    blamed = UNSOUND[text]
    if blamed is not None:
        (d,) = found
        assert d.primary is not None and d.primary.span.text == blamed
        assert [c.span.source.name for c in d.causes if c.text == "which says this"] == ["std/data_parallel.place"]


@pytest.mark.parametrize("text", [t for t, blamed in UNSOUND.items() if blamed == "ddp(dp)"])
def test_a_fix_is_a_line_of_the_text_and_holds(text: str) -> None:
    source = Source(text, "mine.place")
    (d,) = load_source(source).diagnostics
    assert d.fixes
    for fix in d.fixes:
        assert {edit.span.source.name for edit in fix.edits} == {"mine.place"}
        mended = edited(fix, source)
        assert mended.endswith(f"\n{fix.title.strip('`')}\n")
        assert load_source(Source(mended, "mine.place")).verdict is Verdict.SOUND, mended


def test_programs_read_the_place_of_the_text_too() -> None:
    d = load_source(Source(next(iter(UNSOUND)), "mine.place")).diagnostics
    (value,) = render.json_value(d)
    assert (value["span"]["file"], value["span"]["line"]) == ("mine.place", 2)
    (result,) = render.sarif(d)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "mine.place"
    assert result["fixes"][0]["artifactChanges"][0]["artifactLocation"]["uri"] == "mine.place"


def test_what_is_wrong_in_a_file_of_ones_own_is_shown_there(tmp_path: Path) -> None:
    house = tmp_path / "house.place"
    text = "strategy ours(d: axis = dp) { params: shard(d) | gather(d, keep = nonsense) }\n"
    house.write_text(text, encoding="utf-8")
    main = tmp_path / "main.place"
    main.write_text('use "./house.place" (ours)\nmesh (dp = 2)\napply ours(dp)\n', encoding="utf-8")
    (d,) = placelang.load(main).diagnostics
    assert d.primary is not None and d.primary.span.text == "nonsense"
    assert [(c.span.text, c.text) for c in d.causes] == [("ours(dp)", "used here")]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("model llama3_8b\nmesh (dp = 2, tp = 16)\napply zero1(dp) * megatron_sp(tp)\n", "E423"),
        (
            "model llama3_8b\nmesh (dp = 2, tp = 16)\ngrads: all_reduce(dp)\nparams[attn.qkv]: colwise(tp)\n"
            "params[attn.out]: rowwise(tp)\nactivations[attn.out]: partial(tp) | all_reduce(tp)\n",
            "E423",
        ),
        (
            "model llama3_8b\nmesh (dp = 2, pp = 4)\ntrain (microbatches = 6)\n"
            "apply zero1(dp) * pipelined(pp, schedule = zb_h2)\n",
            "E411",
        ),
    ],
)
def test_what_help_says_can_be_written_as_it_stands(text: str, code: str) -> None:
    (d,) = load_source(Source(text, "mine.place")).diagnostics
    assert d.code == code
    lines = [part for part in d.help.split("`")[1::2] if not part.startswith("microbatches")]
    assert load_source(Source(text + "\n".join(lines), "mine.place")).verdict is Verdict.SOUND, lines
