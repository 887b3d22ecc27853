"""The statements of a text by brackets and separators alone, for a text that the parser refused.

Whatever a statement holds, the next one begins at a newline or `;` outside of brackets; so one mistake stays in one
statement. Where brackets don't match, a line that can only begin a statement ends what is open. Not used for a text
without errors; a test asks that the grammar and this outline then agree.
"""

from __future__ import annotations

import attrs

from placelang.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label
from placelang.frozen import Frozen
from placelang.source import Source
from placelang.syntax.scan import CLOSERS, OPENERS, Scan, Token

KEYWORDS = frozenset(
    ("place", "use", "mesh", "axis", "arg", "let", "strategy", "apply", "on", "model", "hardware", "train", "require",
     "assert", "backend", "override")
)  # fmt: skip


@attrs.define(eq=False, repr=False)
class Block(Frozen):
    """What stands between the `{` at `open` and the `}` at `close` (or where one should be)."""

    open: int
    indent: int  # of the line with the `{`
    close: int = -1
    statements: list[Outline] = attrs.field(factory=list)
    current: Outline | None = None
    brackets: list[Token] = attrs.field(factory=list)  # `(` and `[` that are open in the current statement


@attrs.define(eq=False, repr=False)
class Outline(Frozen):
    """One statement: its own tokens (of its blocks only the braces), its blocks, and the first wrong bracket."""

    tokens: list[Token] = attrs.field(factory=list)
    blocks: list[Block] = attrs.field(factory=list)
    wrong: Diagnostic | None = None
    missing: str = ""  # closing brackets to read at its end
    instead: dict[int, str] = attrs.field(factory=dict)  # what to read for a wrong closing bracket, by its offset
    unopened: bool = False  # a bracket closes nothing in it
    hopeless: bool = False  # there is no telling what to read

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def end(self) -> int:
        return self.tokens[-1].end

    @property
    def reach(self) -> int:
        """Where its last block ends, closed or not."""
        return max(self.end, *(block.close for block in self.blocks), -1)


def outline(source: Source, scan: Scan) -> list[Outline]:
    """The statements outside of all blocks. Linear in the text."""
    tokens = [token for token in scan.tokens if token.kind != "comment"]
    root = Block(-1, -1)
    blocks = [root]
    indent = 0  # of the current line
    for i, token in enumerate(tokens):
        block = blocks[-1]
        if token.kind == "newline":
            rest = _line(tokens, i + 1)
            if rest:
                indent = rest[0].start - token.end if tokens[i + 1] is rest[0] else _indent(source, rest[0])
            if not scan.balanced:
                _give_up_brackets(source, block, rest)
                while len(blocks) > 1 and rest and _leaves(blocks[-1], rest, indent):
                    _close_block(source, blocks, None)
                block = blocks[-1]
            if not block.brackets and not _continues(block.current, rest):
                block.current = None
        elif token.kind == "semi":
            if not scan.balanced:
                _unclosed(source, block)
            if block.brackets:
                _add(block, token)
            else:
                block.current = None
        elif token.text == "}" and len(blocks) > 1:
            _unclosed(source, block)
            _close_block(source, blocks, token)
        elif token.text == "{" and not scan.balanced and len(blocks) > 1 and not block.statements:
            outer = _current(blocks[-2])
            outer.wrong = outer.wrong or _doubled(source, outer.tokens[-1], token)
        else:
            _add(block, token)
            if token.text == "{":
                inner = Block(token.start, indent)
                _current(block).blocks.append(inner)
                blocks.append(inner)
            elif token.kind == "open":
                block.brackets.append(token)
            elif token.kind == "close":
                _close_bracket(source, block, token)
    while len(blocks) > 1:
        _unclosed(source, blocks[-1])
        _close_block(source, blocks, None)
    _unclosed(source, root)
    return root.statements


def _current(block: Block) -> Outline:
    if block.current is None:
        block.current = Outline()
        block.statements.append(block.current)
    return block.current


def _add(block: Block, token: Token) -> None:
    _current(block).tokens.append(token)


def _line(tokens: list[Token], i: int) -> list[Token]:
    """The first few tokens of the next line that is not empty."""
    while i < len(tokens) and tokens[i].kind == "newline":
        i += 1
    return tokens[i : i + 3]


def _indent(source: Source, token: Token) -> int:
    return source.line_col(token.start)[1] - 1


def _continues(current: Outline | None, rest: list[Token]) -> bool:
    """Whether the next line belongs to the statement before it, as `_SEP` in the grammar has it."""
    if current is None or not rest or _begins(rest):
        return False
    last, first = current.tokens[-1], rest[0]
    return (
        (last.kind in ("op", "reserved"))
        or (first.kind in ("op", "open", "reserved") and first.text != "not")
        or (first.kind == "close" and first.text != "}")
    )


