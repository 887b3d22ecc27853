"""Plans built by hand, without any text, for the tests of the simulator and of the checker against it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from placelang.model.model import Model, Stack, Tensor
from placelang.plan.dtypes import PRECISIONS
from placelang.plan.mesh import Axis, Mesh, Role
from placelang.plan.plan import Placed, Plan, State, Train
from placelang.plan.steps import AllGather, Gather, Journey, Keep, Partial, Reduce, Replicate, Shard, When
from placelang.program.lower import lower, single_device
from placelang.program.program import Program


def tiny(tied: bool = True) -> Model:
    """An embedding, two blocks and a head with a norm; row counts that no small number divides."""
    embed = Tensor("embed.weight", (5, 3), ("vocab", "hidden"), "embed")
    up = Tensor("up.weight", (7, 3), ("ffn", "hidden"), "mlp.up")
    norm = Tensor("norm.weight", (3,), ("hidden",), "norm")
    head = Tensor("head.weight", (5, 3), ("vocab", "hidden"), "head", tied="embed.weight" if tied else None)
    final = Tensor("final.bias", (2,), ("hidden",), "norm", kind="bias")
    return Model(
        name="tiny",
        family="test",
        stacks=(
            Stack("embed", 1, 0, False, (embed,), indexed=False),
            Stack("blocks", 2, 0, True, (up, norm)),
            Stack("head", 1, 0, False, (final, head), indexed=False),
        ),
    )


def deep() -> Model:
    """Five blocks: more than a checker that looks at three trips of a loop sees."""
    model = tiny()
    return attrs.evolve(model, stacks=tuple(attrs.evolve(s, count=5) if s.block else s for s in model.stacks))


def mesh(**sizes: int) -> Mesh:
    return Mesh(tuple(Axis(name, Role.DATA, size) for name, size in sizes.items()))


def plan(
    on: Mesh,
    params: Journey,
    grads: Journey,
    optimizer: Journey,
    update: Journey = (),
    /,
    activations: Journey | None = None,
    **train: object,
) -> Plan:
    journeys: Mapping[State, Journey] = {
        State.PARAMS: params,
        State.GRADS: grads,
        State.OPTIMIZER: optimizer,
        State.ACTIVATIONS: (Shard(axes=on.names, dim="batch"),) if activations is None else activations,
    }
    facts = attrs.evolve(Train(precision=PRECISIONS["fp64"], microbatches=2), **train)  # type: ignore[arg-type]
    return Plan(on, tuple(Placed(state, journey) for state, journey in journeys.items()), update, facts)


def ddp(on: Mesh, when: When = When.STEP, **train: object) -> Plan:
    reduce = Reduce(axes=on.names, scatter=False, when=when)
    return plan(on, (Replicate(),), (Partial(axes=on.names), reduce), (Replicate(),), **train)


def zero1(on: Mesh, **train: object) -> Plan:
    a = on.names
    reduce = Reduce(axes=a, scatter=False)
    return plan(on, (Replicate(),), (Partial(axes=a), reduce), (Shard(axes=a),), (AllGather(axes=a),), **train)


def zero2(on: Mesh, when: When = When.STEP, **train: object) -> Plan:
    a = on.names
    reduce = Reduce(axes=a, scatter=True, when=when)
    return plan(on, (Replicate(),), (Partial(axes=a), reduce), (Shard(axes=a),), (AllGather(axes=a),), **train)


def zero3(on: Mesh, keep: Keep = Keep.UNIT, when: When = When.STEP, **train: object) -> Plan:
    a = on.names
    params = (Shard(axes=a), Gather(axes=a, keep=keep))
    return plan(on, params, (Partial(axes=a), Reduce(axes=a, scatter=True, when=when)), (Shard(axes=a),), **train)


def hsdp(on: Mesh, when: When = When.STEP, **train: object) -> Plan:
    """The first axis replicates, the second shards."""
    outer, inner = on.names
    grads = (
        Partial(axes=on.names),
        Reduce(axes=(inner,), scatter=True, when=when),
        Reduce(axes=(outer,), scatter=False, when=when),
    )
    params = (Shard(axes=(inner,)), Gather(axes=(inner,)))
    return plan(on, params, grads, (Shard(axes=(inner,)),), **train)


def both(p: Plan, model: Model | None = None) -> tuple[Program, Program]:
    """The program of a plan, and of the same job on one device."""
    model = model or tiny()
    return lower(p, model), lower(single_device(p), model)
