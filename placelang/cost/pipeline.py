"""How much longer a pipeline takes than its busiest stage: the closed forms of schedules, for uneven stages too.

    step = M·longest + fill,  fill = (sum of stages - longest) · share of the schedule

With equal stages the fill is the published bubble: (p-1)(F+B+W) for GPipe and 1F1B, that over v with v chunks a rank
(arXiv 2104.04473, section 2.2), (p-1)(F+B-W) and (p-1)(F+B-2W) for zero bubble H1 and H2 (arXiv 2401.10241, Table 2),
half of (p-1)(F+2B-W) for DualPipeV without mutual overlap (deepseek-ai/DualPipe), where B is the gradient of inputs
alone. `replay` plays the same schedules job by job; tests hold the two against each other. Not for: how long a stage
takes (`time`).
"""

from __future__ import annotations

from placelang.cost.expr import Expr, constant, maximum, total


def fill(schedule: str, chunks: int, stages: list[tuple[Expr, Expr, Expr]], counts: list[int]) -> Expr:
    """Seconds that a step takes beyond M times the longest stage.

    `stages`: seconds of forward, gradient of inputs and gradient of weights for one microbatch, of each kind of stage;
    `counts`: how many stages are of that kind.
    """
    wholes = [total(parts) for parts in stages]
    longest = maximum(*wholes)
    sums = [total(n * parts[i] for n, parts in zip(counts, stages, strict=True)) for i in range(3)]
    rest = total(sums) - longest  # of the stages but the longest
    others = constant(sum(counts) - 1) / sum(counts)
    forward, backward, weight = (others * s for s in sums)
    match schedule:
        case "interleaved_1f1b":
            return rest / constant(chunks)
        case "zb_h1":
            return maximum(rest - 2 * weight, 0)
        case "zb_h2":
            return maximum(rest - 3 * weight, 0)
        case "zbv":
            return maximum(backward - weight, 0)
        case "dualpipev":
            return maximum((forward + 2 * backward - weight) / 2, 0)
        case _:
            return rest
