"""The grammar has no conflicts, its table is fresh, and the language reference's examples follow it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.lark import from_lark

from placelang.syntax import reader, table
from placelang.syntax.outline import KEYWORDS
from placelang.syntax.parser import parse
from tests.syntax import trees
from tests.syntax.test_roundtrip import check_any, parsed

_TERMINALS = {
    "NAME": st.sampled_from([" params ", " dp ", " attn.q "]),
    "DIGITS": st.sampled_from([" 1 ", " 1f1b ", " 80GiB/s ", " 0.5 "]),
    "STRING": st.sampled_from(['"a"', '"layers.*"']),
    "_SEP": st.sampled_from(["\n", ";", " # c\n", "\n\n"]),
    "_GAP": st.sampled_from([" ", "\t"]),
    **{name: st.just(f" {name.strip('_').lower()} ") for name in ("_AS", "_WITH", "_OVER", "AND", "OR", "NOT")},
}


def test_no_conflict_and_no_terminal_that_hides_another() -> None:
    pytest.importorskip("interegular")
    table.build(strict=True)


def test_the_table_is_that_of_the_grammar() -> None:
    fresh = "run `python -m placelang.syntax.table` after a change of the grammar"
    assert table.table_file().read_text(encoding="utf-8") == table.render(), fresh


@pytest.mark.parametrize("damage", ["missing", "empty", "stale", "list", "truncated"])
def test_without_a_good_table_the_grammar_is_built(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = json.loads(table.table_file().read_text(encoding="utf-8"))
    file = tmp_path / "place.table.json"
    texts = {
        "empty": "",
        "stale": json.dumps({**good, "key": ["0", "0"]}),
        "list": "[]",
        "truncated": json.dumps({"key": good["key"], "data": {}, "memo": {}}),
    }
    if damage in texts:
        file.write_text(texts[damage], encoding="utf-8")
    monkeypatch.setattr(table, "table_file", lambda: file)
    assert table.lalr.__wrapped__().parse("params: shard(dp)").data == "file"


def test_keywords_of_the_grammar_and_of_its_errors_are_the_same() -> None:
    terminals = {t.pattern.value for t in table.lalr().terminals if t.pattern.type == "str"}
    assert {word for word in terminals if word.isalpha()} == KEYWORDS


@pytest.mark.parametrize("path", trees.BLOCKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_example_parses(path: Path, newline: str) -> None:
    text = path.read_bytes().replace(b"\n", newline.encode())
    source = reader.from_bytes(text, path.name)
    assert isinstance(source, reader.Source)
    assert parse(source) == (parsed(path.read_text()), ())


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(from_lark(table.build(), start="file", explicit=_TERMINALS))
def test_texts_of_the_grammar(text: str) -> None:
    check_any(text)
