"""The time of a step: kernels, what the host takes longer, collectives hidden and exposed, bubble and update.

A step is read off the program in its order. In a loop over layers, gathers of parameters run ahead of their layer and
reductions of gradients behind it, so both may hide behind the compute of one layer in their pass; what moves
activations is waited for where it stands, and so is what stands outside of loops over layers. Every part is an
expression over the same symbols as memory and traffic, so that it has a number, a formula, a derivative and a
solution. Not for: seconds of one kernel or collective (`work`), or schedules job by job (`replay`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from placelang.cost.expr import FLOPS, SECONDS, Expr, constant, maximum, product, symbol, total
from placelang.cost.machine import Machine, machine
from placelang.cost.overlap import dispatched, overlapped
from placelang.cost.pipeline import fill
from placelang.cost.sizes import ranks
from placelang.cost.stack import STACKS, STRAGGLERS, Stack
from placelang.cost.stages import at, kinds
from placelang.cost.work import NoTimeError, Term, Work
from placelang.model.model import Model
from placelang.plan.plan import Assumption, Plan, State
from placelang.plan.steps import Gather
from placelang.program.event import Event, Op, Phase
from placelang.program.inside import MICROBATCH
from placelang.program.program import Item, Program, Rep
from placelang.program.stages import Stages

NONE: Expr = constant(0, SECONDS)

UNCERTAIN = (0.06, 0.19)
"""Half of the published runs that no constant was fitted on are off by less than the first, nine in ten by less than
the second (`benchmarks/accuracy`, all stacks; docs/design/time)."""


@attrs.frozen
class Span:
    """One run of a stretch of the program: events that stand together in one loop and pass.

    `kernels`: seconds on the device; `host`: what the host takes longer; `exposed` and `hidden`: communication; `tax`:
    by how much what is hidden slows compute down. `weights`: the part of `kernels` that makes gradients of parameters.
    """

    name: str
    phase: str
    times: Expr  # in a step
    terms: tuple[Term, ...]
    kernels: Expr
    weights: Expr
    host: Expr
    exposed: Expr
    hidden: Expr
    tax: Expr
    microbatch: bool  # whether it runs once for each

    @property
    def seconds(self) -> Expr:
        """Of one run."""
        return self.kernels + self.host + self.exposed + self.tax


@attrs.frozen
class Time:
    """Seconds of a step of the slowest stage, and of its parts. All expressions, of one rank."""

    spans: tuple[Span, ...]
    bubble: Expr
    fixed: Expr
    waiting: Expr  # for the slowest rank
    tokens: Expr  # of all ranks in a step
    devices: Expr
    model_flops: Expr  # of one rank: three times the forward, attention over the whole square
    peak: Expr
    assumptions: tuple[Assumption, ...]

    @property
    def parts(self) -> dict[str, Expr]:
        """What a step is made of; they sum up to it."""
        update = [s for s in self.spans if s.phase == Phase.UPDATE.value]
        passes = [s for s in self.spans if s.phase != Phase.UPDATE.value]
        return {
            "forward": _sum(s.times * s.kernels for s in passes if s.phase == Phase.FORWARD.value),
            "backward": _sum(s.times * s.kernels for s in passes if s.phase != Phase.FORWARD.value),
            "host": _sum(s.times * s.host for s in self.spans),
            "communication": _sum(s.times * (s.exposed + s.tax) for s in self.spans),
            "bubble": self.bubble,
            "update": _sum(s.times * s.kernels for s in update),
            "fixed": self.fixed,
            "stragglers": self.waiting,
        }

    @property
    def step(self) -> Expr:
        return total(self.parts.values())

    @property
    def hidden(self) -> Expr:
        """Seconds of communication behind compute."""
        return _sum(s.times * s.hidden for s in self.spans)

    @property
    def exposed(self) -> Expr:
        return _sum(s.times * s.exposed for s in self.spans)

    @property
    def tokens_per_second(self) -> Expr:
        return self.tokens / self.step

    @property
    def mfu(self) -> Expr:
        """Model FLOPs utilisation (PaLM, arXiv 2204.02311, appendix B): nothing computed again counts, attention counts
        over its whole square, and the peak is that of the format which matrices are multiplied in."""
        return self.model_flops / (self.step * self.peak)


@attrs.frozen
class Untimed:
    """Why there is no time. `named`: whether the text names a machine."""

    reason: str
    named: bool = True


def time(plan: Plan, model: Model, program: Program) -> Time | Untimed:
    """The time of one step of `program`, which `plan` denotes for `model`, on the hardware that `plan` names."""
    if plan.hardware is None:
        return Untimed("no line names the hardware", named=False)
    if STACKS.get(program.profile.name) is None:
        return Untimed(f"nobody measured the runtime {program.profile.name}")
    made, said = machine(plan.hardware, plan.train.precision.view)
    if made is None:
        assert isinstance(said, str)
        return Untimed(said)
    assert not isinstance(said, str)
    try:
        return timed(plan, model, program, made, STACKS[program.profile.name], said)
    except NoTimeError as strange:
        return Untimed(str(strange))


def timed(
    plan: Plan, model: Model, program: Program, machine: Machine, stack: Stack, said: tuple[Assumption, ...] = ()
) -> Time:
    """As `time`, on a given machine and stack. Raises NoTimeError where an event has no time."""
    if program.stages is None:
        spans, bubble = tuple(_spans(plan, model, program, machine, stack)), NONE
    else:
        spans, bubble = _staged(plan, model, program, program.stages, machine, stack)
    devices = ranks(program.mesh.names)
    samples = [axis for axis, label in program.tokens if label.dim == "batch"]
    tokens = symbol("M", "microbatches") * symbol("b", "samples a rank has in one microbatch")
    tokens = tokens * symbol("s", "sequence length") * ranks(samples)
    fixed = constant(stack.fixed, SECONDS)
    base = _sum(s.times * s.seconds for s in spans) + bubble + fixed
    late = maximum(devices / 8, 1) ** STRAGGLERS - 1
    return Time(
        spans,
        bubble,
        fixed,
        late * base,
        tokens,
        devices,
        _model_flops(spans),
        machine.peak,
        (*said, *stack.assumptions, *ASSUMPTIONS),
    )


ASSUMPTIONS = (
    Assumption("overlap", "gathers and reductions of a layer hide behind one layer's compute in their pass"),
    Assumption("input", "reading data, logging and checkpoints take no time"),
)


def _sum(parts: Iterable[Expr]) -> Expr:
    return total((NONE, *parts))


def _model_flops(spans: Iterable[Span]) -> Expr:
    """Three times those of the forward: a backward has twice as many."""
    found: list[Expr] = [constant(0, FLOPS)]
    for span in spans:
        if span.phase == Phase.FORWARD.value:
            for term in span.terms:
                whole = 2 if term.kind == "attention" else 1  # the kernel computes half of the square
                found.append(3 * whole * span.times * term.flops)
    return total(found)


# --- one stage --------------------------------------------------------------------------------------------------------


@attrs.define
class _Stretch:
    name: str
    phase: Phase
    times: Expr
    looped: bool
    microbatch: bool
    events: list[Event] = attrs.field(factory=list)


def _stretches(program: Program) -> Iterator[_Stretch]:
    """Events that stand in one loop and pass, in the order of the program."""
    found: dict[tuple[tuple[str, ...], Phase], _Stretch] = {}

    def walk(items: Iterable[Item], loops: tuple[str, ...]) -> None:
        for item in items:
            if isinstance(item, Rep):
                walk(item.body, (*loops, item.loop))
                continue
            key = (loops, item.phase)
            if key not in found:
                layers = [loop for loop in loops if loop != MICROBATCH]
                times = product(constant(program.loops[loop] or 0) for loop in layers)
                if MICROBATCH in loops:
                    times = times * symbol("M", "microbatches")
                name = layers[-1] if layers else "outside the layers" if MICROBATCH in loops else "once a step"
                looped = bool(layers) and not layers[-1].startswith("sends/")
                found[key] = _Stretch(name, item.phase, times, looped, MICROBATCH in loops)
            found[key].events.append(item)

    walk(program.body, ())
    yield from found.values()


def _spans(plan: Plan, model: Model, program: Program, machine: Machine, stack: Stack) -> Iterator[Span]:
    work = Work(program, model, machine, stack)
    gather = next((s for s in plan.journey(State.PARAMS) if isinstance(s, Gather)), None)
    ahead = gather is None or gather.prefetch > 0
    for stretch in _stretches(program):
        terms: list[Term] = []
        kernels, weights, waited, early, late = ([NONE] for _ in range(5))
        for event in stretch.events:
            for term in work.terms(event):
                terms.append(term)
                if term.kind in ("matmul", "attention", "memory"):
                    kernels.append(term.seconds)
                    if event.op is Op.WGRAD:
                        weights.append(term.seconds)
                elif not work.of_parameters(event) or not (stretch.looped and stretch.microbatch):
                    waited.append(term.seconds)
                elif event.op is Op.ALL_GATHER:
                    (early if ahead else waited).append(term.seconds)
                else:
                    late.append(term.seconds)
        if not terms:
            continue
        device, stops = total(kernels), total(waited)
        issued = total(t.operations for t in terms)
        busy = dispatched(device + stops, issued, constant(stack.host, SECONDS))
        beside = overlapped(total((*early, *late)), busy, stack.tax)
        yield Span(
            stretch.name,
            stretch.phase.value,
            stretch.times,
            tuple(terms),
            device,
            total(weights),
            busy - device - stops,
            stops + beside.exposed,
            beside.hidden,
            beside.tax,
            stretch.microbatch,
        )


# --- stages of a pipeline ---------------------------------------------------------------------------------------------


def _staged(
    plan: Plan, model: Model, program: Program, stages: Stages, machine: Machine, stack: Stack
) -> tuple[tuple[Span, ...], Expr]:
    """The spans of the stage that holds most layers, the last of those that hold as many, and the bubble: what a step
    takes beyond them."""
    found: dict[int, tuple[Span, ...]] = {}
    for rank in kinds(stages):
        part, held = at(program, model, rank)
        found[rank] = tuple(_spans(plan, held, part, machine, stack))
    counts = dict.fromkeys(found, 0)
    for rank in stages.coordinates:
        counts[max(k for k in found if k <= rank and _alike(stages, k, rank))] += 1
    passes = {rank: _passes(spans) for rank, spans in found.items()}
    many = symbol("M", "microbatches")
    name = plan.schedule.name if plan.schedule else "1f1b"
    drain = fill(name, plan.schedule.chunks if plan.schedule else 1, list(passes.values()), list(counts.values()))
    fullest = max(found, key=lambda r: (sum(stages.layers(r).values()), r))
    longest = maximum(*(total(p) for p in passes.values()))
    return found[fullest], drain + many * (longest - total(passes[fullest]))


def _alike(stages: Stages, a: int, b: int) -> bool:
    ends = {stages.ranks[0], stages.ranks[-1]}
    return stages.layers(a) == stages.layers(b) and (a == b or not ends & {a, b})


def _passes(spans: Iterable[Span]) -> tuple[Expr, Expr, Expr]:
    """Seconds of one microbatch: forward, gradients of inputs, gradients of weights."""
    many = symbol("M", "microbatches")
    mine = [s for s in spans if s.microbatch]
    forward = _sum(s.times / many * s.seconds for s in mine if s.phase == Phase.FORWARD.value)
    weight = _sum(s.times / many * s.weights for s in mine)
    backward = _sum(s.times / many * s.seconds for s in mine if s.phase != Phase.FORWARD.value)
    return forward, backward - weight, weight
