"""What every way of running has in common: gradients are made ready, tensors are updated, updates return.

Not for: any one way (`replicated`, `gathered`), or the loss (`parallel`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class Runtime(Protocol):
    """One step: `before`, the user's backward, `after` for each microbatch; `ready`, the optimizer, `refresh`."""

    updates: Mapping[str, nn.Parameter]
    """What the optimizer updates, by full name: the parameters, their shards, or fp32 masters of either."""

    def before(self, last: bool) -> None:
        """A backward pass is about to run; `last` of this step?"""

    def after(self, last: bool) -> None:
        """It has run: finish its reductions."""

    def ready(self, divisor: float) -> None:
        """Put the finished gradients, over `divisor`, where the optimizer reads them."""

    def refresh(self) -> None:
        """Bring updated values back to the parameters, everywhere; forget the gradients."""

    def gradients_at_rest(self) -> Iterable[Tensor]:
        """The tensors that hold gradients between backward and the optimizer."""

    def full(self) -> Mapping[str, Tensor]:
        """Every parameter whole, by full name. All ranks call it together."""


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a DTensor; another tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def stored(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages behind tensors, padding included, each storage once."""
    storages = {s.data_ptr(): s.nbytes() for t in tensors if t.numel() for s in [local(t).untyped_storage()]}
    return sum(storages.values())


class Masters:
    """Copies of parameters (or shards) in a wider dtype, which the optimizer updates in their place."""

    def __init__(self, theirs: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        self._theirs = theirs
        self.params = {n: nn.Parameter(local(t.detach()).to(dtype, copy=True)) for n, t in theirs.items()}

    def write_back(self) -> None:
        with torch.no_grad():
            for name, tensor in self._theirs.items():
                local(tensor.detach()).copy_(self.params[name])
