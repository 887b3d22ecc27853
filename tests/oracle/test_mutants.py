"""No mutant of a sound program is accepted that computes something else, and none crashes the checker.

The harder half of T1 and T2: programs that no strategy text denotes. Run with -s to see the counts.
"""

from __future__ import annotations

import attrs
import pytest

from placelang.check.check import check
from placelang.program.event import Buf, End, Event, Op, Phase, Var
from placelang.program.program import Rep, flatten
from placelang.simulate import Outcome, compare
from tests.oracle.agreement import judged, mutants_agree
from tests.oracle.mutants import bases
from tests.simulate.strategies import both, ddp, deep, mesh


@pytest.mark.parametrize("seed", range(4))
def test_mutants(seed):
    mutants_agree(judged(bases, 250, seed), f"mutants, seed {seed}", 0.005)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_many_mutants(seed):
    mutants_agree(judged(bases, 2_500, seed), f"mutants, seed {seed}", 0.005)


def test_no_sound_original_is_refused():
    for plan, program, reference in bases():
        assert check(program, reference).ok, plan
        assert compare(program, reference).outcome is Outcome.EQUAL, plan


def test_an_unrolled_program_is_the_same_program():
    for plan, program, reference in bases():
        if program.loops["blocks"] == 2:
            unrolled = attrs.evolve(program, body=tuple(flatten(program)))
            assert check(unrolled, reference).ok and compare(unrolled, reference).outcome is Outcome.EQUAL, plan


def replaced(program, old, new):
    """The program with the event that `old` picks changed by `new`."""

    def walk(items):
        return tuple(
            attrs.evolve(i, body=walk(i.body)) if isinstance(i, Rep) else new(i) if old(i) else i for i in items
        )

    return attrs.evolve(program, body=walk(program.body))


def test_a_fixed_layer_is_not_the_last_one():
    """What the checker knows after three trips of a loop must hold after five: layer 3 is the end of three only."""
    program, reference = both(ddp(mesh(dp=2)), deep())

    def reads_the_end(event: Event) -> bool:
        return event.op is Op.FORWARD and isinstance(event.ins[0].index[:1] and event.ins[0].index[0], End)

    def reads_three(event: Event) -> Event:
        return attrs.evolve(event, ins=(attrs.evolve(event.ins[0], index=(3,)), *event.ins[1:]))

    wrong = replaced(program, reads_the_end, reads_three)
    assert wrong != program and compare(wrong, reference).outcome is Outcome.DIFFERS
    assert not check(wrong, reference).ok


def test_what_takes_more_trips_to_arrive_than_are_looked_at():
    """A gradient counted a second time three microbatches later: nothing shows in the first three."""
    program, reference = both(ddp(mesh(dp=2), microbatches=5))
    delay = [Buf("g", "embed", (100 + k,)) for k in range(3)]
    zeros = tuple(Event(op=Op.ZERO, outs=(b,), phase=Phase.FORWARD, dtype="fp64") for b in delay)
    dw = Buf("dw", "embed")

    def event(op: Op, source: Buf, target: Buf) -> Event:
        return Event(op=op, ins=(source,), outs=(target,), phase=Phase.BACKWARD, dtype="fp64")

    line = (
        event(Op.ACC, delay[2], Buf("g", "embed")),
        event(Op.COPY, delay[1], delay[2]),
        event(Op.COPY, delay[0], delay[1]),
        event(Op.COPY, dw, delay[0]),
    )
    body = tuple(
        attrs.evolve(i, body=(*i.body, *line)) if isinstance(i, Rep) and i.loop == "microbatch" else i
        for i in program.body
    )
    wrong = attrs.evolve(program, body=(*zeros, *body))
    assert compare(wrong, reference).outcome is Outcome.DIFFERS
    assert not check(wrong, reference).ok


def test_an_index_outside_its_loop_is_refused_and_has_no_denotation():
    program, reference = both(ddp(mesh(dp=2)))
    stray = Event(
        op=Op.COPY,
        ins=(Buf("w", "blocks", (Var("blocks"),)),),
        outs=(Buf("w", "embed"),),
        phase=Phase.UPDATE,
        dtype="fp64",
    )
    wrong = attrs.evolve(program, body=(*program.body, stray))
    assert compare(wrong, reference).outcome is Outcome.NO_DENOTATION
    assert not check(wrong, reference).ok
