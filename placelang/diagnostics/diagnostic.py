"""The one structured value for every message to a user.

Not for: prose layout (`render`) or the list of codes (`codes`).
"""

from __future__ import annotations

import attrs

from placelang.diagnostics.codes import CODES, Severity, Verdict
from placelang.frozen import Frozen
from placelang.source import Span

__all__ = ["Diagnostic", "Edit", "Fix", "Label", "Severity", "Verdict"]


@attrs.frozen
class Label:
    """A place in the text and what it has to do with the message (lower case, no full stop)."""

    span: Span
    text: str = ""


@attrs.frozen(eq=False, repr=False)
class Edit(Frozen):
    """Replace `span` by `text`."""

    span: Span
    text: str


@attrs.frozen(eq=False, repr=False)
class Fix(Frozen):
    """A change that helps. `checked` says that the edited text was checked again and found sound."""

    title: str  # what to write, e.g. "`grads: all_reduce(dp * tp)`"
    edits: tuple[Edit, ...] = ()
    cost: str = ""  # its consequence, e.g. "adds 2 norm-sized all-reduces per layer"
    checked: bool = False


@attrs.frozen(eq=False, repr=False)
class Diagnostic(Frozen):
    """One message. `code` is a key of `codes.CODES`, which gives the severity and verdict unless they are said."""

    code: str
    message: str
    primary: Label | None = None
    causes: tuple[Label, ...] = ()
    cause: str = ""  # a cause that has no place in the text, e.g. the arithmetic behind a number
    rule: str = ""
    counterexample: str = ""
    fixes: tuple[Fix, ...] = ()
    help: str = ""  # advice that is not an edit
    notes: tuple[str, ...] = ()
    severity: Severity = attrs.field()
    verdict: Verdict = attrs.field()

    @severity.default
    def _usual_severity(self) -> Severity:
        return CODES[self.code].severity

    @verdict.default
    def _usual_verdict(self) -> Verdict:
        return CODES[self.code].verdict

    @property
    def name(self) -> str:
        """The kebab name of the code, e.g. `grads-left-partial`."""
        return CODES[self.code].name

    def __str__(self) -> str:
        """One line: `error[E201]: the gradients stay partial over `dp``; `render.text` says all."""
        return f"{self.severity.value}[{self.code}]: {self.message}"

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR
