"""What a step program asks of a runtime, gathered from its events: a small table that a runtime can act on.

Everything that this backend has no way to do is refused here, before a process starts. Not for: soundness (`check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from placelang.backend.dealt import HEADTAIL
from placelang.backend.errors import failed, unsupported
from placelang.backend.wiring import Wiring, wiring
from placelang.model.model import Model
from placelang.plan.dtypes import BYTES
from placelang.plan.mesh import Mesh, Role
from placelang.plan.plan import State
from placelang.program.event import COLLECTIVES, SCALARS, Event, Layout, Op, Phase
from placelang.program.layouts import events
from placelang.program.program import Program

_RUNS = (
    "this version runs `params: replicate` with `all_reduce`, or with `reduce_scatter` and a sharded optimizer;"
    " `params: shard(dp) | gather(dp)` with `reduce_scatter`; both also over two data axes, and with tensor and"
    " sequence axes"
)

_CARRIED = frozenset(
    {
        Op.ZERO,
        Op.FORWARD,
        Op.LOSS,
        Op.BACKWARD,
        Op.WGRAD,
        Op.ACC,
        Op.ADD,
        Op.SLICE,
        Op.UNSLICE,
        Op.COPY,
        Op.OPT,
        Op.SQNORM,
        Op.CLIP,
        Op.FREE,
    }
    | COLLECTIVES
)
"""What a run is made of; anything else is refused by its name."""

ROLES = (Role.DATA, Role.TENSOR, Role.SEQUENCE)
"""What axes of more than one rank may split."""

OPTIMIZERS = ("adamw", "adam", "sgd", "sgd_momentum")


@attrs.frozen
class Reduction:
    """One collective on gradients: a sum (or mean) over `axes`, whole or scattered, with this dtype on the wire. Those
    of `groups` of parameters take part; None: all."""

    scatter: bool
    axes: tuple[str, ...]
    mean: bool
    wire: str
    groups: frozenset[str] | None = None


@attrs.frozen
class Recipe:
    """A step. Axes are those of the mesh; those of size one are kept, they do no harm."""

    shard: tuple[str, ...]  # parameters rest split over these
    keep: str  # gathered views live for a "unit" or a "microbatch"; "" where nothing is gathered
    secondary: tuple[str, ...]  # between its uses a view is kept as a shard over these, which backward gathers
    each: tuple[Reduction, ...]  # on the gradient of every microbatch
    once: tuple[Reduction, ...]  # on the accumulated gradient
    optimizer: tuple[str, ...]  # the optimizer's state is split over these
    refresh: tuple[str, ...]  # updated parameters are gathered over these
    batch: tuple[str, ...]  # samples are split over these
    deal: tuple[tuple[str, str], ...]  # the tokens of a sample are split over these, each with its partition
    microbatches: int
    splits: Mapping[str, tuple[tuple[str, int], ...]]  # by group: axes that split a tensor as compute reads it; its dim
    wiring: Wiring
    clip: float | None = None  # the largest norm of the whole gradient

    @property
    def sequence(self) -> tuple[str, ...]:
        return tuple(axis for axis, _ in self.deal)

    @property
    def data(self) -> tuple[str, ...]:
        """Ranks that differ along these have read different tokens."""
        return (*self.batch, *self.sequence)

    def tokenwise(self, mesh: Mesh) -> int:
        """What the tokens of a sample must divide by: ranks that split them, as they are read or inside the model;
        twice those that get an early and a late run."""
        inner = {a for moves in self.wiring.after.values() for m in moves if m.dim == "seq" for a in m.axes}
        runs: int = 2 ** sum(partition == HEADTAIL for _, partition in self.deal)
        return (mesh.size({*self.sequence, *inner}) or 1) * runs

    @property
    def inside(self) -> bool:
        """Whether parameters, sequences or activations are split inside layers."""
        return bool(self.sequence or self.wiring.axes or any(self.splits.values()))


def recipe(program: Program) -> Recipe:
    """Raises BackendError: E501 naming what is not supported and what is; E121 where a size is not known."""
    _sizes(program)
    _job(program)
    found_events = tuple(events(program.body))
    for e, _ in found_events:
        if e.op not in _CARRIED:
            raise unsupported(f"`{e.op.value}`, a step of the program that this backend has no way to carry out", _RUNS)
        _sent(e, program)
    reductions = [
        (e, "microbatch" in w)
        for e, w in found_events
        if e.op in (Op.ALL_REDUCE, Op.REDUCE_SCATTER)
        and not e.ins[0].kind.startswith(("x", "dx"))
        and e.ins[0].kind not in SCALARS
    ]
    gathers = [(e, w) for e, w in found_events if e.op is Op.ALL_GATHER and e.ins[0].kind in ("w", "s", "shard")]
    views = [(e, w) for e, w in gathers if e.phase is not Phase.UPDATE]
    refresh = next((e.axes for e, _ in gathers if e.phase is Phase.UPDATE), ())
    gathered = {buf.of: e.axes for e, _ in views for buf in e.ins if buf.kind == "w"}
    splits = {group.name: _used(program, group.name, gathered.get(group.name, ())) for group in program.groups}
    units = _units(program)
    big = {axis.name for axis in program.mesh.axes if (axis.size or 1) > 1}
    found = Recipe(
        shard=_split(program, State.PARAMS, splits),
        keep=_keep(views),
        secondary=next((e.axes for e, _ in gathers if e.ins[0].kind == "shard"), ()),
        each=_chain((e for e, inside in reductions if inside), units),
        once=_chain((e for e, inside in reductions if not inside), units),
        optimizer=_split(program, State.OPTIMIZER, splits),
        refresh=refresh,
        batch=tuple(a for a, label in program.tokens if a in big and label.dim == "batch"),
        deal=tuple((a, label.partition) for a, label in program.tokens if a in big and label.dim != "batch"),
        microbatches=program.train.microbatches,
        splits={name: tuple(pair for pair in pairs if pair[0] in big) for name, pairs in splits.items()},
        wiring=wiring(program),
        clip=None if program.train.clip is None else float(program.train.clip),
    )
    _supported(program, found)
    return found


_HEADS = {"heads": ("heads",), "kv_heads": ("kv_heads",), "qkv": ("heads", "kv_heads")}
"""Sizes of a model that count the heads in a dim."""


def _sent(e: Event, program: Program) -> None:
    """Views and activations are sent as compute reads them, gradients in any format that torch adds up."""
    view = program.train.precision.view
    as_read = e.ins and e.ins[0].kind in ("w", "shard", "x", "dx", "dx+") and e.phase is not Phase.UPDATE
    if e.op in COLLECTIVES and (BYTES[e.dtype] < 2 or (as_read and e.dtype != view)):
        raise unsupported(f"`{e.op.value}` of what is read as {view}, sent as {e.dtype}", "no `wire` there", e.span)


def divides(recipe_: Recipe, program: Program, model: Model, seq: int | None = None) -> None:
    """Ranks have equal parts of what is split inside layers. Raises BackendError: E420 where a head would be cut in
    two, E422 where another size does not divide, or `seq`, the tokens of a sample."""
    for group in program.groups:
        axes = tuple(axis for axis, _ in recipe_.splits[group.name])
        ranks, named = program.mesh.size(axes) or 1, " * ".join(axes)
        for tensor in group.tensors if ranks > 1 else ():
            dim = recipe_.splits[group.name][0][1]
            heads = [model.size(size) or ranks for size in _HEADS.get(tensor.dims[dim], ())]
            if any(many % ranks for many in heads):
                few = min(heads)
                raise failed("E420", f"`{tensor.name}`: {few} heads do not divide over `{named}` = {ranks}")
            if tensor.shape[dim] % ranks:
                raise failed(
                    "E422",
                    f"`{tensor.name}`: {tensor.shape[dim]:,} rows do not divide over `{named}` = {ranks}",
                    "a size that divides; Megatron-LM pads the vocabulary for this",
                )
    if seq is not None and seq % (parts := recipe_.tokenwise(program.mesh)):
        raise failed("E422", f"samples of {seq:,} tokens do not divide into {parts} runs", f"a multiple of {parts}")


def _units(program: Program) -> tuple[frozenset[str], ...]:
    """The groups of each unit: of one stack of blocks, or of everything outside."""
    loops = {group.loop for group in program.groups}
    return tuple(frozenset(g.name for g in program.groups if g.loop == loop) for loop in loops)


def _chain(events_: Iterable[Event], units: tuple[frozenset[str], ...]) -> tuple[Reduction, ...]:
    """The reductions that gradients go through, in an order that is that of every unit."""
    found: dict[Reduction, set[str]] = {}
    orders: list[list[Reduction]] = [[] for _ in units]
    for e in events_:
        r = Reduction(e.op is Op.REDUCE_SCATTER, e.axes, e.mean, e.dtype)
        for unit, order in zip(units, orders, strict=True):
            if r not in order and any(buf.of in unit for buf in e.ins):
                order.append(r)
        found.setdefault(r, set()).update(buf.of for buf in e.ins)
    for order in orders:
        if order != [r for r in found if r in order]:
            raise unsupported("gradients that are reduced in another order from layer to layer", _RUNS)
    every = frozenset[str]().union(*units)
    return tuple(attrs.evolve(r, groups=None if names == every else frozenset(names)) for r, names in found.items())


def _used(program: Program, group: str, gathered: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """The axes that split a group's tensors as compute reads them, and the dim of each."""
    (layout,) = (r.layout for r in program.rests if r.group == group and r.state is State.PARAMS)
    used = [(axis, label) for axis, label in layout if axis not in gathered]
    for axis, label in used:
        if not label.dim.isdigit():
            raise unsupported(f"`{group}` split along `{label.dim}` over `{axis}`", _RUNS)
    return tuple((axis, int(label.dim)) for axis, label in used)


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
        if axis.size > 1 and axis.role not in ROLES:
            raise unsupported(f"axis `{axis.name}` of role {axis.role.value} with {axis.size} ranks", _RUNS, axis.span)


