"""The oracle: a step program executed literally on N simulated ranks in float64.

It shares nothing with the checker but the program, so that agreement of the two means something. The only room beside
`backend` that imports numpy; import it where it is needed, never at start-up. Not for: speed, or real models (see
`shrink`: a program does to tiny tensors exactly what it does to large ones).
"""

from placelang.simulate.arrays import NoDenotation
from placelang.simulate.compare import Comparison, Mismatch, Outcome, compare, difference
from placelang.simulate.probe import Coefficient, probe
from placelang.simulate.run import Result, simulate
from placelang.simulate.shrink import shrink, shrink_plan

__all__ = [
    "Coefficient",
    "Comparison",
    "Mismatch",
    "NoDenotation",
    "Outcome",
    "Result",
    "compare",
    "difference",
    "probe",
    "shrink",
    "shrink_plan",
    "simulate",
]
