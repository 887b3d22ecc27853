"""Strategies by their knobs, right and wrong, and what checker and oracle say of each.

`one_axis` is the whole product over one data axis; `two_axes` draws sound strategies over two and turns up to three
knobs of them at random. Not for: single events (`mutants`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from random import Random

import attrs

from placelang.check.check import Checked, check
from placelang.check.fold import Reference
from placelang.check.fold import reference as specification
from placelang.plan.dtypes import PRECISIONS
from placelang.plan.mesh import Axis, Mesh, Role
from placelang.plan.plan import Placed, Plan, State, Train
from placelang.plan.steps import AllGather, Gather, Keep, Partial, Reduce, Replicate, Shard, When
from placelang.program.lower import lower, single_device
from placelang.program.program import Program
from placelang.simulate import NoDenotation, Outcome, Result, difference, simulate
from tests.simulate.strategies import tiny

BATCH = 12

Axes = tuple[str, ...]


@attrs.frozen
class Knobs:
    """A strategy in its simplest terms: the axes of each form. `grads`: (scatter, mean, when, axes) in order."""

    sizes: tuple[tuple[str, int], ...]
    rest: Axes = ()
    gather: Axes = ()
    grads: tuple[tuple[bool, bool, When, Axes], ...] = ()
    optimizer: Axes = ()
    update: Axes = ()
    batch: Axes = ()
    microbatches: int = 2
    keep: Keep = Keep.UNIT
    train: str = "adamw"

    def plan(self) -> Plan:
        mesh = Mesh(tuple(Axis(name, Role.DATA, size) for name, size in self.sizes))

        def form(axes: Axes, dim: str = "0") -> Shard | Replicate:
            return Shard(axes=axes, dim=dim) if axes else Replicate()

        journeys = {
            State.PARAMS: (form(self.rest), *([Gather(axes=self.gather, keep=self.keep)] if self.gather else [])),
            State.GRADS: (
                Partial(axes=mesh.names),
                *(Reduce(axes=a, scatter=s, mean=m, when=w) for s, m, w, a in self.grads),
            ),
            State.OPTIMIZER: (form(self.optimizer),),
            State.ACTIVATIONS: (form(self.batch, "batch"),),
        }
        train = Train(optimizer=self.train, precision=PRECISIONS["fp64"], microbatches=self.microbatches)
        update = (AllGather(axes=self.update),) if self.update else ()
        return Plan(mesh, tuple(Placed(s, j) for s, j in journeys.items()), update, train)


def reductions(axes: Iterable[Axes]) -> list[tuple[bool, bool, When, Axes]]:
    return [(s, m, w, a) for s, m, w, a in product((True, False), (False, True), When, axes)]


def one_axis(size: int) -> Iterator[Knobs]:
    """Every combination on one data axis: two reductions at most."""
    dp: Axes = ("dp",)
    one = reductions([dp])
    grads = [(), *((r,) for r in one), *product(one, one)]
    params: list[tuple[Axes, Axes]] = [((), ()), (dp, ()), (dp, dp)]
    either: tuple[Axes, Axes] = ((), dp)
    for (rest, gather), g, o, u, b, m in product(params, grads, either, either, either, (1, 2)):
        yield Knobs((("dp", size),), rest, gather, tuple(g), o, u, b, m)


def sound(a: str, b: str) -> list[dict[str, object]]:
    """Knobs of sound strategies on two data axes."""
    both = (a, b)
    step, each = When.STEP, When.MICROBATCH

    def reduce(when: When, *axes: str, mean: bool = False) -> tuple[bool, bool, When, Axes]:
        return False, mean, when, axes

    def scatter(when: When, *axes: str, mean: bool = False) -> tuple[bool, bool, When, Axes]:
        return True, mean, when, axes

    zero: dict[str, object] = {"optimizer": both, "update": both}
    inner: dict[str, object] = {"rest": (b,), "gather": (b,), "optimizer": (b,)}
    outer_only: dict[str, object] = {"batch": (a,), "optimizer": (b,), "update": (b,)}
    return [
        {"grads": (reduce(step, a, b),)},
        {"grads": (reduce(each, a), reduce(step, b))},
        {"grads": (reduce(step, a, b),), **zero},
        {"grads": (scatter(each, a, b),), **zero},
        {"grads": (scatter(step, a), scatter(step, b)), **zero},
        {"grads": (scatter(step, a, b),), "rest": both, "gather": both, "optimizer": both},
        {"grads": (scatter(each, a), scatter(each, b)), "rest": both, "gather": both, "optimizer": both},
        {"grads": (scatter(step, b), reduce(step, a)), **inner},
        {"grads": (scatter(each, b), scatter(step, a)), **inner, "optimizer": (b, a), "update": (a,)},
        {"grads": (reduce(step, a),), "batch": (a,)},
        {"grads": (reduce(step, a), reduce(each, b, mean=True)), "batch": (a,)},
        {"grads": (reduce(step, a), scatter(step, b, mean=True)), **outer_only},
    ]


def two_axes(count: int, random: Random) -> Iterator[Knobs]:
    """Sound strategies with none to three knobs turned."""
    names = ("a", "b")
    orders: list[Axes] = [("a",), ("b",), ("a", "b"), ("b", "a")]
    for _ in range(count):
        sizes = random.choice([(2, 2), (2, 3), (3, 2), (1, 2), (2, 1)])
        facts = {"batch": names, **random.choice(sound(*random.sample(names, 2)))}
        knobs = attrs.evolve(
            Knobs(tuple(zip(names, sizes, strict=True))),
            microbatches=random.choice((1, 2)),
            keep=random.choice([*Keep]),
            train=random.choice(("adamw", "sgd")),
            **facts,
        )
        for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
            knob = random.choice(("rest", "gather", "grads", "grads", "optimizer", "update", "batch"))
            if knob == "grads":
                chain = list(knobs.grads)
                at = random.randrange(len(chain) + 1)
                chain[at : at + random.choice((0, 1))] = random.sample(reductions(orders), random.choice((0, 1, 1)))
                knobs = attrs.evolve(knobs, grads=tuple(chain))
            else:
                knobs = attrs.evolve(knobs, **{knob: random.choice([(), *orders])})
        yield knobs


@attrs.define
class Judge:
    """Both verdicts on programs. The reference of a job is numbered and run once."""

    _known: dict[object, tuple[Reference, Result]] = attrs.field(factory=dict)

    def verdicts(self, program: Program, job: object, reference: Callable[[], Program]) -> tuple[Checked, Outcome]:
        """The checker's, and what the program computes without its dead events: what runs."""
        if job not in self._known:
            made = reference()
            self._known[job] = specification(made, program), simulate(made, batch=BATCH)
        against, expected = self._known[job]
        checked = check(program, against)
        try:
            return checked, difference(simulate(checked.program, batch=BATCH), expected).outcome
        except NoDenotation:
            return checked, Outcome.NO_DENOTATION


