"""Rules for how a statement begins, and for what each kind of statement must hold.

Each rule looks at a refused statement and says what is wrong, or None. `complaints` orders them.
Not for: slips within expressions (`slips`).
"""

from __future__ import annotations

from placelang.diagnostics.diagnostic import Diagnostic, Edit, Fix
from placelang.diagnostics.suggest import did_you_mean
from placelang.syntax.outline import KEYWORDS
from placelang.syntax.refusal import WORDS, Refusal, shown
from placelang.syntax.scan import Token

_STATES = ("params", "optimizer", "grads", "activations", "update", "schedule")
_CONTROL = ("if", "for", "while", "def", "class", "return", "else", "elif", "lambda", "try", "match")
_WANTS = {  # what a keyword is followed by, and how it looks
    "place": ("the number of an edition", "place 1"),
    "use": ("a quoted path", 'use "./house.place"'),
    "mesh": ("`(` and the axes", "mesh (dp = 8, tp = 8)"),
    "axis": ("a name", "axis fsdp = dp_shard * cp"),
    "arg": ("a name", "arg depth: int = 8"),
    "let": ("a name", "let tiny = transformer(layers = 4)"),
    "strategy": ("a name", "strategy ours { params: shard(dp) }"),
    "apply": ("a strategy", "apply zero3(dp)"),
    "on": ("a selector", "on attn.qkv, mlp.up { params: colwise(tp) }"),
    "model": ("a model", "model gpt2_124m"),
    "hardware": ("a machine", "hardware dgx_a100(nodes = 4)"),
    "train": ("`(` and the facts", "train (optimizer = adamw, seq = 2048)"),
    "require": ("a condition", "require heads % tp == 0"),
    "assert": ("a condition", "assert memory.peak <= 76GiB"),
    "backend": ("the name of a backend", "backend torch (compile = true)"),
    "override": ("a state", "override optimizer: offload(cpu)"),
}  # fmt: skip


def no_beginning(r: Refusal) -> Diagnostic | None:
    if r.at > 0:
        return None
    help = "a statement begins with a state, as in `params: shard(dp)`, or a keyword, as in `apply zero3(dp)`"
    if r.found.text == "{":
        help = "`{ }` holds the statements of a `strategy`, an `on` or a `with`"
    elif r.found.kind == "string":
        help = f"to select by a glob write `params[{r.found.text}]: ...`"
    elif r.found.text in ("|", "*"):
        help = f"there is no statement before it that `{r.found.text}` could go on with"
    return r.error(f"a statement cannot begin with {shown(r.found)}", help=help)


def control_flow(r: Refusal) -> Diagnostic | None:
    word = r.tokens[0]
    if r.at > 2 or word.text not in (*_CONTROL, "import", "from", "include"):
        return None
    if word.text in _CONTROL:
        return r.error(
            f"`{word.text}` is not a statement: a strategy has no loops, branches or functions", r.span(word),
            help="parts are `strategy` values, composed by `*`",
        )  # fmt: skip
    return r.error(
        f"`{word.text}` is not a statement: files are brought in by `use`",
        r.span(word),
        help='`use "./house.place" (ours)`',
    )


def misspelt_keyword(r: Refusal) -> Diagnostic | None:
    """A first word that is neither keyword nor `head:`, before something that a keyword would have."""
    word = r.tokens[0]
    if r.at != 1 or word.text in KEYWORDS or r.found.kind not in (*WORDS, "open", "end") or r.found.text == "[":
        return None
    if did_you_mean(word.text, (*KEYWORDS, *_STATES)) not in KEYWORDS:
        return None
    guess = did_you_mean(word.text, KEYWORDS) or ""
    return r.error(
        f"`{word.text}` is not a statement: did you mean `{guess}`?", r.span(word), fix=r.replace(word, word, guess)
    )


def equals_for_colon(r: Refusal) -> Diagnostic | None:
    if r.found.text != "=" or r.inside or r.head.text in KEYWORDS or "COLON" not in r.accepts:
        return None
    head, last = r.tokens[0], r.tokens[-1]
    if r.at == 1 and did_you_mean(head.text, _STATES) is None and head.text not in _STATES:
        return r.error(
            "`=` alone declares nothing: `let` names a constant, `:` places a state",
            fix=r.insert(head.start, "let ", f"write `let {r.text(head, last)}`"),
        )
    target = r.text(head, r.back())
    value = r.text(r.ahead(), last) if r.ahead().kind != "none" else "..."
    gap = Token("gap", "", r.back().end, r.found.end)
    return r.error(
        f"`=` binds, `:` places: write `{target}: {value}`", fix=r.replace(gap, gap, ":", f"write `{target}: {value}`")
    )


def colon_after_keyword(r: Refusal) -> Diagnostic | None:
    if r.found.text != ":" or r.inside or r.head.text not in KEYWORDS:
        return None
    keyword = r.head.text
    if keyword == "override":
        return r.error("expected a state between `override` and `:`", help=f"for instance `{_WANTS['override'][1]}`")
    if keyword in ("axis", "let", "strategy") and r.at == 2 and r.ahead().text != "{":
        return r.error(f"`:` places, `=` binds: `{keyword}` takes `=`", fix=r.replace(r.found, r.found, " ="))
    return r.error(f"`{keyword}` takes no `:`", fix=r.replace(r.found, r.found, "", "delete `:`"))


