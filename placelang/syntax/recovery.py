"""A text with errors, statement by statement: all are found, each is said once, and what is right is in the tree.

Each statement is parsed for itself (`outline` finds where it ends). Not for: texts without errors (`parser`), or the
wording of what is wrong (`complaints`).
"""

from __future__ import annotations

import attrs
from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from placelang.diagnostics.diagnostic import Diagnostic, Fix, Label, Severity
from placelang.frozen import Frozen
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.build import Builder
from placelang.syntax.complaints import complain
from placelang.syntax.outline import Block, Outline, outline
from placelang.syntax.refusal import Refusal
from placelang.syntax.scan import MAX_DEPTH, Scan, Token
from placelang.syntax.table import lalr

MAX_ERRORS = 100  # after that many the text is probably no `.place` text, and nobody reads on


def recover(source: Source, scan: Scan, builder: Builder) -> tuple[ast.Statement, ...]:
    """The statements that are right; what is wrong with the others goes to the builder's diagnostics."""
    return Recovery(source, scan, builder).statements(outline(source, scan))


@attrs.define(eq=False, repr=False)
class Recovery(Frozen):
    """Parses statement by statement; the first mistake of each is said, the rest of the statement forgiven."""

    source: Source
    scan: Scan
    builder: Builder

    def statements(self, outlines: list[Outline]) -> tuple[ast.Statement, ...]:
        found: list[ast.Statement] = []
        following = iter([*outlines[1:], None])
        joined = False
        for statement in outlines:
            after = next(following)
            if joined:
                joined = False
                continue
            if len(self.builder.diagnostics) >= MAX_ERRORS:
                self._stop(statement)
                break
            refused = self._read(statement, found)
            if refused is None:
                continue
            if refused.at == len(statement.tokens) and after is not None and after.wrong is None:
                # A line that is not complete: the parser would have gone on to the next.
                both = Outline([*statement.tokens, *after.tokens], [*statement.blocks, *after.blocks])
                joined = self._read(both, found) is None
            if not joined:
                self.builder.diagnostics.append(self._with_good_fixes(complain(refused), statement))
        return tuple(found)

    def _read(self, statement: Outline, found: list[ast.Statement]) -> Refusal | None:
        """Add what a statement says to `found`, or tell where it was refused, if nothing was said of it yet."""
        tokens = tuple(statement.tokens)
        deep = next((t for t in tokens if t.start in self.scan.deep), None)
        if deep is not None:
            label = Label(self.source.span(deep.start, deep.end), "one level too many")
            message = f"nested too deeply: more than {MAX_DEPTH} brackets and operators around one place"
            self.builder.diagnostics.append(
                Diagnostic("E004", message, label, help="name parts of it with `let` or `strategy`")
            )
            return None
        for block in statement.blocks:
            if block.open not in self.builder.blocks:
                self.builder.blocks[block.open] = (
                    self.statements(block.statements) if _holds_statements(tokens, block) else ()
                )
        strange = next((i for i, t in enumerate(tokens) if t.kind in ("bad", "quote")), None)
        if strange is not None:  # before brackets: a string that is not closed may have swallowed some
            return Refusal(self.source, tokens, strange, frozenset())
        if statement.wrong is not None:
            self.builder.diagnostics.append(statement.wrong)
            if statement.hopeless:
                return None
        try:
            tree = lalr().parse(_shell(self.source, statement))
        except UnexpectedInput as error:
            return None if statement.wrong else _refusal(self.source, statement, error)
        self.builder.offset = statement.start
        found += self.builder.statements(tree)
        return None

    def _with_good_fixes(self, diagnostic: Diagnostic, statement: Outline) -> Diagnostic:
        """The diagnostic with those of its fixes that the parser accepts, or that bring it past the mistake."""
        text = _shell(self.source, statement)
        good = tuple(fix for fix in diagnostic.fixes if _helps(fix, text, statement.start))
        return attrs.evolve(diagnostic, fixes=good)

    def _stop(self, statement: Outline) -> None:
        if self.builder.diagnostics[-1].severity is not Severity.NOTE:
            label = Label(self.source.span(statement.start, statement.end), "not read from here on")
            message = f"more than {MAX_ERRORS} errors: the rest is not shown"
            self.builder.diagnostics.append(Diagnostic("E001", message, label, severity=Severity.NOTE))


def _holds_statements(tokens: tuple[Token, ...], block: Block) -> bool:
    """Whether a `{` stands where a block may; elsewhere what it holds is a part of the mistake."""
    before = next((tokens[i - 1] for i, t in enumerate(tokens) if t.start == block.open and i > 0), None)
    return before is not None and (before.kind in ("name", "string", "close") or before.text == "with")


def _shell(source: Source, statement: Outline) -> str:
    """The text of a statement with its blocks empty and its brackets matched; offsets stay what they are."""
    pieces: list[str] = []
    position = statement.start
    holes = [(block.open + 1, block.close, " " * (block.close - block.open - 1)) for block in statement.blocks]
    for start, end, text in sorted([*holes, *((at, at + 1, text) for at, text in statement.instead.items())]):
        pieces += (source.text[position:start], text)
        position = end
    return "".join((*pieces, source.text[position : statement.end], statement.missing))


def _refusal(source: Source, statement: Outline, error: UnexpectedInput) -> Refusal:
    tokens = tuple(statement.tokens)
    at, accepts = len(tokens), frozenset[str]()
    if isinstance(error, UnexpectedToken):
        accepts = frozenset(error.accepts or ())
        if error.token.type != "$END":
            at = _index(tokens, statement.start + (error.token.start_pos or 0))
    elif isinstance(error, UnexpectedCharacters):
        accepts = frozenset(error.allowed or ())
        at = _index(tokens, statement.start + (error.pos_in_stream or 0))
    return Refusal(source, tokens, at, accepts)


def _helps(fix: Fix, text: str, offset: int) -> bool:
    """Whether the text of a statement, which begins at an offset, parses after a fix, at least past its edits."""
    for edit in sorted(fix.edits, key=lambda edit: -edit.span.start):
        text = text[: edit.span.start - offset] + edit.text + text[edit.span.end - offset :]
    last = max((edit.span.start - offset + len(edit.text) for edit in fix.edits), default=0)
    try:
        lalr().parse(text)
    except UnexpectedToken as error:
        return bool(error.token.type == "$END") or (error.token.start_pos or 0) >= last
    except UnexpectedInput as error:
        return (error.pos_in_stream or 0) >= last
    return True


def _index(tokens: tuple[Token, ...], offset: int) -> int:
    return next((i for i, token in enumerate(tokens) if token.end > offset), len(tokens))