@attrs.define
class Table:
    """Counts of (accepted, outcome), and the subjects on which checker and oracle disagree."""

    counts: Counter[tuple[bool, Outcome]] = attrs.field(factory=Counter)
    wrongly_accepted: list[tuple[object, Outcome]] = attrs.field(factory=list)
    equal_refused: list[object] = attrs.field(factory=list)

    def add(self, subject: object, accepted: bool, outcome: Outcome) -> None:
        self.counts[accepted, outcome] += 1
        if accepted and outcome is not Outcome.EQUAL:
            self.wrongly_accepted.append((subject, outcome))
        if not accepted and outcome is Outcome.EQUAL:
            self.equal_refused.append(subject)

    def show(self, title: str, reason: Callable[[object], str | None] | None = None) -> str:
        """The counts as a table, and the reasons of the programs that are refused and equal all the same."""
        cells = "".join(f"{self.counts[a, o]:>10}" for a in (True, False) for o in Outcome)
        reasons = Counter(map(reason, self.equal_refused)) if reason else Counter[str | None]()
        return "\n".join(
            (
                f"\n{'':<28}{'':>8}{'accepted':>30}{'refused':>30}",
                f"{'family':<28}{'programs':>8}" + "".join(f"{o.value[:9]:>10}" for _ in range(2) for o in Outcome),
                f"{title:<28}{sum(self.counts.values()):>8}{cells}",
                *(f"  refused and equal: {n} because {why}" for why, n in reasons.items()),
            )
        )


def judge_knobs(family: Iterable[Knobs]) -> Table:
    judge, table = Judge(), Table()
    for knobs in family:
        plan = knobs.plan()
        checked, outcome = judge.verdicts(
            lower(plan, tiny()), plan.train, lambda plan=plan: lower(single_device(plan), tiny())
        )
        table.add(knobs, checked.ok, outcome)
    return table
