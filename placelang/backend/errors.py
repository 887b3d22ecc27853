"""The one error of this room: a diagnostic that can be raised across processes.

Not for: the wording of codes (`diagnostics.codes`) or layout (`diagnostics.render`).
"""

from __future__ import annotations

from placelang.diagnostics.diagnostic import Diagnostic, Label
from placelang.source import Span


class BackendError(Exception):
    """Why something cannot be run, or why a run ended. `diagnostic` is what users see.

    `rank` names the process at fault, if one is; `trace` is its traceback, for those who debug and never shown by
    itself.
    """

    def __init__(self, diagnostic: Diagnostic, *, rank: int | None = None, trace: str = "") -> None:
        super().__init__(diagnostic, rank, trace)
        self.diagnostic = diagnostic
        self.rank = rank
        self.trace = trace

    def __str__(self) -> str:
        return f"{self.diagnostic.code} {self.diagnostic.name}: {self.diagnostic.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.diagnostic, self.rank, self.trace)


def _rebuild(diagnostic: Diagnostic, rank: int | None, trace: str) -> BackendError:
    return BackendError(diagnostic, rank=rank, trace=trace)


def unsupported(what: str, instead: str, span: Span | None = None) -> BackendError:
    """E501: `what` this backend has no way to run, and what it runs `instead`."""
    return BackendError(Diagnostic("E501", what, Label(span) if span else None, help=instead))


def failed(code: str, message: str, help: str = "", cause: str = "") -> BackendError:
    return BackendError(Diagnostic(code, message, help=help, cause=cause))
