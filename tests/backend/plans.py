"""Plans and models by hand, so that this room's tests stand on no other room's words."""

from __future__ import annotations

from placelang.model.constructors import build
from placelang.model.model import Model
from placelang.plan.dtypes import PRECISIONS
from placelang.plan.mesh import Axis, Mesh, Role
from placelang.plan.plan import Placed, Plan, State, Train
from placelang.plan.steps import AllGather, Gather, Keep, Partial, Reduce, Replicate, Shard, Step, When

Steps = tuple[Step, ...]


def tiny(**facts: object) -> Model:
    """Two blocks and a vocabulary that neither 2 nor 3 divides."""
    given = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 44, "vocab": 257, **facts}
    model = build("transformer", given, name="tiny")
    assert isinstance(model, Model), model
    return model


def _strategy(name: str, axes: tuple[str, ...]) -> tuple[Steps, Steps, Steps, Steps]:
    """Journeys of params, optimizer, grads, and the update."""
    whole, shard, part = Replicate(), Shard(axes=axes[-1:]), Partial(axes=axes)
    each, once = When.MICROBATCH, When.STEP
    inner, outer = axes[-1:], axes[:-1]
    gather, back = Gather(axes=inner), AllGather(axes=inner)
    rest = (Reduce(axes=outer, scatter=False, when=each),) if outer else ()

    def scatter(when: When) -> Reduce:
        return Reduce(axes=inner, scatter=True, when=when)

    return {
        "none": ((whole,), (whole,), (part,), ()),
        "ddp": ((whole,), (whole,), (part, Reduce(axes=axes, scatter=False)), ()),
        "ddp_each": ((whole,), (whole,), (part, Reduce(axes=axes, scatter=False, when=each)), ()),
        "ddp_inner": ((whole,), (whole,), (part, Reduce(axes=inner, scatter=False)), ()),
        "zero1": ((whole,), (shard,), (part, scatter(once)), (back,)),
        "zero1_3p": ((whole,), (shard,), (part, Reduce(axes=axes, scatter=False)), (back,)),
        "zero2": ((whole,), (shard,), (part, scatter(each), *rest), (back,)),
        "zero3": ((shard, gather), (shard,), (part, scatter(each), *rest), ()),
        "zero3_kept": ((shard, Gather(axes=inner, keep=Keep.MICROBATCH)), (shard,), (part, scatter(each)), ()),
        "zero3_once": ((shard, gather), (shard,), (part, scatter(once)), ()),
        "zero3_none": ((shard, gather), (shard,), (part,), ()),
        "flat": ((whole,), (Shard(axes=inner, dim="flat"),), (part, scatter(once)), (back,)),
        "no_update": ((whole,), (shard,), (part, scatter(once)), ()),
    }[name]


def plan(
    name: str,
    *sizes: int | None,
    microbatches: int = 1,
    precision: str = "fp32",
    seq: int | None = 16,
    micro_batch: int | None = 2,
    **train: object,
) -> Plan:
    """One size: axis `dp`. Two sizes: `dp_replicate` and `dp_shard`, outermost first."""
    axes = ("dp",) if len(sizes) == 1 else ("dp_replicate", "dp_shard")
    mesh = Mesh(tuple(Axis(axis, Role.DATA, size) for axis, size in zip(axes, sizes, strict=True)))
    params, optimizer, grads, update = _strategy(name, axes)
    activations: Steps = (Shard(axes=axes, dim="batch"),)
    return Plan(
        mesh,
        (
            Placed(State.PARAMS, params),
            Placed(State.OPTIMIZER, optimizer),
            Placed(State.GRADS, grads),
            Placed(State.ACTIVATIONS, activations),
        ),
        update,
        Train(
            precision=PRECISIONS[precision],
            seq=seq,
            micro_batch=micro_batch,
            microbatches=microbatches,
            **train,  # type: ignore[arg-type]
        ),
    )
