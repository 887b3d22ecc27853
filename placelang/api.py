"""The library's front door: a text or a file becomes a value that is checked, costed, explained and run.

`load` never raises on what a user wrote: look at `.ok` and `.diagnostics`. Every room behind it can be called alone.
Not for: the command line (`tools`), which is thin over this.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from placelang.diagnostics.diagnostic import Diagnostic, Verdict
from placelang.diagnostics.problems import fault, in_order
from placelang.model.model import Model, ModelError, generic
from placelang.plan.elaborate import elaborate
from placelang.plan.explain import explain
from placelang.plan.plan import BackendOptions, Plan
from placelang.plan.values import Value, evaluate
from placelang.source import Source, Span
from placelang.syntax import ast, reader
from placelang.syntax.parser import parse
from placelang.syntax.words import quote

if TYPE_CHECKING:
    from placelang.backend.parallel import Parallel
    from placelang.check.check import Checked
    from placelang.cost.cost import Cost
    from placelang.program.program import Program


class NotSound(Exception):
    """Asked to run or cost what was refused. `diagnostics` says why."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__("; ".join(d.message for d in diagnostics if d.is_error) or "no plan")
        self.diagnostics = diagnostics


@attrs.frozen(slots=False)
class Strategy:
    """What a text denotes. `plan` is None when the text has no meaning; `diagnostics` then say why."""

    source: Source
    file: ast.File
    plan: Plan | None
    _front: tuple[Diagnostic, ...]

    @cached_property
    def gaps(self) -> tuple[Diagnostic, ...]:
        """What of the plan this version does not lower; while there is any, nothing is checked, costed or run."""
        from placelang.program.supported import unsupported

        return unsupported(self.plan, self.model) if self.plan else ()

    @cached_property
    def checked(self) -> Checked | None:
        """The checker's answer, found when first asked for; None when there is no plan to check."""
        if self.plan is None or self.gaps:
            return None
        from placelang.check.check import check_plan

        return check_plan(self.plan, self.model)

    @property
    def model(self) -> Model:
        """The model that the text names, or a generic stand-in whose structure is enough for a check."""
        return (self.plan.model if self.plan else None) or generic()

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        found = self.checked.diagnostics if self.checked else self.gaps
        return (*self._front, *found, *self._failed_asserts)

    @cached_property
    def _failed_asserts(self) -> tuple[Diagnostic, ...]:
        """Every `assert` of the text that does not hold; it takes a model and a plan that could be lowered."""
        from placelang.plan import claims

        plan = self.plan
        asserts = [c for c in plan.claims if c.statement.kind == "assert"] if plan else []
        if plan is None or not asserts or self.gaps or plan.model is None:
            return ()
        known = claims.facts(plan.mesh, plan.train, plan.model)
        value = self._unknown if self.lacks else self.cost().value
        found = (d for c in asserts for d in claims.check(c.statement, c.scope, known, value))
        said = {d.primary for d in self._front}  # such as a name that no cost has
        return tuple(d for d in found if d.primary not in said)

    @property
    def ok(self) -> bool:
        """Whether the strategy is sound, so far as it was asked to be."""
        return self.verdict in (Verdict.SOUND, Verdict.NO_BENEFIT, Verdict.INEXACT)

    @property
    def sound(self) -> bool:
        """Whether it would train like one device, whatever its asserts say: what has a cost."""
        return self.checked is not None and self.checked.ok

    @property
    def verdict(self) -> Verdict:
        errors = [d for d in (*self._front, *self.gaps, *self._failed_asserts) if d.is_error]
        if errors:
            worst = next((d for d in errors if d.verdict is not Verdict.NOT_SUPPORTED), errors[0])
            return worst.verdict
        return self.checked.verdict if self.checked else Verdict.INVALID

    @cached_property
    def program(self) -> Program:
        """The step program, without events that reach no state where it is sound. Raises NotSound without a plan."""
        from placelang.program.lower import lower

        plan = self._plan()
        if self.gaps:
            raise NotSound(self.gaps)
        return self.checked.program if self.checked and self.checked.ok else lower(plan, self.model)

    @property
    def lacks(self) -> tuple[Diagnostic, ...]:
        """What the text must still say before it has a cost: a model, and over how many stages layers lie."""
        from placelang.program.stages import unsized

        plan = self._plan()
        if plan.model is None:
            return (no_model(),)
        axis = unsized(plan)
        if axis is None:
            return ()
        said = f"a cost needs the number of stages, and `{axis}` has no size"
        return (fault("E121", said, plan.mesh[axis].span, help=f"`--set {axis}=4`, or a size in the `mesh` line"),)

    def _unknown(self, name: str, span: Span) -> Value | None:
        """What an assert reads of a cost that still waits for the number of stages."""
        from placelang.plan.values import Unknown
        from placelang.program.stages import unsized

        axis = unsized(self._plan())
        return Unknown(axis) if axis else None

    def cost(self) -> Cost:
        """Memory, traffic and time of one step. Raises NotSound when there is no plan, or what `lacks` says."""
        from placelang.cost.cost import cost

        plan = self._plan()
        if plan.model is None or self.lacks:
            raise NotSound(self.lacks)
        return cost(plan, plan.model, self.program)

    def explain(self) -> str:
        """The complete strategy as text, a reason beside each line. Raises NotSound when there is no plan."""
        return explain(self._plan())

    def parallelize(self, module: Any, **options: Any) -> Parallel:
        """Place a torch module as the text says; see `backend.apply.parallelize`. Raises NotSound when refused."""
        if not self.ok:
            raise NotSound(self.diagnostics)
        from placelang.backend.apply import parallelize

        return parallelize(self._plan(), module, **options)

    def _plan(self) -> Plan:
        if self.plan is None:
            raise NotSound(self.diagnostics)
        return self.plan


