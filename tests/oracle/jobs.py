"""Sound programs of jobs that clip, scale the loss, or freeze parameters, to be mutated and to be turned wrong.

Not for: jobs without these (`mutants`, `families`, `splits`).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import attrs

from placelang.model.model import Model
from placelang.plan.dtypes import PRECISIONS
from placelang.plan.plan import Plan
from placelang.plan.steps import Keep, When
from placelang.program.program import Program
from tests.simulate.opened import alone, opened, read, small
from tests.simulate.strategies import both, ddp, deep, hsdp, mesh, tiny, zero1, zero2, zero3

CLIP = {"clip": Fraction(2)}
SCALE = {"loss_scale": Fraction(8)}
SGD = {"optimizer": "sgd_momentum"}

Base = tuple[Plan, Program, Program]

STAGES = """
mesh (pp = 2{more})
train (microbatches = 2, precision = fp64, {train})
params: shard(pp, dim = layer){params}
{lines}
schedule: 1f1b
"""


def staged(train: str, more: str = "", params: str = "", lines: str = "", model: Model | None = None) -> Base:
    """A pipeline of two stages; the tied embedding is on both."""
    model = model or tiny()
    plan = read(STAGES.format(train=train, more=more, params=params, lines=lines), model)
    assert plan is not None
    return (plan, *both(plan, model))


def split(train: str, zero: str = "grads: all_reduce(dp)") -> Base:
    """Tensor parallelism inside layers, under a way to split samples."""
    model = small("gqa")
    text = f"""
mesh (dp = 2, tp = 2)
train (microbatches = 1, precision = fp64, {train})
params[attn.q, attn.kv, mlp.up]: colwise(tp)
params[attn.out, mlp.down]: rowwise(tp)
activations[attn.out, mlp.down]: partial(tp) | all_reduce(tp)
{zero}
"""
    plan = read(text, model)
    assert plan is not None
    return plan, opened(plan, model), alone(plan, model)


def _data(train: dict[str, object], model: Model | None = None) -> Iterator[Base]:
    each = When.MICROBATCH
    plans = [make(mesh(dp=2), **train) for make in (ddp, zero1, zero2, zero3)]
    plans += [zero2(mesh(dp=3), each, **train), hsdp(mesh(a=2, b=2), **train), zero1(mesh(a=2, b=2), **train)]
    yield from ((p, *both(p, model)) for p in plans)


@cache
def whole_gradient() -> tuple[Base, ...]:
    """Clipping by global norm, a loss scale with its finite check, and both."""
    long = zero2(mesh(dp=2), microbatches=4, **CLIP)
    return (
        *_data({**CLIP, **SGD}),
        *_data({**SCALE}, tiny(tied=False)),
        *_data({**CLIP, **SCALE}),
        (long, *both(long, deep())),
        staged("clip = 2", lines="grads[tied]: all_reduce(pp)"),
        staged("clip = 2, loss_scale = 8", ", dp = 2", " * shard(dp) | gather(dp)", "grads[tied]: all_reduce(pp)"),
        split("clip = 2"),
        split("loss_scale = 8", "params: shard(dp)"),
    )


def lora(plan: Plan) -> Base:
    """Adapters beside a frozen base."""
    return (plan, *both(plan, adapted(tiny())))


def adapted(model: Model) -> Model:
    """Everything frozen but the norms in the blocks."""
    stacks = tuple(
        attrs.evolve(s, tensors=tuple(attrs.evolve(t, frozen=not (s.block and t.role == "norm")) for t in s.tensors))
        for s in model.stacks
    )
    return attrs.evolve(model, stacks=stacks)


@cache
def frozen() -> tuple[Base, ...]:
    """Some parameters are frozen, by the job or by the model: in front, in blocks, behind, tied ones, all but few."""
    each = When.MICROBATCH
    front, inner, head = {"frozen": ("embed.weight",)}, {"frozen": ("blocks.*.up.*",)}, {"frozen": ("final.*",)}
    untied = tiny(tied=False)
    parts = {"frozen": ("embed.*", "blocks.**")}
    return (
        *_data(inner),
        *_data(front, untied),
        *((p, *both(p)) for p in (zero3(mesh(dp=2), **front), zero2(mesh(dp=2), each, **head))),
        *((p, *both(p, untied)) for p in (zero3(mesh(dp=2), **parts), ddp(mesh(dp=3), **parts, **CLIP))),
        *(lora(make(mesh(dp=2), **SGD)) for make in (ddp, zero1, zero2, zero3)),
        lora(zero3(mesh(dp=2), Keep.MICROBATCH, each)),
        lora(zero3(mesh(dp=2), precision=PRECISIONS["bf16"])),
        staged('frozen = "embed.weight"', ", dp = 2", " * shard(dp) | gather(dp)"),
        staged('frozen = "blocks.*.up.*"', lines="grads[tied]: all_reduce(pp)"),
        staged("clip = 2", model=adapted(tiny())),
        split('frozen = ["layers.*.attn.wq.weight", "embed.**"]'),
        split('frozen = ["embed.**", "layers.**", "norm.**"]'),
    )
