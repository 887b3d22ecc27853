"""Rules for slips within expressions: marks of other languages, commas, steps, units.

Each rule looks at a refused statement and says what is wrong, or None. `complaints` orders them.
Not for: how a statement begins (`heads`).
"""

from __future__ import annotations

import unicodedata

from placelang.diagnostics.diagnostic import Diagnostic, Edit, Fix
from placelang.syntax.refusal import WORDS, Refusal, shown, touching
from placelang.syntax.scan import Token
from placelang.syntax.words import UNITS

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_OPERATORS = ("*", "/", "%", "+", "-", *_COMPARISONS, "and", "or", "not")
_INSTEAD = {
    "&": ("`&` is not used: conditions are joined by `and`", "and"),
    "→": ("`→` is not used: steps are joined by `|`", "|"),
    "×": ("`×` is not used: write `*`", "*"),
    "·": ("`·` is not used: write `*`", "*"),
    "≤": ("`≤` is not used: write `<=`", "<="),
    "≥": ("`≥` is not used: write `>=`", ">="),
    "≠": ("`≠` is not used: write `!=`", "!="),
    "−": ("this is not the minus sign of the keyboard: write `-`", "-"),
    "–": ("this is a dash: write `-`", "-"),
    "—": ("this is a dash: write `-`", "-"),
    "!": ("`!` is not used: write `not`", "not "),
    "^": ("`^` is not used: there are no powers", ""),
    "µ": ("`µ` is not used: microseconds are `us`", ""),
    "μ": ("`μ` is not used: microseconds are `us`", ""),
    "；": ("this is a full-width semicolon: write `;`", ";"),
    "：": ("this is a full-width colon: write `:`", ":"),
    "，": ("this is a full-width comma: write `,`", ","),
    "（": ("this is a full-width bracket: write `(`", "("),
    "）": ("this is a full-width bracket: write `)`", ")"),
}
_QUOTES = {
    "'": "'",
    "`": "`'",
    "“": "”",
    "‘": "’",
    "«": "»",
    "„": "“”",
    "”": "”",
    "’": "’",
    "»": "«",
}  # and what closes them


def unclosed_string(r: Refusal) -> Diagnostic | None:
    if r.found.kind != "quote":
        return None
    return r.error(
        "the string is not closed on its line", label='expected `"` before the end of the line', code="E006",
        help="a string stays in one line; a quote in it is written `\\\"`",
    )  # fmt: skip


def strange_character(r: Refusal) -> Diagnostic | None:
    if r.found.kind != "bad":
        return None
    token = r.found
    first = token.text[0]
    place = r.source.span(token.start, token.start + 1)
    if first == "." and (r.inside == "[" or r.head.text == "on"):
        return r.error(
            "a glob is quoted", r.source.span(token.start, token.end), help='write `params["layers.*.attn"]`'
        )
    if first == "." and r.ahead().kind == "digits" and r.back().kind == "name" and touching(r.back(), token):
        better = f"{r.back().text}_{r.ahead().text.replace('.', '_')}"
        return r.error(
            f"no part of a name begins with a digit, as `.{r.ahead().text}` does", r.span(r.back(), r.ahead()),
            code="E007", fix=r.replace(r.back(), r.ahead(), better),
        )  # fmt: skip
    if first == "." and r.ahead().kind == "digits" and touching(token, r.ahead()):
        return r.error(
            f"`.{r.ahead().text}` lacks a digit before its point", r.span(token, r.ahead()), code="E005",
            fix=r.replace(token, r.ahead(), f"0.{r.ahead().text}"),
        )  # fmt: skip
    if first in _QUOTES:
        return r.error(
            "strings stand in double quotes", place, f"`{first}` quotes nothing", code="E007", fix=_requoted(r)
        )
    if first in _INSTEAD:
        message, better = _INSTEAD[first]
        fix = r.replace(token, token, better) if better else None
        return r.error(message, r.span(token), code="E007", fix=fix)
    name = unicodedata.name(first, f"U+{ord(first):04X}").lower()
    if first.isspace():
        return r.error(
            f"this is a {name}, not a space", place, code="E007", fix=r.replace(token, token, " ", "write a space")
        )
    if first.isalpha():
        return r.error(
            "names are made of the letters a to z, digits and `_`", place, f"`{first}` is {name}", code="E007"
        )
    shown_as = f"`{first}`" if first.isprintable() else f"U+{ord(first):04X}"
    return r.error(f"{shown_as} has no meaning here", place, "" if first.isascii() else name, code="E007")


def _requoted(r: Refusal) -> Fix | None:
    start = r.found.start
    line = r.source.line(r.source.line_col(start)[0])[r.source.line_col(start)[1] - 1 :]
    end = next((i for i, c in enumerate(line) if i > 0 and c in _QUOTES[line[0]]), 0)
    if not end or '"' in line[:end]:
        return None
    edits = (Edit(r.source.span(start, start + 1), '"'), Edit(r.source.span(start + end, start + end + 1), '"'))
    return Fix(f'write `"{line[1:end]}"`', edits)


