"""One linear pass over a text before it is parsed: tokens, comments, brackets, depth.

The LALR parser stops at the first thing that it doesn't expect; this pass reads any text to its end. It finds what the
parser leaves out (comments, the `##` lines of each statement) and what it must not be given (expressions so deep that
whoever walks the tree would run out of stack). Not for: the order of words, which is the grammar's business.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import attrs

from placelang.frozen import Frozen
from placelang.source import Source
from placelang.syntax.ast import Comment
from placelang.syntax.table import lalr

MAX_DEPTH = 100  # of brackets plus operators around one place; a tree is at most this deep, times a small constant

OPENERS = {")": "(", "]": "[", "}": "{"}
CLOSERS = {opener: closer for closer, opener in OPENERS.items()}

_NESTING = frozenset(("+", "-", "*", "/", "%", "<", ">", "<=", ">=", "==", "!=", "and", "or", "not", "with"))
_FLAT = frozenset((",", "|", ":", ";"))  # what stands on either side of these is not nested in one another


class Token(NamedTuple):
    """`kind` is comment, newline, semi, string, digits, name, reserved, open, close, op, quote (unclosed) or bad."""

    kind: str
    text: str
    start: int
    end: int


@attrs.frozen(eq=False, repr=False)
class Scan(Frozen):
    """What the pass found. `docs` is the text of the `##` lines that stand before the token at an offset."""

    tokens: tuple[Token, ...]
    comments: tuple[Comment, ...]
    docs: dict[int, str]
    doc_comments: dict[int, tuple[Comment, ...]]  # the comments that made `docs`, by the same offset
    balanced: bool  # every bracket is closed by its like
    deep: frozenset[int]  # where the depth goes past MAX_DEPTH
    strange: bool  # some token is of kind quote or bad

    @property
    def clean(self) -> bool:
        """The text may be given to the parser as a whole."""
        return self.balanced and not self.deep and not self.strange


@cache
def _pattern() -> re.Pattern[str]:
    # Words as the grammar spells them, so that the two never disagree on where one ends.
    string, digits, name = (lalr().get_terminal(t).pattern.to_regexp() for t in ("STRING", "DIGITS", "NAME"))
    return re.compile(
        rf"(?P<name>{name})|(?P<op>[=<>!]=|[*|+\-/%<>=,:])|(?P<open>[(\[{{])|(?P<close>[)\]}}])|(?P<newline>\n)"
        rf"|(?P<digits>{digits})|(?P<comment>\#[^\n]*)|(?P<string>{string})|(?P<semi>;)|(?P<reserved>[A-Za-z_]+)"
        rf'|(?P<quote>"[^\n]*)|(?P<bad>[^ \t\n"\#A-Za-z0-9_()\[\]{{}};*|+\-/%<>=,:]+)'
    )


def scan(source: Source) -> Scan:
    tokens: list[Token] = []
    comments: list[Comment] = []
    docs: dict[int, str] = {}
    doc_comments: dict[int, tuple[Comment, ...]] = {}
    pending: list[Comment] = []  # `##` lines that wait for what they document
    brackets: list[str] = []
    operators = [0]  # that nest, in each open bracket
    depth, deep, balanced, strange = 0, [], True, False
    line_start, before = True, "newline"  # the kind of the last token but comments

    for match in _pattern().finditer(source.text):
        kind, text, start, end = match.lastgroup or "", match[0], match.start(), match.end()
        tokens.append(Token(kind, text, start, end))
        if kind == "comment":
            comment = Comment(text.rstrip(), span=source.span(start, start + len(text.rstrip())))
            comments.append(comment)
            if line_start and text.startswith("##") and not text.startswith("###"):
                pending.append(comment)
            continue
        if kind == "newline" or (kind == "semi" and line_start):
            line_start = True
            continue
        if pending:
            doc = "\n".join(c.text[2:].removeprefix(" ") for c in pending)
            if doc.strip():
                docs[start], doc_comments[start] = doc, tuple(pending)
            pending = []
        if line_start and kind == "name" and before not in ("op", "reserved") and (not brackets or brackets[-1] == "{"):
            depth, operators[-1] = depth - operators[-1], 0  # a statement begins
        line_start, before = False, kind
        if kind == "open":
            brackets.append(text)
            operators.append(0)
            depth += 1
        elif kind == "close":
            if brackets and brackets[-1] == OPENERS[text]:
                brackets.pop()
                depth -= operators.pop() + 1
            else:
                balanced = False
        elif text in _NESTING:
            operators[-1] += 1
            depth += 1
        elif text in _FLAT:
            depth, operators[-1] = depth - operators[-1], 0
        elif kind in ("quote", "bad"):
            strange = True
        if depth == MAX_DEPTH + 1 and kind != "close":
            deep.append(start)
    return Scan(tuple(tokens), tuple(comments), docs, doc_comments, balanced and not brackets, frozenset(deep), strange)
