"""Journeys as text: typing what `journey_text` writes gives the same steps back, whatever the steps."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.plan.dtypes import BYTES
from placelang.plan.journeys import type_journey
from placelang.plan.merge import one_format
from placelang.plan.mesh import Axis, Role
from placelang.plan.options import DIMS
from placelang.plan.scope import Scope
from placelang.plan.steps import FORMS, Balanced, Every, Formats, Journey, Keep, Shard, SmallerShard, Step, When
from placelang.plan.text import bytes_word, journey_text, value_text
from placelang.plan.words import FLAGS, TAKES, WORDS, Word
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.parser import parse

AXES = ("a", "b", "c")
SCOPE = Scope({}, axes={n: Axis(n, Role.DATA, 4) for n in AXES}, declared_mesh=True)

counts = st.integers(1, 10_000)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(0, 10_000),
    "count": counts,
    "bytes": st.one_of(counts, counts.map(lambda n: n * 2**20), counts.map(lambda n: n * 10**6)),
    "bool": st.booleans(),
    "text": st.from_regex(r"[a-z/._ -]+", fullmatch=True),
    "share": st.integers(0, 100).map(lambda n: Fraction(n, 100)),
    "dtype": st.sampled_from(list(BYTES)),
    "dim": st.one_of(st.integers(0, 15).map(str), st.sampled_from(DIMS)),
    "pad": st.one_of(st.just("even"), counts.map(str)),
    "keep": st.one_of(
        st.sampled_from(Keep),
        st.sampled_from([("a",), ("a", "b")]).map(SmallerShard),
        counts.map(lambda n: SmallerShard(ranks=n)),
    ),
    "when": st.one_of(st.sampled_from(When), counts.map(Every)),
    "split": st.one_of(
        st.lists(st.integers(0, 99), min_size=1, max_size=4).map(tuple),
        st.builds(Balanced, st.integers(0, 3), st.integers(0, 3)),
    ),
    "names": st.lists(st.sampled_from(["matmul", "sdpa", "norm"]), unique=True).map(tuple),
}


@st.composite
def steps(draw: st.DrawFn, head: str, word: Word, axes: tuple[str, ...]) -> Step:
    """A step of a word over some of the axes, with random options."""
    fields: dict[str, Any] = {}
    for option in word.options:
        if option.name == "reshard_after_forward" or draw(st.booleans()):
            continue
        kind = st.sampled_from(option.words) if option.kind == "word" else VALUES[option.kind]
        value = draw(kind)
        fields |= {"mean": value == "mean"} if option.name == "op" else {option.name: value}
    for flag in word.flags:
        if flag != "op":
            fields[flag] = draw(st.sampled_from(FLAGS[flag].words))
    if word.name in ("all_reduce", "reduce_scatter"):
        fields.setdefault("when", When.MICROBATCH if word.name == "reduce_scatter" else When.STEP)
    fields |= dict(word.fixed)
    dtype = None if head == "optimizer" else draw(st.one_of(st.none(), st.sampled_from(list(BYTES))))
    return word.step(axes=() if word.axes == "none" else axes, dtype=dtype, **fields)


@st.composite
def journeys(draw: st.DrawFn) -> tuple[str, Journey]:
    head = draw(st.sampled_from(list(TAKES)))
    words = draw(st.lists(st.sampled_from(TAKES[head]).map(WORDS.__getitem__), min_size=1, max_size=4))
    forms = [w for w in words if issubclass(w.step, FORMS)][: len(AXES)]
    found: list[Step] = []
    for word, axis in zip(forms, draw(st.permutations(AXES)), strict=False):
        found.append(draw(steps(head, word, (axis,))))
    if head == "optimizer" and draw(st.booleans()):
        found.append(
            Formats(master=draw(st.sampled_from([*BYTES, "none"])), moments=draw(st.sampled_from(list(BYTES))))
        )
    for word in dict.fromkeys(words):  # a step that stands twice is refused
        if not issubclass(word.step, FORMS):
            some = draw(st.sampled_from([("a",), ("a", "b"), ("c", "a"), *([()] if word.axes != "required" else [])]))
            found.append(draw(steps(head, word, some)))
    return head, tuple(one_format(found))


def typed(head: str, text: str) -> Journey:
    file, problems = parse(Source(f"{head}: {text}"))
    assert not problems, (text, problems)
    (placement,) = file.statements
    assert isinstance(placement, ast.Placement)
    return type_journey(head, placement.journey, SCOPE)


@given(journeys(), st.booleans())
def test_what_is_written_is_read_back(found: tuple[str, Journey], full: bool) -> None:
    head, journey = found
    if journey:
        assert typed(head, journey_text(journey, full)) == journey


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (25 * 10**6, "25MB"),
        (25 * 2**20, "25MiB"),
        (80 * 2**30, "80GiB"),
        (1000, "1KB"),
        (1024, "1KiB"),
        (7, "7B"),
    ],
)
def test_sizes_take_the_largest_unit_that_divides_them(value: int, text: str) -> None:
    assert bytes_word(value) == text


def test_values() -> None:
    assert value_text(Balanced(1, 0)) == "balanced(first_less = 1)"
    assert value_text(Every(100)) == "every(100)"
    assert value_text((10, 10, 8)) == "[10, 10, 8]"
    assert value_text(Fraction(9, 10)) == "0.9"
    assert value_text(SmallerShard(("a", "b"))) == "shard(a * b)"


def test_the_usual_is_left_out_and_in_full_is_said() -> None:
    step = (Shard(axes=("a",)),)
    assert journey_text(step, full=False) == "shard(a)"
    assert journey_text(step) == "shard(a, dim = 0, pad = even)"
