"""What every oracle test asks of a table of verdicts: nothing accepted that differs, and a reason for the rest.

Not for: making programs (`families`, `splits`, `stages`, `experts`, `jobs`, `mutants`).
"""

from __future__ import annotations

from random import Random

from placelang.simulate import Outcome
from tests.oracle.families import Judge, Table
from tests.oracle.mutants import Bases, Mutant, mutant, reason


def agree(table: Table, title: str) -> None:
    """Strategies: what is refused is not equal either."""
    print(table.show(title, lambda _: "unexplained"))
    assert not table.wrongly_accepted, table.wrongly_accepted[0]
    assert not table.equal_refused, table.equal_refused[0]


def all_sound(table: Table, title: str, least: int) -> None:
    agree(table, title)
    assert table.counts[True, Outcome.EQUAL] == sum(table.counts.values()) > least, table.counts


def judged(sound: Bases, count: int, seed: int) -> Table:
    """Verdicts on mutants of sound programs: every other one has its loops unrolled first."""
    judge, table, random = Judge(), Table(), Random(seed)
    for k in range(count):
        m = mutant(random, unrolled=k % 2 == 1, sound=sound)
        checked, outcome = judge.verdicts(m.program, id(m.reference), lambda m=m: m.reference)
        table.add(m, checked.ok, outcome)
    return table


def mutants_agree(table: Table, title: str, share: float = 0.05) -> None:
    """Mutants: what is refused and equal all the same has a known reason, and is at most a `share` of all."""
    print(table.show(title, reason))
    assert not table.wrongly_accepted, [(str(m), o) for m, o in table.wrongly_accepted]
    unexplained = [str(m) for m in table.equal_refused if isinstance(m, Mutant) and not reason(m)]
    assert not unexplained, unexplained
    assert len(table.equal_refused) <= share * sum(table.counts.values())
