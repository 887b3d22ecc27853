"""The checker: typing rules folded over a step program, on types = value ids x coefficients x layout.

`types`, `values` and `sizes` hold what `rules` (over `premises`) compute with; `prune` drops dead events; `fold` runs
the rest, `loops` says why three trips of a loop are enough; `counterexample`, `explain` and `fixes` turn a fault into a
message. Source: docs/design/semantics, 9 to 12.
Not for: numbers (`simulate`) or costs (`cost`).
"""

from placelang.check.check import Checked, check, check_plan
from placelang.check.counterexample import Counterexample
from placelang.check.fault import Fault
from placelang.check.fold import reference
from placelang.check.prune import prune

__all__ = ["Checked", "Counterexample", "Fault", "check", "check_plan", "prune", "reference"]
