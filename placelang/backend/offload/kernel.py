"""The single-pass AdamW kernel on CPU tensors, bound to the native library with ctypes.

:func:`adamw` always works: where the library is missing (an installation built without a compiler), it computes the
same step with torch operations, in several passes over memory and so more slowly. That is never hidden:
:func:`available` says which of the two runs and :func:`why_not` says why. Importing this module imports neither torch
nor the library.

Not an optimizer: it keeps no state, knows no parameter groups and no schedule.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from torch import Tensor

_LIBRARY: Final = "libplace_offload.so"
_ABI: Final = 1
_MAX_THREADS: Final = 1024

# Values of the enums of src/place_offload.h.
_ISA_NAMES: Final = ("baseline", "avx2", "avx512")
_BEST_ISA: Final = -1
_FLOAT32: Final = 0
_BFLOAT16: Final = 1
_STATUS: Final = {
    1: "a required pointer is null",
    2: "the size is negative or too large",
    3: "a hyperparameter is out of range",
    4: "the gradients' dtype is unknown",
    5: "this processor lacks the instruction set asked for",
    6: "the number of threads is out of range",
    7: "a buffer is not aligned to its element",
    8: "two buffers overlap",
}

# Elements that the torch equivalent works on at once, so that its temporaries stay in cache.
_CHUNK: Final = 1 << 16


class _Hyper(ctypes.Structure):
    """``struct place_adamw_hyper``."""

    _fields_ = (
        ("lr", ctypes.c_double),
        ("beta1", ctypes.c_double),
        ("beta2", ctypes.c_double),
        ("eps", ctypes.c_double),
        ("weight_decay", ctypes.c_double),
        ("grad_scale", ctypes.c_double),
        ("step", ctypes.c_int64),
    )


@attrs.frozen
class _Loaded:
    """The outcome of loading: either the library or the reason why there is none."""

    native: ctypes.CDLL | None
    reason: str | None


@functools.cache
def _load() -> _Loaded:
    resource = files("placelang.backend.offload").joinpath(_LIBRARY)
    if not resource.is_file():
        return _Loaded(None, "this installation was built without the native library (was there a C++17 compiler?)")
    try:
        with as_file(resource) as path:
            library = ctypes.CDLL(str(path))
        abi = int(library.place_offload_abi())
    except (OSError, AttributeError) as error:
        return _Loaded(None, f"the native library does not load: {error}")
    if abi != _ABI:
        return _Loaded(None, f"the native library has interface {abi}, not {_ABI}: install placelang again")
    library.place_adamw.restype = ctypes.c_int32
    library.place_adamw.argtypes = [
        ctypes.POINTER(_Hyper),
        *[ctypes.c_void_p] * 4,
        ctypes.c_int32,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int32,
        ctypes.c_int32,
    ]
    return _Loaded(library, None)


def available() -> bool:
    """Whether the native library is here and loads; if not, :func:`adamw` computes with torch."""
    return _load().native is not None


def why_not() -> str | None:
    """Why the native library can't be used, as a clause for people; ``None`` if it can."""
    return _load().reason


def isas() -> tuple[str, ...]:
    """All instruction sets that the kernel can use on this processor, narrowest first; empty without the library."""
    library = _load().native
    return () if library is None else _ISA_NAMES[: int(library.place_offload_isa()) + 1]


def isa() -> str | None:
    """The widest of :func:`isas`, which the kernel uses unless told; ``None`` without the library."""
    return isas()[-1] if available() else None


def threads() -> int | None:
    """Threads used when :func:`adamw` is not told: the processors that this thread may run on, at most
    ``OMP_NUM_THREADS``. ``None`` without the library."""
    library = _load().native
    return None if library is None else int(library.place_offload_threads())