def no_model() -> Diagnostic:
    return fault(
        "E121",
        "a cost needs a model, which no line gives",
        None,
        help="`model gpt2_124m` in the text, or `--model gpt2_124m`",
    )


def load(
    text: str | os.PathLike[str], *, model: str | Model | None = None, devices: int | None = None, **sets: object
) -> Strategy:
    """The strategy of a path or a text. `sets` give values to args, mesh sizes and facts, as `--set` does.

    `devices`: how many there are to run on, as `--nproc` says, in place of what a `hardware` line says; the axis that
    has no size gets what the others leave of them. A `str` is a path when it names a file or ends in `.place`, else the
    text itself. Never raises on user input.
    """
    source = _source(text)
    if isinstance(source, Diagnostic):
        nothing = Source("", str(text) if _is_path(text) else "<text>")
        return Strategy(nothing, ast.File(nothing), None, (source,))
    return load_source(source, model=model, devices=devices, sets=sets)


def load_source(
    source: Source,
    *,
    model: str | Model | None = None,
    devices: int | None = None,
    sets: Mapping[str, object] | None = None,
) -> Strategy:
    """As `load`, of a source that was read already."""
    file, problems = parse(source)
    found, more = _model(model)
    values, bad = _values(sets or {})
    if devices is not None and (isinstance(devices, bool) or not isinstance(devices, int) or devices < 1):
        bad = (*bad, fault("E105", f"`devices` is a whole number from 1 up, not {devices!r}", None))
        devices = None
    front = (*problems, *more, *bad)
    plan, diagnostics = elaborate(file, values, found, _factory, _options, devices)
    if any(d.is_error for d in front):
        plan = None
    return Strategy(source, file, plan, tuple(in_order((*front, *diagnostics), source)))


def _is_path(text: str | os.PathLike[str]) -> bool:
    if not isinstance(text, str):
        return True
    if "\n" in text or "\0" in text or len(text) > 4096:
        return False
    return text.endswith(".place") or os.path.isfile(text)  # which, unlike Path.is_file, raises nothing


def _source(text: str | os.PathLike[str]) -> Source | Diagnostic:
    return reader.read_file(text) if _is_path(text) else reader.from_text(str(text))


def _model(model: str | Model | None) -> tuple[Model | ast.Fact | None, tuple[Diagnostic, ...]]:
    """A model that was given beside the text. A `str` is what may stand after `model` in a text; paths and factories
    need no quotes."""
    if model is None or isinstance(model, Model):
        return model, ()
    from placelang.plan.job import FACTORY

    quoted = model.endswith(".json") or os.sep in model or FACTORY.fullmatch(model)
    source = reader.from_text(f"model {quote(model)}" if quoted else f"model {model}", "--model")
    if isinstance(source, Diagnostic):
        return None, (source,)
    file, problems = parse(source)
    match file.statements:
        case (ast.Fact(kind="model", value=ast.Name() | ast.Call() | ast.String()) as line,) if not problems:
            return line, ()
    from placelang.model import catalogue

    found = catalogue.lookup(model)
    assert isinstance(found, ModelError), "a published name is a name"
    return None, (fault("E101", found.message, None, help=found.suggestion),)


def _options(lines: Sequence[BackendOptions]) -> Sequence[Diagnostic]:
    """What is wrong with `backend` lines; the backends themselves are not imported."""
    from placelang.backend import options

    return options.check(lines)


def _factory(path: str, folder: Path) -> Model | Diagnostic:
    """The model that Python code makes; torch is imported for this and not before."""
    from placelang.backend import factory

    return factory.load(path, folder)


def _values(sets: Mapping[str, object]) -> tuple[dict[str, Value], tuple[Diagnostic, ...]]:
    """Values of `--set`, each read as an expression of the language."""
    values: dict[str, Value] = {}
    problems: list[Diagnostic] = []
    for name, given in sets.items():
        written = str(given).lower() if isinstance(given, bool) else str(given)
        source = reader.from_text(f"let value = {written}", f"--set {name}")
        if isinstance(source, Diagnostic):
            problems.append(source)
            continue
        file, faults = parse(source)
        match file.statements:
            case (ast.Let(value=expr),) if not faults:
                from placelang.diagnostics.problems import Refused

                try:
                    values[name] = evaluate(expr, lambda _name, _span, _needed=False: None)
                except Refused as refused:
                    problems += refused.diagnostics
            case _:
                problems.append(
                    fault("E105", f"`--set {name}={written}` is no value", None, help=_said(faults) or "`--set dp=8`")
                )
    return values, tuple(problems)


def _said(faults: Sequence[Diagnostic]) -> str:
    """The advice of the parser on a number that it cannot read."""
    bad = next((d for d in faults if d.code == "E005"), None)
    return "; ".join(filter(None, (*(fix.title for fix in bad.fixes), bad.help))) if bad else ""