def arrow(r: Refusal) -> Diagnostic | None:
    for left, right in ((r.back(), r.found), (r.found, r.ahead())):
        if left.text in ("-", "=") and right.text == ">" and touching(left, right):
            return r.error(
                f"`{left.text}>` is not used: steps are joined by `|`",
                r.span(left, right),
                fix=r.replace(left, right, "|"),
            )
    return None


def doubled(r: Refusal) -> Diagnostic | None:
    token, other = (r.back(), r.found) if r.back().text == r.found.text else (r.found, r.ahead())
    if token.text != other.text or token.kind != "op":
        return None
    both = r.span(token, other)
    match token.text:
        case "|":
            condition = r.head.text in ("require", "assert")
            return r.error(
                "`||` is not used: conditions are joined by `or`, steps by a single `|`", both,
                fix=r.replace(token, other, "or" if condition else "|"),
            )  # fmt: skip
        case "*":
            return r.error(
                "`**` is not used: there are no powers, and one `*` joins axes", both, fix=r.replace(token, other, "*")
            )
        case "/":
            return r.error("`//` begins no comment: comments begin with `#`", both, fix=r.replace(token, other, "#"))
        case "," if r.inside:
            return r.error("nothing stands between these commas", both, fix=r.replace(token, other, ",", "delete one"))
    return None


def updating_assignment(r: Refusal) -> Diagnostic | None:
    for left, right in ((r.back(), r.found), (r.found, r.ahead())):
        if left.text in ("+", "-", "*", "/", "|") and right.text == "=" and touching(left, right):
            return r.error(
                f"`{left.text}=` is not used: nothing changes after it is said", r.span(left, right),
                help="a later statement replaces what it names if it begins with `override`",
            )  # fmt: skip
    return None


def compares_or_binds(r: Refusal) -> Diagnostic | None:
    declares = r.tokens[0].text in ("axis", "arg", "let", "mesh", "strategy")
    if r.found.text == "==" and ("EQUAL" in r.accepts or declares):
        return r.error("`==` compares, `=` binds", fix=r.replace(r.found, r.found, "="))
    if r.found.text == "=" and not r.inside and r.head.text in ("require", "assert"):
        return r.error("`=` binds, `==` compares", fix=r.replace(r.found, r.found, "=="))
    return None


def colon_for_equals(r: Refusal) -> Diagnostic | None:
    if r.found.text != ":" or r.inside != "(" or r.back().kind != "name":
        return None
    after = r.ahead()
    better = f"{r.back().text} = {after.text}" if after.kind in WORDS else f"{r.back().text} = ..."
    return r.error(
        f"`:` places, `=` binds: write `{better}`", fix=r.replace(r.found, r.found, " =", f"write `{better}`")
    )


def comparison_chain(r: Refusal) -> Diagnostic | None:
    if r.found.text not in _COMPARISONS or r.back().kind == "op":
        return None
    before: Token | None = None
    for token in r.tokens[r.opened + 1 : r.at]:
        if token.text in _COMPARISONS:
            before = token
        elif token.text in ("and", "or", ",", "=", ":"):
            before = None
    if before is None:
        return None
    middle = r.text(r.tokens[r.tokens.index(before) + 1], r.back())
    better = f"write `... {before.text} {middle} and {middle} {r.found.text} ...`"
    return r.error(
        "comparisons do not chain: join two by `and`",
        cause=(before, "the first comparison"),
        fix=r.insert(r.back().end, f" and {middle}", better),
    )


def after_with(r: Refusal) -> Diagnostic | None:
    if r.back().text != "}" or r.found.text not in ("*", "|", "as") or all(t.text != "with" for t in r.tokens[: r.at]):
        return None
    starts = (i + 1 for i, t in enumerate(r.tokens[: r.at]) if t.text in ("apply", "=", ":"))
    start = next(starts, 0)
    edits = (
        Edit(r.source.span(r.tokens[start].start, r.tokens[start].start), "("),
        Edit(r.source.span(r.back().end, r.back().end), ")"),
    )
    return r.error(
        f"`with` binds last: nothing can follow its `}}`, so `{r.found.text}` joins nothing",
        fix=Fix(f"write `({r.text(r.tokens[start], r.tokens[start])} with {{ ... }}) {r.found.text} ...`", edits),
    )


def dtype(r: Refusal) -> Diagnostic | None:
    if r.back().text == "as":
        return r.error(
            f"expected a dtype after `as`{r.but_found}",
            help="for instance `as bf16`, or `as (master = fp32, moments = bf16)`",
        )
    if r.found.text == "as" and r.back(2).text == "as":
        return r.error("a step has one dtype", cause=(r.back(), "its dtype"))
    return None


