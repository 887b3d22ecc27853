"""Experts over ranks, right and wrong: on axes of their own, on views of any token axes, with tensor and stage axes.

A case is a text; `turned` replaces words of sound ones. Not for: single events (`mutants`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

import attrs

from placelang.plan.plan import Plan
from placelang.program.lower import lower, opens, single_device
from placelang.program.supported import unsupported
from tests.oracle.families import Judge, Table
from tests.simulate.opened import read, small

JOB = "train (microbatches = 2, precision = fp64)\n"
ZERO = ("ddp", "zero1", "zero2", "zero3")


@attrs.frozen
class Case:
    """`model`: a key of `MODELS`."""

    text: str
    model: str = "experts"

    def plan(self) -> Plan | None:
        """None where the language or the lowering refuses the text."""
        model = small(self.model)
        plan = read(self.text, model)
        return None if plan is None or unsupported(plan, model) else plan


def bases() -> Iterator[Case]:
    """Sound strategies."""
    for model in ("experts", "latent"):
        for zero in ZERO:
            yield Case(f"mesh (dp = 2, ep = 2)\n{JOB}apply {zero}(dp * ep) * expert_parallel(ep)\n", model)
        yield Case(
            f"mesh (dp = 4)\nmesh moe (edp = 2, ep = 2) over (dp)\n{JOB}apply ddp(dp) * expert_parallel(ep)\n", model
        )
        folded = "mesh (dp = 4)\nmesh moe (efsdp = 2, ep = 2) over (dp)\n"
        yield Case(f"{folded}{JOB}apply fsdp(dp) * experts_folded(ep, efsdp)\n", model)
        both = f"mesh (dp = 2, cp = 2)\nmesh moe (edp = 2, ep = 2) over (dp, cp)\n{JOB}"
        yield Case(f"{both}apply ddp(dp * cp) * all_gather_cp(cp) * expert_parallel(ep)\n", model)
        yield Case(f"{both}apply zero2(dp * cp) * ring(cp) * expert_parallel(ep)\n", model)
        across = f"mesh (dp = 2, cp = 2)\nmesh moe (ep = 4) over (dp, cp)\n{JOB}"
        yield Case(f"{across}apply ddp(dp * cp) * all_gather_cp(cp) * expert_parallel(ep)\n", model)
        same = f"mesh (dp = 2, tp = 2)\nmesh moe (ep = 4) over (dp, tp)\n{JOB}"
        yield Case(f"{same}apply zero1(dp) * expert_parallel(ep)\n", model)
        positions = f"mesh (dp = 2, tp = 2)\nmesh moe (ep = 4) over (dp, tp)\n{JOB}"
        yield Case(f"{positions}apply ddp(dp) * megatron_sp(tp) * expert_parallel(ep)\n", model)
        third = "mesh (dp = 2, cp = 2, tp = 2)\nmesh moe (edp = 2, ep = 4) over (dp, cp, tp)\n"
        yield Case(f"{third}{JOB}apply ddp(dp * cp) * megatron_sp(tp) * ring(cp) * expert_parallel(ep)\n", model)
        apart = "mesh (dp = 4, tp = 2)\nmesh moe (efsdp = 2, ep = 4) over (dp, tp)\n"  # batch and positions
        yield Case(f"{apart}{JOB}apply fsdp(dp) * megatron_sp(tp) * experts_folded(ep, efsdp)\n", model)
        for split in ("megatron_sp", "tensor_parallel"):
            yield Case(f"mesh (ep = 2, tp = 2)\n{JOB}apply {split}(tp) * expert_parallel(ep)\n", model)
        stages = "mesh (pp = 2, dp = 2, ep = 2)\ntrain (microbatches = 2, precision = fp64)\n"
        yield Case(f"{stages}apply zero1(dp * ep) * pipelined(pp) * expert_parallel(ep)\n", model)
    kv = "mesh (dp = 2, tp = 4)\nmesh kv (kv_tp: tensor = 2, kv_copy: tensor = 2) over (tp)\n"
    for split, model in (("megatron_sp", "gqa"), ("tensor_parallel", "gqa"), ("megatron_sp", "qk_norm")):
        yield Case(f"{kv}{JOB}apply ddp(dp) * ({split}(tp) * shared_kv_heads(kv_tp, kv_copy))\n", model)


TURNS = (
    ("* expert_parallel(ep)", "* (expert_parallel(ep) with { override activations[experts]: replicate })"),
    ("(dp * ep)", "(dp)"),
    ("apply", "override grads[experts]: all_reduce(ep)\napply"),
    ("apply", "override grads[experts]: all_reduce(dp * ep)\napply"),
    ("apply", "override grads[router]: all_reduce(dp)\napply"),
    ("apply", "override grads[experts]: all_reduce(dp, mean)\napply"),
    ("apply", "override params[experts]: shard(ep, dim = 1)\napply"),
    (" * expert_parallel(ep)", "\non experts { params: shard(ep, dim = expert) }"),
    (" * expert_parallel(ep)", "\non experts { activations: all_to_all(ep) }"),
    ("ddp(", "zero2("),
    ("zero1(", "zero3("),
    ("megatron_sp", "tensor_parallel"),
    ("kv_copy))", "kv_tp))"),
    (" * shared_kv_heads(kv_tp, kv_copy)", ""),
    ("microbatches = 2", "microbatches = 1"),
)
"""Words of a text, and what stands there instead."""


def turned(count: int, random: Random) -> Iterator[Case]:
    """Sound cases with one or two turns."""
    sound = list(bases())
    for _ in range(count):
        case = random.choice(sound)
        for _ in range(random.choice((1, 1, 2))):
            fitting = [t for t in TURNS if t[0] in case.text]
            old, new = random.choice(fitting)
            case = attrs.evolve(case, text=case.text.replace(old, new, 1))
        yield case


def judge_cases(family: Iterable[Case]) -> Table:
    """Texts that the language refuses are left out."""
    judge, table = Judge(), Table()
    for case in family:
        plan, model = case.plan(), small(case.model)
        if plan is not None:
            program = lower(plan, model)
            job = (case.model, plan.train, "pp" in plan.mesh.names)
            checked, outcome = judge.verdicts(
                program, job, lambda p=plan, m=model: lower(single_device(p), m, inside=opens(p))
            )
            table.add(case, checked.ok, outcome)
    return table
