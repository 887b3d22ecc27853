"""The abstract run of a program: rules folded over its events, from the states at the start to those at the end.

One mistake never cascades: what an ill event would have written is unknown, and what reads the unknown is not judged.
Cost: O(events x terms) of a program flattened to three trips a loop, whatever the ranks, layers and microbatches. Only
the ranks of a stage axis differ in what they do: one of each kind of stage has buffers of its own.
Not for: a single op's premises (`rules`) or words (`explain`).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from placelang.check.fault import Fault, Ill
from placelang.check.loops import irregular
from placelang.check.premises import Context, Types, laid, miscounted
from placelang.check.prune import states
from placelang.check.rules import apply, leaf
from placelang.check.sizes import Sizes
from placelang.check.staged import across
from placelang.check.types import Type, ValueId, canonical
from placelang.check.values import Values
from placelang.frozen import Frozen
from placelang.plan.plan import WHOLE_TENSORS
from placelang.program.event import COLLECTIVES, At, Buf, Event, Op, Var
from placelang.program.inside import MICROBATCH
from placelang.program.program import Program, Sample, flatten, sample

Env = dict[Buf, "Type | None"]
"""What is in each buffer; None where an ill event should have written it."""

Envs = dict[int, Env]
"""By coordinate on the stage axis; 0 alone where there are no stages."""


@attrs.frozen(eq=False, repr=False)
class Reference(Frozen):
    """The one-device program as a specification: its updates, and the value of each state when the step ends. `trips`:
    how often its loops were run; a program's are run as often."""

    trips: Mapping[str, int]
    values: Values
    context: Context
    ends: Mapping[Buf, ValueId]


@attrs.frozen(eq=False, repr=False)
class Folded(Frozen):
    """`types` holds the last type of every buffer, released ones too."""

    types: Mapping[Buf, Type]
    faults: tuple[Fault, ...]


def reference(program: Program, for_: Program | None = None) -> Reference:
    """Number the one-device program, its loops run as often as those of the program that it is a reference for. Raises
    ValueError if it has no meaning, which no text can cause."""
    values = Values()
    context = attrs.evolve(_context(program, values), is_reference=True)
    of = Sample(sample(for_ or program).trips)
    types, faults = _run(program, of, context)
    ends = {buf: types[buf].value for _, buf, _ in states(program, of) if buf in types}
    if faults or None in ends.values():
        raise ValueError(f"the one-device program has no meaning: {faults[:1]}")
    return Reference(of.trips, values, context, {buf: value for buf, value in ends.items() if value is not None})


def fold(program: Program, against: Reference) -> Folded:
    """The types of a program, and every premise that fails first on its way to a state. Raises ValueError if the
    reference ran other loops."""
    of = sample(program)
    if of.trips != against.trips:
        raise ValueError(f"the reference ran {against.trips}, the program runs {of.trips}")
    known = against.context
    context = attrs.evolve(
        _context(program, against.values), updates=known.updates, gradients=known.gradients, norms=known.norms
    )
    types, faults = _run(program, of, context, against)
    faults += irregular(program)
    # The layout of an accumulator follows from the journeys: if it has no meaning, one of them is why.
    causes = [fault for fault in faults if fault.event is None or fault.event.op is not Op.ZERO]
    return Folded(types, tuple(causes or faults))


def _context(program: Program, values: Values) -> Context:
    sizes = Sizes.of(program.mesh, program.train.loss_scale is not None)
    data = tuple(axis for axis, _ in program.tokens if sizes.numbers.get(axis, 1) != 1)
    groups = {group.name: group for group in program.groups}
    return Context(values, sizes, groups, data, {}, whole_blocks=program.train.optimizer in WHOLE_TENSORS)


