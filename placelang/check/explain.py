"""From faults to messages: equal mistakes of many groups, layers and microbatches become one diagnostic.

The primary place is the line that fails, the causes are the lines that make it fail: with a Plan at hand a gradient
left partial points at `grads:` and at the `activations:` that gave every rank other samples. Not for: finding faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from placelang.check.fault import Fault
from placelang.check.text import listed, placed, reduction
from placelang.diagnostics.diagnostic import Diagnostic, Label
from placelang.plan.plan import Plan, State
from placelang.plan.steps import Reduce, Shard, Step
from placelang.program.event import COLLECTIVES, Buf, Event
from placelang.program.program import LIMIT, Program

RULES: Mapping[str, str] = {
    "E102": "a placement names axes of the mesh",
    "E104": "an axis splits a tensor, or joins a group, once",
    "E105": "a shard names a dim that every tensor of the group has",
    "E201": "the optimizer must see the full-batch gradient",
    "E202": "the optimizer must see each contribution to the gradient once",
    "E203": "the loss is divided by the tokens of the whole batch, so gradients are summed, not averaged",
    "E204": "the optimizer must see every microbatch and every use of a parameter",
    "E205": "an optimizer that reads whole tensors must not be given parts of them",
    "E206": "parameter, gradient and optimizer state must lie alike where they meet",
    "E207": "a reduction adds up pieces of the same elements",
    "E208": "what a slice drops must be held by another rank",
    "E209": "every value must be the one that a single device has",
    "E211": "each logical element enters the norm once",
    "E301": "every copy of a state must hold the new value when the step ends",
    "E302": "compute reads whole parameters",
    "E303": "a state must end the step as it began, so that the next can start",
    "E304": "a nonlinear function of a sum is not the sum of its values",
    "E305": "every rank skips a step that overflowed, or none does",
    "E306": "operands must lie alike, and what a function reads together must not be split",
    "E308": "a value is read after it is made and before it is released",
}

_KINDS: Mapping[str, str] = {
    "w": "parameters",
    "s": "parameters",
    "view": "parameters",
    "master": "master parameters",
    "o": "optimizer state",
    "x": "activations",
    "dx": "gradients of activations",
    "stash": "saved activations",
    "tokens": "tokens",
    "targets": "targets",
}


def diagnostics(
    faults: Sequence[Fault], program: Program, plan: Plan | None
) -> tuple[tuple[Diagnostic, tuple[Fault, ...]], ...]:
    """One diagnostic for each kind of mistake, with the faults that show it."""
    kinds: dict[object, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(_kind(fault), []).append(fault)
    return tuple((_diagnostic(same, program, plan), tuple(same)) for same in kinds.values())


def no_benefit(removed: Iterable[Event]) -> tuple[Diagnostic, ...]:
    """A warning for each collective whose result nobody reads."""
    found: dict[tuple[object, ...], Diagnostic] = {}
    for event in removed:
        span = event.span
        found.setdefault(
            (event.op, event.axes, span and (span.start, span.end), event.phase),
            Diagnostic(
                "W401",
                f"{reduction(event)} changes nothing: no later event reads its result, so it is not run",
                primary=Label(span, "its result is never read") if span else None,
                cause=event.why,
            ),
        )
    return tuple(found.values())


def _kind(fault: Fault) -> tuple[object, ...]:
    c = fault.counterexample
    wrong = (c.rank, c.contribution, c.multiplicity) if c else ()
    what = (fault.buf.kind.partition("@")[0] if fault.buf and not c else "", fault.detail)
    return (fault.code, fault.axes, fault.found, fault.wanted, wrong, fault.missing, *what)


def _diagnostic(faults: Sequence[Fault], program: Program, plan: Plan | None) -> Diagnostic:
    fault = faults[0]
    bufs = [buf for f in faults for buf in _operands(f)]
    primary, causes, cause = _places(fault, plan)
    return Diagnostic(
        fault.code,
        _message(fault, _subject(bufs, program), program),
        primary=primary,
        causes=causes,
        cause=cause,
        rule=RULES.get(fault.code, ""),
        counterexample=_counterexample(fault),
        help=_help(fault),
    )


def _operands(fault: Fault) -> tuple[Buf, ...]:
    """What a fault is about: all that a collective moves together, as they lie alike."""
    if fault.event and fault.event.op in COLLECTIVES and fault.code in ("E207", "E306"):
        return fault.event.ins
    if fault.owners and fault.buf and fault.code in ("E201", "E202", "E203", "E204"):
        return tuple(attrs.evolve(fault.buf, of=owner) for owner in fault.owners)
    return (fault.buf,) if fault.buf else ()


def _subject(bufs: Sequence[Buf], program: Program) -> str:
    """`the gradients`, or `the gradient of h` when it is not all of them."""
    if not bufs:
        return "a value"
    kind = _KINDS.get(bufs[0].kind, "gradients")
    groups = tuple(dict.fromkeys(buf.of for buf in bufs))
    known = {group.name for group in program.groups}
    if not known.intersection(groups) or known.issubset(groups):
        return f"the {kind}"
    return f"the {kind} of {listed(tuple(_name(g, program) for g in groups))}"


def _name(group: str, program: Program) -> str:
    """How a group is called: the tensor that other layers use too, by its own name."""
    if not group.endswith(".shared"):
        return group
    return next((t.name for g in program.groups if g.name == group for t in g.tensors), group)


def _message(fault: Fault, subject: str, program: Program) -> str:
    axes = listed(fault.axes)
    match fault.code:
        case "E102":
            return f"the mesh has no axis {axes}"
        case "E104":
            return f"axis {axes} is used twice"
        case "E105" if fault.label is not None:
            return f"{fault.detail} cannot be split along dim `{fault.label.dim}`"
        case "E201":
            return f"{subject} stay partial over {axes}"
        case "E202" | "E203" if fault.counterexample is not None:
            times = fault.counterexample.text.partition(" holds ")[2].partition(" x ")[0]
            return f"{subject} are {times} x the true ones"
        case "E204":
            return f"{subject} lack {_missing(fault, program)}"
        case "E205":
            return f"`{program.train.optimizer}` needs whole tensors, and {axes} cuts {subject}"
        case "E206":
            return f"{subject} lie as {placed(fault.found)}, the optimizer's state as {placed(fault.wanted)}"
        case "E207" if fault.detail == "stages":
            return f"{_op(fault)} goes over {axes}, whose stages hold different layers: {subject} lie on one of them"
        case "E207":
            return f"{_op(fault)} adds up pieces of different elements: {axes} already splits {subject}"
        case "E208":
            return f"a slice over {axes} throws away what other ranks hold of {subject}"
        case "E209":
            return f"{subject} {_when(fault)} are not what a single device has"
        case "E211":
            return f"the norm for clipping {_of_norm(fault)}"
        case "E305" if fault.detail == "flag":
            lacks = f"the gradients of {listed(fault.owners)}" if fault.owners else f"what other ranks of {axes} hold"
            return f"the optimizer heeds a flag of overflow that does not know {lacks}"
        case "E301":
            return f"{subject} at rest stay those of before the step"
        case "E302":
            return f"compute reads {subject} split over {axes}"
        case "E303":
            return f"{subject} {_when(fault)} lie as {placed(fault.found)}, at rest as {placed(fault.wanted)}"
        case "E304":
            over = f", a partial sum over {axes}" if axes else ", which are no single complete value"
            return f"{_op(fault)} reads {subject}{over}"
        case "E308":
            return f"{subject} are {fault.detail}" + (f" when {_op(fault)} reads them" if fault.event else "")
    inside = fault.event.compute if fault.event else None
    if fault.detail == "x" and inside is not None and inside.letters[0].startswith("e"):
        over = " * ".join(fault.axes)
        return f"`activations[experts]: all_to_all({over})` sends each token to the ranks of its experts, and back"
    if fault.detail == "x" and fault.label is not None and fault.label.dim != "seq":
        return (
            f"{_op(fault)} reads {subject}, split over {axes} where it needs them whole or its other operands are not"
        )
    if fault.detail == "x":
        return f"{_op(fault)} reads rows whose positions are split over {axes}, but a layer may read all of a row"
    if fault.rule == "AG":
        return f"{_op(fault)} does not undo the innermost split of {subject}, which lie as {placed(fault.found)}"
    if fault.found != fault.wanted:
        return f"{_op(fault)} joins {subject} that lie as {placed(fault.found)} with others as {placed(fault.wanted)}"
    return f"{_op(fault)} has operands that do not fit: {fault.detail or 'malformed'}"


def _of_norm(fault: Fault) -> str:
    """What is wrong with the norm of the whole gradient."""
    if fault.owners:
        return f"{fault.detail} the gradients of {listed(fault.owners)}"
    if fault.counterexample is None:
        return fault.detail
    if fault.counterexample.multiplicity == 0:
        return f"is that of a rank's own shard: gradients are cut over {listed(fault.axes)}"
    return "counts gradients more than once" if fault.counterexample.multiplicity > 1 else "is a part of the true one"


def _op(fault: Fault) -> str:
    return reduction(fault.event) if fault.event else "the step"


def _when(fault: Fault) -> str:
    return {"Step": "at the end of the step", "Init": "at the start"}.get(fault.rule, "that the optimizer reads")


def _missing(fault: Fault, program: Program) -> str:
    """What the gradient lacks: whole microbatches, or single uses of a parameter."""
    whole = tuple(m for m, site in fault.missing if not site)
    if not whole:
        return f"the use in {listed(dict.fromkeys(site for _, site in fault.missing))}"
    if len(whole) == min(program.train.microbatches, LIMIT):
        return "every microbatch" if program.train.microbatches > 1 else "every contribution"
    return f"microbatch{'es' * (len(whole) > 1)} {', '.join(map(str, whole))}"


def _counterexample(fault: Fault) -> str:
    if fault.counterexample:
        return fault.counterexample.text
    if fault.missing:
        microbatch, site = fault.missing[0]
        through = f" through `{site}`" if site else ""
        who = f"every rank of {fault.stage[0]} = {fault.stage[1]}" if fault.stage else "every rank"
        return f"{who} lacks the contribution of microbatch {microbatch}{through}"
    return ""


def _help(fault: Fault) -> str:
    if fault.code == "E205":
        return "an optimizer that is elementwise, such as `adamw`, or an optimizer state that rests whole: `replicate`"
    inside = fault.event.compute if fault.event else None
    if fault.detail == "x" and inside is not None and inside.letters[0].startswith("e"):
        over = " * ".join(fault.axes)
        return f"`activations[experts]: all_to_all({over})` sends each token to the ranks of its experts, and back"
    if fault.detail == "x" and fault.label is not None and fault.label.dim != "seq":
        return ""
    if fault.detail == "x" and inside is not None and inside.kind == "attention":
        over = " * ".join(fault.axes)
        return f"`activations[attn]: all_gather({over})` or `ulysses({over})` fetches the positions that a rank lacks"
    if fault.detail == "x":
        return (
            f"split the batch over {listed(fault.axes)} instead: no step here fetches the positions that a rank lacks"
        )
    return ""


# --- places ----------------------------------------------------------------------------------------------------------


Places = tuple[Label | None, tuple[Label, ...], str]
"""Primary place, places of the cause, and a cause that has no place."""


def _places(fault: Fault, plan: Plan | None) -> Places:
    own = Label(fault.event.span) if fault.event and fault.event.span else None
    if plan is None:
        return own, (), ""
    params, optimizer = plan.journey(State.PARAMS), plan.journey(State.OPTIMIZER)
    grads, activations = plan.journey(State.GRADS), plan.journey(State.ACTIVATIONS)
    reductions = [s for s in grads if isinstance(s, Reduce)]
    match fault.code:
        case "E201":
            causes, cause = _labels(activations, fault.axes, _sees)
            return _last(grads, _reduced(reductions)) or _last(optimizer, "") or own, causes, cause
        case "E202":
            again = _again(reductions, activations)
            causes, cause = _why_again(again, reductions, activations) if again else ((), "")
            return _label(again, "sums what is already complete") or _last(grads, "") or own, causes, cause
        case "E203":
            said = (s for p in plan.placed if p.state is State.GRADS for s in p.journey if isinstance(s, Reduce))
            mean = next((s for s in said if s.mean), None)
            cause = "the sum over ranks is already the mean over the tokens of the batch"
            return _label(mean, "divides by the number of ranks") or own, (), cause
        case "E204" if fault.stage is not None:
            return _last(params, "puts its uses on other stages") or own, (), ""
        case "E205":
            return _last(optimizer, "cuts rows or features of a tensor") or own, (), ""
        case "E206":
            causes, cause = _labels(optimizer, (), lambda s, a: "where the optimizer's state lies")
            return _last(grads, "how the gradients end") or own, causes, ""
        case "E207":
            split = [s for s in reductions if s.scatter and set(s.axes) & set(fault.axes)]
            causes, cause = _labels(split[:1], fault.axes, lambda s, a: f"already splits over {listed(a)}")
            return own, causes, cause
        case "E301":
            causes, cause = _labels(optimizer, (), lambda s, a: f"each {listed(a)} rank updates its own shard only")
            return _last(params, "rest whole on every rank") or _last(optimizer, ""), causes, cause
        case "E302":
            split_steps = [s for s in params if isinstance(s, Shard) and set(s.axes) & set(fault.axes)]
            return _last(split_steps, f"split over {listed(fault.axes)} and never gathered") or own, (), ""
        case "E303":
            return _last(params, "") or own, (), ""
        case "E306" if fault.detail == "x":
            causes, cause = _labels(activations, fault.axes, _sees)
            shards = [
                s for p in plan.placed if p.state is State.PARAMS for s in p.journey if set(s.axes) & set(fault.axes)
            ]
            return (causes[0] if causes else own or _last(shards, "split here")), (), cause
    return own, (), ""


def _label(step: Step | None, text: str) -> Label | None:
    return Label(step.span, text) if step and step.span else None


def _last(journey: Sequence[Step], text: str) -> Label | None:
    """The last step of a journey that stands in the text."""
    return next((Label(s.span, text) for s in reversed(journey) if s.span), None)


def _labels(
    journey: Sequence[Step], axes: tuple[str, ...], say: Callable[[Step, tuple[str, ...]], str]
) -> tuple[tuple[Label, ...], str]:
    """What steps that split over one of `axes` (over any, if none is given) have to do with it.

    Inferred steps stand nowhere: what is said of them is the cause without a place.
    """
    labels, said = [], []
    for step in journey:
        ours = tuple(axis for axis in step.axes if not axes or axis in axes)
        if ours:
            text = say(step, ours)
            label = _label(step, text)
            if label:
                labels.append(label)
            else:
                said.append(text)
    return tuple(labels), "; ".join(said)


def _sees(step: Step, axes: tuple[str, ...]) -> str:
    what = "positions" if isinstance(step, Shard) and step.dim == "seq" else "samples"
    return f"each {listed(axes)} rank sees other {what}"


def _reduced(reductions: Sequence[Reduce]) -> str:
    axes = tuple(dict.fromkeys(axis for s in reductions for axis in s.axes))
    return f"reduces {listed(axes)} only" if axes else "is never reduced"


def _again(reductions: Sequence[Reduce], activations: Sequence[Step]) -> Reduce | None:
    """The last sum over an axis that an earlier one has summed, or whose ranks all hold the same."""
    open_axes = {axis for s in activations if isinstance(s, Shard) for axis in s.axes}
    found = None
    for step in reductions:
        if not step.mean and not set(step.axes) <= open_axes:
            found = step
        open_axes -= set(step.axes)
    return found


def _why_again(
    again: Reduce, reductions: Sequence[Reduce], activations: Sequence[Step]
) -> tuple[tuple[Label, ...], str]:
    first = next((s for s in reductions if s is not again and set(s.axes) & set(again.axes)), None)
    if first is not None:
        text = f"already sums over {listed(tuple(a for a in first.axes if a in again.axes))}"
        label = _label(first, text)
        return ((label,), "") if label else ((), f"an earlier step {text}")
    split = {axis for s in activations if isinstance(s, Shard) for axis in s.axes}
    same = tuple(axis for axis in again.axes if axis not in split)
    return (), f"every {listed(same)} rank computes the same gradient"
