"""The checker's entries: a program against its one-device reference, and a plan with re-checked fixes.

Sound means: under exact arithmetic every rank ends the step with the parameters, optimizer state and copies of the
one-device step ("semantics", theorem T1). Unsound means: not shown equal, and the message names the premise that fails
(T2). Not for: capacity, schedules or what a backend can run.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from placelang.check.fault import Fault
from placelang.check.fold import Reference, fold, reference
from placelang.check.idle import idle
from placelang.check.inexact import inexact
from placelang.check.prune import prune
from placelang.check.types import Type
from placelang.diagnostics.codes import Verdict
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import from_use
from placelang.frozen import Frozen
from placelang.model.model import Model
from placelang.plan.plan import Plan
from placelang.program.atoms import refined
from placelang.program.event import Buf
from placelang.program.lower import lower, opens, single_device
from placelang.program.program import Program, sample

_WORST_FIRST = (
    Verdict.INVALID,
    Verdict.REFUSED,
    Verdict.UNSOUND,
    Verdict.NOT_SUPPORTED,
    Verdict.UNDECIDED,
    Verdict.INEXACT,
    Verdict.NO_BENEFIT,
    Verdict.SOUND,
)


@attrs.frozen(eq=False, repr=False)
class Checked(Frozen):
    """What is said of a strategy. `program` is pruned; `types` are those of its buffers, unrolled to three trips."""

    verdict: Verdict
    diagnostics: tuple[Diagnostic, ...]
    program: Program
    types: Mapping[Buf, Type] = attrs.field(repr=False)
    faults: tuple[Fault, ...] = attrs.field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """Whether it may run: no error, though there may be warnings."""
        return not any(d.is_error for d in self.diagnostics)


def check(program: Program, against: Program | Reference, plan: Plan | None = None) -> Checked:
    """Judge a program by the one-device program of the same job; the plan, if given, tells where causes stand."""
    checked, _ = _check(program, against if isinstance(against, Reference) else reference(against, program), plan)
    return checked


def check_plan(plan: Plan, model: Model) -> Checked:
    """Lower a plan, judge it, and look for the cheapest plan edits that make it sound."""
    declared, plan = plan, refined(plan) or plan
    inside = opens(plan)
    alone = lower(single_device(plan), model, inside=inside)
    lowered = lower(plan, model)
    against = reference(alone, lowered)
    checked, shown = _check(lowered, against, plan)
    if checked.ok:
        found = (*checked.diagnostics, *map(from_use, (*inexact(declared), *idle(declared))))
        return attrs.evolve(checked, diagnostics=found, verdict=_verdict(found))
    from placelang.check.fixes import fixes

    def sound(edited: Plan) -> bool:
        other = lower(edited, model, inside=inside)
        same = sample(other).trips == against.trips
        return not fold(prune(other).program, against if same else reference(alone, other)).faults

    mended = tuple(attrs.evolve(d, fixes=fixes(plan, faults, sound)) for d, faults in shown)
    warnings = checked.diagnostics[len(shown) :]
    return attrs.evolve(checked, diagnostics=(*mended, *warnings))


def _check(
    program: Program, against: Reference, plan: Plan | None
) -> tuple[Checked, tuple[tuple[Diagnostic, tuple[Fault, ...]], ...]]:
    pruned = prune(program)
    folded = fold(pruned.program, against)
    if not folded.faults and not pruned.removed:
        return Checked(Verdict.SOUND, (), pruned.program, folded.types), ()
    from placelang.check.explain import diagnostics, no_benefit  # words cost start-up time, and most texts need none

    shown = tuple((from_use(d), faults) for d, faults in diagnostics(folded.faults, program, plan))
    # What a refused program does in vain is no news: a missing step elsewhere may be why nobody reads it.
    warnings = () if folded.faults else tuple(map(from_use, no_benefit(pruned.removed)))
    found = (*(d for d, _ in shown), *warnings)
    return Checked(_verdict(found), found, pruned.program, folded.types, folded.faults), shown


def _verdict(found: tuple[Diagnostic, ...]) -> Verdict:
    """The worst that is said."""
    return min((d.verdict for d in found), key=_WORST_FIRST.index, default=Verdict.SOUND)
