"""The forms for programs: JSON, SARIF, and the ranges of the Language Server Protocol."""

import pytest
from inline_snapshot import snapshot

from placelang.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label
from placelang.diagnostics.render import json_value, lsp_range, sarif
from placelang.source import Source

SOURCE = Source("mesh (dp = 2, tp = 2)\ngrads: all_reduce(dp)\n", "norm.place")
PARTIAL = Diagnostic(
    "E201",
    "gradient of norm stays partial over `tp`",
    Label(SOURCE.span(29, 43), "reduces `dp` only"),
    (Label(SOURCE.span(14, 20), "two tensor ranks"),),
    rule="the optimizer must see the full-batch gradient",
    counterexample="rank (dp=0, tp=0) lacks the contribution of (dp=0, tp=1)",
    fixes=(Fix("`all_reduce(dp * tp)`", (Edit(SOURCE.span(40, 42), "dp * tp"),), "adds 2 all-reduces", checked=True),),
)
ROUNDS = Diagnostic("E410", "needs a multiple of 6 microbatches, got 3", cause="24 / (1 * 8)", help="`schedule: 1f1b`")


def test_json() -> None:
    assert json_value([PARTIAL, ROUNDS]) == snapshot(
        [
            {
                "code": "E201",
                "name": "grads-left-partial",
                "severity": "error",
                "verdict": "unsound",
                "message": "gradient of norm stays partial over `tp`",
                "span": {
                    "file": "norm.place",
                    "line": 2,
                    "column": 8,
                    "end_line": 2,
                    "end_column": 22,
                    "start": 29,
                    "end": 43,
                },
                "label": "reduces `dp` only",
                "causes": [
                    {
                        "label": "two tensor ranks",
                        "span": {
                            "file": "norm.place",
                            "line": 1,
                            "column": 15,
                            "end_line": 1,
                            "end_column": 21,
                            "start": 14,
                            "end": 20,
                        },
                    }
                ],
                "rule": "the optimizer must see the full-batch gradient",
                "counterexample": "rank (dp=0, tp=0) lacks the contribution of (dp=0, tp=1)",
                "cause": "",
                "fixes": [
                    {
                        "title": "`all_reduce(dp * tp)`",
                        "cost": "adds 2 all-reduces",
                        "checked": True,
                        "edits": [
                            {
                                "span": {
                                    "file": "norm.place",
                                    "line": 2,
                                    "column": 19,
                                    "end_line": 2,
                                    "end_column": 21,
                                    "start": 40,
                                    "end": 42,
                                },
                                "text": "dp * tp",
                            }
                        ],
                    }
                ],
                "help": "",
                "notes": [],
            },
            {
                "code": "E410",
                "name": "microbatches-not-whole-rounds",
                "severity": "error",
                "verdict": "invalid",
                "message": "needs a multiple of 6 microbatches, got 3",
                "span": None,
                "label": "",
                "causes": [],
                "rule": "",
                "counterexample": "",
                "cause": "24 / (1 * 8)",
                "fixes": [],
                "help": "`schedule: 1f1b`",
                "notes": [],
            },
        ]
    )


def test_sarif() -> None:
    assert sarif([PARTIAL], version="1.0") == snapshot(
        {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [
                {
                    "tool": {
                        "driver": {
                            "name": "placelang",
                            "rules": [
                                {
                                    "id": "E201",
                                    "name": "GradsLeftPartial",
                                    "shortDescription": {
                                        "text": "the optimizer reads a gradient that lacks contributions"
                                    },
                                    "defaultConfiguration": {"level": "error"},
                                    "properties": {"group": "gradient integrity", "verdict": "unsound"},
                                }
                            ],
                            "version": "1.0",
                        }
                    },
                    "columnKind": "unicodeCodePoints",
                    "results": [
                        {
                            "ruleId": "E201",
                            "ruleIndex": 0,
                            "level": "error",
                            "message": {
                                "text": """\
gradient of norm stays partial over `tp`
rank (dp=0, tp=0) lacks the contribution of (dp=0, tp=1)
`all_reduce(dp * tp)` (adds 2 all-reduces)\
"""
                            },
                            "properties": {
                                "verdict": "unsound",
                                "rule": "the optimizer must see the full-batch gradient",
                            },
                            "locations": [
                                {
                                    "physicalLocation": {
                                        "artifactLocation": {"uri": "norm.place"},
                                        "region": {
                                            "startLine": 2,
                                            "startColumn": 8,
                                            "endLine": 2,
                                            "endColumn": 22,
                                            "charOffset": 29,
                                            "charLength": 14,
                                        },
                                    },
                                    "message": {"text": "reduces `dp` only"},
                                }
                            ],
                            "relatedLocations": [
                                {
                                    "id": 0,
                                    "physicalLocation": {
                                        "artifactLocation": {"uri": "norm.place"},
                                        "region": {
                                            "startLine": 1,
                                            "startColumn": 15,
                                            "endLine": 1,
                                            "endColumn": 21,
                                            "charOffset": 14,
                                            "charLength": 6,
                                        },
                                    },
                                    "message": {"text": "two tensor ranks"},
                                }
                            ],
                            "fixes": [
                                {
                                    "description": {"text": "`all_reduce(dp * tp)` (adds 2 all-reduces)"},
                                    "artifactChanges": [
                                        {
                                            "artifactLocation": {"uri": "norm.place"},
                                            "replacements": [
                                                {
                                                    "deletedRegion": {
                                                        "startLine": 2,
                                                        "startColumn": 19,
                                                        "endLine": 2,
                                                        "endColumn": 21,
                                                        "charOffset": 40,
                                                        "charLength": 2,
                                                    },
                                                    "insertedContent": {"text": "dp * tp"},
                                                }
                                            ],
                                        }
                                    ],
                                }
                            ],
                        }
                    ],
                }
            ],
        }
    )


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("a b/ü.place", "a%20b/%C3%BC.place"),
        ("/home/x/a.place", "file:///home/x/a.place"),
        ("C:\\x\\a.place", "file:///C:/x/a.place"),
        ("<text>", "%3Ctext%3E"),
    ],
)
def test_sarif_names_are_uris(name: str, uri: str) -> None:
    source = Source("x", name)
    location = sarif([Diagnostic("E101", "m", Label(source.span(0, 1)))])["runs"][0]["results"][0]["locations"][0]
    assert location["physicalLocation"]["artifactLocation"] == {"uri": uri}


def test_lsp_counts_utf16_units() -> None:
    source = Source("a\n🙂b\n")
    assert lsp_range(source.span(3, 4)) == {"start": {"line": 1, "character": 2}, "end": {"line": 1, "character": 3}}
    assert lsp_range(source.span(0, 99))["end"] == {"line": 2, "character": 0}
