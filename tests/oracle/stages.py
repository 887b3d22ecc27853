"""Strategies over pipeline stages, right and wrong: alone, with data axes, with tensor axes inside the layers.

A line is a text with its knobs. Not for: single events (`mutants`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

import attrs

from placelang.model.model import Model
from placelang.plan.plan import Plan
from placelang.program.lower import lower, opens, single_device
from placelang.program.program import Program
from placelang.program.supported import unsupported
from tests.oracle.families import Judge, Table
from tests.simulate.opened import read, small

ZERO = {
    "ddp": "grads: all_reduce(dp)",
    "zero1": "grads: all_reduce(dp) ; optimizer: shard(dp)",
    "zero2": "grads: reduce_scatter(dp) ; optimizer: shard(dp)",
    "zero3": "params: shard(dp) | gather(dp) ; grads: reduce_scatter(dp) ; optimizer: shard(dp)",
    "kept": "params: shard(dp) | gather(dp, keep = step) ; grads: reduce_scatter(dp) ; optimizer: shard(dp)",
    "none": "",
}
"""What data axes do. `none` is right where there is one data rank."""


@attrs.frozen
class Line:
    """`model`: a key of `MODELS`, of which "fused" ties its embedding to its head. `split`: layers of each part."""

    model: str
    split: tuple[int, ...]
    dp: int = 1
    tp: int = 1
    pp: int = 2
    zero: str = "none"
    schedule: str = "1f1b"
    tied: str = ""  # how the gradients of what stages share are reduced
    grads: str = ""  # of all parameters, beside what data axes do
    microbatches: int = 4

    @property
    def text(self) -> str:
        axes = [f"pp = {self.pp}", f"dp = {self.dp}", *([f"tp = {self.tp}"] if self.tp > 1 else [])]
        lines = [
            f"mesh ({', '.join(axes)})",
            f"train (microbatches = {self.microbatches}, precision = fp64)",
            f"schedule: {self.schedule}",
            f"params: shard(pp, dim = layer, split = [{', '.join(map(str, self.split))}])",
            "apply tensor_parallel(tp)" if self.tp > 1 else "",
            "",
        ]
        zero = ZERO[self.zero].split(" ; ")
        dealt = lines[3]
        for statement in zero:
            state, _, journey = statement.partition(": ")
            if state == "params":
                dealt = f"{dealt} * {journey}"
            elif statement:
                lines.append(f"{statement} | {self.grads}" if self.grads and state == "grads" else statement)
        lines[3] = dealt
        if self.tied:
            lines.append(f"grads[tied]: {self.tied}")
        return "\n".join(line for line in lines if line) + "\n"

    def deep(self) -> Model:
        """The model with as many layers as the line deals out."""
        model = small(self.model)
        layers = sum(self.split)
        stacks = tuple(attrs.evolve(s, count=layers) if s.block else s for s in model.stacks)
        return attrs.evolve(model, stacks=stacks)

    def plan(self) -> Plan | None:
        """None where the language or the lowering refuses the text."""
        model = self.deep()
        plan = read(self.text, model)
        return None if plan is None or unsupported(plan, model) else plan


def lowered(plan: Plan, model: Model) -> Program:
    return lower(plan, model)


def alone(plan: Plan, model: Model) -> Program:
    return lower(single_device(plan), model, inside=opens(plan))


def bases() -> Iterator[Line]:
    """Sound lines: every schedule's placement, even and uneven, with and without shared embeddings."""
    placements = (
        ("1f1b", 2, (2, 1)),
        ("gpipe", 2, (2, 2)),
        ("1f1b", 3, (2, 1, 1)),
        ("zb_h1", 3, (1, 3, 2)),
        ("1f1b", 2, (0, 3)),
        ("interleaved_1f1b(chunks = 2)", 2, (2, 1, 1, 1)),
        ("interleaved_1f1b(chunks = 2)", 2, (0, 2, 1, 0)),
        ("zbv", 2, (2, 1, 1, 1)),
        ("zbv", 3, (1, 1, 1, 1, 1, 1)),
        ("zb_h2", 4, (2, 2, 2, 2)),
    )
    for schedule, pp, split in placements:
        for zero in ("ddp", "zero1", "zero2", "zero3", "kept"):
            many = 8 if schedule == "zb_h2" else 4 if pp == 2 else 6
            yield Line("gqa", split, 2, 1, pp, zero, schedule, microbatches=many)
            tied = "" if schedule == "zbv" and zero == "ddp" else "all_reduce(pp)"
            yield Line("fused", split, 2, 1, pp, zero, schedule, tied, microbatches=many)
    for zero in ("ddp", "zero3"):
        yield Line("gqa", (2, 1), 2, 2, 2, zero)
        yield Line("fused", (2, 1), 2, 2, 2, zero, tied="all_reduce(pp)")
    yield Line("gqa", (2, 1))


def lines(count: int, random: Random) -> Iterator[Line]:
    """Sound lines with up to three knobs turned."""
    sound = list(bases())
    turns = {
        "model": ("gqa", "fused", "biased"),
        "zero": tuple(ZERO),
        "tied": ("", "all_reduce(pp)", "all_reduce(pp, mean)", "all_reduce(dp * pp)", "all_reduce(dp)"),
        "grads": ("", "all_reduce(pp)", "all_reduce(pp, mean)"),
        "schedule": ("1f1b", "zbv", "gpipe", "interleaved_1f1b(chunks = 2)"),
        "dp": (1, 2, 3),
        "microbatches": (1, 4, 8),
    }
    for _ in range(count):
        line = random.choice(sound)
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            knob = random.choice([*turns])
            line = attrs.evolve(line, **{knob: random.choice(turns[knob])})
        yield line


def judge_lines(family: Iterable[Line]) -> Table:
    """Texts that the language refuses are left out."""
    judge, table = Judge(), Table()
    for line in family:
        plan = line.plan()
        if plan is not None:
            model = line.deep()
            job = (line.model, sum(line.split), line.split, line.pp, line.schedule, line.tp > 1, plan.train)
            checked, outcome = judge.verdicts(lowered(plan, model), job, lambda p=plan, m=model: alone(p, m))
            table.add(line, checked.ok, outcome)
    return table
