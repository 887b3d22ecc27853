"""Repairs of a refused plan: edited journeys, each checked again before it is shown, the cheapest first.

Nothing is searched: for each kind of fault a handful of journeys is tried, those that a person would. Not for: finding
a better strategy that is already sound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import attrs

from placelang.check.fault import Fault
from placelang.check.text import listed, written
from placelang.diagnostics.diagnostic import Edit, Fix
from placelang.frozen import Frozen
from placelang.plan.plan import Placed, Plan, Selection, State
from placelang.plan.steps import AllGather, Gather, Journey, Partial, Reduce, Shard, Step, When
from placelang.program.event import Phase
from placelang.source import Span

SHOWN = 2
"""Fixes shown for one message."""

_GRADS = frozenset({"E201", "E202", "E203", "E206", "E207", "E208"})


@attrs.frozen(eq=False, repr=False)
class Repair(Frozen):
    """An edited plan: what stands after `head:` now and before."""

    plan: Plan
    head: str
    new: Journey
    old: Journey


def fixes(plan: Plan, faults: Sequence[Fault], sound: Callable[[Plan], bool]) -> tuple[Fix, ...]:
    """The cheapest repairs of faults of one kind whose whole plan `sound` accepts."""
    fault = faults[0]
    tried: dict[str, Repair] = {}
    for repair in _repairs(plan, fault):
        text = written(repair.new)
        if text and text != written(repair.old):
            tried.setdefault(text, repair)
    good = [repair for repair in tried.values() if sound(repair.plan)]
    good.sort(key=lambda r: _volume(r.new, r.plan))
    return (
        tuple(_fix(repair) for repair in good[:SHOWN]) or _for_some(plan, faults, sound) or _shared(plan, fault, sound)
    )


def _shared(plan: Plan, fault: Fault, sound: Callable[[Plan], bool]) -> tuple[Fix, ...]:
    """The sum over stages of what several of them use, where each lacks the others' use."""
    if fault.code != "E204" or fault.stage is None:
        return ()
    axis, _ = fault.stage
    journey = (*plan.journey(State.GRADS), Reduce(axes=(axis,), scatter=False))
    tied = Placed(State.GRADS, journey, (Selection("role", "tied"),))
    if not sound(attrs.evolve(plan, placed=(*plan.placed, tied))):
        return ()
    cost = f"adds one all-reduce of this gradient per step, between the stages of `{axis}` that use the tensor"
    return (Fix(f"`grads[tied]: all_reduce({axis})`", cost=cost, checked=True),)


def _for_some(plan: Plan, faults: Sequence[Fault], sound: Callable[[Plan], bool]) -> tuple[Fix, ...]:
    """A reduction for the operations alone whose gradients are partial, where one for all would be wrong."""
    groups = tuple(dict.fromkeys(f.buf.of for f in faults if f.buf is not None and "/" in f.buf.of))
    if faults[0].code != "E201" or not groups:
        return ()
    axes = tuple(a for a in plan.mesh.names if any(a in f.axes for f in faults))
    names = list(dict.fromkeys(_selected(group, faults) for group in groups))
    journey = (*plan.journey(State.GRADS), Reduce(axes=axes, scatter=False))
    chosen = Placed(State.GRADS, journey, tuple(Selection("glob", name) for name in names), override=True)
    if not sound(attrs.evolve(plan, placed=(*plan.placed, chosen))):
        return ()
    step = f"all_reduce({' * '.join(axes)})"
    quoted = [f'"{name}"' for name in names]
    text = f"grads[{quoted[0]}]: {step}" if len(names) == 1 else f"on {', '.join(quoted)} {{ grads: {step} }}"
    return (
        Fix(f"`{text}`", cost=f"adds one all-reduce of these gradients over {listed(axes)} per step", checked=True),
    )


