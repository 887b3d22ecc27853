"""Ranks tell each other what they are about to run, before their first collective.

Ranks that run different texts, models or versions would wait for each other's collectives for ever, or take each
other's bytes for something else. Each writes a digest of every fact to the store that they met through and reads those
of the others. Not for: what goes wrong later (`launch`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from itertools import count

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store
from torch.optim import Optimizer

import placelang
from placelang.backend.errors import BackendError, failed
from placelang.model.model import Model
from placelang.plan.plan import Plan

_MEETINGS = count()
LIMIT = 300.0  # seconds that one rank waits for the others


def facts(plan: Plan, model: Model, module: nn.Module) -> dict[str, str]:
    """What must be the same on every rank, by the words that say so."""
    strategy = repr((plan.mesh, plan.placed, plan.update, plan.train, plan.schedule))
    tensors = [(name, tuple(p.shape), str(p.dtype), p.requires_grad) for name, p in module.named_parameters()]
    return {
        "version of placelang": placelang.__version__,
        "version of torch": torch.__version__,
        "strategy": strategy,
        "model": repr([(s.name, s.count, s.tensors) for s in model.stacks]),
        "module": repr((type(module).__name__, tensors)),
        "initial values": values(module),
    }


def values(module: nn.Module) -> str:
    """A sum over the bits of each parameter: cheap, and another one for almost any other values."""
    sums = []
    for p in module.parameters():
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[p.element_size()]
        flat = p.detach().reshape(-1)
        sums.append(int(flat.view(bits).sum(dtype=torch.int64)) if not p.is_meta else 0)
    return repr(sums)


def of_optimizer(optimizer: Optimizer) -> str:
    """The class of an optimizer and its settings."""
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    return repr((type(optimizer).__name__, [sorted(g.items()) for g in groups]))


def agree(said: Mapping[str, str], limit: float = LIMIT) -> None:
    """Wait until every rank has said the same. All ranks call it equally often.

    Raises BackendError (E504): naming the rank that says something else and what, or the one that says nothing.
    """
    world, rank, meeting = dist.get_world_size(), dist.get_rank(), next(_MEETINGS)
    if world == 1:
        return
    store = PrefixStore(f"placelang/{meeting}", _get_default_store())
    mine = [(name, hashlib.sha256(text.encode()).hexdigest()[:16]) for name, text in said.items()]
    store.set(str(rank), ";".join(f"{name}={digest}" for name, digest in mine))
    for other in range(world):
        try:
            store.wait([str(other)], timedelta(seconds=limit))
        except Exception:
            text = f"rank {other} did not begin within {limit:.0f} s: rank {rank} waited for it in vain"
            raise BackendError(failed("E504", text).diagnostic, rank=other) from None
        theirs = dict(pair.split("=") for pair in store.get(str(other)).decode().split(";"))
        for name, digest in mine:
            if theirs.get(name) != digest:
                text = f"rank {max(rank, other)} has another {name} than rank {min(rank, other)}"
                help_ = "every rank runs the same text, model and versions from the same values"
                raise BackendError(failed("E504", text, help_).diagnostic, rank=max(rank, other))