def adamw(
    params: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    grads: Tensor,
    *,
    step: int,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    grad_scale: float = 1.0,
    params_out: Tensor | None = None,
    threads: int | None = None,
    isa: str | None = None,
) -> None:
    """One AdamW step, in place, in a single pass over memory.

    The rule and the defaults are those of ``torch.optim.AdamW`` (Loshchilov & Hutter, "Decoupled Weight Decay
    Regularization", ICLR 2019, Algorithm 2). All tensors are contiguous, on the CPU and of one shape, and share
    no memory.

    :param params: fp32 master parameters, updated.
    :param exp_avg: fp32 first moment, updated; zeros before the first step.
    :param exp_avg_sq: fp32 second moment, updated; zeros before the first step.
    :param grads: gradients in fp32 or bf16, read only.
    :param step: the number of this step, from 1.
    :param grad_scale: factor on every gradient: the inverse loss scale times the clip factor.
    :param params_out: receives the new parameters in bf16, rounded to nearest even.
    :param threads: from 1 to 1024; ``None`` for :func:`threads`. The bits of the result don't depend on it.
    :param isa: one of :func:`isas`; ``None`` for the widest. The bits of the result don't depend on it.
    :raises ValueError: a tensor or a number isn't as said here; nothing was changed.
    """
    tensors = {"params": params, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "grads": grads}
    if params_out is not None:
        tensors["params_out"] = params_out
    _check_tensors(tensors)
    _check_numbers(step, lr, betas, eps, weight_decay, grad_scale)
    if threads is not None and not 1 <= threads <= _MAX_THREADS:
        raise ValueError(f"threads must be from 1 to {_MAX_THREADS}, not {threads}")
    if isa is not None and isa not in isas():
        raise ValueError(f"isa must be one of {', '.join(isas()) or 'none (no native library)'}; not {isa!r}")

    library = _load().native
    hyper = _Hyper(lr, *betas, eps, weight_decay, grad_scale, step)
    if library is None:
        _adamw_in_torch(params, exp_avg, exp_avg_sq, grads, params_out, hyper)
        return

    import torch

    status = library.place_adamw(
        ctypes.byref(hyper),
        params.data_ptr(),
        exp_avg.data_ptr(),
        exp_avg_sq.data_ptr(),
        grads.data_ptr(),
        _BFLOAT16 if grads.dtype == torch.bfloat16 else _FLOAT32,
        None if params_out is None else params_out.data_ptr(),
        params.numel(),
        threads or 0,
        _BEST_ISA if isa is None else _ISA_NAMES.index(isa),
    )
    if status != 0:
        raise ValueError(f"the AdamW kernel refused its arguments: {_STATUS.get(status, f'status {status}')}")
    for name, tensor in tensors.items():
        # The library writes behind autograd's back; a graph that saved one of these must notice.
        if name != "grads" and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


def _check_tensors(tensors: dict[str, Tensor]) -> None:
    import torch

    dtypes = {"grads": (torch.float32, torch.bfloat16), "params_out": (torch.bfloat16,)}
    shape = tensors["params"].shape
    for name, tensor in tensors.items():
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise ValueError(f"{name} must be a plain tensor, not {type(tensor).__name__} (pass its local tensor)")
        if tensor.device.type != "cpu":
            raise ValueError(f"{name} must be on the CPU, not on {tensor.device}")
        allowed = dtypes.get(name, (torch.float32,))
        if tensor.dtype not in allowed:
            expected = " or ".join(str(dtype) for dtype in allowed)
            raise ValueError(f"{name} must be {expected}, not {tensor.dtype}")
        if tensor.shape != shape:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, but params has {list(shape)}")
        if tensor.layout != torch.strided or not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous")

    spans = [(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, name) for name, tensor in tensors.items()]
    spans.sort()
    for (_, end, name), (begin, _, other) in itertools.pairwise(spans):
        if begin < end:
            raise ValueError(f"{name} and {other} share memory")


def _check_numbers(
    step: int, lr: float, betas: tuple[float, float], eps: float, weight_decay: float, grad_scale: float
) -> None:
    if step < 1:
        raise ValueError(f"step counts from 1, not {step}")
    for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be finite and not negative, not {value}")
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"both betas must be at least 0 and below 1, not {betas}")
    if not math.isfinite(grad_scale):
        raise ValueError(f"grad_scale must be finite, not {grad_scale}")


def _adamw_in_torch(
    params: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, grads: Tensor, params_out: Tensor | None, hyper: _Hyper
) -> None:
    """The kernel's arithmetic, operation by operation, in torch."""
    import torch

    step_size = hyper.lr / (1 - hyper.beta1**hyper.step)
    inverse_sqrt_correction2 = 1 / math.sqrt(1 - hyper.beta2**hyper.step)
    whole = [params, exp_avg, exp_avg_sq, grads, *([] if params_out is None else [params_out])]
    with torch.no_grad():
        for p, m, v, grad, *out in zip(*(torch.split(tensor.view(-1), _CHUNK) for tensor in whole), strict=True):
            g = grad.float() * hyper.grad_scale
            m.mul_(hyper.beta1).add_(g * (1 - hyper.beta1))
            v.mul_(hyper.beta2).add_((g * (1 - hyper.beta2)).mul_(g))
            denominator = v.sqrt().mul_(inverse_sqrt_correction2).add_(hyper.eps)
            p.mul_(1 - hyper.lr * hyper.weight_decay).sub_((m * step_size).div_(denominator))
            for narrow in out:
                narrow.copy_(p)
