"""The sum of cross entropies over valid tokens, also where the vocabulary of the logits is split over ranks.

Split logits are of a class that refuses arithmetic: a loss of torch's would take a part of the vocabulary for the whole
and train the wrong thing without a word. Not for: the division by the number of tokens (`parallel`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from placelang.backend import comm
from placelang.backend.errors import failed

IGNORED = -100  # torch's default for targets that do not count
_SHAPES = ("size", "dim", "numel", "stride", "__len__", "__repr__", "is_contiguous", "is_floating_point")
_VIEWS = ("flatten", "reshape", "view", "contiguous", "__getitem__", "detach", "float", "double", "to", "type")
_MAY = frozenset({*_SHAPES, *_VIEWS, "__get__", "register_hook", "requires_grad_", "as_subclass"})
"""What no answer depends on: how logits lie, and where they go."""


class SplitLogits(Tensor):
    """Logits of a part of the vocabulary."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if getattr(func, "__name__", "") not in _MAY:
            raise failed(
                "E501",
                f"`{getattr(func, '__name__', func)}` of logits whose vocabulary is split over ranks",
                "`p.loss(logits, targets)`, which knows the other parts",
            )
        return super().__torch_function__(func, types, args, dict(kwargs or {}))  # type: ignore[no-untyped-call]


def mark_split(_module: nn.Module, _args: Any, output: Any) -> Any:
    """A forward hook: the logits of a model's output become `SplitLogits`."""
    if isinstance(output, Tensor):
        return output.as_subclass(SplitLogits)
    output.logits = output.logits.as_subclass(SplitLogits)
    return output


def loss_sum(logits: Tensor, targets: Tensor, group: dist.ProcessGroup | None = None, ignored: int = IGNORED) -> Tensor:
    """The sum over tokens whose target is not `ignored`, in float32 at least. `group`: the ranks that have the other
    parts of the vocabulary, in order."""
    logits = logits.as_subclass(Tensor).flatten(0, -2)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if group is None or group.size() == 1:
        return F.cross_entropy(wide, targets.flatten(), ignore_index=ignored, reduction="sum")
    found: Tensor = _Parallel.apply(wide, targets.flatten(), group, ignored)  # type: ignore[no-untyped-call]
    return found


class _Parallel(torch.autograd.Function):
    """Three sums over the ranks, each of one number a token: the largest logit, the denominator, the target's logit
    (Megatron-LM, arXiv 1909.08053, section 3). Backward needs none."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, group: dist.ProcessGroup, ignored: int) -> Tensor:
        largest = logits.max(-1).values
        comm.all_max(largest, group).wait()
        shifted = logits - largest[:, None]
        width = logits.shape[-1]
        own = targets - group.rank() * width
        mine = (own >= 0) & (own < width)
        own = own.clamp(0, width - 1)
        wanted = shifted.gather(-1, own[:, None])[:, 0] * mine
        powers = shifted.exp_()
        denominator = powers.sum(-1)
        comm.all_reduce(denominator, group).wait()
        comm.all_reduce(wanted, group).wait()
        valid = targets != ignored
        ctx.save_for_backward(powers.div_(denominator[:, None]), own, mine, valid)
        return ((denominator.log() - wanted) * valid).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        softmax, own, mine, valid = ctx.saved_tensors
        d = softmax.scatter_add(-1, own[:, None], -mine[:, None].to(softmax.dtype))
        return d * valid[:, None] * grads[0], None, None, None
