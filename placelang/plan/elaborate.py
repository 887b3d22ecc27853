"""From an AST to a complete Plan: declarations, composition, facts, then the elaboration rules.

Not for: verdicts on the result (`check`), or whether sizes fit (`capacity`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING

from placelang.diagnostics.diagnostic import Diagnostic, Label, Verdict
from placelang.diagnostics.problems import Problems, every, fault, refuse
from placelang.model.model import Model, generic
from placelang.plan import capacity, claims, compose, consumed, declare, job, library, meshes, selectors, unread
from placelang.plan.facts import NAMES, train_facts
from placelang.plan.infer import infer, split_axes, update
from placelang.plan.mesh import Mesh, Role
from placelang.plan.plan import BackendOptions, Claim, Placed, Plan, Selection, State
from placelang.plan.refine import refined
from placelang.plan.repeated import repeated
from placelang.plan.scope import Scope
from placelang.plan.steps import FORMS, AllToAll, Ring, Shard
from placelang.plan.text import step_text
from placelang.plan.values import Unknown, Value, evaluate
from placelang.source import Source
from placelang.syntax import ast, reader

if TYPE_CHECKING:
    from placelang.hardware.hardware import Hardware


Options = Callable[[Sequence[BackendOptions]], Sequence[Diagnostic]]
"""What is wrong with the `backend` lines of a text."""


def elaborate(
    file: ast.File,
    sets: Mapping[str, Value] | None = None,
    model: Model | ast.Fact | None = None,
    factory: job.Factory | None = None,
    options: Options | None = None,
    devices: int | None = None,
) -> tuple[Plan | None, tuple[Diagnostic, ...]]:
    """The plan of a text, or None, with every fault of the text.

    Of a text with gaps it says what does not depend on what was not read.
    `model`, a value or a line, stands in for the text's own `model` line. `factory` makes a model of Python code, and
    `options` says what is wrong with the options of backends, which are no business of this room. `devices`: how many
    there are to run on; they give a size to the axis that has none, and another machine than the text's is no part of
    the plan.
    """
    problems = Problems()
    lines = _Lines(file.statements, problems)
    lines.set(sets or {}, file.statements)
    if isinstance(model, ast.Fact):
        lines.model, model = model, None
    hardware: list[Hardware] = []
    kept = Problems()  # why a line of the job was refused: never said to follow from that

    def count(scope: Scope) -> int | None:
        if lines.hardware is not None and not hardware:
            with kept.noting():
                hardware.append(job.hardware(lines.hardware, scope))
        return hardware[0].devices if hardware else None

    scope = declare.declare(file, sets or {}, count, read_beside, problems, asked=devices)
    if devices is not None and not scope.declared_mesh and (size := _left_over(file, scope, devices, problems)):
        scope = declare.declare(file, {**(sets or {}), **size}, count, read_beside, problems, asked=devices)
    if devices is not None and hardware and hardware[0].devices != devices:
        hardware.clear()
        lines.hardware = None
    if model is not None:
        lines.model = None
    elif lines.model is not None:
        with problems.catching(), kept.noting():
            model = job.model(lines.model, scope, factory)
    composed = compose.composed(file.statements, scope, problems)
    nothing = not composed.journeys and composed.schedule is None and not file.gaps
    mesh = scope.mesh()
    # What a mistake left out would be inferred, and then contradict what is written: nothing is said of that.
    quiet = Problems() if problems.any_error or nothing or not unread.placed(file.gaps) else problems
    states = infer(composed.journeys, mesh, quiet)
    samples = split_axes(s for s in states[State.ACTIVATIONS] if getattr(s, "dim", "") == "batch")
    before = set(problems)
    train, assumptions = train_facts(lines.train, scope, mesh, samples, problems)
    refused_facts = [d for d in problems if d not in before and d.code not in ("E121", "E401")]
    kept.add(*refused_facts)
    broken_train = lines.train if any(d.primary for d in refused_facts) else None
    selected = refined(composed.journeys, states, mesh, model or generic(), train.frozen, quiet)
    placed = (*(Placed(state, journey) for state, journey in states.items()), *selected.placed)
    for p in placed:
        _one_axis_per_rank(p, mesh, quiet)
    _tokens(placed, mesh, quiet)
    lie = ((states[State.PARAMS], states[State.OPTIMIZER]), *selected.lie)
    fresh = update(composed.base().get("update", ()), lie, mesh, quiet)
    backends = _backends(file.statements, scope, problems)
    scope.used_sets |= {"model", "hardware"}
    declare.names_nothing(scope, (*NAMES, "model", "hardware"), problems)
    plan = Plan(
        mesh,
        placed,
        fresh,
        train,
        model,
        assumptions,
        composed.schedule,
        hardware[0] if hardware else None,
        tuple(_claim(c, s) for c, s in composed.claims),
        backends,
        repeated(file.statements, [f for f in (lines.model, lines.hardware) if f], composed.claims, scope),
    )
    _selections(plan, problems)
    known = claims.facts(mesh, train, model)
    if model is None and lines.model is not None:  # refused: what conditions ask of it is not known
        known = {**dict.fromkeys(claims.OF_MODELS, Unknown("model")), **known}
    modelled = model is not None or lines.model is not None
    for claim, claim_scope in composed.claims:
        if claim.kind == "require":
            problems.add(*claims.check(claim, claim_scope, known, lambda _n, _s: None))
        else:
            problems.add(*claims.without_costs(claim, claim_scope, known, modelled))
    problems.add(*consumed.faults(plan))
    if not problems.any_error and not nothing and unread.known(file.gaps):
        problems.add(*capacity.faults(plan))
    if backends and options:
        problems.add(*options(backends))
    if nothing and not problems.any_error:  # else the text is not finished, and what is wrong in it comes first
        problems.add(_nothing_placed(scope))
    broken_facts = (broken_train, None if hardware else lines.hardware, None if model else lines.model)
    facts = [unread.refused(line) for line in broken_facts if line is not None]
    why = set(kept)

    def follows(d: Diagnostic) -> bool:
        return unread.follows(d, file.gaps) or (d not in why and unread.follows(d, facts))

    wrong = problems.any_error
    said = problems.sorted(file.source, but=lambda d: follows(d) or (wrong and d.code == "N102"))
    refused = any(d.is_error and d.verdict is not Verdict.NOT_SUPPORTED for d in problems)
    if refused and not file.gaps and not any(d.is_error for d in said):
        said = problems.sorted(file.source)  # nothing is refused without a word
    return (None if refused else plan), said


def _left_over(file: ast.File, scope: Scope, devices: int, problems: Problems) -> dict[str, Value]:
    """Without a `mesh` line axes are those that the text uses: what the one without a size gets of the devices."""
    trial = Problems()
    compose.composed(file.statements, scope, trial)
    if trial.any_error or problems.any_error:
        return {}
    with problems.catching():
        found = meshes.filled(tuple(scope.axes.values()), devices, scope, None)
        return {a.name: Fraction(a.size) for a in found if a.size is not None and scope.axes[a.name].size is None}
    return {}


class _Lines:
    """The lines that may stand once."""

    def __init__(self, statements: Iterable[ast.Statement], problems: Problems) -> None:
        self.train: ast.Train | None = None
        self.model: ast.Fact | None = None
        self.hardware: ast.Fact | None = None
        for s in statements:
            name = "train" if isinstance(s, ast.Train) else s.kind if isinstance(s, ast.Fact) else ""
            if name and (first := getattr(self, name)) is not None:
                problems.add(fault("E119", f"a second `{name}` line", s.span, causes=(Label(first.span, "the first"),)))
            elif name:
                setattr(self, name, s)

    def set(self, sets: Mapping[str, Value], statements: Iterable[ast.Statement]) -> None:
        """`--set model=...` and `--set hardware=...` stand in for lines, unless an `arg` has the name."""
        args = {s.name.text for s in statements if isinstance(s, ast.ArgDecl)}
        for name in ("model", "hardware"):
            if name in sets and name not in args:
                setattr(self, name, job.line(name, sets[name]))


def read_beside(path: str, source: Source) -> Source | Diagnostic:
    """The file that `use` names: relative to the text, or inside an importable package as `package/file.place`."""
    beside = Path(source.name).parent / path
    if path.startswith((".", "/")) or isfile(beside):  # which, unlike Path.is_file, raises nothing
        return reader.read_file(beside)
    from importlib.util import find_spec

    package, _, inner = path.partition("/")
    try:
        spec = find_spec(package) if package.isidentifier() else None  # finds it without importing it
    except ValueError:
        spec = None
    folders = (spec.submodule_search_locations if spec else None) or ()
    for folder in folders:
        return reader.read_file(Path(folder) / inner)
    return fault("E116", f"there is no file or package `{path}`", None, help='files are named `"./house.place"`')


def _one_axis_per_rank(placed: Placed, mesh: Mesh, problems: Problems) -> None:
    """Of axes that share ranks (views) a state uses one."""
    used: dict[str, str] = {}
    for step in placed.journey:
        if not isinstance(step, FORMS):
            continue
        for axis in step.axes:
            clash = next((used[a] for a in mesh.shared(axis) if a in used), None)
            if clash is not None and clash != axis:
                problems.add(
                    fault(
                        "E104", f"`{axis}` and `{clash}` are axes of the same ranks", step.span, help="use one of them"
                    )
                )
            used[axis] = axis


def _tokens(placed: Sequence[Placed], mesh: Mesh, problems: Problems) -> None:
    """`ring` and `ulysses` bring together a sequence that their axes split; ranks of a data axis hold all heads, and
    scores of the whole vocabulary, of other samples."""
    said = [s for p in placed if p.state is State.ACTIVATIONS for s in p.journey]
    split = {a for s in said if isinstance(s, Shard) and s.dim == "seq" for own in s.axes for a in mesh.shared(own)}
    for step in said:
        whole = [a for a in step.axes if a not in split]
        if whole and (isinstance(step, Ring) or (isinstance(step, AllToAll) and step.dim == "heads")):
            word = step_text(step).partition("(")[0]
            message = f"`{word}` over `{whole[0]}` has nothing to bring together: its ranks hold whole sequences"
            other = mesh.of_role(Role.SEQUENCE)
            fix = f"`{word}({other[0]})`" if other else f"`{word}(cp)` over an axis `cp` of the mesh"
            help_ = f"{fix}, or `activations: shard({whole[0]}, dim = seq)`"
            problems.add(fault("E118", message, step.span, help=help_))
        data = [a for a in step.axes if mesh[a].role is Role.DATA]
        if isinstance(step, Shard) and step.dim in ("heads", "vocab") and data:
            message = f"`dim = {step.dim}` over `{data[0]}`, whose ranks each compute all of it for other samples"
            tensor = (*mesh.of_role(Role.TENSOR), "tp")[0]
            help_ = f"`shard({data[0]}, dim = batch)`; `shard({tensor}, dim = {step.dim})` splits one computation"
            problems.add(fault("E106", message, step.span, help=help_))


def _selections(plan: Plan, problems: Problems) -> None:
    """Globs match something, and what a role matches is said where that is nothing."""
    for placed in plan.placed:
        for selection in placed.selections:
            if selection.span is not None and library.is_home(selection.span.source):
                continue  # a shipped strategy names roles of every model
            if plan.model is not None and (found := selectors.check_match(selection, plan.model, plan.train.frozen)):
                problems.add(found)
    for pattern in plan.train.frozen if plan.model is not None else ():
        frozen = Selection("glob", pattern, plan.train.span)
        if plan.model is not None and (found := selectors.check_match(frozen, plan.model, ())):
            problems.add(found)


def _claim(claim: ast.Claim, scope: Scope) -> Claim:
    return Claim(claim, scope)


def _backends(statements: Iterable[ast.Statement], scope: Scope, problems: Problems) -> tuple[BackendOptions, ...]:
    found: list[BackendOptions] = []
    for s in statements:
        if isinstance(s, ast.Backend):
            with problems.catching():
                if any(b.name == s.name.text for b in found):
                    first = next(b.span for b in found if b.name == s.name.text)
                    causes = (Label(first, "the first"),) if first else ()
                    raise refuse("E119", f"a second `backend {s.name.text}` line", s.span, causes=causes)
                values = tuple(every(lambda a: _named(a, scope), s.args))
                found.append(BackendOptions(s.name.text, values, tuple(a.span for a in s.args), s.span))
    return tuple(found)


def _named(arg: ast.Arg, scope: Scope) -> tuple[str, Value]:
    """The name and the value of an option."""
    if arg.name is None:
        raise refuse("E107", "options are written `name = value`", arg.span, help=f"`{arg.value.span.text} = true`")
    return arg.name, evaluate(arg.value, scope.lookup)


def _nothing_placed(scope: Scope) -> Diagnostic:
    """What is said of a text without a strategy; one that it declares is the nearest way to one."""
    if scope.strategies:
        return fault("E107", "the text applies no strategy", None, help=f"`apply {next(reversed(scope.strategies))}`")
    data = (*scope.mesh().of_role(Role.DATA), "dp")[0]
    smallest = f"`params: shard({data}) ; grads: reduce_scatter`"
    return fault("E107", "the text places no state", None, help=f"the smallest strategy: {smallest}")
