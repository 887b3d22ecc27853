"""Why a statement does not parse, in words for whoever wrote it: the order of the rules, and what is left.

The rules of `slips` and `heads` recognise what people mean by a text that the grammar refuses and say how it is
written; the first that knows the case speaks. If none does, `expected` names what the parser would have taken.
"""

from __future__ import annotations

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.syntax import heads, slips
from placelang.syntax.refusal import Refusal, Rule, shown

RULES: tuple[Rule, ...] = (
    slips.unclosed_string,
    slips.strange_character,
    slips.arrow,
    slips.updating_assignment,
    slips.doubled,
    heads.no_beginning,
    heads.control_flow,
    heads.misspelt_keyword,
    heads.equals_for_colon,
    slips.compares_or_binds,
    heads.selector_in_parentheses,
    heads.selectors,
    heads.missing_colon,
    heads.kind_of,
    heads.colon_after_keyword,
    heads.after_keyword,
    slips.colon_for_equals,
    heads.block_for_journey,
    heads.next_statement,
    heads.claim_message,
    heads.imports,
    slips.after_with,
    slips.dtype,
    slips.spaced_unit,
    heads.name_in_list,
    slips.missing_equals,
    slips.semicolon_in_brackets,
    slips.missing_comma,
    slips.comparison_chain,
    slips.leading_comma,
    slips.missing_operand,
    heads.declaration,
    slips.missing_step_mark,
    slips.comma_outside,
)

_SAY = {
    "COLON": "`:`", "EQUAL": "`=`", "COMMA": "`,`", "LPAR": "`(`", "RPAR": "`)`", "LSQB": "`[`", "RSQB": "`]`",
    "LBRACE": "`{`", "RBRACE": "`}`", "NAME": "a name", "STRING": "a quoted text", "_AS": "`as`", "_WITH": "`with`",
    "_OVER": "`over`",
}  # fmt: skip
_VALUE = {"NAME", "DIGITS"}
_END = {"_SEP", "$END"}


def complain(refusal: Refusal) -> Diagnostic:
    """The one error of a statement that was refused."""
    for rule in RULES:
        diagnostic = rule(refusal)
        if diagnostic is not None:
            return diagnostic
    return expected(refusal)


def expected(r: Refusal) -> Diagnostic:
    """What would have been right here, with operators left out where they are but some of many ways to go on."""
    if r.accepts >= _VALUE:
        wanted = ["a value"]
    else:
        wanted = [say for name, say in _SAY.items() if name in r.accepts]
        if r.accepts & _END:
            wanted = ["the end of the statement"]
        elif "VBAR" in r.accepts:  # an operand is complete: what closes or separates is what is missed
            wanted = [say for say in wanted if say in ("`,`", "`)`", "`]`", "`{`", "`=`")]
    after = f" after {shown(r.back())}" if r.at else ""
    if not wanted:
        return r.error(
            f"the statement is not complete{after}"
            if r.found.kind == "end"
            else f"{shown(r.found)} is not expected{after}"
        )
    listed = wanted[0] if len(wanted) == 1 else f"{', '.join(wanted[:-1])} or {wanted[-1]}"
    cause = (r.tokens[r.opened], f"in this `{r.inside}`") if r.inside in ("(", "[") else None
    return r.error(f"expected {listed}{after}{r.but_found}", cause=cause)
