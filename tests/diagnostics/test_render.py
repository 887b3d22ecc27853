"""What users see: each golden holds the source and the rendered message together."""

import re

import pytest
from inline_snapshot import snapshot

from placelang.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label
from placelang.diagnostics.render import summary, text
from placelang.source import Source


def label(source: Source, needle: str, words: str = "", nth: int = 0) -> Label:
    start = -1
    for _ in range(nth + 1):
        start = source.text.index(needle, start + 1)
    return Label(source.span(start, start + len(needle)), words)


def show(*diagnostics: Diagnostic, width: int = 100, color: bool = False) -> str:
    return text(diagnostics, width=width, color=color)


NORM = Source(
    """\
mesh (dp = 2, tp = 2)
apply megatron_sp(tp)

on norm {
  activations: shard(tp, dim = seq)
  grads: all_reduce(dp)
}
""",
    "norm.place",
)
PARTIAL = Diagnostic(
    "E201",
    "gradient of norm stays partial over `tp`",
    label(NORM, "all_reduce(dp)", "reduces `dp` only"),
    (label(NORM, "shard(tp, dim = seq)", "each tp rank sees other tokens"),),
    rule="the optimizer must see the full-batch gradient",
    counterexample="rank (dp=0, tp=0) lacks the contribution of (dp=0, tp=1)",
    fixes=(
        Fix(
            "`grads: all_reduce(dp * tp)`",
            (Edit(label(NORM, "dp", nth=1).span, "dp * tp"),),
            "adds 2 norm-sized all-reduces per layer",
            checked=True,
        ),
    ),
)
ROUNDS = Diagnostic(
    "E410",
    "`interleaved_1f1b` over 6 stages needs a multiple of 6 microbatches, got 3",
    cause="microbatches = global_batch / (micro_batch * dp) = 24 / (1 * 8)",
    fixes=(Fix("`global_batch = 48`", cost="6 microbatches"),),
    help="`schedule: 1f1b` accepts 3, with a bubble of 5/8",
)


def test_the_example_of_the_language_reference() -> None:
    assert show(PARTIAL, ROUNDS) == snapshot("""\
error[E201] grads-left-partial: gradient of norm stays partial over `tp`
  --> norm.place:6:10
  5 |   activations: shard(tp, dim = seq)
    |                -------------------- each tp rank sees other tokens
  6 |   grads: all_reduce(dp)
    |          ^^^^^^^^^^^^^^ reduces `dp` only
  = rule: the optimizer must see the full-batch gradient
  = counterexample: rank (dp=0, tp=0) lacks the contribution of (dp=0, tp=1)
  = help: `grads: all_reduce(dp * tp)` (adds 2 norm-sized all-reduces per layer)

error[E410] microbatches-not-whole-rounds: `interleaved_1f1b` over 6 stages needs a multiple of 6 microbatches, got 3
  = cause: microbatches = global_batch / (micro_batch * dp) = 24 / (1 * 8)
  = help: `global_batch = 48` (6 microbatches); `schedule: 1f1b` accepts 3, with a bubble of 5/8
""")


def test_several_labels_on_one_line() -> None:
    source = Source("grads: all_reduce(dp) | all_reduce(dp * tp) | offload(cpu)\n", "two.place")
    d = Diagnostic(
        "E202",
        "gradients are summed twice",
        label(source, "all_reduce(dp * tp)", "sums complete gradients again"),
        (label(source, "all_reduce(dp)", "complete here"), label(source, "offload(cpu)", "goes to the host")),
    )
    assert show(d) == snapshot("""\
error[E202] grads-counted-twice: gradients are summed twice
  --> two.place:1:25
  1 | grads: all_reduce(dp) | all_reduce(dp * tp) | offload(cpu)
    |        --------------   ^^^^^^^^^^^^^^^^^^^   ------------ goes to the host
    |        |                sums complete gradients again
    |        complete here
""")


