"""A statement that the parser refused: where it stopped, what stands around, and how to say so.

The ground of the rules in `slips` and `heads`. Not for: the rules themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from placelang.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label
from placelang.frozen import Frozen
from placelang.source import Source, Span
from placelang.syntax.scan import Token

WORDS = ("name", "digits", "string")  # kinds of tokens that an operand may be
_NONE = Token("none", "", 0, 0)


@attrs.frozen(eq=False, repr=False)
class Refusal(Frozen):
    """The tokens of one statement (of its blocks only the braces). The parser refused the one at `at`, or the end if
    there is none; it would have taken the terminals `accepts`."""

    source: Source
    tokens: tuple[Token, ...]
    at: int
    accepts: frozenset[str]

    @property
    def found(self) -> Token:
        """The token that was refused; at the end of the statement one of kind `end`."""
        if self.at < len(self.tokens):
            return self.tokens[self.at]
        return Token("end", "", self.tokens[-1].end, self.tokens[-1].end)

    def back(self, n: int = 1) -> Token:
        """The n-th token before the refused one; kind `none` before the first."""
        return self.tokens[self.at - n] if self.at >= n else _NONE

    def ahead(self, n: int = 1) -> Token:
        """The n-th token after the refused one; kind `none` after the last."""
        return self.tokens[self.at + n] if self.at + n < len(self.tokens) else _NONE

    @property
    def head(self) -> Token:
        """The first word, `override` aside."""
        first = self.tokens[0]
        return self.tokens[1] if first.text == "override" and len(self.tokens) > 1 else first

    @property
    def opened(self) -> int:
        """The index of the innermost bracket that is open at the refused token, or -1."""
        open_at = [-1]
        for i, token in enumerate(self.tokens[: self.at]):
            if token.kind == "open":
                open_at.append(i)
            elif token.kind == "close" and len(open_at) > 1:
                open_at.pop()
        return open_at[-1]

    @property
    def inside(self) -> str:
        """The innermost open bracket, or empty."""
        return self.tokens[self.opened].text if self.opened >= 0 else ""

    @property
    def in_list_of_head(self) -> bool:
        """In the outermost brackets of the statement, right after its head: `mesh (`, `strategy f(`, `params[`."""
        return 0 <= self.opened <= 3 and all(t.kind == "name" for t in self.tokens[: self.opened])

    @property
    def but_found(self) -> str:
        """The end of a message that says what was expected."""
        return "" if self.found.kind == "end" else f", found {shown(self.found)}"

    def close_of(self, opener: int) -> Token | None:
        """The bracket that closes the one at this index."""
        depth = 0
        for token in self.tokens[opener:]:
            depth += (token.kind == "open") - (token.kind == "close")
            if depth == 0:
                return token
        return None

    def span(self, first: Token, last: Token | None = None) -> Span:
        return self.source.span(first.start, (last or first).end)

    def text(self, first: Token, last: Token) -> str:
        """The text from one token to another in one line, shortened."""
        text = " ".join(self.source.text[first.start : min(last.end, first.start + 200)].split())
        return text if len(text) <= 60 else text[:57].rstrip() + "..."

    def error(
        self,
        message: str,
        at: Span | None = None,
        label: str = "",
        *,
        code: str = "E001",
        cause: tuple[Token, str] | None = None,
        fix: Fix | None = None,
        help: str = "",
    ) -> Diagnostic:
        """A diagnostic about the refused token (at the end of the statement, about the last one), or about `at`."""
        span = self.span(self.back() if self.found.kind == "end" else self.found) if at is None else at
        return Diagnostic(
            code,
            message,
            Label(span, label),
            () if cause is None else (Label(self.span(cause[0]), cause[1]),),
            fixes=() if fix is None else (fix,),
            help=help,
        )

    def replace(self, first: Token, last: Token, text: str, title: str = "") -> Fix:
        return Fix(title or f"write `{text.strip()}`", (Edit(self.span(first, last), text),))

    def insert(self, offset: int, text: str, title: str) -> Fix:
        return Fix(title, (Edit(self.source.span(offset, offset), text),))


Rule = Callable[[Refusal], Diagnostic | None]


def shown(token: Token) -> str:
    """How a message names a token."""
    if token.kind == "string":
        return f"the text {token.text}" if len(token.text) <= 40 else "a text"
    return f"`{token.text}`" if len(token.text) <= 40 else f"`{token.text[:37]}...`"


def touching(left: Token, right: Token) -> bool:
    return left.end == right.start and left.kind != "none"
