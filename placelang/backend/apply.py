"""Placing an `nn.Module` as a plan says: from then on it trains in parallel, in a loop of the user's own.

Not for: starting processes (`launch`) or looping (`run`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import attrs
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from placelang.backend.build import DTYPES
from placelang.backend.clip import parts
from placelang.backend.comm import Groups
from placelang.backend.errors import failed
from placelang.backend.gathered import Gathered
from placelang.backend.handshake import agree, facts, of_optimizer
from placelang.backend.inside import Inside, recomputed
from placelang.backend.launch import quiet
from placelang.backend.loss import mark_split
from placelang.backend.parallel import Parallel
from placelang.backend.pretrained import SAME, Names, described, is_pretrained
from placelang.backend.read import read
from placelang.backend.recipe import Recipe, divides
from placelang.backend.recipe import recipe as recipe_of
from placelang.backend.replicated import Replicated
from placelang.backend.runtime import Runtime
from placelang.backend.sound import step_program
from placelang.backend.splits import Split
from placelang.backend.units import units
from placelang.model.model import Model
from placelang.plan.plan import Plan, Train
from placelang.program.lower import opens

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


def with_ranks(plan: Plan, ranks: int) -> Plan:
    """The plan for `ranks` processes: an axis without a size gets what the others leave. A plan without a mesh stays.

    Raises BackendError: E503 where the sizes do not make `ranks`, E121 where two axes are open.
    """
    open_ = [axis for axis in plan.mesh.axes if axis.size is None]
    known = 1
    for axis in plan.mesh.axes:
        known *= axis.size or 1
    if len(open_) > 1:
        names = ", ".join(f"`{a.name}`" for a in open_)
        raise failed("E121", f"the sizes of {names} are not known", f"`--set {open_[0].name}=2`")
    if (not open_ and known != ranks) or ranks % known:
        sizes = ", ".join(f"{a.name} = {a.size or '?'}" for a in plan.mesh.axes) or "no axis"
        raise failed(
            "E503", f"the mesh ({sizes}) has {known} ranks, and there are {ranks} processes", f"`--nproc {known}`"
        )
    axes = tuple(attrs.evolve(a, size=ranks // known) if a.size is None else a for a in plan.mesh.axes)
    return attrs.evolve(plan, mesh=attrs.evolve(plan.mesh, axes=axes))


def parallelize(
    plan: Plan,
    module: nn.Module,
    *,
    model: Model | None = None,
    optimizer: Optimizer | MakeOptimizer | None = None,
    tokens: int | None = None,
    force: bool = False,
) -> Parallel:
    """Place `module`, in this process, as `plan` says. Every rank calls it with a module of equal values.

    `model` describes the module (default: it is read). `optimizer` is a class or function that takes parameters, or an
    optimizer of the module's parameters that has not stepped yet; default: that of the plan's `train`. `tokens`
    promises the number of valid tokens in every global batch, which saves one 8-byte all-reduce a step. `force` runs a
    plan whose gradients lack contributions, literally.

    torch.distributed must have been started, or RANK and WORLD_SIZE be set (torchrun); a mesh of one rank needs
    neither. Raises BackendError: E501 what this backend cannot run, E503 another number of processes, E504 ranks that
    are about to run different things, and without `force` what `check` finds wrong with the plan for this model.
    """
    device = next(module.parameters()).device.type
    _started(plan, device)
    plan = with_ranks(plan, dist.get_world_size())
    described, names = model_of(plan, module, model)
    agree(facts(plan, described, module))
    program = step_program(plan, described, force)
    recipe = recipe_of(program)
    divides(recipe, program, described)
    precision = plan.train.precision
    for param in module.parameters():  # buffers keep their format: tables of angles suffer from a narrow one
        param.data = param.data.to(DTYPES[precision.rest])
    found = units(module, described, names, opens(plan))
    with quiet():
        groups = Groups(plan.mesh, device)
        pieces = parts(found, recipe) if recipe.clip is not None else {}
        for axes in (*_axes(recipe), *sorted({tuple(a for a in groups.names if a in p) for p in pieces.values()})):
            groups.group(axes)
    old = {id(p): name for name, p in module.named_parameters()}
    splits: Mapping[str, Split] = {}
    if recipe.inside:
        splits = Inside(module, described, names, recipe, groups).apply()
    if recipe.wiring.recomputed:
        for unit in found:
            if unit.module is not module:
                recomputed(unit.module)
        if is_pretrained(module):
            module.config.use_cache = False  # type: ignore[union-attr]
    runtime: Runtime
    if recipe.shard:
        runtime = Gathered(module, found, recipe, precision, groups)
    else:
        runtime = Replicated(found, recipe, precision, groups)
    if groups.size(recipe.wiring.loss) > 1:
        module.register_forward_hook(mark_split)
    made = _optimizer(optimizer, plan.train, runtime, old)
    agree({"optimizer": of_optimizer(made)})
    return Parallel(module, made, program, recipe, runtime, groups, tokens, splits, pieces)


def model_of(plan: Plan, module: nn.Module, model: Model | None = None) -> tuple[Model, Names]:
    """The model that a module is, and its names there. Only axes inside layers ask for more than shapes.

    Raises BackendError (E501) for a module of `transformers` whose inside is not known.
    """
    if opens(plan) and is_pretrained(module):
        own, names = described(module)
        return model or own, names
    return model or read(module), SAME


def _axes(recipe: Recipe) -> Iterable[tuple[str, ...]]:
    """Every group that the step needs, in an order that is the same on all ranks."""
    yield from (r.axes for r in (*recipe.each, *recipe.once))
    yield from (recipe.batch, recipe.sequence, recipe.data, recipe.shard, recipe.optimizer, recipe.refresh)
    moves = (*recipe.wiring.after.values(), *recipe.wiring.before.values())
    yield from (move.axes for chain in moves for move in chain)
    yield recipe.wiring.loss


def _started(plan: Plan, device: str) -> None:
    if dist.is_initialized():
        return
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        with quiet():
            dist.init_process_group("nccl" if device == "cuda" else "gloo")
    elif (plan.mesh.world or 1) == 1:
        dist.init_process_group("gloo", store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=1)
    else:
        ranks = plan.mesh.world
        raise failed(
            "E503",
            f"the mesh has {ranks} ranks and this process is alone",
            f"start it with `torchrun --nproc-per-node {ranks}`, or with placelang.backend.launch.launch",
        )


def _optimizer(
    given: Optimizer | MakeOptimizer | None, train: Train, runtime: Runtime, old: dict[int, str]
) -> Optimizer:
    if given is None:
        return default_optimizer(train.optimizer, runtime.updates.values())
    if not isinstance(given, Optimizer):
        return given(runtime.updates.values())
    if given.state:
        raise failed(
            "E501", "the optimizer has already stepped; its state lies as one device has it", "a fresh optimizer"
        )
    for group in given.param_groups:
        strange = [p for p in group["params"] if id(p) not in old]
        if strange:
            raise failed(
                "E501", f"the optimizer has {len(strange)} parameters that the module has not", "one of the same module"
            )
        group["params"] = [runtime.updates[old[id(p)]] for p in group["params"]]
    return given


def default_optimizer(name: str, params: Iterable[nn.Parameter], lr: float | None = None) -> Optimizer:
    """The optimizer that `train (optimizer = name)` says, with plain settings."""
    ordered = list(params)
    if name == "adamw":
        return torch.optim.AdamW(ordered, lr=lr or 1e-3)
    if name == "adam":
        return torch.optim.Adam(ordered, lr=lr or 1e-3)
    return torch.optim.SGD(ordered, lr=lr or 0.05, momentum=0.9 if name == "sgd_momentum" else 0.0)