def _begins(rest: list[Token]) -> bool:
    """Whether a line can only begin a statement: `head:`, `head[`, or a keyword before a word."""
    if not rest or rest[0].kind != "name":
        return False
    after = rest[1] if len(rest) > 1 else None
    if rest[0].text in KEYWORDS:
        return after is not None and (after.kind in ("name", "digits", "string") or after.text == "(")
    return after is not None and after.text == ":"


def _leaves(block: Block, rest: list[Token], indent: int) -> bool:
    return indent <= block.indent and _begins(rest)


def _give_up_brackets(source: Source, block: Block, rest: list[Token]) -> None:
    """End the open `(` and `[` before a line that begins a statement."""
    if not block.brackets or block.current is None or not _begins(rest):
        return
    head = [token.text for token in block.current.tokens[:1]]
    declares = head in (["mesh"], ["strategy"]) and block.brackets[0] in block.current.tokens[1:3]
    last = block.current.tokens[-1]
    listed = last.text == "," or last.kind == "open"
    if declares and listed and rest[0].text not in KEYWORDS:
        return  # `name: kind` is an element of such a list
    _unclosed(source, block)


def _unclosed(source: Source, block: Block) -> None:
    """The statement is over, and these brackets are still open."""
    statement = block.current
    if statement is None or not block.brackets:
        return
    opener, closers = block.brackets[-1], "".join(CLOSERS[b.text] for b in reversed(block.brackets))
    statement.missing += closers
    if statement.wrong is None:
        colon = next((t for t in statement.tokens if t.start > opener.start and t.text == ":"), None)
        end = colon.start if opener.text == "[" and colon is not None else statement.end
        statement.wrong = _never_closed(source, opener, end, closers)
    block.brackets = []
    block.current = None


def _close_bracket(source: Source, block: Block, token: Token) -> None:
    statement = _current(block)
    opener = block.brackets[-1] if block.brackets else None
    if opener is not None and opener.text == OPENERS.get(token.text):
        block.brackets.pop()
        return
    label = Label(source.span(token.start, token.end))
    if opener is None:
        statement.instead[token.start] = " "
        statement.unopened = True
        fix = Fix("delete it", (Edit(label.span, ""),))
        message = f"`{token.text}` closes nothing: no `{OPENERS[token.text]}` is open"
        statement.wrong = statement.wrong or Diagnostic("E001", message, label, fixes=(fix,))
        return
    wanted = CLOSERS[opener.text]
    inner = any(b.text == OPENERS[token.text] for b in block.brackets)  # then the others are never closed
    better = wanted + token.text if inner else wanted
    statement.wrong = statement.wrong or Diagnostic(
        "E001",
        f"expected `{wanted}` before `{token.text}`" if inner else f"expected `{wanted}`, found `{token.text}`",
        label,
        (Label(source.span(opener.start, opener.end), f"`{opener.text}` opened here"),),
        fixes=(Fix(f"write `{better}`", (Edit(label.span, better),)),),
    )
    if inner:
        statement.hopeless = True
        while block.brackets.pop().text != OPENERS[token.text]:
            pass
    else:
        statement.instead[token.start] = wanted
        block.brackets.pop()


def _close_block(source: Source, blocks: list[Block], token: Token | None) -> None:
    """Leave the innermost block: at `token`, or where its `}` is missing."""
    inner, outer = blocks.pop(), blocks[-1]
    inner.current = None
    statement = _current(outer)
    if token is not None:
        inner.close = token.start
        statement.tokens.append(token)
        return
    last = inner.statements[-1] if inner.statements else None
    inner.close = last.end if last is not None else inner.open + 1
    statement.missing += "}"
    if statement.wrong is None:
        opener = next(t for t in reversed(statement.tokens) if t.start == inner.open)
        statement.wrong = _never_closed(source, opener, inner.close, "}")
    if not outer.brackets:
        outer.current = None


def _doubled(source: Source, first: Token, again: Token) -> Diagnostic:
    return Diagnostic(
        "E001",
        f"one `{again.text}` opens a block",
        Label(source.span(again.start, again.end), "a second one"),
        (Label(source.span(first.start, first.end), "opened here"),),
        fixes=(Fix("delete it", (Edit(source.span(again.start, again.end), ""),)),),
    )


def _never_closed(source: Source, opener: Token, end: int, closers: str) -> Diagnostic:
    return Diagnostic(
        "E001",
        f"`{opener.text}` is never closed",
        Label(source.span(opener.start, opener.end), f"unclosed `{opener.text}`"),
        (Label(source.span(end - 1, end), f"expected `{closers}` after this"),),
        fixes=(Fix(f"close it with `{closers}`", (Edit(source.span(end, end), closers),)),),
    )
