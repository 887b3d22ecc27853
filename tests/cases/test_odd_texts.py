"""Texts that no person writes are answered too: no exception, no hang, and a message that can be printed."""

from __future__ import annotations

import json

import pytest

from placelang import api
from placelang.diagnostics import render
from placelang.source import Source
from placelang.syntax import reader
from placelang.syntax.formatter import format_file
from placelang.syntax.parser import parse

GOOD = "mesh (dp = 2)\nparams: shard(dp)\ngrads: reduce_scatter\n"
MB = 1_000_000

ODD = {
    "windows": GOOD.replace("\n", "\r\n"),
    "old_mac": GOOD.replace("\n", "\r"),
    "mark": f"\ufeff{GOOD}",
    "mark_inside": GOOD.replace("params", "\ufeffparams"),
    "tabs": GOOD.replace(" ", "\t"),
    "form_feeds": GOOD.replace("\n", "\n\f"),
    "vertical_tabs": GOOD.replace(" ", "\v"),
    "nul": GOOD.replace("dp", "d\0p"),
    "surrogate": GOOD.replace("dp", "d\ud800p"),
    "surrogate_in_text": 'use "\udfff.place"\n',
    "separators": GOOD.replace("\n", "\u2028"),
    "turned_around": f"# \u202e\n{GOOD}",
    "one_long_comment": "#" * MB,
    "one_long_name": f"params: {'a' * MB}",
    "one_long_number": f"let x = {'9' * MB}",
    "one_long_text": f'use "{"a" * MB}"',
    "one_long_path": f'model "./{"a" * MB}.json"',
    "one_long_factory": f'model "{"a" * MB}:{"b" * MB}"',
    "unclosed_text": f'use "{"a" * MB}',
    "spaces": " " * MB,
    "newlines": "\n" * MB,
    "many_errors": "params = shard(\n" * 5_000,
    "many_statements_in_a_line": "grads: x; " * 5_000,
    "many_mistakes_in_a_statement": f"params: shard({'= 3, ' * 5_000})",
    "many_steps_with_mistakes": f"params: {'gather(= 3) | ' * 5_000}offload(cpu)",
    "many_bars": f"params: {'|' * 50_000}",
    "openers": "(" * 100_000,
    "closers": ")" * 100_000,
    "nested": f"let x = {'(' * 5_000}1{')' * 5_000}",
    "nested_calls": f"params: {'f(' * 5_000}1{')' * 5_000}",
    "nested_blocks": "strategy a { on b { " * 5_000,
    "nested_mistakes": f"params: {'f(= 3, ' * 90}{')' * 90}",
    "mixed_brackets": "([{" * 5_000 + ")]}" * 5_000,
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_text_is_answered(name: str) -> None:
    source = reader.from_text(ODD[name], "odd.place")
    if not isinstance(source, Source):
        assert render.text([source])
        return
    found = api.load_source(source)
    assert found.plan is not None or found.diagnostics
    assert render.text(found.diagnostics).encode("utf-8", "surrogateescape") is not None
    json.dumps(render.json_value(found.diagnostics))
    json.dumps(render.sarif(found.diagnostics, version="0"))
    format_file(parse(source)[0])


@pytest.mark.parametrize("name", ["windows", "mark", "tabs"])
def test_what_editors_write_changes_nothing(name: str) -> None:
    found = api.load(ODD[name])
    assert found.ok
    assert found.plan == api.load(GOOD).plan