def test_a_label_inside_another() -> None:
    source = Source("params: shard(dp * dp)\n", "in.place")
    d = Diagnostic("E104", "twice", label(source, "shard(dp * dp)", "whole"), (label(source, "dp", "first use"),))
    assert show(d) == snapshot("""\
error[E104] axis-used-twice: twice
  --> in.place:1:9
  1 | params: shard(dp * dp)
    |         ^^^^^^^^^^^^^^ whole
    |               first use
""")


def test_a_span_of_several_lines() -> None:
    source = Source(
        "place 1\non norm {\n  params: replicate\n  grads: all_reduce(dp)\n}\nparams: shard(dp)\n", "on.place"
    )
    block = source.span(source.text.index("on norm"), source.text.index("}") + 1)
    d = Diagnostic("E110", "nothing here", Label(block, "this block"), (label(source, "shard(dp)", "and this"),))
    assert show(d) == snapshot("""\
error[E110] selector-matches-nothing: nothing here
  --> on.place:2:1
  2 | on norm {
    | ^^^^^^^^^
   ...
  5 | }
    | ^ this block
  6 | params: shard(dp)
    |         --------- and this
""")


def test_a_span_of_two_lines_and_the_line_between_two_marks() -> None:
    source = Source("params: shard(dp) |\n  gather(dp)\ngrads: reduce_scatter\noptimizer: replicate", "two.place")
    journey = source.span(source.text.index("shard"), source.text.index("\ngrads"))
    d = Diagnostic("E206", "layouts differ", label(source, "replicate", "full"), (Label(journey, "cut"),))
    assert show(d) == snapshot("""\
error[E206] update-layout-mismatch: layouts differ
  --> two.place:4:12
  1 | params: shard(dp) |
    |         -----------
  2 |   gather(dp)
    |   ---------- cut
  3 | grads: reduce_scatter
  4 | optimizer: replicate
    |            ^^^^^^^^^ full
""")


def test_a_gap_and_wide_gutter() -> None:
    source = Source("let a = 1\n" + "# more\n" * 10 + "let a = 2\n", "gap.place")
    d = Diagnostic(
        "E103", "`a` is declared twice", label(source, "a = 2", "second"), (label(source, "a = 1", "first"),)
    )
    assert show(d) == snapshot("""\
error[E103] declared-twice: `a` is declared twice
  --> gap.place:12:5
   1 | let a = 1
     |     ----- first
    ...
  12 | let a = 2
     |     ^^^^^ second
""")


def test_two_files() -> None:
    file, std = Source("apply mine(dp)\n", "run.place"), Source("strategy mine(a) {\n}\n", "std/mine.place")
    d = Diagnostic("E107", "`mine` needs `b`", label(file, "mine(dp)"), (label(std, "mine(a)", "declared here"),))
    assert show(d) == snapshot("""\
error[E107] missing-argument: `mine` needs `b`
  --> run.place:1:7
  1 | apply mine(dp)
    |       ^^^^^^^^
  --> std/mine.place:1:10
  1 | strategy mine(a) {
    |          ------- declared here
""")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "",
            snapshot("""\
error[E001] syntax-error: the text ends too early
  --> end.place:1:1
  1 |
    | ^ here
"""),
        ),
        (
            "params: shard(",
            snapshot("""\
error[E001] syntax-error: the text ends too early
  --> end.place:1:15
  1 | params: shard(
    |               ^ here
"""),
        ),
        (
            "params: shard(\n",
            snapshot("""\
error[E001] syntax-error: the text ends too early
  --> end.place:2:1
  1 | params: shard(
  2 |
    | ^ here
"""),
        ),
    ],
)
def test_the_end_of_the_text(body: str, expected: str) -> None:
    source = Source(body, "end.place")
    assert (
        show(Diagnostic("E001", "the text ends too early", Label(source.span(len(body), len(body)), "here")))
        == expected
    )