def _selected(group: str, faults: Sequence[Fault]) -> str:
    """The glob of an operation's parameters: those of every layer, for a repeated one."""
    stack, _, operation = group.partition("/")
    looped = any(f.buf is not None and f.buf.of == group and f.buf.index for f in faults)
    return f"{stack.partition('.')[0]}.*.{operation}" if looped else operation  # runs of one name are numbered on


def _repairs(plan: Plan, fault: Fault) -> Iterator[Repair]:
    if fault.code in _GRADS:
        old = plan.journey(State.GRADS)
        for new in _reductions(plan, fault, old):
            yield Repair(_placed(plan, State.GRADS, new), "grads", new, old)
    refresh = fault.event is not None and fault.event.phase is Phase.UPDATE
    if fault.code == "E302" or (fault.rule == "AG" and not refresh):
        old = plan.journey(State.PARAMS)
        gather = next((s for s in old if isinstance(s, Gather)), Gather())
        split = tuple(axis for axis, _ in _split(old))
        params: Journey = (*(s for s in old if not isinstance(s, Gather)), attrs.evolve(gather, axes=split))
        yield Repair(_placed(plan, State.PARAMS, params), "params", params, old)
    if fault.code == "E301" or (fault.rule == "AG" and refresh):
        rest = {axis for axis, _ in _split(plan.journey(State.PARAMS))}
        stale = tuple(axis for axis, _ in _split(plan.journey(State.OPTIMIZER)) if axis not in rest)
        if stale:
            update = (AllGather(axes=stale),)
            yield Repair(attrs.evolve(plan, update=update), "update", update, plan.update)


def _placed(plan: Plan, state: State, journey: Journey) -> Plan:
    placed = tuple(
        attrs.evolve(p, journey=journey) if p.state is state and not p.selections else p for p in plan.placed
    )
    return attrs.evolve(plan, placed=placed)


def _split(journey: Journey) -> tuple[tuple[str, Shard], ...]:
    return tuple((axis, step) for step in journey if isinstance(step, Shard) for axis in step.axes)


# --- reductions ------------------------------------------------------------------------------------------------------


def _reductions(plan: Plan, fault: Fault, old: Journey) -> Iterator[Journey]:
    """Journeys of the gradients to try: small edits of the written one, then the ones that inference would write."""
    for k, step in enumerate(old):
        if not isinstance(step, Reduce):
            continue
        before, after = old[:k], old[k + 1 :]
        if step.mean:
            yield tuple(attrs.evolve(s, mean=False) if isinstance(s, Reduce) else s for s in old)
        if fault.code == "E201" and not step.scatter:
            more = {*step.axes, *fault.axes}
            yield (*before, attrs.evolve(step, axes=tuple(a for a in plan.mesh.names if a in more)), *after)
        if fault.code != "E201":
            yield (*before, *after)
            fewer = _without_repeats(step, before, plan)
            if fewer:
                yield (*before, attrs.evolve(step, axes=fewer), *after)
    last = next((s for s in reversed(old) if isinstance(s, Reduce)), None)
    if fault.code == "E201" and last:
        when = When.MICROBATCH if last.when is When.MICROBATCH else When.STEP
        yield (*old, *_reduce(plan, fault.axes, when))
    data = {axis for axis, _ in _split(plan.journey(State.ACTIVATIONS))}
    open_axes = tuple(axis for axis in plan.mesh.names if axis in data)
    if open_axes:
        start = Partial(axes=open_axes)
        for when in (When.MICROBATCH, When.STEP):
            yield (start, *_reduce(plan, open_axes, when))
        yield (start, Reduce(axes=open_axes, scatter=False))


def _reduce(plan: Plan, axes: Sequence[str], when: When) -> Journey:
    """Scatter over the axes that split the optimizer's state, in their order; sum over the others."""
    held = [(axis, step) for axis, step in _split(plan.journey(State.OPTIMIZER)) if axis in axes]
    scatter = tuple(axis for axis, _ in held)
    rest = tuple(axis for axis in axes if axis not in scatter)
    steps: list[Step] = []
    if held:
        shard = held[0][1]
        steps.append(Reduce(axes=scatter, scatter=True, when=when, dim=shard.dim, pad=shard.pad))
    if rest:
        steps.append(Reduce(axes=rest, scatter=False))
    return tuple(steps)


