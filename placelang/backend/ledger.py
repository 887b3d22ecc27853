"""The ledger: every collective that a process really issues, with its kind, axis, phase, bytes and dtype.

A dispatch mode sees the operators of `c10d` and `_c10d_functional`, so also what DDP's C++ reducer, autograd, FSDP2 and
DTensor issue. Bytes are those of the unsharded side: gathered output, reduce-scatter input, reduced tensor. A
collective that it does not know is recorded as "unknown", never dropped. Not for: predictions (`predicted`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import combinations
from typing import Any

import attrs
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from placelang.backend.predicted import Traffic

_PHASE: ContextVar[str | None] = ContextVar("placelang_phase", default=None)
_KIND: ContextVar[str | None] = ContextVar("placelang_kind", default=None)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """What is issued inside belongs to this phase: "backward", "update", or "report" (no part of a training step)."""
    token = _PHASE.set(name)
    try:
        yield
    finally:
        _PHASE.reset(token)


@contextmanager
def kind(name: str) -> Iterator[None]:
    """Sends that are issued inside are of this kind: "ring" for those of ring attention."""
    token = _KIND.set(name)
    try:
        yield
    finally:
        _KIND.reset(token)


def _now() -> str:
    """The phase that was said, else "backward" while autograd runs, else "forward"."""
    running = torch._C._current_graph_task_id() != -1
    return _PHASE.get() or ("backward" if running else "forward")


@attrs.frozen
class Entry:
    """One collective. `axis` is "dp", "dp*cp", or "?" for a group of ranks that no axes of the mesh make."""

    kind: str
    axis: str
    ranks: int
    phase: str
    bytes: int
    dtype: str


def _bytes(value: object) -> int:
    return sum(t.numel() * t.element_size() for t in tree_leaves(value) if isinstance(t, Tensor))


_Size = Callable[[Sequence[Any]], int]


def _first(args: Sequence[Any]) -> int:
    return _bytes(args[0])


def _second(args: Sequence[Any]) -> int:
    return _bytes(args[1])


def _gathered(args: Sequence[Any]) -> int:
    return _bytes(args[0]) * int(args[1])


def _nothing(args: Sequence[Any]) -> int:
    return 0


# Operator -> kind and the bytes of the unsharded side. Operands: c10d takes outputs before inputs, the functional
# operators take the input first and, for gathers, the number of ranks second.
_C10D: Mapping[str, tuple[str, _Size]] = {
    "allreduce_": ("all_reduce", _first),
    "allreduce_coalesced_": ("all_reduce", _first),
    "_allgather_base_": ("all_gather", _first),
    "allgather_": ("all_gather", _first),
    "allgather_coalesced_": ("all_gather", _first),
    "allgather_into_tensor_coalesced_": ("all_gather", _first),
    "_reduce_scatter_base_": ("reduce_scatter", _second),
    "reduce_scatter_": ("reduce_scatter", _second),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", _second),
    "alltoall_base_": ("all_to_all", _second),
    "alltoall_": ("all_to_all", _second),
    "broadcast_": ("broadcast", _first),
    "reduce_": ("reduce", _first),
    "gather_": ("gather", _first),
    "scatter_": ("scatter", _first),
    "send": ("send", _first),
    "barrier": ("barrier", _nothing),
    "monitored_barrier_": ("barrier", _nothing),
}
_FUNCTIONAL: Mapping[str, tuple[str, _Size]] = {
    "all_reduce": ("all_reduce", _first),
    "all_reduce_": ("all_reduce", _first),
    "all_reduce_coalesced": ("all_reduce", _first),
    "all_reduce_coalesced_": ("all_reduce", _first),
    "all_gather_into_tensor": ("all_gather", _gathered),
    "all_gather_into_tensor_coalesced": ("all_gather", _gathered),
    "all_gather_into_tensor_out": ("all_gather", _gathered),
    "reduce_scatter_tensor": ("reduce_scatter", _first),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", _first),
    "reduce_scatter_tensor_out": ("reduce_scatter", _first),
    "all_to_all_single": ("all_to_all", _first),
    "broadcast": ("broadcast", _first),
    "broadcast_": ("broadcast", _first),
    "isend": ("send", _first),
}
_KNOWN = {"c10d": _C10D, "_c10d_functional": _FUNCTIONAL, "_c10d_functional_autograd": _FUNCTIONAL}

_resolve: Any = distributed_c10d._resolve_process_group  # type: ignore[attr-defined]

# Local operators, and the receiving ends of sends, which are counted at the sender.
_SILENT = {"wait_tensor", "_wrap_tensor_autograd", "check_for_nan", "recv_", "recv_any_source_", "irecv"}
_REDUCTIONS = {"sum", "avg", "max", "min", "product"}


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records while it is entered: `with Ledger(mesh) as ledger: step()`, then `ledger.entries` or `ledger.table()`.

    `mesh` names the axes; without one every group is "?".
    """

    def __init__(self, mesh: DeviceMesh | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: list[Entry] = []
        self._axes = _axes_of(mesh) if mesh is not None else {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # DTensor must unfold first, or the collectives inside its operators run unseen.
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        namespace, _, name = func._schema.name.partition("::")
        if namespace in _KNOWN and name not in _SILENT:
            self._record(namespace, name, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _record(self, namespace: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        what, size = _KNOWN[namespace].get(name, (f"unknown {namespace}::{name}", _first))
        what = (_KIND.get() or what) if what == "send" else what
        ranks = _ranks([*args, *kwargs.values()])
        axis = self._axes.get(frozenset(ranks), "?")
        dtypes = {str(t.dtype).removeprefix("torch.") for t in tree_leaves(list(args)) if isinstance(t, Tensor)}
        self.entries.append(Entry(what, axis, len(ranks), _now(), size(args), "+".join(sorted(dtypes))))

    def table(self) -> tuple[Traffic, ...]:
        """Rows like those of `predicted.traffic`: without groups of one rank, which send nothing, and without
        reports."""
        count: Counter[tuple[str, str, str]] = Counter()
        size: Counter[tuple[str, str, str]] = Counter()
        for e in self.entries:
            if e.ranks > 1 and e.phase != "report":
                count[e.kind, e.axis, e.phase] += 1
                size[e.kind, e.axis, e.phase] += e.bytes
        return tuple(sorted(Traffic(*key, count[key], size[key]) for key in count))


def _ranks(operands: Sequence[Any]) -> list[int]:
    """The ranks of the group that an operator works on, found among its operands; all ranks if it names none."""
    for operand in operands:
        if isinstance(operand, torch.ScriptObject):
            try:
                return dist.get_process_group_ranks(dist.ProcessGroup.unbox(operand))
            except (RuntimeError, ValueError):
                continue  # a reduction or another object of c10d, not a group
        if isinstance(operand, str) and operand.lower() not in _REDUCTIONS:
            group = _resolve(operand)
            return dist.get_process_group_ranks(group)
    return list(range(dist.get_world_size()))


def _axes_of(mesh: DeviceMesh) -> dict[frozenset[int], str]:
    """The ranks that each choice of axes joins with this one, fewest axes first; axes of one rank are left out."""
    names = mesh.mesh_dim_names or ()
    here = mesh.get_coordinate()
    if here is None:
        return {}
    real = [i for i, _ in enumerate(names) if mesh.size(i) > 1]
    found: dict[frozenset[int], str] = {}
    for many in range(1, len(real) + 1):
        for axes in combinations(real, many):
            at = tuple(slice(None) if i in axes else here[i] for i in range(len(names)))
            ranks = frozenset(int(r) for r in mesh.mesh[at].flatten().tolist())
            found.setdefault(ranks, "*".join(names[i] for i in axes))
    return found
