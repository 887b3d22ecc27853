"""What of one kind of work hides behind another: windows, what stays exposed, and what hiding costs.

Not for: which collective may run beside which compute (`time` reads that off the order of the program's events).
"""

from __future__ import annotations

from fractions import Fraction

import attrs

from placelang.cost.expr import Expr, maximum, minimum

SMOOTH = Fraction(4)
"""Exponent of `smooth`: 19 % above the larger of two equal times, 1.5 % where one is half of the other."""


@attrs.frozen
class Overlapped:
    """Seconds of communication: `hidden` behind compute, `exposed` after it, and `tax`, by which the compute that it
    hides behind is slower meanwhile, since both share memory and multiprocessors."""

    hidden: Expr
    exposed: Expr
    tax: Expr


def overlapped(communication: Expr, window: Expr, tax: Expr | Fraction | int = 0) -> Overlapped:
    """Communication that may run beside `window` seconds of compute."""
    hidden = minimum(communication, window)
    return Overlapped(hidden, maximum(communication - window, 0), tax * hidden)


def smooth(a: Expr, b: Expr) -> Expr:
    """The larger of two times that seldom meet exactly: kernels of a layer wait on the host here and there."""
    return (a**SMOOTH + b**SMOOTH) ** (1 / SMOOTH)


def dispatched(device: Expr, operations: Expr | int, each: Expr) -> Expr:
    """Seconds of a layer whose kernels take `device` seconds, and whose host takes `each` for one operation."""
    return smooth(device, operations * each)
