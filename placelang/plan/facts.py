"""Facts about the job: the `train (...)` line and the batch identity.

Not for: what a strategy chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from placelang.diagnostics.problems import Problems, refuse
from placelang.diagnostics.suggest import did_you_mean
from placelang.plan.dtypes import PRECISIONS
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
    statement: ast.Train | None, scope: Scope, data_ranks: int | None, problems: Problems
) -> tuple[Train, tuple[Assumption, ...]]:
    """The `train` line with what `--set` says in its place. `data_ranks`: ranks that read different samples."""
    given: dict[str, tuple[Any, Span | None]] = {}
    for arg in statement.args if statement else ():
        with problems.catching():
            name, value = _fact(arg, scope)
            if name in given:
                raise refuse("E119", f"`{name}` is given twice", arg.span)
            given[name] = value, arg.span
    for name in NAMES:
        if name in scope.sets and name not in scope.args and name not in scope.lets:
            scope.used_sets.add(name)
            with problems.catching():
                given[name] = _typed(name, scope.sets[name], None), None
    values = {name: value for name, (value, _) in given.items() if value is not None}
    with problems.catching():
        values["microbatches"] = _batch_identity(values, data_ranks, statement.span if statement else None)
    assumptions = []
    if "precision" not in values:
        assumptions.append(Assumption("precision", "fp32 everywhere: the text names no precision"))
    if "optimizer" not in values:
        assumptions.append(Assumption("optimizer", "adamw: the text names no optimizer"))
    values.pop("global_batch", None)
    values.setdefault("microbatches", 1)
    precision = PRECISIONS[values.pop("precision", "fp32")]
    return Train(precision=precision, **values), tuple(assumptions)


def _fact(arg: ast.Arg, scope: Scope) -> tuple[str, Any]:
    if arg.name is None:
        raise refuse(
            "E107", "facts are written `name = value`", arg.span, help="`train (optimizer = adamw, seq = 2048)`"
        )
    if arg.name not in NAMES:
        near = did_you_mean(arg.name, NAMES)
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
    if name in _COUNTS:
        if (
            isinstance(value, Fraction)
            and not isinstance(value, bool)
            and value.denominator == 1
            and 1 <= value <= _LARGEST
        ):
            return int(value)
        raise refuse("E105", f"`{name}` is a whole number from 1 up, not {kind(value)}", span)
    if name in _NUMBERS:
        most = 1 if name == "dropout" else _LARGEST
        if isinstance(value, Fraction) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        raise refuse(
            "E105", f"`{name}` is a number from 0 to {most}" if most == 1 else f"`{name}` is a positive number", span
        )
    if name == "frozen":
        globs = value if isinstance(value, tuple) else (value,)
        if all(isinstance(g, str) for g in globs):
            return globs
        raise refuse(
            "E105", f"`frozen` is a glob in quotes or a list of them, not {kind(value)}", span, help='`"layers.{0..3}"`'
        )
    word = value.name if isinstance(value, Word) and not value.args else ""
    if word not in _WORDS[name]:
        near = did_you_mean(word, _WORDS[name])
        raise refuse(
            "E101",
            f"no {name} is called `{word}`" if word else f"`{name}` is a word, not {kind(value)}",
            span,
            help=f"did you mean `{near}`?" if near else f"known: {', '.join(_WORDS[name])}",
        )
    return word


def _batch_identity(values: Mapping[str, Any], data_ranks: int | None, span: Span | None) -> int:
    """global_batch = micro_batch * microbatches * data ranks: two give the third, three must agree."""
    whole, micro, count = (values.get(k) for k in ("global_batch", "micro_batch", "microbatches"))
    if whole is None or (micro is None and count is None):
        return count or 1
    if data_ranks is None:
        raise refuse(
            "E121", "`global_batch` needs the sizes of the data axes, which no line gives", span, help="`--set dp=8`"
        )
    known = data_ranks * (micro or 1) * (count or 1)
    sum_text = " * ".join(str(x) for x in (micro, count, data_ranks) if x is not None)
    if micro is not None and count is not None:
        if whole != known:
            raise refuse(
                "E401",
                f"global_batch = {whole}, but micro_batch * microbatches * data ranks = {sum_text} = {known}",
                span,
                help=f"`global_batch = {known}`, or leave one of the three out",
            )
        return int(count)
    if whole % known:
        lower, upper = whole // known * known, (whole // known + 1) * known
        near = " or ".join(f"`global_batch = {n}`" for n in (lower, upper) if n)
        raise refuse("E401", f"global_batch = {whole} is no multiple of {sum_text} = {known}", span, help=near)
    return int(count or whole // known)
