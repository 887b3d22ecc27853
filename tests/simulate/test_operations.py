"""Gradients of every kind of operation inside a layer against finite differences, on whole operands and on pieces."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from placelang.program.event import Compute, Event, Label, Op
from placelang.simulate import operations
from placelang.simulate.arrays import NoDenotation, Ranks, draw, piece, whole_numbers
from placelang.simulate.compute import loss
from placelang.simulate.forms import Form, Held
from placelang.simulate.machine import Machine
from placelang.simulate.sizes import HEAD
from tests.simulate.opened import alone, read, small
from tests.simulate.strategies import mesh

B, S, HIDDEN, FFN, VOCAB = 2, 4, 3, 5, 7
ONE, TWO = Ranks.of(mesh(x=1)), Ranks.of(mesh(x=2))
STEP = 1e-6


@attrs.frozen
class Case:
    """`shapes` of the whole operands, activations first; `split`: of which operand x splits which dim, on rank 1."""

    compute: Compute
    shapes: tuple[tuple[int, ...], ...]
    split: tuple[tuple[int, int], ...] = ()
    tokens: bool = False

    def operands(self, bump: tuple[int, np.ndarray] | None = None) -> tuple[list[Held], list[Held]]:
        held = []
        for k, shape in enumerate(self.shapes):
            array = draw(("operand", k), shape)
            if self.tokens and k == 0:
                array = whole_numbers(("tokens",), shape, VOCAB)
            layout = tuple(("x", Label(str(dim))) for operand, dim in self.split if operand == k)
            array = piece(array, layout, TWO, 1, ())
            if bump is not None and bump[0] == k:
                array = array + bump[1]
            form = Form(layout, tuple((str(i), n) for i, n in enumerate(shape)))
            held.append(Held(array, form, TWO if self.split else ONE, 1 if self.split else 0))
        many = self.compute.activations
        return held[:many], held[many:]

    def value(self, bump: tuple[int, np.ndarray] | None = None) -> float:
        y = operations.forward(self.compute, *self.operands(bump))
        return float((y * self.dy(y.shape)).sum())

    def dy(self, shape: tuple[int, ...]) -> np.ndarray:
        return draw(("dy",), shape)


def op(kind: str, letters: str, out: str, activations: int = 1) -> Compute:
    return Compute(kind, tuple(letters.split(",")), out, activations=activations)


X, ATTENDED = (B, S, HIDDEN), (B, S, 4 * HEAD)
KEYS = (B, S, 2 * HEAD)
ATTENTION = op("attention", "bsa,bta,bta", "bsa", 3)
CASES = {
    "linear": Case(op("linear", "bsh,fh", "bsf"), (X, (FFN, HIDDEN))),
    "linear, columns": Case(op("linear", "bsh,fh", "bsf"), (X, (FFN, HIDDEN)), ((1, 0),)),
    "linear, rows": Case(op("linear", "bsf,hf", "bsh"), ((B, S, FFN), (HIDDEN, FFN)), ((0, 2), (1, 1))),
    "bias": Case(op("bias", "bsf,f", "bsf"), ((B, S, FFN), (FFN,))),
    "add": Case(op("add", "bsh,bsh", "bsh", 2), (X, X)),
    "activation": Case(op("mul", "bsf", "bsf"), ((B, S, FFN),)),
    "gated": Case(op("mul", "bsf,bsf", "bsf", 2), ((B, S, FFN), (B, S, FFN))),
    "norm": Case(op("norm", "bsh,h", "bsh"), (X, (HIDDEN,))),
    "norm with a shift": Case(op("norm", "bsh,h,h", "bsh"), (X, (HIDDEN,), (HIDDEN,))),
    "norm without parameters": Case(op("norm", "bsh", "bsh"), (X,)),
    "norm of heads": Case(op("norm", "bsa,d", "bsa"), (ATTENDED, (HEAD,))),
    "norm of some heads": Case(op("norm", "bsa,d", "bsa"), (ATTENDED, (HEAD,)), ((0, 2),)),
    "tokens": Case(op("embed", "bs,vh", "bsh"), ((B, S), (VOCAB, HIDDEN)), tokens=True),
    "tokens, some rows": Case(op("embed", "bs,vh", "bsh"), ((B, S), (VOCAB, HIDDEN)), ((1, 0),), tokens=True),
    "positions": Case(op("embed", "bs,ph", "bsh"), ((B, S), (S + 1, HIDDEN)), tokens=True),
    "positions of a part": Case(op("embed", "bs,ph", "bsh"), ((B, S), (S + 1, HIDDEN)), ((0, 1),), tokens=True),
    "attention": Case(ATTENTION, (ATTENDED, ATTENDED, ATTENDED)),
    "attention, grouped": Case(ATTENTION, (ATTENDED, KEYS, KEYS)),
    "attention, some heads": Case(ATTENTION, (ATTENDED, KEYS, KEYS), ((0, 2), (1, 2), (2, 2))),
    "attention, some query heads": Case(ATTENTION, (ATTENDED, KEYS, KEYS), ((0, 2),)),
    "attention, some queries": Case(ATTENTION, (ATTENDED, KEYS, KEYS), ((0, 1),)),
    "attention, fused": Case(op("attention", "bsa", "bsa"), ((B, S, 3 * 4 * HEAD),)),
    "attention, some fused heads": Case(op("attention", "bsa", "bsa"), ((B, S, 3 * 4 * HEAD),), ((0, 2),)),
}


def numeric(case: Case, k: int) -> np.ndarray:
    xs, ws = case.operands()
    shape = (*xs, *ws)[k].array.shape
    found = np.zeros(shape)
    for where in np.ndindex(shape):
        bump = np.zeros(shape)
        bump[where] = STEP
        found[where] = (case.value((k, bump)) - case.value((k, -bump))) / (2 * STEP)
    return found


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_forward(name):
    case = CASES[name]
    xs, ws = case.operands()
    dy = case.dy(operations.forward(case.compute, xs, ws).shape)
    for k in range(len(xs)):
        if not case.tokens:
            dx = operations.backward(attrs.evolve(case.compute, wrt=k), dy, xs, ws)
            assert np.abs(dx - numeric(case, k)).max() < 1e-7 and np.abs(dx).max() > 0
    made = operations.wgrad(case.compute, dy, xs, ws)
    assert len(made) == len(ws)
    for k, dw in enumerate(made):
        assert np.abs(dw - numeric(case, len(xs) + k)).max() < 1e-7 and np.abs(dw).max() > 0


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_linear_in_what_comes_back(name):
    case = CASES[name]
    xs, ws = case.operands()
    dy = case.dy(operations.forward(case.compute, xs, ws).shape)
    if not case.tokens:
        one, three = (operations.backward(case.compute, k * dy, xs, ws) for k in (1, 3))
        assert np.allclose(3 * one, three)
    for one, three in zip(*(operations.wgrad(case.compute, k * dy, xs, ws) for k in (1, 3)), strict=True):
        assert np.allclose(3 * one, three)


def test_a_part_of_the_queries_attends_as_it_does_in_the_whole():
    whole = operations.forward(ATTENTION, *CASES["attention, grouped"].operands())
    for dim, name in ((1, "attention, some queries"), (2, "attention, some query heads"), (2, "attention, some heads")):
        part = operations.forward(ATTENTION, *CASES[name].operands())
        assert np.allclose(part, np.split(whole, 2, axis=dim)[1])


def test_no_position_sees_a_later_one():
    case = CASES["attention"]
    before = operations.forward(ATTENTION, *case.operands())
    bump = np.zeros(ATTENDED)
    bump[:, -1] = 1.0
    for k in (1, 2):
        after = operations.forward(ATTENTION, *case.operands((k, bump)))
        assert np.allclose(before[:, :-1], after[:, :-1]) and not np.allclose(before[:, -1], after[:, -1])


NO_DENOTATION = {
    "half a head": Case(ATTENTION, (ATTENDED, (B, S, HEAD), (B, S, HEAD)), ((1, 2), (2, 2))),
    "keys of other heads": Case(ATTENTION, (ATTENDED, KEYS, KEYS), ((1, 2), (2, 2))),
    "keys without values": Case(ATTENTION, (ATTENDED, KEYS, ATTENDED)),
    "rows that do not meet": Case(op("linear", "bsf,hf", "bsh"), ((B, S, FFN), (HIDDEN, FFN)), ((1, 1),)),
    "an unknown kind": Case(op("pool", "bsh", "bsh"), (X,)),
    "a norm of two tensors too many": Case(op("norm", "bsh,h,h,h", "bsh"), (X, (HIDDEN,), (HIDDEN,), (HIDDEN,))),
    "vectors for tokens": Case(op("embed", "bs,vh", "bsh"), (X, (VOCAB, HIDDEN))),
    "tokens that no table has": Case(op("embed", "bs,vh", "bsh"), ((B, S), (2, HIDDEN)), tokens=True),
}


@pytest.mark.parametrize("name", NO_DENOTATION)
def test_what_does_not_fit_has_no_denotation(name):
    case = NO_DENOTATION[name]
    with pytest.raises(NoDenotation):
        operations.forward(case.compute, *case.operands())


def test_tokens_have_no_gradient():
    case = CASES["tokens"]
    with pytest.raises(NoDenotation):
        operations.backward(case.compute, draw(("dy",), X), *case.operands())


def ranks_of_a_vocabulary(logits: np.ndarray, axes: tuple[str, ...]) -> list[np.ndarray]:
    """The loss's gradient on each rank of x, that splits 7 logits into 4 and 3 where `axes` says so."""
    model = small("gqa")
    plan = read("mesh (dp = 2)\ngrads: all_reduce(dp)\n", model)
    assert plan is not None
    program = attrs.evolve(alone(plan, model), mesh=mesh(x=2), tokens=())
    machine = Machine(program, seed=0, batch=B)
    machine.load()
    event = next(e for e in _events(program.body) if e.op is Op.LOSS)
    layout = (("x", Label("vocab")),) if axes else ()
    form = Form(layout, (("batch", B), ("seq", logits.shape[1]), ("vocab", VOCAB)))
    machine.forms[event.ins[0]] = (form,)
    target = attrs.evolve(event.ins[1], index=(0,))
    for rank in range(2):
        machine.put(rank, event.ins[0], {"": piece(logits, layout, machine.ranks, rank, form.names)})
    loss(machine, attrs.evolve(event, axes=axes, ins=(event.ins[0], target)))
    return [machine.activation(rank, event.outs[0]) for rank in range(2)]