def spaced_unit(r: Refusal) -> Diagnostic | None:
    number, unit = r.back(), r.found
    if number.kind != "digits" or unit.kind != "name":
        return None
    rate = unit.text + r.ahead().text + r.ahead(2).text
    whole = rate if rate in UNITS else unit.text
    if whole not in UNITS:
        return None
    gap = Token("gap", "", number.end, unit.start)
    return r.error(
        "a unit follows its number without a space", r.source.span(number.start, unit.start + len(whole)),
        fix=r.replace(gap, gap, "", f"write `{number.text}{whole}`"),
    )  # fmt: skip


def missing_equals(r: Refusal) -> Diagnostic | None:
    if (
        r.inside != "("
        or r.back().kind != "name"
        or r.found.kind not in ("digits", "string")
        or "EQUAL" not in r.accepts
    ):
        return None
    better = f"{r.back().text} = {r.found.text}"
    return r.error(
        f"expected `=` between `{r.back().text}` and {shown(r.found)}",
        fix=r.insert(r.back().end, " =", f"write `{better}`"),
    )


def semicolon_in_brackets(r: Refusal) -> Diagnostic | None:
    if r.found.kind != "semi" or not r.inside:
        return None
    return r.error(
        f"inside `{r.inside} {'])'[r.inside == '(']}` a comma separates, `;` separates statements",
        cause=(r.tokens[r.opened], f"`{r.inside}` opened here"), fix=r.replace(r.found, r.found, ","),
    )  # fmt: skip


def missing_comma(r: Refusal) -> Diagnostic | None:
    if r.inside not in ("(", "[") or not _operand_meets_operand(r):
        return None
    return r.error(
        f"expected `,` between {shown(r.back())} and {shown(r.found)}",
        cause=(r.tokens[r.opened], f"in this `{r.inside}`"), fix=r.insert(r.back().end, ",", "insert `,`"),
    )  # fmt: skip


def missing_operand(r: Refusal) -> Diagnostic | None:
    """An operator, or a mark, with nothing after it."""
    last = r.back()
    if not {"NAME", "DIGITS"} <= r.accepts or last.kind not in ("op", "reserved"):
        return None
    if last.text == ":" and not r.inside:
        target = f"{r.text(r.tokens[0], r.back(2))}:"
        return r.error(f"expected a journey after `{target}`{r.but_found}", help=f"for instance `{target} shard(dp)`")
    what = "a step" if last.text == "|" else "a value"
    before = f"{r.back(2).text} {last.text}" if last.text == "=" and r.back(2).kind == "name" else last.text
    cause = None if r.found.kind == "end" else (last, "nothing follows this")
    return r.error(f"expected {what} after `{before}`{r.but_found}", cause=cause)


def leading_comma(r: Refusal) -> Diagnostic | None:
    if r.found.text != "," or r.back().kind != "open":
        return None
    return r.error(
        f"nothing stands between `{r.back().text}` and `,`", fix=r.replace(r.found, r.found, "", "delete `,`")
    )


def missing_step_mark(r: Refusal) -> Diagnostic | None:
    """Outside of brackets, an operand right after an operand: a step without its `|`, or an argument without `( )`."""
    if r.inside or not _operand_meets_operand(r) or "VBAR" not in r.accepts:
        return None
    last, found = r.back(), r.found
    if last.kind == "name" and found.kind in WORDS and r.ahead().text != "(":
        edits = (Edit(r.source.span(last.end, found.start), "("), Edit(r.source.span(found.end, found.end), ")"))
        return r.error(
            f"arguments stand in parentheses: write `{last.text}({found.text})`",
            fix=Fix(f"write `{last.text}({found.text})`", edits),
        )
    if r.head.text == "apply":
        return r.error(
            f"strategies are composed by `*`: expected it before {shown(found)}",
            fix=r.insert(last.end, " *", "insert `*`"),
        )
    return r.error(
        f"steps are joined by `|`: expected it before {shown(found)}", fix=r.insert(last.end, " |", "insert `|`")
    )


def comma_outside(r: Refusal) -> Diagnostic | None:
    if r.found.text != "," or r.inside:
        return None
    if r.head.text == "apply":
        return r.error("strategies are composed by `*`, not by `,`", fix=r.replace(r.found, r.found, " *"))
    if {"VBAR", "$END"} & r.accepts:
        return r.error(
            "steps are joined by `|`, axes by `*`; a comma separates only inside brackets",
            fix=r.replace(r.found, r.found, " |"),
        )
    return None


def _operand_meets_operand(r: Refusal) -> bool:
    ends = r.back().kind in WORDS or (r.back().kind == "close" and r.back().text != "}")
    return ends and (r.found.kind in WORDS or r.found.text == "[")
