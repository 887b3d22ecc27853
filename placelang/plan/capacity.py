"""Whether sizes fit: heads over tensor axes, layers over stages, microbatches over schedules.

Every message shows the arithmetic and the nearest sizes that fit. Sources of the schedules' conditions:
docs/design/semantics, section 7. Not for: memory (`cost`), or the batch identity (`facts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import fault
from placelang.model.model import Model
from placelang.plan import selectors
from placelang.plan.mesh import Role
from placelang.plan.plan import Placed, Plan, State
from placelang.plan.steps import AllToAll, Balanced, Gather, Shard, SmallerShard
from placelang.source import Span


def faults(plan: Plan) -> Iterator[Diagnostic]:
    """The faults of the group E4, for every size that is known."""
    yield from _schedule(plan)
    yield from _stages(plan)
    if plan.model is not None:
        yield from _heads(plan, plan.model)
        yield from _experts(plan, plan.model)
    yield from _sequence(plan)
    yield from _smaller_shards(plan)


def divisors(n: int) -> list[int]:
    """All divisors, in order."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def _degrees(plan: Plan, axes: tuple[str, ...], count: int, near: int) -> str:
    """Sizes of the axes that divide a count, and the devices of the hardware where it is named; nearest ones."""
    fit = [d for d in divisors(count) if plan.hardware is None or plan.hardware.devices % d == 0]
    return f"{' * '.join(axes)} in {{{_listed(fit, near)}}}"


def _listed(numbers: list[int], near: int) -> str:
    """At most eight of the numbers, those nearest to `near`."""
    nearest = sorted(sorted(numbers, key=lambda d: abs(d - near))[:8])
    return ", ".join(str(d) for d in nearest)


# --- pipelines ------------------------------------------------------------------------------------------------------


def _stage_axes(plan: Plan) -> tuple[str, ...]:
    return tuple(a for s in plan.journey(State.PARAMS) if isinstance(s, Shard) and s.dim == "layer" for a in s.axes)


_V_SHAPED = ("zbv", "dualpipev")


def _schedule(plan: Plan) -> Iterator[Diagnostic]:
    axes, schedule = _stage_axes(plan), plan.schedule
    if schedule is None:
        if axes:
            yield fault(
                "E413",
                f"layers lie over stages of `{' * '.join(axes)}`, but no line names a schedule",
                _layer_span(plan),
                help="`schedule: 1f1b`",
            )
        return
    if not axes:
        yield fault(
            "E413",
            f"`{schedule.name}` orders pipeline stages, but no line splits layers over an axis",
            schedule.span,
            help="`params: shard(pp, dim = layer)`",
        )
        return
    stages = plan.mesh.size(axes)
    if stages is None:
        return
    count = plan.train.microbatches
    known = plan.train.micro_batch is not None or count > 1
    if schedule.name == "dualpipev" and stages % 2 and stages > 1:
        yield fault(
            "E412",
            f"`dualpipev` needs an even number of stages, got {stages}",
            schedule.span,
            help="`zbv` takes any number",
        )
    if schedule.name == "interleaved_1f1b" and count % stages and known:
        yield fault(
            "E410",
            f"`interleaved_1f1b` over {stages} stages needs a multiple of {stages} microbatches, got {count}",
            schedule.span,
            cause=_microbatch_arithmetic(plan),
            help=_rounds(plan, stages, count),
        )
        return
    needed = _least(schedule.name, stages)
    if known and count < needed:
        yield fault(
            "E411",
            f"`{schedule.name}` over {stages} stages needs at least {needed} microbatches, got {count}",
            schedule.span,
            cause=_microbatch_arithmetic(plan),
            help=f"{_more(plan, needed)}; {_plain_1f1b(plan, stages, count)}",
        )


def _least(schedule: str, stages: int) -> int:
    """The fewest microbatches that a schedule takes."""
    rounds = {"gpipe": 1, "1f1b": 1, "zb_h2": 2 * stages - 1, "dualpipev": 2 * stages}
    return rounds.get(schedule, stages)


