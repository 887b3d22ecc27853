"""The ledger sees what torch issues by itself: DDP's C++ reducer, FSDP2, functional collectives, and unknown ones."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel

from placelang.backend.launch import Rank, launch
from placelang.backend.ledger import Entry, Ledger, phase

SIZE = 12 * 12 + 12


def _module() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12))


def ddp(rank: Rank) -> list[Entry]:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    model = DistributedDataParallel(_module())
    for _ in range(2):  # the second step begins with a broadcast of rebuilt buckets
        model(torch.ones(2, 12)).sum().backward()
    with Ledger(mesh) as ledger:
        model(torch.ones(2, 12)).sum().backward()
    return ledger.entries


def fsdp(rank: Rank) -> list[Entry]:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    model = _module()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    with Ledger(mesh) as ledger:
        model(torch.ones(2, 12)).sum().backward()
    return ledger.entries


def others(rank: Rank) -> list[Entry]:
    """Functional, inside DTensor, over both axes, over a group of no axis, in a named phase."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    diagonal = [dist.new_group(ranks) for ranks in ([0, 3], [1, 2])]
    one = torch.ones(4)
    shards = DTensor.from_local(torch.ones(2, 2), mesh["b"], [Shard(0)])
    with Ledger(mesh) as ledger:
        all_reduce(one, "sum", mesh.get_group("a")).add(1)
        shards.redistribute(placements=[Replicate()])
        dist.all_reduce(one)
        dist.all_reduce(one, group=diagonal[rank.rank in (1, 2)])
        with phase("update"):
            dist.broadcast(one, src=0)
        dist.barrier()
    return ledger.entries


def test_ddp() -> None:
    for entries in launch(ddp, 2, limit=60):
        assert entries == [Entry("all_reduce", "dp", 2, "backward", 4 * 2 * SIZE, "float32")]


def test_fsdp2() -> None:
    for entries in launch(fsdp, 2, limit=60):
        gather = Entry("all_gather", "dp", 2, "forward", 4 * SIZE, "float32")
        assert [e for e in entries if e.phase == "forward"] == [gather, gather]
        behind = [(e.kind, e.bytes) for e in entries if e.phase == "backward"]
        assert sorted(behind) == [("all_gather", 4 * SIZE)] * 2 + [("reduce_scatter", 4 * SIZE)] * 2


def test_groups_phases_and_functional_collectives() -> None:
    for entries in launch(others, 4, limit=60):
        assert [(e.kind, e.axis, e.ranks, e.phase, e.bytes) for e in entries] == [
            ("all_reduce", "a", 2, "forward", 16),
            ("all_gather", "b", 2, "forward", 32),
            ("all_reduce", "a*b", 4, "forward", 16),
            ("all_reduce", "?", 2, "forward", 16),
            ("broadcast", "a*b", 4, "update", 16),
            ("barrier", "a*b", 4, "forward", 0),
        ]


def test_an_unknown_collective_is_recorded_not_dropped() -> None:
    for entries in launch(unknown, 2, limit=60):
        assert [e.kind for e in entries] == ["unknown c10d::broadcast_"]


def unknown(rank: Rank) -> list[Entry]:
    from placelang.backend import ledger as room

    room._KNOWN["c10d"] = {k: v for k, v in room._C10D.items() if k != "broadcast_"}
    with Ledger() as ledger:
        dist.broadcast(torch.ones(2), src=0)
    return ledger.entries
