"""What a step program asks of a runtime, gathered from its events: a small table that a runtime can act on.

Everything that this backend has no way to do is refused here, before a process starts. Not for: soundness (`check`).
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from placelang.backend.errors import failed, unsupported
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.plan.mesh import Role
from placelang.plan.plan import State
from placelang.program.event import Event, Layout, Op, Phase
from placelang.program.layouts import events
from placelang.program.program import Program

_RUNS = (
    "this version runs data parallelism: `params: replicate` with `all_reduce`, or with `reduce_scatter` and a sharded"
    " optimizer; `params: shard(dp) | gather(dp)` with `reduce_scatter`; both also over two data axes"
)

OPTIMIZERS = ("adamw", "adam", "sgd", "sgd_momentum")


@attrs.frozen
class Reduction:
    """One collective on gradients: a sum (or mean) over `axes`, whole or scattered, with this dtype on the wire."""

    scatter: bool
    axes: tuple[str, ...]
    mean: bool
    wire: str


@attrs.frozen
class Recipe:
    """A data-parallel step. Axes are those of the mesh; those of size one are kept, they do no harm."""

    shard: tuple[str, ...]  # parameters rest split over these
    keep: str  # gathered views live for a "unit" or a "microbatch"; "" where nothing is gathered
    each: tuple[Reduction, ...]  # on the gradient of every microbatch
    once: tuple[Reduction, ...]  # on the accumulated gradient
    optimizer: tuple[str, ...]  # the optimizer's state is split over these
    refresh: tuple[str, ...]  # updated parameters are gathered over these
    data: tuple[str, ...]  # the batch is split over these
    microbatches: int

    @property
    def reduced(self) -> tuple[str, ...]:
        return tuple(axis for r in (*self.each, *self.once) for axis in r.axes)


def recipe(program: Program) -> Recipe:
    """Raises BackendError: E501 naming what is not supported and what is; E121 where a size is not known."""
    _sizes(program)
    _job(program)
    found_events = tuple(events(program.body))
    reductions = [(e, "microbatch" in w) for e, w in found_events if e.op in (Op.ALL_REDUCE, Op.REDUCE_SCATTER)]
    gathers = [(e, w) for e, w in found_events if e.op is Op.ALL_GATHER]
    views = [(e, w) for e, w in gathers if e.phase is not Phase.UPDATE]
    refresh = next((e.axes for e, _ in gathers if e.phase is Phase.UPDATE), ())
    found = Recipe(
        shard=_split(program, State.PARAMS),
        keep=_keep(views),
        each=_chain(e for e, inside in reductions if inside),
        once=_chain(e for e, inside in reductions if not inside),
        optimizer=_split(program, State.OPTIMIZER),
        refresh=refresh,
        data=tuple(axis for axis, _ in program.tokens if (program.mesh[axis].size or 1) > 1),
        microbatches=program.train.microbatches,
    )
    _supported(program, found)
    return found


def unsound(recipe_: Recipe) -> Diagnostic | None:
    """Why ranks would train on gradients that lack contributions, if they would; `check` says more and with a place."""
    missing = [axis for axis in recipe_.data if axis not in recipe_.reduced]
    if not missing:
        return None
    axes = " and ".join(f"`{axis}`" for axis in missing)
    return Diagnostic(
        "E201", f"gradients are not summed over {axes}: each rank would train on its own part of the data"
    )


def _chain(events_: Iterable[Event]) -> tuple[Reduction, ...]:
    """The reductions that the gradient of a unit goes through, in order: the same for every unit."""
    chains: dict[str, list[Reduction]] = {}
    for e in events_:
        chains.setdefault(e.ins[0].of, []).append(Reduction(e.op is Op.REDUCE_SCATTER, e.axes, e.mean, e.dtype))
    if len({tuple(chain) for chain in chains.values()}) > 1:
        raise unsupported("gradients that are reduced differently from layer to layer", _RUNS)
    return tuple(next(iter(chains.values()), ()))


def _keep(views: list[tuple[Event, tuple[str, ...]]]) -> str:
    if not views:
        return ""
    if any("microbatch" not in within for _, within in views):
        return "step"
    return "unit" if any(e.phase is Phase.BACKWARD for e, _ in views) else "microbatch"


def _sizes(program: Program) -> None:
    for axis in program.mesh.axes:
        if axis.size is None:
            raise failed("E121", f"running needs the size of axis `{axis.name}`", f"`--set {axis.name}=2` or `--nproc`")
        if axis.size > 1 and axis.role is not Role.DATA:
            raise unsupported(f"axis `{axis.name}` of role {axis.role.value} with {axis.size} ranks", _RUNS, axis.span)


def _job(program: Program) -> None:
    """What the job may ask of this version."""
    train = program.train
    if train.optimizer not in OPTIMIZERS:
        raise unsupported(f"the optimizer `{train.optimizer}`", "`optimizer =` " + ", ".join(OPTIMIZERS))
    asked = {
        "clipping (`clip`)": train.clip is not None,
        "loss scaling (`loss_scale`)": train.loss_scale is not None,
        "frozen parameters": any(not group.trainable for group in program.groups),
        "dropout": train.dropout != 0,
        "a loss per sample (`loss = samples`)": train.loss != "tokens",
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise unsupported(f"{what}: this version does not run it yet", "leave it out")


def _split(program: Program, state: State) -> tuple[str, ...]:
    layouts: set[Layout] = {rest.layout for rest in program.rests if rest.state is state}
    if len(layouts) > 1:
        raise unsupported(f"{state.value} that are placed differently from tensor to tensor", _RUNS)
    layout = next(iter(layouts), ())
    for _, label in layout:
        if label.dim != "0" or label.partition != "padded":
            raise unsupported(f"{state.value} split along `{label.dim}` ({label.partition})", _RUNS)
    if any(rest.tier != "device" for rest in program.rests if rest.state is state):
        raise unsupported(f"{state.value} off the device", _RUNS)
    return tuple(axis for axis, _ in layout)


def _supported(program: Program, r: Recipe) -> None:
    big = {axis.name for axis in program.mesh.axes if (axis.size or 1) > 1}
    batch = {axis for axis, label in program.tokens if label.dim == "batch"}
    if big - batch:
        idle = ", ".join(f"`{axis}`" for axis in sorted(big - batch))
        raise unsupported(
            f"a batch that is not split over {idle}", "`activations: shard(dp, dim = batch)` on every axis"
        )
    scattered = [s for s in (*r.each, *r.once) if s.scatter]
    if r.each and r.once:
        raise unsupported("reductions both in each microbatch and once a step", "one `when` for all of a journey")
    if len(scattered) > 1 or (scattered and scattered[0].axes != r.optimizer):
        raise unsupported("gradients scattered over other axes than the optimizer's", _RUNS)
    if scattered and not (*r.each, *r.once)[0].scatter:
        raise unsupported(
            "a reduce-scatter after an all-reduce", "the scatter first: `reduce_scatter(a) | all_reduce(b)`"
        )
    if r.shard:
        _gathered(program, r)
    elif r.optimizer and r.refresh != r.optimizer:
        raise unsupported("a sharded optimizer whose updates do not return", "`update: all_gather` over its axes")
    elif program.train.precision.view != program.train.precision.rest:
        raise unsupported(
            f"replicated parameters with precision `{program.train.precision.name}`, whose views have another dtype",
            "`precision = bf16` or `bf16_fp32_grads`; `fsdp_mixed` goes with `params: shard(dp) | gather(dp)`",
        )


def _gathered(program: Program, r: Recipe) -> None:
    p = program.train.precision
    scalars = [t.name for group in program.groups for t in group.tensors if not t.shape]
    if scalars:
        raise unsupported(f"sharded parameters without a dim: {', '.join(scalars[:3])}", "a tensor of one element")
    if r.keep not in ("unit", "microbatch"):
        raise unsupported(
            "sharded parameters without a gather for each microbatch", "`gather(keep = unit)` or `keep = microbatch`"
        )
    if r.optimizer != r.shard:
        raise unsupported(
            "sharded parameters with an optimizer that is placed otherwise", "`optimizer: shard` over the same axes"
        )
    if r.once:
        raise unsupported(
            "sharded parameters whose gradients are reduced once a step", "`reduce_scatter(when = microbatch)`"
        )
    if r.refresh:
        raise unsupported("sharded parameters that are gathered after the update", "no `update:`")
    if p.accumulate != p.rest or p.raw != p.view:
        raise unsupported(
            f"sharded parameters with precision `{p.name}`: FSDP2 accumulates gradients in the dtype of parameters",
            "`precision = bf16`, `fsdp_mixed` or `fp32`",
        )
    whole = [s for s in r.each if not s.scatter]
    order = program.mesh.names
    for s in whole:
        if len(s.axes) != 1 or len(r.shard) != 1 or order.index(s.axes[0]) > order.index(r.shard[0]):
            raise unsupported(
                "this order of sharding and replicating axes", "the replicating axis before the sharding one in `mesh`"
            )