def _sample_axes(plan: Plan) -> tuple[str, ...]:
    """The axes whose ranks read other samples."""
    steps = plan.journey(State.ACTIVATIONS)
    return tuple(a for s in steps if isinstance(s, Shard) and s.dim == "batch" for a in s.axes)


def _microbatch_arithmetic(plan: Plan) -> str:
    t, axes = plan.train, _sample_axes(plan)
    if t.global_batch is None or t.micro_batch is None:
        return ""
    divisor = " * ".join(("micro_batch", *axes))
    numbers = " * ".join(str(n) for n in (t.micro_batch, *(plan.mesh[a].size for a in axes)))
    return f"microbatches = global_batch / ({divisor}) = {t.global_batch} / ({numbers})"


def _more(plan: Plan, count: int) -> str:
    """How to write that many microbatches, in the words that the text uses."""
    t = plan.train
    if t.global_batch is None or t.micro_batch is None:
        return f"`microbatches = {count}`"
    ranks = plan.mesh.size(_sample_axes(plan)) or 1
    return f"`global_batch = {t.micro_batch * ranks * count}` ({count} microbatches)"


def _plain_1f1b(plan: Plan, stages: int, count: int) -> str:
    applied = plan.schedule is not None and plan.schedule.span is not None and plan.schedule.span.use is not None
    bubble, whole = stages - 1, count + stages - 1
    g = gcd(bubble, whole)
    line = f"{'override ' * applied}schedule: 1f1b"
    return f"`{line}` accepts {count}, with a bubble of {bubble // g}/{whole // g} of the step"


def _rounds(plan: Plan, stages: int, count: int) -> str:
    lower, upper = count // stages * stages, -(-count // stages) * stages
    more = " or ".join(_more(plan, n) for n in (lower, upper) if n)
    return f"{more}; {_plain_1f1b(plan, stages, count)}"


def _layer_span(plan: Plan) -> Span | None:
    return next((s.span for s in plan.journey(State.PARAMS) if isinstance(s, Shard) and s.dim == "layer"), None)


def _stages(plan: Plan) -> Iterator[Diagnostic]:
    """Layers over stages and chunks, unless a `split` says how."""
    step = next((s for s in plan.journey(State.PARAMS) if isinstance(s, Shard) and s.dim == "layer"), None)
    stages = plan.mesh.size(step.axes) if step else None
    if step is None or stages is None:
        return
    chunks = plan.schedule.chunks if plan.schedule else 1
    parts = stages * chunks
    layers = sum(s.count for s in plan.model.stacks if s.block) if plan.model else 0
    if plan.model is None or not layers:  # of any model a split names each part
        if isinstance(step.split, tuple) and len(step.split) != parts:
            yield _parts_named(step.split, step.span, stages, chunks)
        return
    less = step.split.first_less + step.split.last_less if isinstance(step.split, Balanced) else 0
    axes, even = " * ".join(step.axes), _even(layers, parts)
    if isinstance(step.split, tuple):
        total = sum(step.split)
        if len(step.split) != parts:
            yield _parts_named(step.split, step.span, stages, chunks, even)
        elif total != layers:
            terms = f"{' + '.join(map(str, step.split))} = {total}"
            said = f"`split` covers {total} layers, {plan.model.name} has {layers}"
            yield fault("E424", said, step.span, cause=terms, help=even)
    elif parts > layers + less:
        fit = _stage_counts(layers + less, chunks)
        help_ = f"{axes} in {{{_listed(fit, stages)}}}" if fit else ""
        yield fault("E421", f"{layers} layers are fewer than {_parts(stages, chunks)}", step.span, help=help_)
    elif (layers + less) % parts:
        helps = [f"{axes} in {{{_listed(fit, stages)}}}" if (fit := _stage_counts(layers + less, chunks)) else ""]
        if plan.schedule is not None and plan.schedule.name == "interleaved_1f1b":
            counts = [c for c in divisors(layers + less) if c > 1 and (layers + less) % (stages * c) == 0]
            helps.append(f"chunks in {{{_listed(counts, chunks)}}}" if counts else "")
        helps.append(even)
        yield fault(
            "E421",
            f"{layers} layers{f' and {less} left out' if less else ''} do not divide over {_parts(stages, chunks)}",
            step.span,
            cause=f"{layers}{f' + {less}' if less else ''} = {(layers + less) // parts} * {parts}"
            f" + {(layers + less) % parts}",
            help="; or ".join(h for h in helps if h),
        )


