"""A text with errors, statement by statement: all are found, each is said once, and what is right is in the tree.

Each statement is parsed for itself (`outline` finds where it ends). Not for: texts without errors (`parser`), or the
wording of what is wrong (`complaints`).
"""

from __future__ import annotations

import attrs
from lark import Token as Leaf
from lark import Tree, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from placelang.diagnostics.diagnostic import Diagnostic, Fix, Label, Severity
from placelang.frozen import Frozen
from placelang.source import Source, Span
from placelang.syntax import ast
from placelang.syntax.build import Builder
from placelang.syntax.complaints import complain
from placelang.syntax.outline import Block, Outline, outline
from placelang.syntax.refusal import Refusal
from placelang.syntax.scan import MAX_DEPTH, Scan, Token
from placelang.syntax.spoilt import PLACEHOLDER, Part, spoilt
from placelang.syntax.table import lalr

MAX_ERRORS = 100  # after that many the text is probably no `.place` text, and nobody reads on


def recover(source: Source, scan: Scan, builder: Builder) -> tuple[ast.Statement, ...]:
    """The statements that are right; what is wrong with the others goes to the builder's diagnostics."""
    return Recovery(source, scan, builder).statements(outline(source, scan))


@attrs.define(eq=False, repr=False)
class Recovery(Frozen):
    """Parses statement by statement; after a mistake goes on with the next step, argument or element."""

    source: Source
    scan: Scan
    builder: Builder

    def statements(self, outlines: list[Outline]) -> tuple[ast.Statement, ...]:
        found: list[ast.Statement] = []
        joined = -1  # a statement that was read with the one before it
        lost = 0  # how many of the next belong to an earlier mistake
        for i, statement in enumerate(outlines):
            if len(self.builder.diagnostics) >= MAX_ERRORS:
                self._stop(statement)
                break
            if i == joined:
                continue
            if lost:
                lost -= 1
                self._lose(statement)
                continue
            said = len(self.builder.diagnostics)
            refused = self._read(statement, found)
            after = outlines[i + 1] if i + 1 < len(outlines) else None
            wrong = refused is not None or len(self.builder.diagnostics) > said
            if after is not None and after.unopened:  # what it closes should have been opened before it
                for one in _since_strategy(outlines[: i + 1]) if after.tokens[0].text == "}" else (statement,):
                    self._lose(one)
                lost = int(wrong)
            if wrong and (statement.blocks or (refused is not None and "LBRACE" in refused.accepts)):
                lost = max(lost, _block_without_opener(outlines[i + 1 :]))
            if refused is None:
                continue
            at_end = refused.at == len(statement.tokens)
            if at_end and after is not None and after.wrong is None:
                # A line that is not complete: the parser would have gone on to the next.
                both = Outline([*statement.tokens, *after.tokens], [*statement.blocks, *after.blocks])
                if self._read(both, found) is None:
                    joined = i + 1
                    continue
            shell = _shell(self.source, statement)
            self._say(complain(refused), shell, statement)
            found += self._rest(statement, shell, refused)
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
            self._lose(statement)
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
            self._lose(statement)
            if statement.hopeless:
                return None
        tree = self._parse(_shell(self.source, statement), statement)
        if isinstance(tree, Refusal):
            return None if statement.wrong else tree
        before = len(self.builder.diagnostics)
        built = self._build(tree, statement)
        if statement.wrong is not None:
            self.builder.diagnostics[before:] = []  # a mistake with brackets is one
        found += (s for s in built if not statement.wrong or isinstance(s, ast.Strategy | ast.On | ast.Placement))
        return None

    def _rest(self, statement: Outline, shell: str, refused: Refusal) -> tuple[ast.Statement, ...]:
        """Say what else is wrong in a refused statement, and give what is right in it: what is spoilt is left out, and
        the rest read again. Only a placement means something without a part of it."""
        left_out: list[Part] = []
        tree: Tree[Leaf] | Refusal = refused
        while isinstance(tree, Refusal):
            shell, tree = self._without(statement, shell, refused, left_out)
            if not isinstance(tree, Refusal):
                break
            refused, said = tree, complain(tree)
            holes = [self._span(statement, part) for part in left_out]
            if (
                any(part.touches(refused.at) for part in left_out)
                or said.primary is None
                or any(hole.start <= said.primary.span.start < hole.end for hole in holes)
                or len(self.builder.diagnostics) >= MAX_ERRORS
            ):
                self._lose(statement)
                return ()
            self._say(said, shell, statement)
        right = tuple(s for s in self._build(tree, statement) if _says_something(s))
        if not right or statement.wrong:
            self._lose(statement)
            return ()
        whole = self.source.span(statement.start, statement.end)
        self.builder.gaps += (ast.Gap(whole, span=self._span(statement, part)) for part in left_out)
        return right

    def _without(
        self, statement: Outline, shell: str, refused: Refusal, left_out: list[Part]
    ) -> tuple[str, Tree[Leaf] | Refusal]:
        """The shell without the smallest part around a refused token that lets the parser pass it, which is added to
        what was left out, and what the parser says then."""
        for part in spoilt(refused.tokens, refused.at):
            span = self._span(statement, part)
            start, end = span.start - statement.start, span.end - statement.start
            shorter = shell[:start] + part.instead.ljust(end - start) + shell[end:]
            tree = self._parse(shorter, statement)
            if not isinstance(tree, Refusal) or not part.touches(tree.at):
                left_out.append(part)
                return shorter, tree
        left_out.append(Part(0, len(statement.tokens) - 1))
        return shell, refused

    def _parse(self, shell: str, statement: Outline) -> Tree[Leaf] | Refusal:
        try:
            return lalr().parse(shell)
        except UnexpectedInput as error:
            return _refusal(self.source, statement, error)

    def _build(self, tree: Tree[Leaf], statement: Outline) -> tuple[ast.Statement, ...]:
        self.builder.offset = statement.start
        return self.builder.statements(tree)

    def _span(self, statement: Outline, part: Part) -> Span:
        return self.source.span(statement.tokens[part.first].start, statement.tokens[part.last].end)

    def _lose(self, statement: Outline) -> None:
        """What a statement would have said is not known."""
        whole = self.source.span(statement.start, statement.reach)
        self.builder.gaps.append(ast.Gap(whole, span=whole))

    def _say(self, diagnostic: Diagnostic, shell: str, statement: Outline) -> None:
        """Say it with those of its fixes that the parser accepts, or that bring it past the mistake."""
        good = tuple(fix for fix in diagnostic.fixes if _helps(fix, shell, statement.start))
        self.builder.diagnostics.append(attrs.evolve(diagnostic, fixes=good))

    def _stop(self, statement: Outline) -> None:
        rest = self.source.span(statement.start, len(self.source.text))
        self.builder.gaps.append(ast.Gap(rest, span=rest))
        if self.builder.diagnostics[-1].severity is not Severity.NOTE:
            label = Label(self.source.span(statement.start, statement.end), "not read from here on")
            message = f"more than {MAX_ERRORS} errors: the rest is not shown"
            self.builder.diagnostics.append(Diagnostic("E001", message, label, severity=Severity.NOTE))


def _since_strategy(outlines: list[Outline]) -> list[Outline]:
    """The last `strategy` and what follows it: its block may have ended too early."""
    last = next((i for i in reversed(range(len(outlines))) if outlines[i].tokens[0].text == "strategy"), 0)
    return outlines[last:]


def _block_without_opener(outlines: list[Outline]) -> int:
    """How many statements stand up to a `}` that closes nothing."""
    return next((i + 1 for i, o in enumerate(outlines) if o.unopened and o.tokens[0].text == "}"), 0)


def _says_something(statement: ast.Statement) -> bool:
    """Whether there is something to check in a statement of which parts are left out."""
    return isinstance(statement, ast.Placement) and statement.journey != ast.Name(PLACEHOLDER)


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