def _run(
    program: Program, of: Sample, ctx: Context, against: Reference | None = None
) -> tuple[dict[Buf, Type], list[Fault]]:
    types: dict[Buf, Type] = {}
    faults: list[Fault] = []
    envs = _start(program, of, ctx, faults)
    for env in envs.values():
        types.update((buf, type_) for buf, type_ in env.items() if type_ is not None)
    axis = program.stages.axis if program.stages and of.stages else None
    for event in flatten(program, of):
        here = [stage for stage in of.where(event.where) if stage in envs]
        if event.op is Op.FREE:
            for stage in here:
                for buf in event.ins:
                    envs[stage].pop(buf, None)
            continue
        reads = (*event.ins, *event.outs) if event.op is Op.ACC else event.ins
        found: list[Fault] = []
        ins: dict[int, Types] = {}
        for stage in here:
            env = envs[stage]
            absent = next((buf for buf in reads if buf not in env), None)
            if absent is not None:
                fault = Fault(code="E308", rule="Total", event=event, buf=absent, detail=_absence(absent, types))
                found.append(_staged(fault, of, stage))
            known = tuple(t for t in map(env.get, reads) if t is not None)
            if len(known) == len(reads):
                ins[stage] = known
        outs: dict[int, Types] = {}
        if axis is not None and axis in event.axes and event.op in COLLECTIVES:
            if ins and len(ins) == len(here):
                try:
                    outs = across(event, axis, ins, ctx)
                except Ill as ill:
                    found.append(ill.fault)
        else:
            for stage, known in ins.items():
                try:
                    outs[stage] = apply(event, known, ctx)
                except Ill as ill:
                    found.append(_staged(ill.fault, of, stage))
        if axis is not None and event.op is Op.SEND:  # what one stage has, another gets
            if len(here) != 1 and not found:
                found.append(Fault(code="E306", rule="Total", event=event, detail="a send from no one stage"))
            here = [event.target] if isinstance(event.target, int) and event.target in envs else []
            outs = {stage: made for stage in here for made in outs.values()} if len(outs) == 1 else {}
        for stage in here:
            if stage in outs:
                envs[stage].update(zip(event.outs, outs[stage], strict=True))
                types.update(zip(event.outs, outs[stage], strict=True))
            else:
                envs[stage].update(dict.fromkeys(event.outs))
        faults += found[:1]  # what other stages show of the same event is the same mistake
    if against is not None:
        faults += _end(program, of, envs, ctx, against)
    return types, faults


def _staged(fault: Fault, of: Sample, stage: int) -> Fault:
    """The fault, and the ranks that show it."""
    if of.stages is None:
        return fault
    return attrs.evolve(fault, stage=(of.stages.axis, of.stages.real[stage]))


def _absence(buf: Buf, types: Mapping[Buf, Type]) -> str:
    return "released before" if buf in types else "never made"


def _start(program: Program, of: Sample, ctx: Context, faults: list[Fault]) -> Envs:
    """The data of every microbatch, and the states as INIT makes them, each at its rest layout."""
    envs: Envs = {stage: {} for stage in of.coordinates}
    inert = {axis for axis, size in ctx.sizes.numbers.items() if size == 1}
    wanted = {buf: canonical(p for p in rest.layout if p[0] not in inert) for rest, buf, _ in states(program, of)}
    for m in range(of.trips.get(MICROBATCH, 1)):
        for kind in ("tokens", "targets"):
            buf = Buf(kind, "data", (m,))
            data: Type | None = None
            try:
                data = Type.clean(laid(program.tokens, None, ctx, None, buf), ctx.values.leaf(kind, (m,)))
            except Ill as ill:
                faults.append(ill.fault)
            for env in envs.values():
                env[buf] = data
    for event in program.setup:
        for each in _every_index(event, of.trips):
            made: tuple[Type | None, ...] = (None,) * len(each.outs)
            try:
                if each.op is not Op.INIT:
                    raise Ill(Fault(code="E306", rule="Total", event=each, detail="not how a state begins"))
                made = apply(each, (), ctx)
            except Ill as ill:
                faults.append(ill.fault)
            for stage in of.where(each.where):
                if stage in envs:
                    envs[stage].update(zip(each.outs, made, strict=True))
            for buf, type_ in zip(each.outs, made, strict=True):
                if type_ and buf in wanted and type_.layout != wanted[buf]:
                    faults.append(
                        Fault(code="E303", rule="Init", event=each, buf=buf, found=type_.layout, wanted=wanted[buf])
                    )
    return envs


def _every_index(event: Event, counts: Mapping[str, int]) -> list[Event]:
    """The setup event for each layer that its output's index names."""
    loops = [i.loop for buf in event.outs for i in buf.index if isinstance(i, Var)]
    if not loops:
        return [event]
    return [
        attrs.evolve(
            event,
            outs=tuple(attrs.evolve(buf, index=(k,)) for buf in event.outs),
            where=tuple(at if isinstance(at, int) or not at.loop else At(at.loop, k) for at in event.where),
        )
        for k in range(counts.get(loops[0], 1))
    ]


def _end(program: Program, of: Sample, envs: Envs, ctx: Context, against: Reference) -> list[Fault]:
    """(Step): every live copy of every state is clean, at its rest layout, and what one device has."""
    faults = []
    for rest, buf, stage in states(program, of):
        env = envs.get(stage, {})
        if buf not in env:
            fault = Fault(code="E308", rule="Step", buf=buf, detail="gone at the end of the step")
            faults.append(_staged(fault, of, stage))
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
            faults.append(_staged(ill.fault, of, stage))
    return faults
