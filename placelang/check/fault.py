"""Faults: which premise of which rule an event breaks, as facts without prose.

A rule raises `Ill` with one; the fold collects them and `explain` words them. Not for: wording, spans, fixes.
"""

from __future__ import annotations

import attrs

from placelang.check.counterexample import Counterexample
from placelang.frozen import Frozen
from placelang.program.event import Buf, Event, Label, Layout


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Fault(Frozen):
    """`buf` is the operand (or the state at the end of the step) at fault; unset fields do not matter to the code."""

    code: str  # a key of diagnostics.codes.CODES
    rule: str  # the rule of "semantics", section 9, whose premise fails
    buf: Buf | None = None
    event: Event | None = None
    axes: tuple[str, ...] = ()
    label: Label | None = None
    found: Layout = ()
    wanted: Layout = ()
    missing: tuple[tuple[int | None, str], ...] = ()  # (microbatch, site) of absent gradients; no site: of all uses
    counterexample: Counterexample | None = None
    owners: tuple[str, ...] = ()  # the groups of parameters that a norm or flag lacks, or whose gradients are wrong
    stage: tuple[str, int] | None = None  # (axis, coordinate) of a pipeline stage whose ranks show it
    detail: str = ""  # what a malformed event or a wrong value is, for codes that no text alone can cause


class Ill(Exception):
    """A premise does not hold."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.code)
        self.fault = fault
