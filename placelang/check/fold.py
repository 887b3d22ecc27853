"""The abstract run of a program: rules folded over its events, from the states at the start to those at the end.

One mistake never cascades: what an ill event would have written is unknown, and what reads the unknown is not judged.
Cost: O(events x terms) of a program flattened to three trips a loop, whatever the ranks, layers and microbatches.
Not for: a single op's premises (`rules`) or words (`explain`).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from placelang.check.fault import Fault, Ill
from placelang.check.loops import irregular
from placelang.check.premises import Context, laid, miscounted
from placelang.check.prune import LIMIT, states, trips
from placelang.check.rules import apply, leaf
from placelang.check.sizes import Sizes
from placelang.check.types import Type, ValueId, canonical
from placelang.check.values import Values
from placelang.frozen import Frozen
from placelang.plan.plan import WHOLE_TENSORS
from placelang.program.event import Buf, Event, Op, Var
from placelang.program.inside import MICROBATCH
from placelang.program.program import Program, flatten

Env = dict[Buf, "Type | None"]
"""What is in each buffer; None where an ill event should have written it."""


@attrs.frozen(eq=False, repr=False)
class Reference(Frozen):
    """The one-device program as a specification: its updates, and the value of each state when the step ends."""

    values: Values
    context: Context
    ends: Mapping[Buf, ValueId]


@attrs.frozen(eq=False, repr=False)
class Folded(Frozen):
    """`types` holds the last type of every buffer, released ones too."""

    types: Mapping[Buf, Type]
    faults: tuple[Fault, ...]


def reference(program: Program) -> Reference:
    """Number the one-device program. Raises ValueError if it has no meaning, which no text can cause."""
    values = Values()
    context = attrs.evolve(_context(program, values), is_reference=True)
    types, faults = _run(program, context)
    ends = {buf: types[buf].value for _, buf in states(program) if buf in types}
    if faults or None in ends.values():
        raise ValueError(f"the one-device program has no meaning: {faults[:1]}")
    return Reference(values, context, {buf: value for buf, value in ends.items() if value is not None})


def fold(program: Program, against: Reference) -> Folded:
    """The types of a program, and every premise that fails first on its way to a state."""
    context = attrs.evolve(_context(program, against.values), updates=against.context.updates)
    types, faults = _run(program, context, against)
    faults += irregular(program)
    # The layout of an accumulator follows from the journeys: if it has no meaning, one of them is why.
    causes = [fault for fault in faults if fault.event is None or fault.event.op is not Op.ZERO]
    return Folded(types, tuple(causes or faults))


def _context(program: Program, values: Values) -> Context:
    sizes = Sizes.of(program.mesh)
    data = tuple(axis for axis, _ in program.tokens if sizes.numbers.get(axis, 1) != 1)
    groups = {group.name: group for group in program.groups}
    return Context(values, sizes, groups, data, {}, whole_blocks=program.train.optimizer in WHOLE_TENSORS)


def _run(program: Program, ctx: Context, against: Reference | None = None) -> tuple[dict[Buf, Type], list[Fault]]:
    env: Env = {}
    types: dict[Buf, Type] = {}
    faults: list[Fault] = []
    for buf, type_ in _start(program, ctx, faults).items():
        env[buf] = type_
        if type_ is not None:
            types[buf] = type_
    for event in flatten(program, LIMIT):
        if event.op is Op.FREE:
            for buf in event.ins:
                env.pop(buf, None)
            continue
        reads = (*event.ins, *event.outs) if event.op is Op.ACC else event.ins
        absent = next((buf for buf in reads if buf not in env), None)
        if absent is not None:
            faults.append(Fault(code="E308", rule="Total", event=event, buf=absent, detail=_absence(absent, types)))
        ins = [env.get(buf) for buf in reads]
        outs: tuple[Type, ...] = ()
        known = tuple(t for t in ins if t is not None)
        if len(known) == len(ins):
            try:
                outs = apply(event, known, ctx)
            except Ill as ill:
                faults.append(ill.fault)
        if outs:
            env.update(zip(event.outs, outs, strict=True))
            types.update(zip(event.outs, outs, strict=True))
        else:
            env.update(dict.fromkeys(event.outs))
    if against is not None:
        faults += _end(program, env, ctx, against)
    return types, faults


def _absence(buf: Buf, types: Mapping[Buf, Type]) -> str:
    return "released before" if buf in types else "never made"


def _start(program: Program, ctx: Context, faults: list[Fault]) -> Env:
    """The data of every microbatch, and the states as INIT makes them, each at its rest layout."""
    env: Env = {}
    counts = trips(program)
    inert = {axis for axis, size in ctx.sizes.numbers.items() if size == 1}
    wanted = {buf: canonical(p for p in rest.layout if p[0] not in inert) for rest, buf in states(program)}
    for m in range(counts.get(MICROBATCH, 1)):
        for kind in ("tokens", "targets"):
            buf = Buf(kind, "data", (m,))
            try:
                layout = laid(program.tokens, None, ctx, None, buf)
            except Ill as ill:
                faults.append(ill.fault)
                env[buf] = None
                continue
            env[buf] = Type.clean(layout, ctx.values.leaf(kind, (m,)))
    for event in program.setup:
        for each in _every_index(event, counts):
            try:
                if each.op is not Op.INIT:
                    raise Ill(Fault(code="E306", rule="Total", event=each, detail="not how a state begins"))
                env[each.outs[0]] = apply(each, (), ctx)[0]
            except Ill as ill:
                faults.append(ill.fault)
                env.update(dict.fromkeys(each.outs))
                continue
            buf, type_ = each.outs[0], env[each.outs[0]]
            if type_ and buf in wanted and type_.layout != wanted[buf]:
                faults.append(
                    Fault(code="E303", rule="Init", event=each, buf=buf, found=type_.layout, wanted=wanted[buf])
                )
    return env


def _every_index(event: Event, counts: Mapping[str, int]) -> list[Event]:
    """The setup event for each layer that its output's index names."""
    loops = [i.loop for buf in event.outs for i in buf.index if isinstance(i, Var)]
    if not loops:
        return [event]
    return [
        attrs.evolve(event, outs=tuple(attrs.evolve(buf, index=(k,)) for buf in event.outs))
        for k in range(counts.get(loops[0], 1))
    ]


def _end(program: Program, env: Env, ctx: Context, against: Reference) -> list[Fault]:
    """(Step): every live copy of every state is clean, at its rest layout, and what one device has."""
    faults = []
    for rest, buf in states(program):
        if buf not in env:
            faults.append(Fault(code="E308", rule="Step", buf=buf, detail="gone at the end of the step"))
            continue
        type_ = env[buf]
        if type_ is None:
            continue
        try:
            if type_.value is None:
                unclean = miscounted(type_.terms, ctx, rule="Step", event=None, buf=buf, of=buf)
                fault = unclean or Fault(code="E209", rule="Step", buf=buf)
                raise Ill(attrs.evolve(fault, code="E209", detail="no single value"))
            if type_.value != against.ends.get(buf):
                stale = type_.value == leaf(buf, ctx)
                raise Ill(Fault(code="E301" if stale else "E209", rule="Step", buf=buf, detail="another value"))
            wanted = laid(rest.layout, buf.of, ctx, None, buf)
            if type_.layout != canonical(wanted):
                raise Ill(Fault(code="E303", rule="Step", buf=buf, found=type_.layout, wanted=wanted))
        except Ill as ill:
            faults.append(ill.fault)
    return faults