def _parts_named(split: tuple[int, ...], span: Span | None, stages: int, chunks: int, even: str = "") -> Diagnostic:
    plural = "s" * (len(split) != 1)
    said = f"`split` names {len(split)} part{plural}, {_parts(stages, chunks)} need {stages * chunks}"
    return fault("E424", said, span, help=even)


def _stage_counts(layers: int, chunks: int) -> list[int]:
    return [d // chunks for d in divisors(layers) if d % chunks == 0]


def _even(layers: int, parts: int) -> str:
    """The layers dealt out as evenly as they can be, where that is short enough to write."""
    lower, more = divmod(layers, parts)
    if not lower or parts > 16:
        return ""
    return f"`split = [{', '.join(str(lower + (i < more)) for i in range(parts))}]`"


def _parts(stages: int, chunks: int) -> str:
    return f"{stages} stages of {chunks} chunks" if chunks > 1 else f"{stages} stages"


# --- heads, experts, sequence ---------------------------------------------------------------------------------------


def _shards(plan: Plan, state: State, *roles: Role) -> Iterator[tuple[Placed, Shard, tuple[str, ...]]]:
    """Every shard of a state with its axes of these roles."""
    for placed in plan.placed:
        if placed.state is state:
            for s in placed.journey:
                if isinstance(s, Shard):
                    axes = tuple(a for a in s.axes if plan.mesh[a].role in roles)
                    if axes:
                        yield placed, s, axes


def _roles(plan: Plan, placed: Placed, model: Model) -> frozenset[str]:
    """The roles of the tensors that a placement is about, less those that a later `override` places otherwise."""
    later = plan.placed[plan.placed.index(placed) + 1 :]
    names = _selected(placed, model, plan.train.frozen).difference(
        *(_selected(p, model, plan.train.frozen) for p in later if p.override and p.state is placed.state)
    )
    return frozenset(t.role for stack in model.stacks for t in stack.tensors if stack.fqn(t) in names)


def _selected(placed: Placed, model: Model, frozen: tuple[str, ...]) -> frozenset[str]:
    by_name = (s for s in placed.selections if s.kind in ("glob", "role"))
    return frozenset[str]().union(*(selectors.matches(s, model, frozen) for s in by_name))


def _heads(plan: Plan, model: Model) -> Iterator[Diagnostic]:
    heads, kv_heads = model.size("heads"), model.size("kv_heads")
    said: set[str] = set()
    for placed, step, axes in _shards(plan, State.PARAMS, Role.TENSOR):
        ranks = plan.mesh.size(axes)
        roles = _roles(plan, placed, model)
        if ranks is None or not any(r.startswith("attn") for r in roles):
            continue
        name = " * ".join(axes)
        if heads and heads % ranks and name not in said:
            said.add(name)
            yield fault(
                "E420",
                f"heads = {heads} does not divide over {name} = {ranks}",
                step.span,
                help=_degrees(plan, axes, heads, ranks),
            )
        kv = roles & {"attn.kv", "attn.qkv"}
        if kv and kv_heads and kv_heads != heads and name not in said and (ranks % kv_heads and kv_heads % ranks):
            said.add(name)
            yield fault(
                "E423", f"kv_heads = {kv_heads} does not divide over {name} = {ranks}", step.span,
                help=_degrees(plan, axes, kv_heads, ranks),
            )  # fmt: skip
        elif kv and kv_heads and kv_heads < ranks and name not in said and ranks % kv_heads == 0:
            said.add(name)
            view = (
                f"mesh kv (kv_tp: tensor = {kv_heads}, kv_copy: tensor = {ranks // kv_heads}) over ({', '.join(axes)})"
            )
            yield fault(
                "E423",
                f"{kv_heads} key-value heads are fewer than {name} = {ranks}",
                step.span,
                help=f"`{view}`, then `override params[attn.kv]: colwise(kv_tp) ; grads[attn.kv]: all_reduce(kv_copy)`",
            )
    for placed in plan.placed:
        for s in placed.journey:
            if isinstance(s, AllToAll) and s.dim == "heads" and placed.state is State.ACTIVATIONS:
                ranks = plan.mesh.size(s.axes)
                if ranks and heads and heads % ranks:
                    name = " * ".join(s.axes)
                    help_ = f"{_degrees(plan, s.axes, heads, ranks)}; `ring({name})` takes any"
                    yield fault("E420", f"heads = {heads} does not divide over {name} = {ranks}", s.span, help=help_)
                elif found := _cut_heads(plan, model, s):
                    yield found


def _cut_heads(plan: Plan, model: Model, dealt: AllToAll) -> Diagnostic | None:
    """Heads are dealt out whole: what tensor axes leave of query and of key-value heads divides once more."""
    for code, size, role in (("E420", "heads", "attn.q"), ("E423", "kv_heads", "attn.kv")):
        split = [
            axis
            for placed, _, axes in _shards(plan, State.PARAMS, Role.TENSOR)
            if _roles(plan, placed, model) & {role, "attn.qkv"}
            for axis in axes
        ]
        axes = (*dict.fromkeys(split), *dealt.axes)
        count, ranks, name = model.size(size), plan.mesh.size(axes), " * ".join(axes)
        if count and ranks and count % ranks:
            help_ = f"{_degrees(plan, axes, count, ranks)}; `ring({' * '.join(dealt.axes)})` takes any"
            return fault(code, f"{size} = {count} does not divide over {name} = {ranks}", dealt.span, help=help_)
    return None


def _experts(plan: Plan, model: Model) -> Iterator[Diagnostic]:
    experts = model.size("experts")
    for _, step, axes in _shards(plan, State.PARAMS, Role.EXPERT):
        ranks = plan.mesh.size(axes)
        if step.dim == "expert" and experts and ranks and experts % ranks:
            name = " * ".join(axes)
            help_ = _degrees(plan, axes, experts, ranks)
            yield fault("E422", f"experts = {experts} does not divide over {name} = {ranks}", step.span, help=help_)


def _sequence(plan: Plan) -> Iterator[Diagnostic]:
    seq = plan.train.seq
    for _, step, axes in _shards(plan, State.ACTIVATIONS, Role.SEQUENCE):
        ranks = plan.mesh.size(axes)
        if step.dim == "seq" and seq and ranks and seq % ranks:
            name = " * ".join(axes)
            upper = -(-seq // ranks) * ranks
            span = step.span or plan.train.span
            yield fault("E422", f"seq = {seq} does not divide over {name} = {ranks}", span, help=f"`seq = {upper}`")


def _smaller_shards(plan: Plan) -> Iterator[Diagnostic]:
    """`keep = shard(axes)` must be part of the gather; torch's number of ranks a divisor of its group."""
    for placed in plan.placed:
        for s in placed.journey:
            if not isinstance(s, Gather) or not isinstance(s.keep, SmallerShard):
                continue
            if extra := set(s.keep.axes) - set(s.axes):
                said = f"`keep = shard({min(extra)})` is no part of this gather"
                yield fault("E106", said, s.span, help=f"it gathers over {' * '.join(s.axes)}")
            ranks = plan.mesh.size(s.axes)
            if s.keep.ranks and ranks and ranks % s.keep.ranks:
                fit = _listed(divisors(ranks), s.keep.ranks)
                yield fault(
                    "E422",
                    f"`reshard_after_forward = {s.keep.ranks}` is no divisor of the {ranks} ranks of the gather",
                    s.span,
                    help=f"one of {fit}",
                )
