"""Typing journeys: what follows the `:` of a placement becomes typed steps.

Not for: the vocabulary (`words`), the values of options (`options`), or what no line says (`infer`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from placelang.diagnostics.diagnostic import Label
from placelang.diagnostics.problems import both, every, refuse
from placelang.plan.dtypes import BYTES
from placelang.plan.meant import meant
from placelang.plan.merge import one_format
from placelang.plan.mesh import Role
from placelang.plan.options import option_value
from placelang.plan.plan import Schedule
from placelang.plan.scope import Scope
from placelang.plan.steps import (
    FORMS,
    Consume,
    Formats,
    Gather,
    Journey,
    Materialize,
    Partial,
    Recompute,
    Replicate,
    Shard,
    Step,
    When,
)
from placelang.plan.values import Axes, evaluate, kind
from placelang.plan.values import Word as WordValue
from placelang.plan.words import FLAGS, SCHEDULES, TAKES, WORDS, Word
from placelang.syntax import ast


def type_journey(head: str, expr: ast.Expr, scope: Scope) -> Journey:
    """The typed steps of a journey of `head` (a state, or `update`). Axes left out stay empty. Raises Refused, with
    what is said of any step."""
    moments = expr.steps if isinstance(expr, ast.Then) else (expr,)
    moved = False

    def read(written: tuple[ast.Expr, ast.Name | None]) -> Step:
        nonlocal moved
        part, dtype = written
        step = _formats(head, part) if isinstance(part, ast.As) else _step(head, part, dtype, scope)
        form = isinstance(step, FORMS)
        if form and moved:
            raise refuse(
                "E118",
                f"`{part.span.text}` is a form, and {head} has already left its first form",
                part.span,
                rule="a journey names forms first, then what happens to them, joined by `|`",
            )
        moved = moved or not form
        return step

    steps = every(read, (factor for moment in moments for factor in _factors(moment)))
    _check_axes(steps)
    _check_once(steps)
    return tuple(one_format(steps))


def type_schedule(expr: ast.Expr, scope: Scope) -> Schedule:
    """The schedule that stands after `schedule:`, or is the value of a `schedule` option. Raises Refused."""
    value = evaluate(expr, scope.lookup)
    if not isinstance(value, WordValue) or value.name not in SCHEDULES:
        word = value.name if isinstance(value, WordValue) else expr.span.text
        near = meant(word, SCHEDULES)
        raise refuse(
            "E101",
            f"no schedule is called `{word}`",
            expr.span,
            help=f"did you mean `{near}`?" if near else f"schedules: {', '.join(SCHEDULES)}",
        )
    chunks = 1
    for name, given in value.args:
        if (name or "chunks") not in SCHEDULES[value.name]:
            what = name or kind(given)
            more = f"`interleaved_1f1b({expr.span.text.partition('(')[2]}" if what == "chunks" else ""
            raise refuse("E106", f"`{value.name}` takes no `{what}`", expr.span, help=f"{more}`" if more else "")
        chunks = option_value("count", (), "chunks", given, expr.span, scope)
    if value.name == "interleaved_1f1b" and chunks < 2:
        raise refuse(
            "E107",
            "`interleaved_1f1b` needs how many model chunks a rank holds",
            expr.span,
            help=f"`{value.name}(chunks = 2)`",
        )
    return Schedule(value.name, 2 if value.name in ("zbv", "dualpipev") else chunks, expr.span)


def _factors(moment: ast.Expr) -> Iterator[tuple[ast.Expr, ast.Name | None]]:
    """The words of one moment: factors of `*`, each with the dtype that `as` gives them."""
    match moment:
        case ast.As(form=form, dtypes=tuple()) | ast.As(form=None as form):
            if form is not None:
                yield from _factors(form)
            yield moment, None
        case ast.As(form=form, dtypes=ast.Name() as dtype) if form is not None:
            yield from ((part, dtype) for part, _ in _factors(form))
        case ast.Binary(op="*", left=left, right=right):
            yield from _factors(left)
            yield from _factors(right)
        case ast.Group(inner=inner):
            yield from _factors(inner)
        case _:
            yield moment, None


def _formats(head: str, part: ast.As) -> Step:
    """`as (master = fp32, moments = bf16)`."""
    if head != "optimizer" or isinstance(part.dtypes, ast.Name):
        raise refuse(
            "E118", "formats in parentheses are those of the optimizer: `optimizer: as (master = fp32)`", part.span
        )
    found: dict[str, Any] = {}

    def read(arg: ast.Arg) -> None:
        if arg.name not in ("master", "moments"):
            near = meant(arg.name or "", ("master", "moments"))
            message = "the optimizer has the formats `master` and `moments`"
            raise refuse("E106", message, arg.span, help=f"did you mean `{near}`?" if near else "")
        if arg.name in found:
            raise refuse("E119", f"`{arg.name}` is given twice", arg.span)
        if not isinstance(arg.value, ast.Name):
            formats = f"formats: {', '.join(BYTES)}"
            raise refuse("E105", "a number format is expected here", arg.value.span, help=formats)
        none = arg.name == "master" and arg.value.text == "none"
        found[arg.name] = "none" if none else _dtype(arg.value)

    every(read, part.dtypes)
    return Formats(span=part.span, **found)


def _step(head: str, part: ast.Expr, dtype: ast.Name | None, scope: Scope) -> Step:
    args: tuple[ast.Arg, ...] = ()
    match part:
        case ast.Name():
            name = part
        case ast.Call(func=name, args=args):
            pass
        case _:
            raise refuse("E105", f"a step of {head} is a word such as `{TAKES[head][0]}`", part.span)
    # What stands in the brackets of a word that is wrong is read as if it were the right one.
    near = name.text if name.text in WORDS else meant(name.text, TAKES[head])
    word, (axes, fields) = both(
        lambda: _word(head, name),
        lambda: _arguments(WORDS[near], args, dtype, scope) if near else ((), {}),
    )
    if dtype is not None and head == "optimizer":
        one_of = f"`as (master = {dtype.text}, moments = {dtype.text})`, or one of the two"
        raise refuse(
            "E118", "the optimizer has more than one format, and this does not say whose", dtype.span, help=one_of
        )
    if word.axes == "required" and not axes:
        role = Role.TENSOR if word.name != "shard" else Role.DATA
        usual = (*scope.mesh().of_role(role), "tp" if role is Role.TENSOR else "dp")[0]
        raise refuse("E107", f"`{word.name}` needs the axis to split over", part.span, help=f"`{word.name}({usual})`")
    if word.name in ("all_reduce", "reduce_scatter"):
        fields["mean"] = fields.pop("op", "sum") == "mean"
        fields.setdefault("when", When.MICROBATCH if word.name == "reduce_scatter" else When.STEP)
    fields.update(word.fixed)
    return word.step(axes=axes, span=part.span, **fields)


def _word(head: str, name: ast.Name) -> Word:
    if name.text in TAKES[head]:
        return WORDS[name.text]
    if hint := _HINTS.get((head, name.text)):
        raise refuse("E118", f"`{name.text}` is no step of {head}", name.span, help=hint)
    known = f"steps of {head}: {', '.join(TAKES[head])}"
    if name.text in WORDS:
        raise refuse("E118", f"`{name.text}` is no step of {head}", name.span, help=known)
    near = meant(name.text, TAKES[head])
    raise refuse(
        "E101", f"{head} has no step called `{name.text}`", name.span, help=f"did you mean `{near}`?" if near else known
    )


_HINTS: Mapping[tuple[str, str], str] = {
    ("grads", "replicate"): "gradients are produced partial; `grads: all_reduce(dp)` gives every rank the whole sum",
    (
        "grads",
        "shard",
    ): "gradients are produced partial; `grads: reduce_scatter(dp)` leaves each rank its shard of the sum",
    ("grads", "gather"): "`grads: all_reduce(dp)` gives every rank the whole sum",
    (
        "grads",
        "materialize",
    ): "`grads: consume`: the optimizer reads each gradient inside backward, and none is at rest",
    ("optimizer", "gather"): "`update: all_gather(dp)` says how fresh parameters return after the optimizer",
    ("optimizer", "partial"): "the optimizer never reads a partial sum",
    ("params", "all_gather"): "`params: shard(dp) | gather(dp)` uses a shard through a full view",
    ("params", "partial"): "only gradients and activations can be partial sums",
    ("params", "recompute"): "`activations: recompute(full)`; parameters are not recomputed",
    ("activations", "gather"): "`activations[attn]: all_gather(cp)` fetches the tokens that a module lacks",
}


def _arguments(
    word: Word, args: tuple[ast.Arg, ...], dtype: ast.Name | None, scope: Scope
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The axes and the typed options of a call, with the number format that `as` gives it."""
    axes: list[str] = []
    fields: dict[str, Any] = {}
    known = {o.name: o for o in word.options}

    def read(arg: ast.Arg | ast.Name) -> None:
        if isinstance(arg, ast.Name):
            fields["dtype"] = _dtype(arg)
            return
        if arg.name is None:
            if not _flag(word, arg, fields):
                axes.extend(_axes(word, arg.value, scope))
            return
        if arg.name not in known:
            near = meant(arg.name, known)
            options = f"its options: {', '.join(known)}" if known else ""
            if arg.name == "balance":  # how the sequence is dealt, which is said where its parts meet
                options = "`activations[attn]: ring(cp, balance = headtail)` deals the sequence so"
            raise refuse(
                "E106",
                f"`{word.name}` has no option{f' `{arg.name}`' if known else 's'}",
                arg.span,
                help=f"did you mean `{near}`?" if near else options,
            )
        target = "keep" if arg.name == "reshard_after_forward" else arg.name
        if target in fields:
            same = "`keep` and `reshard_after_forward` say the same thing"
            raise refuse("E119", same if target == "keep" else f"option `{arg.name}` is given twice", arg.span)
        option = known[arg.name]
        value = evaluate(arg.value, scope.lookup)
        fields[target] = option_value(option.kind, option.words, arg.name, value, arg.value.span, scope)

    parts: list[ast.Arg | ast.Name] = [*args, *([dtype] if dtype else [])]
    every(read, parts)
    return tuple(axes), fields