def _job(program: Program) -> None:
    """What the job may ask of this version."""
    train = program.train
    if train.optimizer not in OPTIMIZERS:
        raise unsupported(f"the optimizer `{train.optimizer}`", "`optimizer =` " + ", ".join(OPTIMIZERS))
    asked = {
        "loss scaling (`loss_scale`)": train.loss_scale is not None,
        "frozen parameters": any(not group.trainable for group in program.groups),
        "dropout": train.dropout != 0,
        "a loss per sample (`loss = samples`)": train.loss != "tokens",
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise unsupported(f"{what}: this version does not run it yet", "leave it out")


def _split(program: Program, state: State, splits: Mapping[str, tuple[tuple[str, int], ...]]) -> tuple[str, ...]:
    """The axes that split a state beyond what compute reads split: the same for every group."""
    found: set[Layout] = set()
    for rest in program.rests:
        if rest.state is state:
            used = len(splits[rest.group])
            found.add(rest.layout[used:])
            if tuple(axis for axis, _ in rest.layout[:used]) != tuple(axis for axis, _ in splits[rest.group]):
                raise unsupported(f"{state.value} of `{rest.group}` that are split otherwise than it is used", _RUNS)
    if len(found) > 1:
        raise unsupported(f"{state.value} that are placed differently from tensor to tensor", _RUNS)
    layout = next(iter(found), ())
    for _, label in layout:
        if label.dim != "0" or label.partition != "padded":
            raise unsupported(f"{state.value} split along `{label.dim}` ({label.partition})", _RUNS)
    if any(rest.tier != "device" for rest in program.rests if rest.state is state):
        raise unsupported(f"{state.value} off the device", _RUNS)
    return tuple(axis for axis, _ in layout)


def _supported(program: Program, r: Recipe) -> None:
    data = {axis.name for axis in program.mesh.axes if (axis.size or 1) > 1 and axis.role is not Role.TENSOR}
    if data - set(r.data):
        idle = ", ".join(f"`{axis}`" for axis in sorted(data - set(r.data)))
        raise unsupported(
            f"a batch that is not split over {idle}", "`activations: shard(dp, dim = batch)` on every axis"
        )
    scattered = [s for s in (*r.each, *r.once) if s.scatter]
    if len(scattered) > 1 or (scattered and scattered[0].axes != r.optimizer):
        raise unsupported("gradients scattered over other axes than the optimizer's", _RUNS)
    if scattered and ((*r.each, *r.once)[0] != scattered[0] or scattered[0].groups is not None):
        raise unsupported(
            "a reduce-scatter after an all-reduce", "the scatter first: `reduce_scatter(a) | all_reduce(b)`"
        )
    if program.stages is not None and len(program.stages.coordinates) > 1:
        raise unsupported("pipeline stages", _RUNS)
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
    over = tuple(name for name in program.mesh.names if name in r.shard)
    if r.secondary and over[-len(r.secondary) :] != r.secondary:
        raise unsupported(
            f"a secondary shard over {', '.join(r.secondary)}, outside other axes that shard parameters",
            "its axis as the last of these in `mesh`",
        )
    if r.optimizer != r.shard:
        raise unsupported(
            "sharded parameters with an optimizer that is placed otherwise", "`optimizer: shard` over the same axes"
        )
    if any(s.scatter for s in r.once):
        raise unsupported(
            "sharded parameters whose gradients are scattered once a step", "`reduce_scatter(when = microbatch)`"
        )
    if r.refresh:
        raise unsupported("sharded parameters that are gathered after the update", "no `update:`")
    if p.accumulate != p.rest or p.raw != p.view:
        raise unsupported(
            f"sharded parameters with precision `{p.name}`: FSDP2 accumulates gradients in the dtype of parameters",
            "`precision = bf16`, `fsdp_mixed` or `fp32`",
        )
    late = [s for s in r.once if set(s.axes) & set(r.data)]
    whole = [s for s in (*r.each, *late) if not s.scatter]
    if any(s.groups is not None for s in (*r.each, *late)):
        raise unsupported(
            "sharded parameters some of whose gradients are reduced apart in each microbatch", "`when = step` for them"
        )
    if len(whole) > 1:
        raise unsupported("gradients that are all-reduced twice after their scatter", "one `all_reduce(a * b)`")
    if whole and (len(whole[0].axes) != 1 or len(r.shard) != 1):
        raise unsupported(
            "replicas of sharded parameters over more than two axes", "one axis that shards, one of replicas"
        )
