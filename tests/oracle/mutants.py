"""Programs with one to three events of a sound program changed: what no text denotes, and a checker must judge.

Half of them change the program as it is written, loops and all; half one event of the unrolled program. Not for: whole
strategies (`families`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice
from random import Random

import attrs

from placelang.plan.dtypes import PRECISIONS
from placelang.plan.mesh import Mesh
from placelang.plan.plan import Plan
from placelang.plan.steps import Keep, When
from placelang.program.event import FIRST, LAST, At, Buf, Compute, End, Event, Label, Op, Var
from placelang.program.program import Item, Program, Rep, flatten, sample
from tests.oracle import splits, stages
from tests.simulate.opened import alone, opened, small
from tests.simulate.strategies import both, ddp, deep, hsdp, mesh, tiny, zero1, zero2, zero3

Path = tuple[int, ...]


@attrs.frozen
class Mutant:
    """`original` is the sound program of `plan`; `said` tells what was changed."""

    program: Program
    original: Program
    reference: Program
    plan: Plan
    said: tuple[str, ...]
    altered: tuple[tuple[Event, Event], ...] = attrs.field(default=(), repr=False)  # before and after

    def __str__(self) -> str:
        return f"{self.plan.mesh.names}{[a.size for a in self.plan.mesh.axes]} {'; '.join(self.said)}"


@cache
def bases() -> tuple[tuple[Plan, Program, Program], ...]:
    """Sound strategies with their programs and references: flat meshes and two axes, tied and not, deep and shallow."""
    each = When.MICROBATCH
    small: tuple[Mesh, ...] = (mesh(dp=2), mesh(dp=3), mesh(a=2, b=2))
    plans = [make(m) for m in small for make in (ddp, zero1, zero2, zero3)]
    plans += [hsdp(mesh(a=2, b=2)), hsdp(mesh(a=2, b=3), each), hsdp(mesh(a=1, b=2))]
    plans += [zero3(mesh(dp=2), Keep.STEP), zero3(mesh(dp=2), Keep.MICROBATCH, each), ddp(mesh(dp=2), each)]
    plans += [zero1(mesh(dp=2), precision=PRECISIONS["bf16"]), zero3(mesh(dp=3), precision=PRECISIONS["bf16"])]
    plans += [
        zero2(mesh(dp=2), each, optimizer="sgd_momentum"),
        zero3(mesh(dp=2), optimizer="sgd_momentum", microbatches=1),
    ]
    made = [(p, *both(p, model)) for p in plans for model in (tiny(), tiny(tied=False))]
    long = [ddp(mesh(dp=2), microbatches=4), zero3(mesh(dp=2), microbatches=5), zero2(mesh(dp=2), each, microbatches=4)]
    return (*made, *((p, *both(p, deep())) for p in long))


@cache
def opened_bases() -> tuple[tuple[Plan, Program, Program], ...]:
    """Sound strategies that split layers inside."""
    found = []
    for recipe in islice(splits.bases(), 0, None, 5):
        model, plan = small(recipe.model), recipe.plan()
        if plan is not None:
            found.append((plan, opened(plan, model), alone(plan, model)))
    return tuple(found)


@cache
def staged_bases() -> tuple[tuple[Plan, Program, Program], ...]:
    """Sound strategies over pipeline stages, of few microbatches so that a sample of their trips can hold all."""
    found = []
    for line in stages.bases():
        plan, model = line.plan(), line.deep()
        if plan is not None:
            short = attrs.evolve(plan, train=attrs.evolve(plan.train, microbatches=2))
            found.append((short, stages.lowered(short, model), stages.alone(short, model)))
    return tuple(found)


Bases = Callable[[], tuple[tuple[Plan, Program, Program], ...]]


def mutant(random: Random, unrolled: bool, sound: Bases) -> Mutant:
    """A sound program with one to three changes."""
    some = (
        [s for s in sound() if not unrolled or sample(s[1]).trips == s[1].loops] if sound is staged_bases else sound()
    )
    plan, original, reference = random.choice(some)
    program = attrs.evolve(original, body=tuple(flatten(original))) if unrolled else original
    said: list[str] = []
    altered: list[tuple[Event, Event]] = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        program = _change(program, random, said, altered)
    return Mutant(program, original, reference, plan, tuple(said), tuple(altered))


def reason(subject: object) -> str | None:
    """Why a mutant that is refused is equal all the same; None of what nobody has explained."""
    assert isinstance(subject, Mutant)
    sizes = {a.name: a.size for a in subject.plan.mesh.axes}
    for new, old in zip(subject.program.setup, subject.original.setup, strict=True):
        if new.layout != old.layout:
            if [p for p in new.layout if sizes[p[0]] != 1] == [p for p in old.layout if sizes[p[0]] != 1]:
                return "an axis of one rank splits nothing"
            if new.outs[0].kind == "o":
                return "moments start as zero, whichever rows they are of"
    if any("0/contiguous" in said for said in subject.said):
        return "both partitions cut these rows alike"
    if any(_inert(old, new) for old, new in subject.altered):
        return "an operation reads no value of it, or says the same in other words"
    if any(old.op is new.op is Op.ZERO and old.layout != new.layout for old, new in subject.altered):
        return "zeros are zeros, whichever rows they are of"
    if any("embed.positions" in said for said in subject.said):
        return "positions are the same in every microbatch"
    return None


_SHAPES_ALONE = {
    (Op.WGRAD, "linear"): {2},
    (Op.WGRAD, "norm"): {2},
    (Op.WGRAD, "embed"): {2},
    (Op.WGRAD, "bias"): {1, 2},
    (Op.BACKWARD, "linear"): {1},
    (Op.BACKWARD, "bias"): {1, 2},
    (Op.BACKWARD, "add"): {1},
}
"""The operands of which an operation reads the shape and no value."""


def _inert(old: Event, new: Event) -> bool:
    if old.compute is None or new.compute is None:
        return False
    if old.compute != new.compute and old.compute.kind == new.compute.kind:
        return True
    idle = _SHAPES_ALONE.get((old.op, old.compute.kind), set())
    if old.op is Op.FORWARD and old.compute.kind in ("add", "bias") and old.outs[:1] == new.outs[:1]:
        return old.ins == new.ins  # of their stash only the shape is read, and an earlier microbatch left one
    if len(old.ins) != len(new.ins) or old.outs != new.outs:
        return False
    changed = {k for k, (a, b) in enumerate(zip(old.ins, new.ins, strict=True)) if a != b}
    return bool(changed) and changed <= idle


# --- programs as lists of places --------------------------------------------------------------------------------------


def _paths(items: tuple[Item, ...], at: Path = ()) -> list[Path]:
    found: list[Path] = []
    for k, item in enumerate(items):
        found += [(*at, k)] if isinstance(item, Event) else _paths(item.body, (*at, k))
    return found


def _get(items: tuple[Item, ...], path: Path) -> Event:
    item = items[path[0]]
    if isinstance(item, Rep):
        return _get(item.body, path[1:])
    return item


def _put(items: tuple[Item, ...], path: Path, new: tuple[Event, ...]) -> tuple[Item, ...]:
    """The items with the event at `path` replaced."""
    k = path[0]
    if len(path) == 1:
        return (*items[:k], *new, *items[k + 1 :])
    rep = items[k]
    assert isinstance(rep, Rep)
    return (*items[:k], attrs.evolve(rep, body=_put(rep.body, path[1:], new)), *items[k + 1 :])


def _change(program: Program, random: Random, said: list[str], altered: list[tuple[Event, Event]]) -> Program:
    if random.random() < 0.05 and program.setup:
        k = random.randrange(len(program.setup))
        event = _layout(program.setup[k], program, random)
        said.append(f"setup: {_show(program.setup[k])} -> {_show(event)}")
        return attrs.evolve(program, setup=(*program.setup[:k], event, *program.setup[k + 1 :]))
    paths = _paths(program.body)
    # Transitions and the update are few and matter most: choose an op first, then an event.
    ops = sorted({_get(program.body, p).op.value for p in paths} - {"free"})
    op = random.choice(ops)
    path = random.choice([p for p in paths if _get(program.body, p).op.value == op])
    event = _get(program.body, path)
    way = random.choice(("delete", "duplicate", "move", "alter", "alter", "alter", "alter"))
    if way == "delete":
        said.append(f"delete {_show(event)}")
        return attrs.evolve(program, body=_put(program.body, path, ()))
    if way in {"duplicate", "move"}:
        target = random.choice(_near(paths, path, random))
        other = _get(program.body, target)
        said.append(f"{way} {_show(event)} to {_show(other)}")
        new = (event, other) if random.random() < 0.5 else (other, event)
        if way == "move" and target == path:
            return program
        if way == "move":  # leave a hole first, so that paths stay valid
            hole = Event(op=Op.FREE, phase=event.phase, dtype=event.dtype)
            body = _put(program.body, path, (hole,))
            return attrs.evolve(program, body=_put(body, target, new))
        return attrs.evolve(program, body=_put(program.body, target, (event, event) if target == path else new))
    new_event = random.choice(ALTERATIONS)(event, program, random)
    said.append(f"{_show(event)} -> {_show(new_event)}")
    altered.append((event, new_event))
    return attrs.evolve(program, body=_put(program.body, path, (new_event,)))


def _near(paths: list[Path], path: Path, random: Random) -> list[Path]:
    """Places to move to: close by more often than anywhere."""
    k = paths.index(path)
    return paths if random.random() < 0.3 else paths[max(0, k - 4) : k + 5]


def _show(event: Event) -> str:
    label = f" {event.label.dim}/{event.label.partition}" if event.label else ""
    ins, outs = (", ".join(map(str, b)) for b in (event.ins, event.outs))
    mean = " mean" if event.mean else ""
    site = f" @{event.site}" if event.site else ""
    layout = f" {[a for a, _ in event.layout]}" if event.layout else ""
    compute = f" {event.compute}" if event.compute and event.compute.kind != "opaque" else ""
    return f"{event.op.value}{mean}{site}{compute}({ins} -> {outs}){list(event.axes)}{label}{layout}"


# --- ways to alter one event ------------------------------------------------------------------------------------------


def _buffers(program: Program) -> list[Buf]:
    return sorted(
        {b for p in _paths(program.body) for e in [_get(program.body, p)] for b in (*e.ins, *e.outs)}, key=str
    )


def _other(buf: Buf, program: Program, random: Random) -> Buf:
    """A neighbour: another index, another kind of the same group, another group, or any buffer."""
    known = _buffers(program)
    same_kind = [b for b in known if b != buf and b.kind == buf.kind]
    same_group = [b for b in known if b != buf and b.of == buf.of]
    if buf.index and random.random() < 0.35:
        i = buf.index[0]
        shifted = (
            i + random.choice((-1, 1))
            if isinstance(i, int)
            else attrs.evolve(i, offset=i.offset + random.choice((-1, 1)))
        )
        fixed = random.choice((0, 1, 2, 3, 4))
        return attrs.evolve(buf, index=(random.choice((shifted, shifted, fixed)),))
    pool = random.choice((same_kind, same_group, known))
    return random.choice(pool or known)


def _rewire(event: Event, program: Program, random: Random) -> Event:
    bufs = [("ins", k) for k in range(len(event.ins))] + [("outs", k) for k in range(len(event.outs))]
    if not bufs:
        return event
    side, k = random.choice(bufs)
    these: list[Buf] = list(getattr(event, side))
    these[k] = _other(these[k], program, random)
    return attrs.evolve(event, **{side: tuple(these)})


def _axes(event: Event, program: Program, random: Random) -> Event:
    names = program.mesh.names
    choices = [(), *((n,) for n in names), names, names[::-1]]
    return attrs.evolve(event, axes=random.choice(choices)) if event.axes else _rewire(event, program, random)


def _swap(event: Event, program: Program, random: Random) -> Event:
    """Two operands or two axes change places."""
    if len(event.axes) > 1 and random.random() < 0.5:
        return attrs.evolve(event, axes=event.axes[::-1])
    side = random.choice(("ins", "outs"))
    these: list[Buf] = list(getattr(event, side))
    random.shuffle(these)
    return attrs.evolve(event, **{side: tuple(these)})


def _mean(event: Event, program: Program, random: Random) -> Event:
    reduces = event.op in {Op.ALL_REDUCE, Op.REDUCE_SCATTER}
    if event.power:
        return attrs.evolve(event, power=random.choice((-1, 0, 1, 2)))
    if event.largest and random.random() < 0.7:
        return attrs.evolve(event, largest=False)
    return attrs.evolve(event, mean=not event.mean) if reduces else _rewire(event, program, random)


def _label(event: Event, program: Program, random: Random) -> Event:
    if event.label is None:
        return _op(event, program, random)
    labels = (Label("1"), Label("0", "contiguous"), Label("batch"), Label("flat"), Label("0"), None)
    if event.label.partition == "contiguous":  # of activations
        labels = tuple(Label(dim, "contiguous") for dim in ("batch", "seq", "hidden", "heads", "ffn", "vocab"))
        if event.to is not None and random.random() < 0.5:
            return attrs.evolve(event, to=random.choice(labels))
    return attrs.evolve(event, label=random.choice(labels))


def _layout(event: Event, program: Program, random: Random) -> Event:
    if event.op not in {Op.INIT, Op.ZERO}:
        return _rewire(event, program, random)
    names = random.choice([(), *((n,) for n in program.mesh.names), program.mesh.names, program.mesh.names[::-1]])
    return attrs.evolve(event, layout=tuple((n, Label("0")) for n in names))


def _op(event: Event, program: Program, random: Random) -> Event:
    """Another op on the same operands."""
    swaps = {
        Op.ALL_REDUCE: (Op.REDUCE_SCATTER, Op.COPY),
        Op.REDUCE_SCATTER: (Op.ALL_REDUCE, Op.SLICE, Op.COPY),
        Op.ALL_GATHER: (Op.COPY, Op.ALL_REDUCE),
        Op.SLICE: (Op.REDUCE_SCATTER, Op.COPY),
        Op.ACC: (Op.COPY,),
        Op.COPY: (Op.ACC,),
        Op.BACKWARD: (Op.WGRAD,),
        Op.ADD: (Op.COPY,),
        Op.ALL_TO_ALL: (Op.ALL_GATHER, Op.SLICE),
        Op.UNSLICE: (Op.ALL_GATHER, Op.COPY),
        Op.UNSCALE: (Op.COPY,),
        Op.SQNORM: (Op.FINITE,),
        Op.FINITE: (Op.SQNORM,),
        Op.CLIP: (Op.COPY,),
    }
    if event.op not in swaps:
        return _rewire(event, program, random)
    return attrs.evolve(event, op=random.choice(swaps[event.op]), label=event.label or Label("0"))


def _insert_axes(event: Event, program: Program, random: Random) -> Event:
    """A copy becomes a collective over some axes: what was summed is summed again, what is whole is cut."""
    if event.op is not Op.COPY:
        return _op(event, program, random)
    op = random.choice((Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.ALL_GATHER, Op.SLICE))
    return attrs.evolve(event, op=op, axes=(random.choice(program.mesh.names),), label=Label("0"))


def _site(event: Event, program: Program, random: Random) -> Event:
    if not event.site:
        return _rewire(event, program, random)
    if event.compute is not None and event.compute.kind != "opaque":
        return attrs.evolve(event, compute=_compute(event.compute, random))
    return attrs.evolve(event, site=random.choice([g.name for g in program.groups]))


def _compute(compute: Compute, random: Random) -> Compute:
    """Another operation on the same operands: its gradient for another, other letters, another kind."""
    way = random.choice(("wrt", "letters", "kind", "whole", "shares", "out"))
    if way == "wrt":
        return attrs.evolve(compute, wrt=random.randrange(3))
    if way == "letters":
        letters = list(compute.letters)
        random.shuffle(letters)
        return attrs.evolve(compute, letters=tuple(letters))
    if way == "kind":
        return attrs.evolve(compute, kind=random.choice(("linear", "bias", "add", "mul", "norm", "attention", "embed")))
    if way == "out":
        return attrs.evolve(compute, out=random.choice(compute.letters))
    return attrs.evolve(compute, **{way: "" if way == "whole" else ()})


def _operands(event: Event, program: Program, random: Random) -> Event:
    """One operand less or one more."""
    side = random.choice(("ins", "outs"))
    these: tuple[Buf, ...] = getattr(event, side)
    if these and random.random() < 0.6:
        k = random.randrange(len(these))
        return attrs.evolve(event, **{side: (*these[:k], *these[k + 1 :])})
    return attrs.evolve(event, **{side: (*these, random.choice(_buffers(program)))})


Alteration = Callable[[Event, Program, Random], Event]


def _stage(event: Event, program: Program, random: Random) -> Event:
    """Another stage does it, or gets it; or all do."""
    if program.stages is None:
        return _rewire(event, program, random)
    loops = [loop for loop, _ in program.stages.runs]
    places = [FIRST, LAST, *program.stages.coordinates]
    places += [At(loop, i) for loop in loops for i in (0, 1, Var(loop), Var(loop, 1), Var(loop, -1), End(loop, -1))]
    if event.op is Op.SEND and random.random() < 0.5:
        return attrs.evolve(event, target=random.choice(places))
    where = random.choice(((), (FIRST, LAST), (random.choice(places),), (*event.where, random.choice(places))))
    return attrs.evolve(event, where=where)


ALTERATIONS: tuple[Alteration, ...] = (
    _rewire,
    _rewire,
    _rewire,
    _axes,
    _swap,
    _mean,
    _label,
    _layout,
    _op,
    _insert_axes,
    _site,
    _operands,
    _stage,
    _stage,
)
