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
            help=f"`microbatches = {needed}`; `schedule: gpipe` takes any number",
        )


def _least(schedule: str, stages: int) -> int:
    """The fewest microbatches that a schedule takes."""
    rounds = {"gpipe": 1, "zb_h2": 2 * stages - 1, "dualpipev": 2 * stages}
    return rounds.get(schedule, stages)


def _microbatch_arithmetic(plan: Plan) -> str:
    t = plan.train
    if t.micro_batch is None:
        return f"microbatches = {t.microbatches}"
    ranks = plan.mesh.size(plan.mesh.of_role(Role.DATA, Role.EXPERT)) or 1
    whole = t.micro_batch * ranks * t.microbatches
    return f"microbatches = global_batch / (micro_batch * data ranks) = {whole} / ({t.micro_batch} * {ranks})"


def _rounds(plan: Plan, stages: int, count: int) -> str:
    upper = -(-count // stages) * stages
    t = plan.train
    ranks = plan.mesh.size(plan.mesh.of_role(Role.DATA, Role.EXPERT)) or 1
    if t.micro_batch is not None:
        more = f"`global_batch = {t.micro_batch * ranks * upper}` ({upper} microbatches)"
    else:
        more = f"`microbatches = {upper}`"
    if count < stages:
        return f"{more}; `schedule: gpipe` takes any number"
    bubble, whole = stages - 1, count + stages - 1
    g = gcd(bubble, whole)
    return f"{more}; `schedule: 1f1b` accepts {count}, with a bubble of {bubble // g}/{whole // g} of the step"


def _layer_span(plan: Plan) -> Span | None:
    return next((s.span for s in plan.journey(State.PARAMS) if isinstance(s, Shard) and s.dim == "layer"), None)


def _stages(plan: Plan) -> Iterator[Diagnostic]:
    """Layers over stages and chunks, unless a `split` says how."""
    step = next((s for s in plan.journey(State.PARAMS) if isinstance(s, Shard) and s.dim == "layer"), None)
    if step is None or plan.model is None:
        return
    stages = plan.mesh.size(step.axes)
    layers = sum(s.count for s in plan.model.stacks if s.block)
    if stages is None or not layers:
        return
    chunks = plan.schedule.chunks if plan.schedule else 1
    parts = stages * chunks
    if isinstance(step.split, tuple):
        if len(step.split) != parts:
            yield fault(
                "E424", f"`split` names {len(step.split)} parts, {_parts(stages, chunks)} are {parts}", step.span
            )
        elif sum(step.split) != layers:
            yield fault(
                "E424", f"`split` covers {sum(step.split)} layers, {plan.model.name} has {layers}", step.span,
                cause=f"{' + '.join(map(str, step.split))} = {sum(step.split)}",
            )  # fmt: skip
        return
    less = step.split.first_less + step.split.last_less if isinstance(step.split, Balanced) else 0
    if parts > layers + less:
        yield fault(
            "E421",
            f"{layers} layers are fewer than {_parts(stages, chunks)}",
            step.span,
            help=f"at most {layers} parts",
        )
    elif (layers + less) % parts:
        fit = [d for d in divisors(layers + less) if d % chunks == 0]
        lower, upper = layers // parts, -(-layers // parts)
        sizes = [upper] * (layers - lower * parts) + [lower] * (parts - (layers - lower * parts))
        uneven = f"; or `split = [{', '.join(map(str, sizes))}]`" if parts <= 16 else ""
        yield fault(
            "E421",
            f"{layers} layers do not divide over {_parts(stages, chunks)}",
            step.span,
            cause=f"{layers}{f' + {less} left out' if less else ''} = {(layers + less) // parts} * {parts}"
            f" + {(layers + less) % parts}",
            help=f"{' * '.join(step.axes)} in {{{_listed([d // chunks for d in fit], stages)}}}{uneven}",
        )


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


def _selected_roles(placed: Placed, model: Model, frozen: tuple[str, ...]) -> frozenset[str]:
    names = frozenset[str]().union(
        *(selectors.matches(s, model, frozen) for s in placed.selections if s.kind in ("glob", "role"))
    )
    return frozenset(t.role for stack in model.stacks for t in stack.tensors if stack.fqn(t) in names)


def _heads(plan: Plan, model: Model) -> Iterator[Diagnostic]:
    heads, kv_heads = model.size("heads"), model.size("kv_heads")
    said: set[str] = set()
    for placed, step, axes in _shards(plan, State.PARAMS, Role.TENSOR):
        ranks = plan.mesh.size(axes)
        roles = _selected_roles(placed, model, plan.train.frozen)
        if ranks is None or not any(r.startswith("attn") for r in roles):
            continue
        name = " * ".join(axes)
        if heads and heads % ranks and name not in said:
            said.add(name)
            yield fault(
                "E420",
                f"heads = {heads} does not divide over {name} = {ranks}",
                step.span,
                help=f"{name} in {{{_listed(divisors(heads), ranks)}}}",
            )
        kv = roles & {"attn.kv", "attn.qkv"}
        if kv and kv_heads and kv_heads != heads and name not in said and (ranks % kv_heads and kv_heads % ranks):
            said.add(name)
            yield fault(
                "E423", f"kv_heads = {kv_heads} does not divide over {name} = {ranks}", step.span,
                help=f"{name} in {{{_listed(divisors(kv_heads), ranks)}}}",
            )  # fmt: skip
        elif kv and kv_heads and kv_heads < ranks and name not in said and ranks % kv_heads == 0:
            said.add(name)
            view = f"mesh kv (kv_tp: tensor = {kv_heads}, kv_copy: tensor = {ranks // kv_heads}) over ({name})"
            yield fault(
                "E423",
                f"{kv_heads} key-value heads are fewer than {name} = {ranks}",
                step.span,
                help=f"`{view}`, then `params[attn.kv]: colwise(kv_tp)`",
            )
    for placed in plan.placed:
        for s in placed.journey:
            if isinstance(s, AllToAll) and s.dim == "heads" and placed.state is State.ACTIVATIONS:
                ranks = plan.mesh.size(s.axes)
                if ranks and heads and heads % ranks:
                    name = " * ".join(s.axes)
                    help_ = f"{name} in {{{_listed(divisors(heads), ranks)}}}; `ring({name})` takes any"
                    yield fault("E420", f"heads = {heads} does not divide over {name} = {ranks}", s.span, help=help_)
                elif found := _cut_heads(plan, model, s):
                    yield found


def _cut_heads(plan: Plan, model: Model, dealt: AllToAll) -> Diagnostic | None:
    """Heads are dealt out whole: what tensor axes leave of query and of key-value heads divides once more."""
    for code, size, role in (("E420", "heads", "attn.q"), ("E423", "kv_heads", "attn.kv")):
        split = [
            axis
            for placed, _, axes in _shards(plan, State.PARAMS, Role.TENSOR)
            if _selected_roles(placed, model, plan.train.frozen) & {role, "attn.qkv"}
            for axis in axes
        ]
        axes = (*dict.fromkeys(split), *dealt.axes)
        count, ranks, name = model.size(size), plan.mesh.size(axes), " * ".join(axes)
        if count and ranks and count % ranks:
            help_ = f"{name} in {{{_listed(divisors(count), ranks)}}}; `ring({' * '.join(dealt.axes)})` takes any"
            return fault(code, f"{size} = {count} does not divide over {name} = {ranks}", dealt.span, help=help_)
    return None


def _experts(plan: Plan, model: Model) -> Iterator[Diagnostic]:
    experts = model.size("experts")
    for _, step, axes in _shards(plan, State.PARAMS, Role.EXPERT):
        ranks = plan.mesh.size(axes)
        if step.dim == "expert" and experts and ranks and experts % ranks:
            name = " * ".join(axes)
            help_ = f"{name} in {{{_listed(divisors(experts), ranks)}}}"
            yield fault("E422", f"experts = {experts} does not divide over {name} = {ranks}", step.span, help=help_)


def _sequence(plan: Plan) -> Iterator[Diagnostic]:
    seq = plan.train.seq
    for _, step, axes in _shards(plan, State.ACTIVATIONS, Role.SEQUENCE):
        ranks = plan.mesh.size(axes)
        if step.dim == "seq" and seq and ranks and seq % ranks:
            name = " * ".join(axes)
            upper = -(-seq // ranks) * ranks
            yield fault(
                "E422", f"seq = {seq} does not divide over {name} = {ranks}", step.span, help=f"`seq = {upper}`"
            )


def _smaller_shards(plan: Plan) -> Iterator[Diagnostic]:
    """`keep = shard(axes)` must be part of the gather; torch's number of ranks a divisor of its group."""
    for placed in plan.placed:
        for s in placed.journey:
            if not isinstance(s, Gather) or not isinstance(s.keep, SmallerShard):
                continue
            if extra := set(s.keep.axes) - set(s.axes):
                yield fault("E106", f"`keep = shard({min(extra)})` is no part of this gather", s.span)
            ranks = plan.mesh.size(s.axes)
            if s.keep.ranks and ranks and ranks % s.keep.ranks:
                fit = _listed(divisors(ranks), s.keep.ranks)
                yield fault(
                    "E422",
                    f"`reshard_after_forward = {s.keep.ranks}` is no divisor of the {ranks} ranks of the gather",
                    s.span,
                    help=f"one of {fit}",
                )