def selector_in_parentheses(r: Refusal) -> Diagnostic | None:
    if r.found.text != "(" or r.at == 0 or "LSQB" not in r.accepts or r.back() != r.head or r.head.text in KEYWORDS:
        return None
    close = r.close_of(r.at)
    if close is None or r.tokens.index(close) + 1 >= len(r.tokens) or r.tokens[r.tokens.index(close) + 1].text != ":":
        return None
    edits = (Edit(r.span(r.found), "["), Edit(r.span(close), "]"))
    return r.error(
        "a selector stands in `[ ]`", fix=Fix(f"write `{r.head.text}[{r.text(r.ahead(), close)[:-1]}]`", edits)
    )


def selectors(r: Refusal) -> Diagnostic | None:
    at_head = (r.inside == "[" and r.in_list_of_head and r.head.text not in KEYWORDS) or (
        r.head.text == "on" and not r.inside
    )
    if r.found.text == "[" and r.back().text == "]" and r.head.text not in KEYWORDS:
        return r.error(
            "one pair of `[ ]` holds all selectors, separated by `,`",
            r.span(r.back(), r.found),
            fix=r.replace(r.back(), r.found, ", "),
        )
    if not at_head:
        return None
    if r.found.text == "]" and r.back().text == "[":
        return r.error(
            "expected a selector between `[` and `]`",
            r.span(r.back(), r.found),
            help='for instance `params[attn.q]` or `params["layers.*.attn"]`',
        )
    if r.found.text in ("*", "{") and r.head.text != "on":
        return r.error("a glob is quoted", help='for instance `params["layers.*.attn"]`')
    if r.head.text == "on" and r.found.kind in WORDS and r.back().kind in WORDS and r.ahead().text not in (":", "["):
        return r.error(
            f"expected `,` between {shown(r.back())} and {shown(r.found)}",
            fix=r.insert(r.back().end, ",", "insert `,`"),
        )
    number = r.back() if r.back().kind == "digits" else r.found
    if number.kind == "digits":
        message = f"`{number.text}` selects nothing: a selector is a role, a quoted glob or a placement"
        return r.error(message, r.span(number), help='layers are selected by a glob, as in `params["layers.0"]`')
    return None


def missing_colon(r: Refusal) -> Diagnostic | None:
    """A placement without its `:`."""
    if "COLON" not in r.accepts or r.inside or r.head.text in KEYWORDS or r.back().kind not in ("name", "close"):
        return None
    target = r.text(r.tokens[0], r.back())
    if r.found.text == "{":
        return r.error(
            f"expected `:` after `{target}`, found `{{`",
            help=f"`on {target} {{ ... }}` groups statements by a selector, `strategy {target} {{ ... }}` declares one",
        )
    if r.found.text == ",":
        return r.error(
            "a statement places one state",
            help="one statement for each: `params: shard(dp) ; grads: reduce_scatter(dp)`",
        )
    if r.found.kind == "end":
        return r.error(f"expected `:` and a journey after `{target}`", help=f"for instance `{target}: shard(dp)`")
    if r.found.kind in WORDS or r.found.text == "as":
        return r.error(
            f"expected `:` after `{target}`{r.but_found}",
            fix=r.insert(r.back().end, ":", f"write `{target}: {r.text(r.found, r.tokens[-1])}`"),
        )
    return r.error(f"expected `:` after `{target}`{r.but_found}")


def block_for_journey(r: Refusal) -> Diagnostic | None:
    if r.found.text != "{" or r.back().text != ":" or r.inside:
        return None
    return r.error(
        "`{ }` holds statements: a journey follows its `:` without them",
        help=f"for instance `{r.head.text}: shard(dp) | gather`",
    )


def next_statement(r: Refusal) -> Diagnostic | None:
    """A statement that begins where the one before is complete but not ended."""
    begins = r.found.kind == "name" and (
        r.ahead().text == ":"
        or (r.found.text in KEYWORDS and (r.ahead().kind in WORDS or r.ahead().text == "("))
        or (r.back().text == "}" and r.found.text != "with")
    )
    if not begins or not {"_SEP", "RBRACE", "$END"} & r.accepts:
        return None
    return r.error(
        f"expected a new line or `;` before {shown(r.found)}",
        label="another statement begins here",
        fix=r.insert(r.back().end, " ;", "insert `;`"),
    )