def test_tabs_wide_and_combining_characters_keep_marks_in_place() -> None:
    source = Source('\tparams["漢字.e\u0301.🙂"]:\tshard(dpp)\n', "wide.place")
    d = Diagnostic(
        "E102", "no axis", label(source, "dpp", "no axis"), (label(source, '"漢字.e\u0301.🙂"', "of these"),)
    )
    assert show(d) == snapshot("""\
error[E102] unknown-axis: no axis
  --> wide.place:1:27
  1 |     params["漢字.é.🙂"]:    shard(dpp)
    |            -----------            ^^^ no axis
    |            of these
""")


def test_nothing_unprintable_reaches_the_terminal() -> None:
    source = Source("let a = 1 \x1b[31m\u202e\x07\u00a0\ud800 x\n", "\x1b]0;title\x07.place")
    d = Diagnostic(
        "E007",
        "unexpected \x1b[2J",
        label(source, " x", "\x9b1m"),
        rule="\x00",
        help="\u2066a\tb",
        notes=("one\ntwo\rthree",),
    )
    assert show(d) == snapshot("""\
error[E007] unexpected-character: unexpected \\x1b[2J
  --> \\x1b]0;title\\x07.place:1:20
  1 | let a = 1 \\x1b[31m\\u202e\\x07\\xa0\\ud800 x
    |                                       ^^ \\x9b1m
  = rule: \\x00
  = help: \\u2066a\\tb
  = note: one
          two
          three
""")


LONG = Source("let a = 1\nparams: " + "x" * 3000 + " shard(dpp) " + "y" * 3000 + "\n", "long.place")


def test_a_long_line_is_clipped_around_the_primary_mark() -> None:
    d = Diagnostic(
        "E102",
        "no axis",
        label(LONG, "dpp", "no axis `dpp`"),
        (label(LONG, "params", "for params"), label(LONG, "yyy", "far right", nth=2000)),
    )
    assert show(d, width=60) == snapshot("""\
error[E102] unknown-axis: no axis
  --> long.place:2:3016
  2 | ...xxxxxxxxxxxxxxx shard(dpp) yyyyyyyyyyyyyyyyyyyyy...
    | -                        ^^^                       - far right
    | |                        no axis `dpp`
    | for params
""")


def test_a_mark_longer_than_the_line_shown() -> None:
    assert show(Diagnostic("E001", "too long", label(LONG, "x" * 3000, "all")), width=60) == snapshot("""\
error[E001] syntax-error: too long
  --> long.place:2:9
  2 | params: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...
    |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ all
""")


def test_long_prose_is_wrapped_but_not_inside_code() -> None:
    d = Diagnostic(
        "E401",
        "too much memory",
        rule="a rather long rule that must be wrapped somewhere near here `params: shard(dp) | gather` and goes on",
        fixes=(Fix("`params: shard(dp) | gather`", cost="adds two gathers a layer"), Fix("`tp = 8`")),
        notes=("first\nsecond",),
    )
    assert show(d, width=60) == snapshot("""\
error[E401] batch-identity: too much memory
  = rule: a rather long rule that must be wrapped somewhere
          near here `params: shard(dp) | gather` and goes on
  = help: `params: shard(dp) | gather` (adds two gathers a
          layer)
  = help: `tp = 8`
  = note: first
          second
""")


def test_colours() -> None:
    source = Source("parms: replicate\n", "c.place")
    d = Diagnostic("W401", "no effect", label(source, "parms", "here"), (label(source, "replicate", "why"),), help="h")
    colored = text([d], color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == text([d])
    assert "\x1b[1;33mwarning[W401] no-benefit\x1b[0m" in colored
    assert colored.count("\x1b[0m") * 2 == colored.count("\x1b[")


def test_summary() -> None:
    warning, note = Diagnostic("W401", ""), Diagnostic("N101", "")
    assert summary([]) == "no errors"
    assert summary([PARTIAL, ROUNDS, warning]) == "2 errors, 1 warning"
    assert summary([note, warning, PARTIAL, note]) == "1 error, 1 warning, 2 notes"
