"""Whether gradients can be consumed: read by the optimizer inside backward, and freed at once.

A gradient is final when it is made only with one microbatch, without a norm over all gradients, and without a loss
scale, whose finite check looks at all of them before any update (docs/design/semantics, section 2).
Not for: what else is wrong with a gradient (`check`).
"""

from __future__ import annotations

from collections.abc import Iterator

from placelang.diagnostics.diagnostic import Diagnostic, Label
from placelang.diagnostics.problems import fault
from placelang.plan.plan import Plan, State
from placelang.plan.steps import Consume


def faults(plan: Plan) -> Iterator[Diagnostic]:
    """The faults E214: each `consume`, with the first fact that speaks against it."""
    train = plan.train
    against = (
        (train.microbatches > 1, f"before {train.microbatches} microbatches are added up", "`microbatches = 1`"),
        (train.clip is not None, "before they are clipped by the norm of all of them", "leave `clip` out"),
        (
            train.loss_scale is not None,
            "before all are found finite, which a loss scale asks",
            "leave `loss_scale` out",
        ),
    )
    why = next(((when, help_) for holds, when, help_ in against if holds), None)
    if why is None:
        return
    for placed in plan.placed:
        for step in placed.journey if placed.state is State.GRADS else ():
            if isinstance(step, Consume) and step.span is not None:
                causes = (Label(train.span, "as this says"),) if train.span else ()
                said = f"gradients cannot be consumed {why[0]}"
                yield fault("E214", said, step.span, "the update would run here", causes=causes, help=why[1])
