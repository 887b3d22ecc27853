"""The one renderer of diagnostics: text for people, JSON and SARIF for programs, ranges for editors.

Not for: printing (the tools decide where text goes and whether it has colours) or drawing one snippet (`snippet`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Any

from placelang.diagnostics.codes import CODES, Severity
from placelang.diagnostics.diagnostic import Diagnostic, Fix, Label
from placelang.diagnostics.snippet import Mark, draw, last_line, visible
from placelang.source import Source, Span

_ANSI = {
    Severity.ERROR: "1;31",
    Severity.WARNING: "1;33",
    Severity.NOTE: "1;36",
    "gutter": "34",
    "cause": "1;34",
    "strong": "1",
}


def text(diagnostics: Iterable[Diagnostic], *, color: bool = False, width: int = 100) -> str:
    """The diagnostics as the language reference shows them, one block each, blocks apart by an empty line.

    Source lines are clipped and prose is wrapped to `width` cells. Control characters of the source, of names and of
    messages are shown as escapes; the only ones in the result are line feeds and, with `color`, ANSI colours.
    """
    return "\n".join("".join(f"{row}\n" for row in _rows(d, color, width)) for d in diagnostics)


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """One line, e.g. "2 errors, 1 warning"; "no errors" if there is nothing to count."""
    found = [d.severity for d in diagnostics]
    counts = [(found.count(severity), severity.value) for severity in Severity]
    return ", ".join(f"{n} {word}{'s' * (n > 1)}" for n, word in counts if n) or "no errors"


def _rows(d: Diagnostic, color: bool, width: int) -> list[str]:
    def paint(style: str | Severity, run: str) -> str:
        style = d.severity if style == "primary" else style
        return f"\x1b[{_ANSI[style]}m{run}\x1b[0m" if color and run else run

    head = paint(d.severity, f"{d.severity.value}[{d.code}] {d.name}")
    rows = [head + paint("strong", f": {' '.join(visible(line) for line in d.message.splitlines())}")]
    groups = _by_source(d)
    digits = max((len(str(last_line(source, marks))) for source, marks in groups), default=1)
    for source, marks in groups:
        line, column = source.line_col(marks[0].start)
        rows.append(f"{paint('gutter', '  -->')} {visible(source.name)}:{line}:{column}")
        rows += draw(source, marks, width=width, digits=digits, paint=paint)
    said = [("rule", d.rule), ("counterexample", d.counterexample), ("cause", d.cause)]
    helps = [*map(_fix_text, d.fixes), *filter(None, [d.help])]
    together = "; ".join(helps)
    said += [("help", prose) for prose in ([together] if len(together) + 10 <= width else helps)]
    said += [("note", note) for note in d.notes]
    for key, prose in said:
        if prose:
            rows += _prose(f"{paint('gutter', '  =')} {paint('strong', f'{key}:')} ", f"  = {key}: ", prose, width)
    return rows


def _by_source(d: Diagnostic) -> list[tuple[Source, list[Mark]]]:
    """The marks of each source, that of the primary label first; within a source the primary mark first."""
    labels = [(d.primary, "primary")] if d.primary else []
    labels += [(cause, "cause") for cause in d.causes]
    groups: list[tuple[Source, list[Mark]]] = []
    for label, style in labels:
        span = _inside(label.span)
        mark = Mark(span.start, span.end, label.text.strip(), style)
        marks = next((marks for source, marks in groups if source == span.source), None)
        if marks is None:
            groups.append((span.source, [mark]))
        else:
            marks.append(mark)
    return groups


def _fix_text(fix: Fix) -> str:
    return f"{fix.title} ({fix.cost})" if fix.cost else fix.title


def _prose(painted: str, plain: str, prose: str, width: int) -> list[str]:
    """`prose` after its key, wrapped; code between backticks is not broken where that can be helped."""
    hang = " " * len(plain)
    room = max(width - len(plain), 24)
    rows: list[str] = []
    for paragraph in prose.splitlines():
        # A no-break space in place of each blank inside backticks keeps the wrapper from breaking there.
        kept = re.sub(r"`[^`]*`", lambda m: m.group().replace(" ", "\x00"), visible(paragraph))
        lines = textwrap.wrap(kept, room, break_long_words=False, break_on_hyphens=False) or [""]
        rows += [line.replace("\x00", " ") for line in lines]
    first, *rest = rows or [""]
    return [painted + first, *(f"{hang}{row}".rstrip() for row in rest)]


# For programs


def json_value(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """The diagnostics as JSON-ready values, with every key always present.

    Each is `{code, name, severity, verdict, message, span, label, causes, rule, counterexample, cause, fixes, help,
    notes}`. `span` is null or `{file, line, column, end_line, end_column, start, end}`: lines and columns from 1,
    `start` and `end` from 0, all in characters (code points), ends exclusive. `causes` holds `{label, span}`; `fixes`
    holds `{title, cost, checked, edits}` and `edits` `{span, text}`. What is not said is "" or an empty list.
    """
    return [
        {
            "code": d.code,
            "name": d.name,
            "severity": d.severity.value,
            "verdict": d.verdict.value,
            "message": d.message,
            "span": _json_span(d.primary.span) if d.primary else None,
            "label": d.primary.text if d.primary else "",
            "causes": [{"label": cause.text, "span": _json_span(cause.span)} for cause in d.causes],
            "rule": d.rule,
            "counterexample": d.counterexample,
            "cause": d.cause,
            "fixes": [
                {
                    "title": fix.title,
                    "cost": fix.cost,
                    "checked": fix.checked,
                    "edits": [{"span": _json_span(edit.span), "text": edit.text} for edit in fix.edits],
                }
                for fix in d.fixes
            ],
            "help": d.help,
            "notes": list(d.notes),
        }
        for d in diagnostics
    ]


def sarif(diagnostics: Iterable[Diagnostic], *, version: str = "") -> dict[str, Any]:
    """The diagnostics as one SARIF 2.1.0 log (OASIS, 2020) with one run; `version` is that of the tool."""
    found = list(diagnostics)
    rules = sorted({d.code for d in found})
    driver: dict[str, Any] = {"name": "placelang", "rules": [_sarif_rule(code) for code in rules]}
    if version:
        driver["version"] = version
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(d, rules.index(d.code)) for d in found],
            }
        ],
    }


def lsp_range(span: Span) -> dict[str, dict[str, int]]:
    """The `Range` of the Language Server Protocol: lines from 0, characters from 0 in UTF-16 code units."""

    def position(offset: int) -> dict[str, int]:
        line, column = span.source.line_col(offset)
        before = span.source.text[offset - column + 1 : offset]
        return {"line": line - 1, "character": len(before.encode("utf-16-le", "surrogatepass")) // 2}

    span = _inside(span)
    return {"start": position(span.start), "end": position(span.end)}


def _inside(span: Span) -> Span:
    """`span` cut to its source."""
    start = min(max(span.start, 0), len(span.source.text))
    return Span(span.source, start, min(max(span.end, start), len(span.source.text)))


def _json_span(span: Span) -> dict[str, Any]:
    span = _inside(span)
    line, column = span.source.line_col(span.start)
    end_line, end_column = span.source.line_col(span.end)
    return {
        "file": span.source.name,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
        "start": span.start,
        "end": span.end,
    }


def _sarif_rule(code: str) -> dict[str, Any]:
    kind = CODES[code]
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in kind.name.split("-")),
        "shortDescription": {"text": kind.title},
        "defaultConfiguration": {"level": kind.severity.value},
        "properties": {"group": kind.group, "verdict": kind.verdict.value},
    }


def _sarif_result(d: Diagnostic, rule: int) -> dict[str, Any]:
    said = [d.message, d.counterexample, d.cause, *(_fix_text(fix) for fix in d.fixes), d.help, *d.notes]
    result: dict[str, Any] = {
        "ruleId": d.code,
        "ruleIndex": rule,
        "level": d.severity.value,
        "message": {"text": "\n".join(part for part in said if part)},
        "properties": {"verdict": d.verdict.value, "rule": d.rule},
    }
    if d.primary:
        result["locations"] = [_sarif_location(d.primary)]
    if d.causes:
        result["relatedLocations"] = [{"id": i, **_sarif_location(cause)} for i, cause in enumerate(d.causes)]
    fixes = [_sarif_fix(fix) for fix in d.fixes if fix.edits]
    if fixes:
        result["fixes"] = fixes
    return result


def _sarif_location(label: Label) -> dict[str, Any]:
    place: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(label.span.source.name)},
            "region": _sarif_region(label.span),
        }
    }
    if label.text:
        place["message"] = {"text": label.text}
    return place


def _sarif_region(span: Span) -> dict[str, int]:
    where = _json_span(span)
    return {
        "startLine": where["line"],
        "startColumn": where["column"],
        "endLine": where["end_line"],
        "endColumn": where["end_column"],
        "charOffset": where["start"],
        "charLength": where["end"] - where["start"],
    }


def _sarif_fix(fix: Fix) -> dict[str, Any]:
    names = list(dict.fromkeys(edit.span.source.name for edit in fix.edits))
    return {
        "description": {"text": _fix_text(fix)},
        "artifactChanges": [
            {
                "artifactLocation": {"uri": _uri(name)},
                "replacements": [
                    {"deletedRegion": _sarif_region(edit.span), "insertedContent": {"text": edit.text}}
                    for edit in fix.edits
                    if edit.span.source.name == name
                ],
            }
            for name in names
        ],
    }


def _uri(name: str) -> str:
    """A file's name as a URI reference: relative as it is, absolute with the scheme `file`."""
    from urllib.parse import quote  # costs start-up time

    path = name.replace("\\", "/")
    escaped = quote(path, errors="surrogatepass")
    if re.match(r"[A-Za-z]:/", path):
        return f"file:///{path[0]}:{escaped[4:]}"
    return f"file://{escaped}" if path.startswith("/") else escaped