def _events(items):
    for item in items:
        yield from [item] if isinstance(item, Event) else _events(item.body)


def test_a_split_vocabulary_gives_the_parts_of_the_whole_gradient():
    logits = draw(("logits",), (B, 8, VOCAB))
    whole = ranks_of_a_vocabulary(logits, ())[0]
    assert np.allclose(np.concatenate(ranks_of_a_vocabulary(logits, ("x",)), axis=2), whole)
    assert np.allclose(whole.sum(axis=2), 0)


def test_the_loss_is_cross_entropy():
    logits = draw(("logits",), (B, 8, VOCAB))
    model = small("gqa")
    plan = read("mesh (dp = 2)\ngrads: all_reduce(dp)\n", model)
    assert plan is not None
    machine = Machine(alone(plan, model), seed=0, batch=B)
    machine.load()
    data = next(v for b, v in machine.memory[0].items() if b.kind == "targets")
    target, weight = data["target"].astype(int), data["weight"]

    def value(z):
        log = z - np.log(np.exp(z).sum(axis=2, keepdims=True))
        return -float((weight * np.take_along_axis(log, target[..., None], 2)[..., 0]).sum()) / machine.total

    dy = ranks_of_a_vocabulary(logits, ())[0]
    for where in list(np.ndindex(logits.shape))[::5]:
        bump = np.zeros(logits.shape)
        bump[where] = STEP
        assert dy[where] == pytest.approx((value(logits + bump) - value(logits - bump)) / (2 * STEP), abs=1e-7)
