"""The single-pass AdamW kernel against torch.optim.AdamW, fused and foreach, on the CPU.

``python -m benchmarks.adamw [--elements N] [--threads N] [--rounds N] [--json FILE]``

Two settings: everything in fp32; and what a bf16 model needs of an optimizer with fp32 master weights, bf16 gradients
in and bf16 parameters out, where the peers have to widen and narrow in passes of their own.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.harness import interleave, ratio, show, write
from placelang.backend.offload import kernel

LR, WEIGHT_DECAY = 1e-3, 1e-2
OURS = "placelang"


def ours(
    params: torch.Tensor, grads: torch.Tensor, params_out: torch.Tensor | None, threads: int
) -> Callable[[], None]:
    """A function that takes one step with the kernel, on parameters and moments of its own."""
    params, exp_avg, exp_avg_sq, step = params.clone(), torch.zeros_like(params), torch.zeros_like(params), 0

    def job() -> None:
        nonlocal step
        step += 1
        kernel.adamw(
            params,
            exp_avg,
            exp_avg_sq,
            grads,
            step=step,
            params_out=params_out,
            threads=threads,
            lr=LR,
            weight_decay=WEIGHT_DECAY,
        )

    return job


def peer(params: torch.Tensor, grads: torch.Tensor, params_out: torch.Tensor | None, kind: str) -> Callable[[], None]:
    """The same with a torch optimizer, on parameters and moments of its own."""
    parameter = torch.nn.Parameter(params.clone())
    parameter.grad = grads if params_out is None else torch.empty_like(params)
    optimizer = torch.optim.AdamW(
        [parameter], fused=kind == "fused", foreach=kind == "foreach", lr=LR, weight_decay=WEIGHT_DECAY
    )

    def job() -> None:
        if params_out is not None and parameter.grad is not None:
            parameter.grad.copy_(grads)
        optimizer.step()
        if params_out is not None:
            params_out.copy_(parameter.detach())

    return job


def measure(elements: int, threads: int, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """By setting and optimizer: the median seconds of a step, elements a second, and times as long as the kernel."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    params, grads = torch.randn(elements), torch.randn(elements) * 1e-2
    settings: dict[str, tuple[torch.Tensor, torch.Tensor | None]] = {
        "fp32": (grads, None),
        "bf16 gradients in, bf16 parameters out": (grads.bfloat16(), params.bfloat16()),
    }
    result = {}
    for setting, (grads_in, params_out) in settings.items():
        jobs = {OURS: ours(params, grads_in, params_out, threads)}
        jobs |= {f"torch {kind}": peer(params, grads_in, params_out, kind) for kind in ("fused", "foreach")}
        seconds = interleave(jobs, rounds)
        result[setting] = {
            name: {
                "seconds": statistics.median(samples),
                "elements_per_second": elements / statistics.median(samples),
                "ratio": ratio(samples, seconds[OURS]),
            }
            for name, samples in seconds.items()
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--elements", type=int, default=1 << 25)
    parser.add_argument("--threads", type=int, default=kernel.threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if not kernel.available():
        sys.exit(f"nothing to measure: {kernel.why_not()}")

    result = measure(options.elements, options.threads, options.rounds)
    print(
        f"{options.elements / 1e6:.1f} M elements, {options.threads} threads, {kernel.isa()}, {options.rounds} rounds"
    )
    for setting, numbers in result.items():
        rows = [
            (name, f"{1e3 * of['seconds']:.1f}", f"{of['elements_per_second'] / 1e6:.0f}", f"{of['ratio']:.2f}")
            for name, of in numbers.items()
        ]
        show(setting, ("optimizer", "ms", "M elements/s", "x the kernel's time"), rows)
    context = {key: getattr(options, key) for key in ("elements", "threads", "rounds")}
    write(options.json, {**context, "isa": kernel.isa(), "settings": result})


if __name__ == "__main__":
    main()
