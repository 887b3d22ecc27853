"""Programs that no plan makes: dead events, stale and missing buffers, and random damage to sound programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import attrs
import pytest

from placelang.check import Checked, check, prune, reference
from placelang.diagnostics.codes import Verdict
from placelang.program.event import COLLECTIVES, Buf, Event, Label, Op, Phase
from placelang.program.program import LIMIT, Item, Program, Rep, flatten, sample
from tests.simulate.strategies import both, ddp, hsdp, mesh, zero1, zero2, zero3

Edit = Callable[[Event], tuple[Event, ...]]


def rewritten(items: tuple[Item, ...], edit: Edit) -> tuple[Item, ...]:
    """Each event replaced by what `edit` gives for it."""
    out: list[Item] = []
    for item in items:
        out += edit(item) if isinstance(item, Event) else [attrs.evolve(item, body=rewritten(item.body, edit))]
    return tuple(out)


def events(items: tuple[Item, ...]) -> Iterator[Event]:
    for item in items:
        if isinstance(item, Event):
            yield item
        else:
            yield from events(item.body)


def damaged(program: Program, edit: Edit) -> Program:
    return attrs.evolve(program, body=rewritten(program.body, edit))


def judged(pair: tuple[Program, Program], edit: Edit) -> Checked:
    return check(damaged(pair[0], edit), pair[1])


def codes(checked: Checked) -> set[str]:
    return {d.code for d in checked.diagnostics}


def without(op: Op, **having: object) -> Edit:
    def edit(e: Event) -> tuple[Event, ...]:
        return () if e.op is op and all(getattr(e, k) == v for k, v in having.items()) else (e,)

    return edit


def test_a_collective_that_nobody_reads_is_removed_and_reported() -> None:
    program, one = both(ddp(mesh(dp=2)))

    def twice(e: Event) -> tuple[Event, ...]:
        spare = attrs.evolve(e, outs=tuple(attrs.evolve(b, kind="spare") for b in e.outs))
        return (e, spare) if e.op is Op.ALL_REDUCE else (e,)

    checked = judged((program, one), twice)
    assert (checked.verdict, checked.ok, codes(checked)) == (Verdict.NO_BENEFIT, True, {"W401"})
    assert checked.program == program


def test_a_sound_program_has_no_dead_events() -> None:
    for plan in (ddp(mesh(dp=2)), zero1(mesh(dp=2)), zero2(mesh(dp=2)), zero3(mesh(dp=2)), hsdp(mesh(a=2, b=2))):
        program, _ = both(plan)
        assert prune(program).program is program


def test_a_release_of_what_is_never_made_goes_too() -> None:
    program, one = both(zero3(mesh(dp=2)))
    no_update = damaged(program, without(Op.OPT))
    left = {e.op for e in events(prune(no_update).program.body)}
    assert left == set()
    assert codes(check(no_update, one)) == {"E301"}


def test_forgotten_events() -> None:
    pair = both(zero3(mesh(dp=2)))
    assert codes(judged(pair, without(Op.ZERO))) == {"E308"}
    assert codes(judged(pair, without(Op.FORWARD))) == {"E308"}
    assert codes(judged(pair, without(Op.ALL_GATHER, phase=Phase.BACKWARD))) == {"E308"}
    assert codes(judged(pair, without(Op.FREE))) == set()
    missing = judged(pair, without(Op.ACC))
    assert "E204" in codes(missing)


def test_only_the_last_microbatch_is_kept() -> None:
    pair = both(ddp(mesh(dp=2), microbatches=3))

    def forget(e: Event) -> tuple[Event, ...]:
        return (attrs.evolve(e, op=Op.COPY),) if e.op is Op.ACC and e.outs[0].kind == "g" else (e,)

    (d,) = judged(pair, forget).diagnostics
    assert d.code == "E204" and d.message == "the gradients lack microbatches 0, 1"


def test_one_use_of_a_tied_parameter_is_forgotten() -> None:
    pair = both(ddp(mesh(dp=2)))
    edit = without(Op.ACC, ins=(Buf("dw@head", "embed"),))
    (d,) = judged(pair, edit).diagnostics
    assert (d.code, d.message) == ("E204", "the gradients of `embed` lack the use in `head`")
    assert d.counterexample == "every rank lacks the contribution of microbatch 0 through `head`"


def test_a_contribution_added_twice_on_one_device() -> None:
    pair = both(ddp(mesh()))

    def twice(e: Event) -> tuple[Event, ...]:
        return (e, e) if e.op is Op.ACC and e.outs[0].kind == "g" else (e,)

    (d,) = judged(pair, twice).diagnostics
    assert (d.code, d.counterexample) == ("E202", "every rank holds 2 x each contribution")


def test_a_buffer_read_after_its_release() -> None:
    pair = both(zero3(mesh(dp=2)))

    def early(e: Event) -> tuple[Event, ...]:
        views = tuple(b for b in e.ins if b.kind == "view")
        free = Event(op=Op.FREE, ins=views, phase=e.phase, dtype=e.dtype)
        return (free, e) if e.op is Op.WGRAD else (e,)

    checked = judged(pair, early)
    assert codes(checked) == {"E308"}
    assert "released before" in checked.diagnostics[0].message


def test_a_refreshed_copy_summed_once_more() -> None:
    pair = both(zero1(mesh(dp=2)))

    def again(e: Event) -> tuple[Event, ...]:
        if e.op is not Op.ALL_GATHER or e.phase is not Phase.UPDATE:
            return (e,)
        return (e, attrs.evolve(e, op=Op.ALL_REDUCE, ins=e.outs, label=None))

    (d,) = judged(pair, again).diagnostics
    assert (d.code, d.counterexample) == ("E209", "rank (dp=0) holds 2 x the contribution of (dp=1)")


def test_a_neighbours_stash() -> None:
    pair = both(ddp(mesh(dp=2)))

    def cross(e: Event) -> tuple[Event, ...]:
        if e.op is not Op.WGRAD or e.site != "blocks":
            return (e,)
        stash = attrs.evolve(e.ins[1], index=(0,))
        return (attrs.evolve(e, ins=(e.ins[0], stash, *e.ins[2:])),)

    (d,) = judged(pair, cross).diagnostics
    assert d.code == "E209" and "blocks" in d.message


def test_a_state_that_starts_elsewhere() -> None:
    program, one = both(zero3(mesh(dp=2)))
    setup = tuple(attrs.evolve(e, layout=()) if e.outs[0].kind == "w" else e for e in program.setup)
    assert "E303" in codes(check(attrs.evolve(program, setup=setup), one))
    assert codes(check(attrs.evolve(program, setup=program.setup[1:]), one)) == {"E308"}


def test_the_reference_can_be_shared() -> None:
    program, one = both(zero3(mesh(dp=2)))
    shared = reference(one)
    assert check(program, shared).ok and check(program, shared).ok


# --- random damage ---------------------------------------------------------------------------------------------------


def mutant(program: Program, random: Random) -> Program:
    """One to three events deleted, doubled, rewired, re-axed, rescaled or relabelled."""
    every = list(events(program.body))
    bufs = [b for e in every for b in (*e.ins, *e.outs)]
    for _ in range(random.choice((1, 1, 2, 3))):
        target, how = random.choice(every), random.randrange(9)

        def damage(e: Event, target: Event = target, how: int = how) -> tuple[Event, ...]:
            if e is not target:
                return (e,)
            match how:
                case 0:
                    return ()
                case 1:
                    return (e, e)
                case 2 if e.ins:
                    k = random.randrange(len(e.ins))
                    return (attrs.evolve(e, ins=(*e.ins[:k], numbered(random.choice(bufs)), *e.ins[k + 1 :])),)
                case 3 if e.outs:
                    k = random.randrange(len(e.outs))
                    return (attrs.evolve(e, outs=(*e.outs[:k], numbered(random.choice(bufs)), *e.outs[k + 1 :])),)
                case 4:
                    return (attrs.evolve(e, axes=random.choice([(), ("a",), ("b",), ("b", "a"), ("x",), ("a", "a")])),)
                case 5:
                    return (attrs.evolve(e, mean=not e.mean, op=random.choice([*COLLECTIVES, Op.SLICE, Op.COPY])),)
                case 6:
                    return (attrs.evolve(e, label=random.choice([None, Label("1"), Label("flat"), Label("batch")])),)
                case 7:
                    return (attrs.evolve(e, ins=e.ins[::-1], outs=e.outs[1:]),)
                case 8:
                    return (attrs.evolve(e, layout=(("a", Label("0")), ("b", Label("7")))),)
            return (e,)

        program = damaged(program, damage)
    return program


def numbered(buf: Buf) -> Buf:
    """The buffer with numbers only, as its loops may not run where it is read."""
    return attrs.evolve(buf, index=tuple(i if isinstance(i, int) else 0 for i in buf.index))


@pytest.mark.parametrize("seed", range(4))
def test_damage_never_crashes_the_checker(seed: int) -> None:
    random = Random(seed)
    on = mesh(a=2, b=3)
    for plan in (ddp(on), zero1(on), zero2(on), zero3(on), hsdp(on)):
        program, one = both(plan)
        shared = reference(one)
        for _ in range(10):
            checked = check(mutant(program, random), shared)
            assert checked.ok == (checked.verdict in (Verdict.SOUND, Verdict.NO_BENEFIT))
            assert all(d.message for d in checked.diagnostics)


def test_loops_are_looked_at_three_times() -> None:
    program, _ = both(zero3(mesh(dp=2), microbatches=1000))
    assert isinstance(program.body[-1], (Event, Rep))
    assert sum(e.op is Op.LOSS for e in flatten(program, sample(program))) == LIMIT
