"""Typing journeys: what follows the `:` of a placement becomes typed steps.

Not for: filling in what no line says (`infer`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import attrs

from placelang.diagnostics.problems import refuse
from placelang.diagnostics.suggest import did_you_mean
from placelang.plan.dtypes import BYTES
from placelang.plan.plan import AllGather, Gather, Journey, Keep, Partial, Reduce, Replicate, Shard, Step, When
from placelang.plan.scope import Scope
from placelang.plan.values import Axes, Value, Word, evaluate, kind
from placelang.plan.words import FORMS, NOT_INTERPRETED, NOT_INTERPRETED_OPTIONS, OPTIONS, TRANSITIONS
from placelang.source import Span
from placelang.syntax import ast

_CLASSES: Mapping[str, type[Step]] = {
    "replicate": Replicate,
    "shard": Shard,
    "partial": Partial,
    "gather": Gather,
    "all_gather": AllGather,
}


def type_journey(head: str, expr: ast.Expr, scope: Scope) -> Journey:
    """The typed steps of a journey of `head` (a state, or `update`). Axes left out stay empty. Raises Refused."""
    steps: list[Step] = []
    moved = False
    for moment in expr.steps if isinstance(expr, ast.Then) else (expr,):
        for part, dtype in _factors(moment):
            step = _step(head, part, dtype, scope)
            form = isinstance(step, (Replicate, Shard, Partial))
            if form and moved:
                raise refuse(
                    "E118",
                    f"`{part.span.text}` is a form, and {head} has already left its first form",
                    part.span,
                    rule="a journey names forms first, then what happens to them, joined by `|`",
                )
            moved = moved or not form
            steps.append(step)
    _check_axes(steps)
    return tuple(steps)


def _factors(moment: ast.Expr) -> Iterator[tuple[ast.Expr, ast.Name | None]]:
    """The words of one moment: factors of `*`, each with the dtype that `as` gives them."""
    match moment:
        case ast.As(form=None, span=span):
            raise refuse("E112", "`as` without a form is not interpreted by this version", span)
        case ast.As(form=form, dtypes=ast.Name() as dtype) if form is not None:
            yield from ((part, dtype) for part, _ in _factors(form))
        case ast.As(span=span):
            raise refuse("E112", "several dtypes after `as` are not interpreted by this version", span)
        case ast.Binary(op="*", left=left, right=right):
            yield from _factors(left)
            yield from _factors(right)
        case ast.Group(inner=inner):
            yield from _factors(inner)
        case _:
            yield moment, None


def _step(head: str, part: ast.Expr, dtype: ast.Name | None, scope: Scope) -> Step:
    args: tuple[ast.Arg, ...] = ()
    match part:
        case ast.Name():
            word = part
        case ast.Call(func=word, args=args):
            pass
        case _:
            raise refuse(
                "E105",
                f"a step of {head} is a word such as `{FORMS[head][0] if FORMS[head] else 'all_gather'}`",
                part.span,
            )
    _check_word(head, word)
    positional = [a for a in args if a.name is None]
    options = _options(word, [a for a in args if a.name is not None], scope)
    if word.text in ("reduce_scatter", "all_reduce"):
        mean = options.pop("op", "sum")
        for a in list(positional):  # `all_reduce(dp, mean)`: the operation may stand without its name
            if isinstance(a.value, ast.Name) and a.value.text in ("sum", "mean"):
                mean = a.value.text
                positional.remove(a)
        scatter = word.text == "reduce_scatter"
        options.setdefault("when", When.MICROBATCH if scatter else When.STEP)
        options |= {"scatter": scatter, "mean": mean == "mean"}
        step_class: type[Step] = Reduce
    else:
        step_class = _CLASSES[word.text]
    axes = tuple(name for a in positional for name in _axes(a.value, scope))
    if word.text == "shard" and not axes:
        raise refuse("E107", "`shard` needs the axis to split over", part.span, help="`shard(dp)`")
    return step_class(axes=axes, dtype=_dtype(dtype), span=part.span, **options)


def _check_word(head: str, word: ast.Name) -> None:
    known = (*FORMS[head], *TRANSITIONS[head])
    if word.text in known:
        return
    if hint := _HINTS.get((head, word.text)):
        raise refuse("E118", f"`{word.text}` is no step of {head}", word.span, help=hint)
    if word.text in NOT_INTERPRETED:
        raise refuse(
            "E112",
            f"`{word.text}` on {head} is not interpreted by this version",
            word.span,
            help=f"known: {', '.join(known)}",
        )
    near = did_you_mean(word.text, known)
    raise refuse(
        "E101",
        f"{head} has no step called `{word.text}`",
        word.span,
        help=f"did you mean `{near}`?" if near else f"known: {', '.join(known)}",
    )


_HINTS: Mapping[tuple[str, str], str] = {
    (
        "grads",
        "replicate",
    ): "gradients are produced partial; `grads: all_reduce(dp)` makes every rank hold the whole sum",
    (
        "grads",
        "shard",
    ): "gradients are produced partial; `grads: reduce_scatter(dp)` leaves each rank its shard of the sum",
    ("optimizer", "gather"): "`update: all_gather(dp)` says how fresh parameters return after the optimizer",
    ("params", "all_gather"): "`params: shard(dp) | gather(dp)` uses a shard through a full view",
    ("params", "partial"): "only gradients and activations can be partial sums",
    ("optimizer", "partial"): "the optimizer never reads a partial sum",
}


def _axes(expr: ast.Expr, scope: Scope) -> tuple[str, ...]:
    value = evaluate(expr, scope.lookup)
    if isinstance(value, Word):
        near = did_you_mean(value.name, scope.axis_names())
        raise refuse(
            "E102",
            f"no axis is called `{value.name}`",
            expr.span,
            help=f"did you mean `{near}`?" if near else f"axes: {', '.join(scope.axis_names())}",
        )
    if not isinstance(value, Axes):
        raise refuse(
            "E102",
            f"an axis is expected here, this is {kind(value)}",
            expr.span,
            help="options are written `name = value`",
        )
    return value.names


def _dtype(name: ast.Name | None) -> str | None:
    if name is None:
        return None
    if name.text not in BYTES:
        near = did_you_mean(name.text, BYTES)
        raise refuse(
            "E101",
            f"no number format is called `{name.text}`",
            name.span,
            help=f"did you mean `{near}`?" if near else "",
        )
    return name.text


def _options(word: ast.Name, args: list[ast.Arg], scope: Scope) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for arg in args:
        assert arg.name is not None
        if arg.name in NOT_INTERPRETED_OPTIONS.get(word.text, ()):
            raise refuse("E112", f"option `{arg.name}` of `{word.text}` is not interpreted by this version", arg.span)
        if arg.name not in OPTIONS[word.text]:
            near = did_you_mean(arg.name, OPTIONS[word.text])
            known = ", ".join(OPTIONS[word.text]) or "none"
            raise refuse(
                "E106",
                f"`{word.text}` has no option `{arg.name}`",
                arg.span,
                help=f"did you mean `{near}`?" if near else f"its options: {known}",
            )
        if arg.name in found:
            raise refuse("E119", f"option `{arg.name}` is given twice", arg.span)
        found[arg.name] = _option(arg.name, evaluate(arg.value, scope.lookup), arg.span)
    if "reshard_after_forward" in found:
        keep = Keep.UNIT if found.pop("reshard_after_forward") else Keep.MICROBATCH
        if "keep" in found:
            raise refuse("E119", "`keep` and `reshard_after_forward` say the same thing", word.span)
        found["keep"] = keep
    return found


_WORDS: Mapping[str, tuple[str, ...]] = {
    "unit": ("layer",),
    "keep": tuple(k.value for k in Keep),
    "when": tuple(w.value for w in When),
    "op": ("sum", "mean"),
    "pad": ("even",),
    "wire": tuple(BYTES),
    "dim": ("batch", "seq"),
}


def _option(name: str, value: Value, span: Span) -> Any:
    """The typed value of an option, or a refusal that lists what it may be."""
    if name == "prefetch" and isinstance(value, Fraction) and value.denominator == 1 and value >= 0:
        return int(value)
    if name == "reshard_after_forward" and isinstance(value, bool):
        return value
    if name == "dim" and value == Fraction(0) and not isinstance(value, bool):
        return "0"
    words = _WORDS.get(name, ())
    if isinstance(value, Word) and not value.args and value.name in words:
        return Keep(value.name) if name == "keep" else When(value.name) if name == "when" else value.name
    not_yet = {"dim": ("flat", "tensor", "layer", "expert", "heads", "vocab")}
    later = isinstance(value, Word) and (value.name in not_yet.get(name, ()) or value.name in ("shard", "every"))
    if later or (name in ("dim", "pad", "reshard_after_forward") and isinstance(value, Fraction)):
        raise refuse(
            "E112", f"`{name} = {span.text.partition('=')[2].strip()}` is not interpreted by this version", span
        )
    allowed = {"prefetch": "a whole number", "reshard_after_forward": "true or false", "dim": "0, batch or seq"}
    raise refuse(
        "E106", f"`{name}` cannot be {kind(value)}", span, help=f"it takes {allowed.get(name) or ' or '.join(words)}"
    )


def _check_axes(steps: list[Step]) -> None:
    """An axis splits a state once, and is reduced or gathered once."""
    seen: dict[tuple[str, type[Step]], Step] = {}
    for step in steps:
        for axis in step.axes:
            key = (axis, Shard if isinstance(step, (Shard, Replicate)) else type(step))
            if isinstance(step, (Shard, Replicate, Partial)) and key in seen:
                raise refuse("E104", f"axis `{axis}` places this state twice", step.span)
            seen[key] = step
        if len(set(step.axes)) < len(step.axes):
            raise refuse("E104", "an axis is named twice in one step", step.span)


def with_why(step: Step, why: str) -> Step:
    """The step as one that was inferred for a reason."""
    return attrs.evolve(step, why=why)