def _flag(word: Word, arg: ast.Arg, fields: dict[str, Any]) -> bool:
    """Whether a positional argument is the value of an option, as in `all_reduce(dp, mean)` or `offload(cpu)`."""
    for name in word.flags:
        option = FLAGS[name]
        if isinstance(arg.value, ast.Name) and arg.value.text in option.words:
            if name in fields:
                raise refuse("E119", f"`{word.name}` is given two of {', '.join(option.words)}", arg.span)
            fields[name] = arg.value.text
            return True
        if word.axes == "none":
            near = meant(arg.value.span.text, option.words)
            raise refuse(
                "E106",
                f"`{word.name}` cannot be `{arg.value.span.text}`",
                arg.span,
                help=f"did you mean `{near}`?" if near else f"it takes {' or '.join(option.words)}",
            )
    if word.axes == "none":
        raise refuse("E106", f"`{word.name}` takes no axis", arg.span, help=f"`{word.name}`")
    return False


def _axes(word: Word, expr: ast.Expr, scope: Scope) -> tuple[str, ...]:
    value = evaluate(expr, scope.lookup)
    if isinstance(value, Axes):
        return value.names
    if isinstance(value, WordValue):
        raise scope.no_axis(value.name, expr.span, (w for f in word.flags for w in FLAGS[f].words))
    raise refuse(
        "E102", f"an axis is expected here, this is {kind(value)}", expr.span, help="options are written `name = value`"
    )