def after_keyword(r: Refusal) -> Diagnostic | None:
    """What follows the keyword itself is not what it wants."""
    keyword = r.back().text
    if (
        keyword not in KEYWORDS
        or r.at > 2
        or r.back() not in r.tokens[:2]
        or keyword != r.tokens[r.at - 1].text
        or (r.at == 2 and r.tokens[0].text != "override")
    ):
        return None
    if keyword in ("train", "mesh") and r.found.kind in WORDS:
        return _unwrapped(r, r.found)
    wants, example = _WANTS[keyword]
    if r.tokens[0].text == "override" and r.at == 2:
        wants, example = _WANTS["override"]
        return r.error(
            f"expected {wants} after `override`, found the keyword `{keyword}`",
            r.span(r.back()),
            help=f"for instance `{example}`",
        )
    fix = r.replace(r.found, r.found, f'"{r.found.text}"') if keyword == "use" and r.found.kind == "name" else None
    return r.error(
        f"expected {wants} after `{keyword}`{r.but_found}", fix=fix, help="" if fix else f"for instance `{example}`"
    )


def declaration(r: Refusal) -> Diagnostic | None:
    """`strategy x`, `let x`, `axis x`, `mesh x`, `on x` that lack what comes next."""
    keyword, head = r.tokens[0].text, r.text(r.tokens[0], r.back())
    if r.inside or r.at < 2:
        return None
    if keyword == "mesh" and r.found.text == "=" and r.at == 2:
        return _unwrapped(r, r.tokens[1])
    wants = {
        "strategy": "`{` or `=`",
        "let": "`=` and a value",
        "axis": "`=` and a product of axes",
        "mesh": "`(` and the axes",
        "on": "`{` and statements",
    }
    complete = {"_SEP", "$END", "RBRACE"} & r.accepts
    if keyword in wants and not complete and r.back().kind in (*WORDS, "close"):
        return r.error(
            f"expected {wants[keyword]} after `{head}`{r.but_found}", help=f"for instance `{_WANTS[keyword][1]}`"
        )
    return None


def kind_of(r: Refusal) -> Diagnostic | None:
    """What follows `name:` in a declaration."""
    if r.back().text != ":" or r.tokens[0].text not in ("let", "arg", "strategy", "mesh") or r.accepts != {"NAME"}:
        return None
    what = "a role" if r.tokens[0].text == "mesh" else "a kind"
    examples = "`data` or `tensor`" if what == "a role" else "`int` or `axis`"
    name = r.back(2).text
    return r.error(
        f"expected {what}, such as {examples}, after `{name}:`{r.but_found}",
        fix=r.replace(r.back(), r.back(), " =", f"write `{name} = {r.found.text}`") if r.found.kind in WORDS else None,
    )


def name_in_list(r: Refusal) -> Diagnostic | None:
    """The lists of `mesh ( )`, `strategy f( )` and `use "..." ( )` hold names."""
    keyword = r.tokens[0].text
    if (
        r.inside != "("
        or keyword not in ("mesh", "strategy", "use")
        or not r.accepts <= {"NAME", "RPAR"}
        or r.back().text not in ("(", ",")
    ):
        return None
    over = any(t.text == "over" for t in r.tokens[: r.opened])
    what, example = {
        "mesh": ("the name of an axis", "over (dp, tp)" if over else "mesh (dp = 8)"),
        "strategy": ("the name of a parameter", "strategy ours(d: axis = dp) { ... }"),
        "use": ("a name to bring in", 'use "./house.place" (ours)'),
    }[keyword]
    return r.error(
        f"expected {what}{r.but_found}",
        cause=(r.tokens[r.opened], f"in this `{r.inside}`"),
        help=f"for instance `{example}`",
    )


def claim_message(r: Refusal) -> Diagnostic | None:
    if r.tokens[0].text not in ("require", "assert") or r.inside:
        return None
    if r.found.kind == "string" and r.back().kind in ("name", "digits", "close"):
        return r.error(
            "expected `,` between the condition and its message", fix=r.insert(r.back().end, ",", "insert `,`")
        )
    if r.back().text == "," and r.accepts == {"STRING"}:
        fix = r.replace(r.found, r.tokens[-1], f'"{r.text(r.found, r.tokens[-1])}"') if r.found.kind == "name" else None
        return r.error(f"expected a quoted message after `,`{r.but_found}", fix=fix)
    return None


def imports(r: Refusal) -> Diagnostic | None:
    if r.tokens[0].text != "use" or r.inside or r.at < 2 or r.found.kind != "name":
        return None
    edits = (
        Edit(r.source.span(r.found.start, r.found.start), "("),
        Edit(r.source.span(r.tokens[-1].end, r.tokens[-1].end), ")"),
    )
    return r.error(
        "the names to bring in stand in parentheses", fix=Fix(f"write `({r.text(r.found, r.tokens[-1])})`", edits)
    )


def _unwrapped(r: Refusal, first: Token) -> Diagnostic:
    keyword = r.tokens[0].text
    what = "its axes" if keyword == "mesh" else "its facts"
    last = r.tokens[-1]
    edits = (Edit(r.source.span(first.start, first.start), "("), Edit(r.source.span(last.end, last.end), ")"))
    return r.error(
        f"`{keyword}` takes {what} in parentheses",
        r.span(first, last),
        fix=Fix(f"write `{keyword} ({r.text(first, last)})`", edits),
    )
