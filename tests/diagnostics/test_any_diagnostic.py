"""Every text, span and message can be shown: nothing raises, nothing unprintable passes, every form is well formed."""

import json
import re
import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from placelang.diagnostics.codes import CODES
from placelang.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label
from placelang.diagnostics.render import json_value, lsp_range, sarif, text
from placelang.source import Source, Span

KEYS = {
    "code", "name", "severity", "verdict", "message", "span", "label", "causes", "rule", "counterexample", "cause",
    "fixes", "help", "notes",
}  # fmt: skip

PIECES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["\n", "\t", "漢", "e\u0301", "🙂", "\x1b[31m", "\u202e", " " * 90, "x" * 300, "params: shard(dp)"]
    ),
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


@st.composite
def diagnostics(draw: st.DrawFn) -> Diagnostic:
    sources = [Source(draw(TEXTS), draw(st.text(max_size=8))) for _ in range(draw(st.integers(1, 2)))]

    def some_label() -> Label:
        source = draw(st.sampled_from(sources))
        start = draw(st.integers(0, len(source.text) + 2))
        return Label(Span(source, start, start + draw(st.integers(0, 400))), draw(st.text(max_size=10)))

    return Diagnostic(
        draw(st.sampled_from(sorted(CODES))),
        draw(TEXTS),
        some_label() if draw(st.booleans()) else None,
        tuple(some_label() for _ in range(draw(st.integers(0, 3)))),
        cause=draw(TEXTS),
        fixes=tuple(
            Fix(
                draw(st.text(max_size=9)),
                (Edit(some_label().span, draw(st.text(max_size=9))),),
                draw(st.text(max_size=9)),
            )
            for _ in range(draw(st.integers(0, 2)))
        ),
        notes=tuple(draw(st.lists(TEXTS, max_size=2))),
    )


@given(diagnostics(), st.integers(0, 120), st.booleans())
def test_any_diagnostic_is_drawn_without_control_characters(d: Diagnostic, width: int, color: bool) -> None:
    shown = text([d], width=width, color=color)
    assert shown.endswith("\n")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown) if color else shown
    assert all(c == "\n" or c.isprintable() for c in plain)
    assert plain == text([d], width=width)


@given(diagnostics(), st.integers(60, 120))
def test_source_lines_keep_within_the_width(d: Diagnostic, width: int) -> None:
    for row in text([d], width=width).splitlines():
        if re.match(r" +\d+ \|", row):
            assert sum(map(terminal_cells, row)) <= width


@given(st.lists(diagnostics(), max_size=3))
def test_any_diagnostic_has_a_json_form(found: list[Diagnostic]) -> None:
    value = json_value(found)
    assert json.loads(json.dumps(value)) == value
    assert all(set(item) == KEYS for item in value)


@given(st.lists(diagnostics(), max_size=3))
def test_any_diagnostic_has_a_valid_sarif_form(found: list[Diagnostic]) -> None:
    check_sarif(json.loads(json.dumps(sarif(found))))


@given(TEXTS, st.data())
def test_lsp_ranges_are_ordered_and_inside(body: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, len(body)))
    found = lsp_range(Source(body).span(start, end))
    first, last = ((found[k]["line"], found[k]["character"]) for k in ("start", "end"))
    assert (0, 0) <= first <= last
    assert last[0] <= body.count("\n")


def terminal_cells(c: str) -> int:
    if unicodedata.category(c) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def check_sarif(log: Any) -> None:
    """What SARIF 2.1.0 (sections 3.13 to 3.57) demands of the parts that are used here."""
    assert log["version"] == "2.1.0" and set(log) == {"$schema", "version", "runs"}
    (run,) = log["runs"]
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] and len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["shortDescription"]["text"] and rule["defaultConfiguration"]["level"] in (
            "error",
            "warning",
            "note",
        )
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert isinstance(result["message"]["text"], str)
        places = [*result.get("locations", []), *result.get("relatedLocations", [])]
        for place in places:
            check_place(place["physicalLocation"]["artifactLocation"], place["physicalLocation"]["region"])
        for fix in result.get("fixes", []):
            assert fix["artifactChanges"]
            for change in fix["artifactChanges"]:
                assert change["replacements"]
                for replacement in change["replacements"]:
                    check_place(change["artifactLocation"], replacement["deletedRegion"])


def check_place(artifact: Any, region: Any) -> None:
    assert re.fullmatch(r"[A-Za-z0-9%._~/:\-]*", artifact["uri"])
    assert (1, 1) <= (region["startLine"], region["startColumn"]) <= (region["endLine"], region["endColumn"])
    assert region["charOffset"] >= 0 and region["charLength"] >= 0
