"""Facts about the job: the `train (...)` line and the batch identity.

Not for: what a strategy chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod
from typing import Any

from placelang.diagnostics.problems import Problems, refuse
from placelang.plan.dtypes import PRECISIONS
from placelang.plan.meant import meant
from placelang.plan.mesh import Mesh
from placelang.plan.plan import MOMENTS, Assumption, Train
from placelang.plan.scope import Scope
from placelang.plan.values import Unknown, Value, Word, evaluate, kind
from placelang.source import Span
from placelang.syntax import ast

_WORDS: Mapping[str, tuple[str, ...]] = {
    "optimizer": tuple(MOMENTS),
    "precision": tuple(PRECISIONS),
    "loss": ("tokens", "samples"),
}
_COUNTS = ("seq", "micro_batch", "microbatches", "global_batch")
_NUMBERS = ("clip", "loss_scale", "dropout")
NAMES = (*_WORDS, *_COUNTS, *_NUMBERS, "frozen")
_LARGEST = 2**40


def train_facts(
    statement: ast.Train | None, scope: Scope, mesh: Mesh, samples: tuple[str, ...], problems: Problems
) -> tuple[Train, tuple[Assumption, ...]]:
    """The `train` line with what `--set` says in its place. `samples`: the axes whose ranks read other samples."""
    given: dict[str, tuple[Any, Span | None]] = {}
    for arg in statement.args if statement else ():
        with problems.catching():
            if arg.name in given:
                raise refuse("E119", f"`{arg.name}` is given twice", arg.span)
            if arg.name in NAMES:
                given[arg.name] = None, arg.span
            name, value = _fact(arg, scope)
            given[name] = value, arg.span
    for name in NAMES:
        if name in scope.sets and name not in scope.args and name not in scope.lets:
            scope.used_sets.add(name)
            with problems.catching():
                given[name] = _typed(name, scope.sets[name], None), None
    values = {name: value for name, (value, _) in given.items() if value is not None}
    count = values.get("microbatches", 1)
    with problems.catching():
        if not scope.broken:
            count = _batch_identity(values, mesh, samples, given.get("global_batch", (None, None))[1])
    assumptions = []
    if "precision" not in values:
        assumptions.append(Assumption("precision", "fp32 everywhere: the text names no precision"))
    if "optimizer" not in values:
        assumptions.append(Assumption("optimizer", "adamw: the text names no optimizer"))
    if "microbatches" in values:
        whole, ranks = values.pop("global_batch", None), mesh.size(samples)
        if whole is not None and ranks is not None:
            values.setdefault("micro_batch", whole // (ranks * count))
    values["microbatches"] = count
    precision = PRECISIONS[values.pop("precision", "fp32")]
    return Train(precision=precision, span=statement.span if statement else None, **values), tuple(assumptions)


def _fact(arg: ast.Arg, scope: Scope) -> tuple[str, Any]:
    if arg.name is None:
        raise refuse(
            "E107", "facts are written `name = value`", arg.span, help="`train (optimizer = adamw, seq = 2048)`"
        )
    if arg.name not in NAMES:
        near = meant(arg.name, NAMES)
        raise refuse(
            "E106",
            f"`train` has no fact `{arg.name}`",
            arg.span,
            help=f"did you mean `{near}`?" if near else f"facts: {', '.join(NAMES)}",
        )
    return arg.name, _typed(arg.name, evaluate(arg.value, scope.lookup), arg.value.span)


def _typed(name: str, value: Value, span: Span | None) -> Any:
    if isinstance(value, Unknown):
        return None
    shown = f"`{name}`" if span else f"`--set {name}`"
    if name in _COUNTS:
        if (
            isinstance(value, Fraction)
            and not isinstance(value, bool)
            and value.denominator == 1
            and 1 <= value <= _LARGEST
        ):
            return int(value)
        raise refuse("E105", f"{shown} is a whole number from 1 up, not {kind(value)}", span)
    if name in _NUMBERS:
        most = 1 if name == "dropout" else _LARGEST
        if isinstance(value, Fraction) and not isinstance(value, bool) and 0 <= value <= most and (value or most == 1):
            return value
        takes = "a number from 0 to 1" if name == "dropout" else "a number above 0"
        raise refuse("E105", f"{shown} is {takes}, not {kind(value)}", span)
    if name == "frozen":
        globs = value if isinstance(value, tuple) else (value,)
        if all(isinstance(g, str) for g in globs):
            return globs
        raise refuse(
            "E105", f"{shown} is a glob in quotes or a list of them, not {kind(value)}", span, help='`"layers.{0..3}"`'
        )
    word = value.name if isinstance(value, Word) and not value.args else ""
    if word not in _WORDS[name]:
        near = meant(word, _WORDS[name])
        raise refuse(
            "E101",
            f"{'' if span else f'{shown}: '}no {name} is called `{word}`"
            if word
            else f"{shown} is a word, not {kind(value)}",
            span,
            help=f"did you mean `{near}`?" if near else f"known: {', '.join(_WORDS[name])}",
        )
    return word


def _batch_identity(values: Mapping[str, Any], mesh: Mesh, samples: tuple[str, ...], span: Span | None) -> int:
    """global_batch = micro_batch * microbatches * data ranks: two give the third, three must agree."""
    whole, micro, count = (values.get(k) for k in ("global_batch", "micro_batch", "microbatches"))
    if whole is None or (micro is None and count is None):
        return count or 1
    open_ = [a for a in samples if mesh[a].size is None]
    if open_ and count is not None:
        return int(count)
    if open_:
        names = " and ".join(f"`{a}`" for a in open_)
        sets = " ".join(f"--set {a}=8" for a in open_)
        raise refuse("E121", f"`global_batch` needs the size of {names}, which no line gives", span, help=f"`{sets}`")
    ranks = prod(mesh[a].size or 1 for a in samples)
    known = ranks * (micro or 1) * (count or 1)
    factors = {"micro_batch": micro, "microbatches": count, **{a: mesh[a].size for a in samples}}
    names = " * ".join(n for n, x in factors.items() if x is not None)
    terms = f"{names} = {' * '.join(str(x) for x in factors.values() if x is not None)} = {known}"

    def better(n: int) -> str:
        return f"`global_batch = {n}`" if span else f"`--set global_batch={n}`"

    if micro is not None and count is not None:
        if whole != known:
            message = f"global_batch = {whole}, but {terms}"
            raise refuse("E401", message, span, help=f"{better(known)}, or leave one of the three out")
        return int(count)
    if whole % known:
        near = " or ".join(better(n) for n in (whole // known * known, (whole // known + 1) * known) if n)
        raise refuse("E401", f"global_batch = {whole} is no multiple of {terms}", span, help=near)
    return int(count or whole // known)
