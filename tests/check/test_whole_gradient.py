"""Clipping and loss scales: the ways in which published trainers got the norm or the flag wrong, as edited programs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import attrs
import pytest

from placelang.check.check import Checked, check
from placelang.cost.expr import evaluate
from placelang.cost.traffic import traffic
from placelang.program.event import Event, Op
from placelang.program.program import Item, Program, Rep
from placelang.simulate import Outcome, compare
from tests.oracle.jobs import CLIP, SCALE, Base, split, staged
from tests.simulate.strategies import both, ddp, mesh, zero1, zero3

TIED = "grads[tied]: all_reduce(pp)"


def zero(make=zero3, **train: object) -> Base:
    plan = make(mesh(dp=2), **train)
    return (plan, *both(plan))


def edited(program: Program, edit: Callable[[Event], tuple[Event, ...]]) -> Program:
    def walk(items: tuple[Item, ...]) -> tuple[Item, ...]:
        made: list[Item] = []
        for item in items:
            made += [attrs.evolve(item, body=walk(item.body))] if isinstance(item, Rep) else edit(item)
        return tuple(made)

    return attrs.evolve(program, body=walk(program.body))


def judged(base: Base, edit: Callable[[Event], tuple[Event, ...]]) -> Checked:
    """The verdict on an edited program, which must train differently."""
    plan, program, reference = base
    wrong = edited(program, edit)
    assert wrong != program
    checked = check(wrong, reference, plan)
    assert not checked.ok
    assert compare(checked.program, reference).outcome is Outcome.DIFFERS
    return checked


def reads(event: Event, kind: str) -> bool:
    return bool(event.ins) and event.ins[0].kind == kind


def without(op: Op, kind: str) -> Callable[[Event], tuple[Event, ...]]:
    """The event falls away, and its result is its operand."""
    return lambda e: (attrs.evolve(e, op=Op.COPY, axes=(), largest=False),) if e.op is op and reads(e, kind) else (e,)


def over(axes: tuple[str, ...], kind: str) -> Callable[[Event], tuple[Event, ...]]:
    return lambda e: (attrs.evolve(e, axes=axes),) if e.op is Op.ALL_REDUCE and reads(e, kind) else (e,)


def test_a_norm_of_the_own_shard():
    (fault,) = judged(zero(**CLIP), without(Op.ALL_REDUCE, "squares")).faults[:1]
    assert (fault.code, fault.axes) == ("E211", ("dp",))
    assert fault.counterexample is not None
    assert fault.counterexample.text == "rank (dp=0) lacks the contribution of (dp=1)"


def test_a_norm_that_counts_replicas():
    """Tensors that every tp rank holds are counted once for each, as those that are cut must be."""

    def replicas_too(e: Event) -> tuple[Event, ...]:
        if e.op is Op.ADD and e.outs[0].kind == "norm":
            (whole,) = (b for b in e.ins if b.of == "(whole)")
            again = Event(op=Op.ALL_REDUCE, ins=(whole,), outs=(whole,), axes=("tp",), phase=e.phase, dtype=e.dtype)
            return again, e
        return (e,)

    fault = judged(split("clip = 2"), replicas_too).faults[0]
    assert fault.code == "E211"
    assert fault.counterexample is not None
    assert (fault.counterexample.multiplicity, fault.counterexample.rank) == (2, ())


def test_a_norm_without_the_other_stages():
    checked = judged(staged("clip = 2", lines=TIED), without(Op.ALL_REDUCE, "squares"))
    assert checked.faults[0].code == "E211"
    assert checked.diagnostics[0].message.startswith("the norm for clipping lacks the gradients of `")


def test_a_norm_that_counts_a_tied_embedding_on_each_of_its_stages():
    _, program, _ = base = staged("clip = 2", lines=TIED)
    tied = next(g for g in program.groups if len(g.where) == 2)

    def everywhere(e: Event) -> tuple[Event, ...]:
        mine = e.op is Op.SQNORM and any(b.of == tied.name for b in e.ins)
        adds = e.op is Op.ACC and e.ins[0].kind == "sq" and not e.ins[0].index and e.where == tied.where[:1]
        return (attrs.evolve(e, where=tied.where),) if mine or adds else (e,)

    fault = judged(base, everywhere).faults[0]
    assert fault.code == "E211"
    assert fault.counterexample is not None and fault.counterexample.multiplicity == 2


def test_one_unit_that_is_not_clipped():
    def as_it_is(e: Event) -> tuple[Event, ...]:
        if e.op is Op.CLIP and not e.ins[0].index:
            return (attrs.evolve(e, op=Op.COPY, ins=e.ins[:-1]),)
        return (e,)

    assert {f.code for f in judged(zero(ddp, **CLIP), as_it_is).faults} == {"E209"}


def test_clipping_before_the_mean_over_replicas():
    """Each rank clips its own part: the norm is of something else."""

    def late(e: Event) -> tuple[Event, ...]:
        if e.op is Op.ALL_REDUCE and reads(e, "g"):
            return (attrs.evolve(e, op=Op.COPY, axes=()),)
        if e.op is Op.OPT:
            grad = e.ins[1]
            return attrs.evolve(e, op=Op.ALL_REDUCE, ins=(grad,), outs=(grad,), axes=("dp",)), e
        return (e,)

    fault = judged(zero(ddp, **CLIP), late).faults[0]
    assert fault.code == "E201"


def test_gradients_that_stay_scaled():
    fault = judged(zero(**SCALE), without(Op.UNSCALE, "q0")).faults[0]
    assert fault.code == "E203"
    assert fault.counterexample is not None
    assert fault.counterexample.text == "rank (dp=0) holds loss_scale x the contribution of (dp=1)"


def test_a_flag_of_the_own_shard():
    checked = judged(zero(**SCALE), over((), "flags"))
    assert (checked.faults[0].code, checked.faults[0].axes) == ("E305", ("dp",))
    assert "what other ranks of `dp` hold" in checked.diagnostics[0].message


def test_a_flag_of_the_own_stage():
    checked = judged(staged("loss_scale = 8", lines=TIED), without(Op.ALL_REDUCE, "flags"))
    assert checked.faults[0].code == "E305"
    assert "the gradients of `" in checked.diagnostics[0].message


def test_a_flag_may_be_reduced_twice():
    plan, program, reference = zero(**SCALE)

    def twice(e: Event) -> tuple[Event, ...]:
        return (e, attrs.evolve(e, ins=e.outs)) if e.largest and e.op is Op.ALL_REDUCE else (e,)

    checked = check(edited(program, twice), reference, plan)
    assert checked.ok and compare(checked.program, reference).outcome is Outcome.EQUAL


@pytest.mark.parametrize("scale", [2, 7])
def test_no_axis_undoes_a_loss_scale(scale):
    """A sum over replicas is not taken for the loss scale that is missing, whatever numbers they are."""
    plan, program, reference = zero(zero1, loss_scale=Fraction(scale))
    wrong = edited(program, lambda e: (attrs.evolve(e, power=0),) if e.op is Op.LOSS else (e,))
    assert not check(wrong, reference, plan).ok


def test_norms_and_flags_are_numbers_on_the_wire():
    _, program, _ = zero(**CLIP, **SCALE)
    rows = [t for t in traffic(program) if t.phase == "update" and t.kind == "all_reduce"]
    found = [(t.axes, evaluate(t.count, {}), evaluate(t.message, {}), t.dtype) for t in rows]
    assert found == [(("dp",), 2, 16, "fp64")]  # the flag and the norm, as wide as gradients
