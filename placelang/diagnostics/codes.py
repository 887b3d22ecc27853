"""The registry of codes: every kind of message that a user can meet, with its name, severity and verdict.

A code's page (`explain`) is a Markdown file beside this module: `explain/E201.md`. Not for: the wording of one message
(the room that finds a fault words it) or layout (`render`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType

import attrs

from placelang.frozen import Frozen


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Verdict(Enum):
    """What is said of a strategy (language reference, "Errors"); a message carries the verdict that it causes."""

    SOUND = "sound"
    UNSOUND = "unsound"  # with a counterexample: which rank lacks, or counts twice, whose contribution
    INEXACT = "inexact"  # sound but for a lossy or delayed gradient that the text asks for
    NO_BENEFIT = "no benefit"
    NOT_SUPPORTED = "not supported"  # by this backend or by this version, though it means something
    UNDECIDED = "undecided"  # until a named fact is given
    REFUSED = "refused"  # a condition that the text states does not hold
    INVALID = "invalid"  # the text has no meaning: syntax, names, numbers


@attrs.frozen(eq=False, repr=False)
class Code(Frozen):
    """One kind of message. `verdict` is what it usually causes; a diagnostic may say otherwise."""

    code: str
    name: str
    title: str
    verdict: Verdict = Verdict.INVALID

    @property
    def severity(self) -> Severity:
        return {"E": Severity.ERROR, "W": Severity.WARNING, "N": Severity.NOTE}[self.code[0]]

    @property
    def group(self) -> str:
        return GROUPS[self.code[:2]] if self.code[0] == "E" else GROUPS[self.code[0]]


GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "E0": "syntax and reading",
        "E1": "names and mesh",
        "E2": "gradient integrity",
        "E3": "state consistency",
        "E4": "capacity and schedule",
        "E5": "backend",
        "W": "warnings",
        "N": "notes",
    }
)

_I, _U, _X = Verdict.INVALID, Verdict.UNSOUND, Verdict.INEXACT
_N, _S, _D, _R = Verdict.NO_BENEFIT, Verdict.NOT_SUPPORTED, Verdict.UNDECIDED, Verdict.REFUSED

_ALL = (
    # E0
    Code("E001", "syntax-error", "the text does not follow the grammar", _I),
    Code("E002", "unreadable-file", "the file cannot be read as text", _I),
    Code("E003", "file-too-large", "the text is longer than any strategy needs", _I),
    Code("E004", "nested-too-deeply", "brackets or blocks are nested too deeply", _I),
    Code("E005", "bad-number-or-unit", "a word that begins with a digit is no number, quantity or known name", _I),
    Code("E006", "unterminated-string", "a string has no closing quote on its line", _I),
    Code("E007", "unexpected-character", "a character has no place in the language", _I),
    Code("E008", "unknown-edition", "`place N` names an edition that this version does not know", _I),
    # E1
    Code("E101", "unknown-name", "a name is declared nowhere", _I),
    Code("E102", "unknown-axis", "an axis is not part of the mesh", _I),
    Code("E103", "declared-twice", "a name is declared twice", _I),
    Code("E104", "axis-used-twice", "one axis, or axes of the same ranks, place one tensor twice", _I),
    Code("E105", "wrong-kind-of-value", "a value of another kind is expected here", _I),
    Code("E106", "bad-option", "a call has no such option, or the option no such value", _I),
    Code("E107", "missing-argument", "a call lacks an argument that it needs", _I),
    Code("E108", "needs-override", "a second word on the same thing, without `override`", _I),
    Code("E109", "bad-mesh", "the sizes of the mesh do not make the number of devices", _I),
    Code("E110", "selector-matches-nothing", "a quoted selector matches no module or parameter", _I),
    Code("E111", "unit-mismatch", "two quantities of different units are added, compared or passed", _I),
    Code("E112", "not-interpreted", "valid language that this version does not interpret", _S),
    Code("E113", "role-needed", "an axis has neither a well-known name nor a role", _I),
    Code("E114", "ambiguous-axis", "`sp` means two things", _I),
    Code("E115", "circular-use", "files, strategies or values refer to themselves", _I),
    Code("E116", "use-not-found", "a file or package that `use` names cannot be found", _I),
    Code("E117", "meshes-do-not-refine", "two factorisations of the same ranks have no common refinement", _I),
    Code("E118", "journey-does-not-fit", "a step of a journey cannot follow what stands before it", _I),
    Code("E119", "said-twice", "a fact or state is said twice in one place", _I),
    Code("E120", "unreadable-model", "a model's config.json or factory cannot be understood", _I),
    Code("E121", "fact-needed", "the answer depends on a fact that the text does not give", _D),
    Code("E122", "require-failed", "a `require` of the text does not hold", _R),
    # E2
    Code("E201", "grads-left-partial", "the optimizer reads a gradient that lacks contributions", _U),
    Code("E202", "grads-counted-twice", "the optimizer reads a gradient that counts contributions more than once", _U),
    Code("E203", "wrong-scale", "the gradient is a multiple of the true one", _U),
    Code("E204", "microbatch-missing", "the optimizer reads a gradient that lacks a microbatch", _U),
    Code("E205", "optimizer-block-split", "a shard boundary cuts a block that the optimizer needs whole", _U),
    Code("E206", "update-layout-mismatch", "gradient, optimizer state and parameter lie in different layouts", _U),
    Code("E207", "reduces-different-shards", "a reduction adds up pieces of different elements", _U),
    Code("E208", "drops-contributions", "a slice throws partial sums away", _U),
    Code("E209", "wrong-value", "a value is not the one that a single device would have here", _U),
    Code("E211", "clip-norm-axes", "the clipping norm is not that of the whole gradient", _U),
    Code("E212", "loss-not-normalised", "the loss is divided by a count that is local or counted twice", _U),
    Code("E213", "routing-group-unsaid", "expert routing depends on a token set that the model does not name", _D),
    Code("E214", "consume-impossible", "gradients cannot be consumed in backward here", _U),
    # E3
    Code("E301", "stale-copy", "a copy is not refreshed after the optimizer's step", _U),
    Code("E302", "use-without-gather", "a shard is used where the whole is needed", _U),
    Code("E303", "rest-layout-changed", "a state ends the step in another layout than it began", _U),
    Code("E304", "partial-operand", "a nonlinear function reads a partial sum", _U),
    Code("E305", "group-incomplete", "a collective or operation misses some of its ranks", _U),
    Code("E306", "layouts-do-not-meet", "the operands of one operation lie in layouts that do not fit", _U),
    Code("E308", "value-not-there", "a value is read where it was never made or is already freed", _U),
    # E4
    Code("E401", "batch-identity", "the batch numbers contradict each other", _I),
    Code("E403", "assert-failed", "an `assert` of the text does not hold", _R),
    Code("E410", "microbatches-not-whole-rounds", "an interleaved schedule needs whole rounds of microbatches", _I),
    Code("E411", "too-few-microbatches", "the schedule needs more microbatches than the step has", _I),
    Code("E412", "stages-do-not-fit", "the schedule does not exist for this number of stages or chunks", _I),
    Code("E413", "schedule-without-stages", "a schedule, but no layers on a stage axis (or the reverse)", _I),
    Code("E420", "uneven-heads", "attention heads do not divide over the axis", _I),
    Code("E421", "layers-over-stages", "layers do not divide over the stages", _I),
    Code("E422", "uneven-shards", "a dimension does not divide over the axis and may not be padded", _I),
    Code("E423", "too-few-kv-heads", "fewer key-value heads than ranks that split them", _I),
    Code("E424", "bad-split", "a written split does not cover the dimension", _I),
    # E5
    Code("E501", "backend-not-supported", "the backend has no way to run this", _S),
    Code("E502", "torch-missing", "running needs torch, which is not installed", _S),
    Code("E503", "ranks-mismatch", "the number of processes is not that of the mesh", _I),
    Code("E504", "run-failed", "a process of the run failed", _I),
    # W
    Code("W201", "lossy-gradient", "the text asks for a compressed gradient", _X),
    Code("W202", "delayed-gradient", "the text asks for a gradient of an earlier step", _X),
    Code("W203", "local-updates", "the text asks for replicas that differ between averages", _X),
    Code("W401", "no-benefit", "a part of the strategy changes nothing", _N),
    # N
    Code("N101", "role-not-in-model", "a selector names a role that this model lacks", Verdict.SOUND),
    Code("N102", "claim-undecided", "a `require` or `assert` waits for a fact that the text does not give", _D),
)

_PAGES = Path(__file__).parent / "explain"

CODES: Mapping[str, Code] = MappingProxyType({c.code: c for c in _ALL})


def find(word: str) -> Code | None:
    """The code with this number or kebab name, in any case; None if there is none."""
    wanted = word.strip().lower()
    return next((c for c in _ALL if wanted in (c.code.lower(), c.name)), None)


def explain(code: str) -> str:
    """The page of a code in Markdown: meaning, a wrong text and what is said of it, a right one, the rule.

    Raises KeyError if there is no such code.
    """
    return (_PAGES / f"{CODES[code].code}.md").read_text(encoding="utf-8")
