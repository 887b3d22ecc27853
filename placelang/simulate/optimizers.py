"""The optimizers' arithmetic on simulated tensors, elementwise, so that any shard of rows may be updated alone.

Adam's epsilon is large on purpose: under a small one a gradient that is off by a constant factor makes almost the same
update (semantics, theorem T3), and an oracle must see it. Not for: training well.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from placelang.simulate.arrays import Array, NoDenotation

RATE = 0.05
DECAY = 0.1
MOMENTUM = 0.9
BETAS = (0.8, 0.9)
EPSILON = 0.1


def clipping(largest: float, squares: float) -> float:
    """The factor that keeps gradients shorter than `largest`, from the sum of squares of all of them.

    Smooth: min(1, largest / norm) hides the scale of all gradients where it is active and the norm where it is not, and
    an oracle must see both.
    """
    return largest / (largest + float(np.sqrt(squares))) if largest else 0.0


def heeding(grad: Mapping[str, Array], overflow: float) -> dict[str, Array]:
    """The gradient that an optimizer uses that heeds a flag: less of it, the larger the largest element is.

    A run skips the step; here nothing overflows, and an oracle must see a flag that is wrong.
    """
    return {k: a / (1 + overflow) for k, a in grad.items()}


def update(optimizer: str, theta: Array, grad: Array, state: Array, step: int) -> tuple[Array, Array]:
    """theta' and state' of step `step` (from 0). `state` is shaped as theta, with one more dim for the moments."""
    if theta.shape != grad.shape or theta.shape != state.shape[:-1]:
        raise NoDenotation(
            f"the optimizer joins parameters of shape {theta.shape}, a gradient of shape {grad.shape} "
            f"and moments of shape {state.shape}"
        )
    if optimizer in {"adam", "adamw"}:
        first = BETAS[0] * state[..., 0] + (1 - BETAS[0]) * grad
        second = BETAS[1] * state[..., 1] + (1 - BETAS[1]) * grad**2
        unbiased = first / (1 - BETAS[0] ** (step + 1))
        scale = np.sqrt(second / (1 - BETAS[1] ** (step + 1))) + EPSILON
        decayed = theta * (1 - RATE * DECAY) if optimizer == "adamw" else theta
        return decayed - RATE * unbiased / scale, np.stack([first, second], axis=-1)
    if optimizer == "sgd_momentum":
        moment = MOMENTUM * state[..., 0] + grad
        return theta - RATE * moment, moment[..., None]
    if optimizer == "sgd":
        return theta - RATE * grad, state
    raise NoDenotation(f"unknown optimizer {optimizer}")