def _without_repeats(step: Reduce, before: Journey, plan: Plan) -> tuple[str, ...]:
    """The axes of a reduction that are still partial when it runs."""
    data = {axis for axis, _ in _split(plan.journey(State.ACTIVATIONS))}
    done = {axis for s in before if isinstance(s, Reduce) for axis in s.axes}
    return tuple(axis for axis in step.axes if axis in data and axis not in done)


# --- what a repair costs, and how it is written ----------------------------------------------------------------------


def _volume(journey: Journey, plan: Plan) -> Fraction:
    """Bytes that its collectives move a step, in units of one copy of what moves ("semantics", section 4)."""
    total, part = Fraction(0), Fraction(1)
    for step in journey:
        if isinstance(step, Reduce):
            times = plan.train.microbatches if step.when is When.MICROBATCH else 1
            total += times * part * (1 if step.scatter else 2)
            if step.scatter:
                part /= plan.mesh.size(step.axes) or 2
        elif isinstance(step, (Gather, AllGather)):
            total += 1
    return total


def _fix(repair: Repair) -> Fix:
    elsewhere = any(step.span and step.span.use for step in repair.old)
    text = f"{'override ' * elsewhere}{repair.head}: {written(repair.new)}"
    return Fix(
        title=f"`{text}`",
        edits=_edits(repair, text),
        cost=_cost(repair),
        checked=True,
    )


def _edits(repair: Repair, text: str) -> tuple[Edit, ...]:
    """Replaces what the text says of the journey; nothing where it says nothing, or says a format that would stay. What
    a strategy of another file says is overridden by a line of one's own."""
    spans = [step.span for step in repair.old if step.span]
    if used := next((span.use for span in spans if span.use), None):
        return _appended(used, text)
    if repair.head == "update" and not spans:
        place = [s.span for s in repair.plan.journey(State.OPTIMIZER) if s.span and not s.dtype]
        if not place:
            return ()
        if place[-1].use:
            return _appended(place[-1].use, text)
        end = place[-1].end
        return (Edit(Span(place[-1].source, end, end), f"; update: {written(repair.new)}"),)
    if not spans or any(step.dtype for step in repair.old):
        return ()
    return (Edit(spans[0].to(spans[-1]), written(repair.new)),)


def _appended(near: Span, text: str) -> tuple[Edit, ...]:
    """A line of its own at the end of a text."""
    end = len(near.source.text.rstrip())
    return (Edit(near.source.span(end, end), f"\n{text}"),)


def _cost(repair: Repair) -> str:
    """The traffic of the repaired journey against the one before, in words."""
    new, old = _collectives(repair.new), _collectives(repair.old)
    adds = [text for text in new if text not in old]
    saves = [text for text in old if new.count(text) < old.count(text)]
    if adds and saves:
        return f"{' and '.join(adds)} instead of {' and '.join(dict.fromkeys(saves))}"
    if adds:
        return f"adds {' and '.join(adds)}"
    return f"saves {' and '.join(dict.fromkeys(saves))}" if saves else "the same traffic"


def _collectives(journey: Journey) -> list[str]:
    found = []
    for step in journey:
        over = listed(step.axes)
        if isinstance(step, Reduce):
            word = "reduce-scatter" if step.scatter else "all-reduce"
            per = "microbatch" if step.when is When.MICROBATCH else "step"
            found.append(f"one {word} of the gradients over {over} per {per}")
        elif isinstance(step, Gather):
            found.append(f"one all-gather of each layer's parameters over {over} per use")
        elif isinstance(step, AllGather):
            found.append(f"one all-gather of the parameters over {over} per step")
    return found
