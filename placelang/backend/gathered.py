"""Parameters rest split over a data axis and are gathered for use, unit by unit: torch's FSDP2 does the work.

Every unit says explicitly when it is released (torch keeps the root's view by default), and reductions are sums: the
loss is already divided by the tokens of the whole batch. Not for: parameters that rest whole (`replicated`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter
from torch.distributed.tensor import DTensor

from placelang.backend import comm
from placelang.backend.build import DTYPES
from placelang.backend.comm import Groups
from placelang.backend.recipe import Recipe, Reduction
from placelang.backend.runtime import Masters, local
from placelang.backend.units import Rows, Unit, rows
from placelang.plan.dtypes import Precision


class Gathered:
    """The runtime of parameters that rest split."""

    def __init__(
        self, module: nn.Module, units: Sequence[Unit], recipe: Recipe, precision: Precision, groups: Groups
    ) -> None:
        late = tuple(r for r in recipe.once if set(r.axes) <= set(recipe.data))  # FSDP2 sums them with its own, once
        reductions = (*recipe.each, *late)
        beside = [r for r in recipe.once if r not in late]
        self._once = [(r, self._rows(unit, r, groups.size(recipe.shard))) for unit in units for r in beside]
        outer = tuple(axis for r in reductions if not r.scatter for axis in r.axes)
        policy = MixedPrecisionPolicy(
            param_dtype=DTYPES[precision.view] if precision.view != precision.rest else None,
            reduce_dtype=DTYPES[reductions[0].wire] if reductions and reductions[0].wire != precision.view else None,
        )
        options: dict[str, Any] = {
            "mesh": groups.pair(*outer, *recipe.shard) if outer else groups.over(recipe.shard),
            "reshard_after_forward": groups.size(recipe.secondary) if recipe.secondary else recipe.keep == "unit",
            "mp_policy": policy,
        }
        for unit in units:
            if unit.module is not module:
                fully_shard(unit.module, **options)
        fully_shard(module, **options)
        factor = 1.0
        for r in reductions:
            factor *= groups.size(r.axes) if r.mean else 1
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(factor)
                part.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum
                if not reductions:
                    part.set_custom_reduce_scatter(_KeepOwn())
        self._module, self._groups, self._late = module, groups, bool(late)
        self._names = [name for unit in units for name in unit.params]
        mine = dict(module.named_parameters())
        self._masters = Masters(mine, DTYPES[precision.master]) if precision.master else None
        self.updates: Mapping[str, nn.Parameter] = self._masters.params if self._masters else mine

    def before(self, last: bool) -> None:
        """FSDP2 scatters in every backward; its sum over replicas may wait for the last one."""
        assert isinstance(self._module, FSDPModule)
        if self._late:
            self._module.set_requires_all_reduce(last)

    @staticmethod
    def _rows(unit: Unit, r: Reduction, parts: int) -> Mapping[str, Rows]:
        """The parameters of a unit that take part in a reduction of shards, with their place in its buffer."""
        some = {name: p for name, p in unit.params.items() if r.groups is None or unit.groups[name] in r.groups}
        return dict(zip(some, rows([tuple(p.shape) for p in some.values()], parts), strict=True))

    def after(self, last: bool) -> None:
        """FSDP2 has waited for its own reductions by the end of backward; what is reduced beside them follows."""
        if not last:
            return
        named = dict(self._module.named_parameters())
        for r, places in self._once:
            if not places:
                continue
            end = list(places.values())[-1]
            sent = torch.zeros(end.offset + end.elements, dtype=DTYPES[r.wire], device=self._groups.mesh.device_type)
            parts = {name: local(g).reshape(-1) for name in places if (g := named[name].grad) is not None}
            for name, part in parts.items():
                sent[places[name].offset :][: part.numel()] = part
            comm.all_reduce(sent, self._groups.group(r.axes), mean=r.mean).wait()
            for name, part in parts.items():
                part.copy_(sent[places[name].offset :][: part.numel()])

    def ready(self, divisor: float) -> None:
        for name, param in self._module.named_parameters():
            if param.grad is None:
                param.grad = torch.zeros_like(param)  # unused by this loss on every rank
            if divisor != 1:
                param.grad.div_(divisor)
            owner = self.updates[name]
            if owner is not param:
                assert isinstance(param.grad, DTensor)
                owner.grad = param.grad.to_local().to(owner.dtype)

    def refresh(self) -> None:
        if self._masters:
            self._masters.write_back()
        for tensor in (*self._module.parameters(), *self.updates.values()):
            tensor.grad = None

    def gradients_at_rest(self) -> Iterable[Tensor]:
        return [p.grad for p in self._module.parameters() if p.grad is not None]

    def full(self) -> Mapping[str, Tensor]:
        named = dict(self._module.named_parameters())
        whole = {}
        for name in self._names:
            param = named[name].detach()
            assert isinstance(param, DTensor)
            whole[name] = param.full_tensor()
        return whole


class _KeepOwn(ReduceScatter):
    """In place of a reduce-scatter: each rank keeps its rows of its own gradient. Only for runs forced against
    `check`."""

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: object, async_op: bool = False
    ) -> None:
        output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])