def _dtype(name: ast.Name) -> str:
    if name.text not in BYTES:
        near = meant(name.text, BYTES)
        raise refuse(
            "E101",
            f"no number format is called `{name.text}`",
            name.span,
            help=f"did you mean `{near}`?" if near else f"formats: {', '.join(BYTES)}",
        )
    return name.text


def _check_axes(steps: list[Step]) -> None:
    """An axis places a state once."""
    placed: dict[str, Step] = {}
    for step in steps:
        if len(set(step.axes)) < len(step.axes):
            twice = next(a for a in step.axes if step.axes.count(a) > 1)
            raise refuse("E104", f"`{twice}` is named twice in one step", step.span)
        if isinstance(step, (Shard, Replicate, Partial)):
            for axis in step.axes:
                if axis in placed:
                    first = placed[axis].span
                    causes = (Label(first, "first here"),) if first else ()
                    raise refuse("E104", f"axis `{axis}` places this state twice", step.span, causes=causes)
            placed |= dict.fromkeys(step.axes, step)


_ONCE = (Replicate, Gather, Recompute, Materialize, Consume)


def _check_once(steps: list[Step]) -> None:
    """What a second time changes nothing is said once."""
    said: dict[tuple[type[Step], tuple[str, ...]], Step] = {}
    for step in steps:
        if not isinstance(step, _ONCE):
            continue
        first = said.setdefault((type(step), step.axes), step)
        if first is not step and step.span is not None:
            word = step.span.text.partition("(")[0]
            causes = (Label(first.span, "the first"),) if first.span else ()
            raise refuse(
                "E119", f"`{word}` stands twice in one journey", step.span, causes=causes, help="leave one out"
            )
