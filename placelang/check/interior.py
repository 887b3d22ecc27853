"""Typing what happens inside a layer: one rule for every operation, from the letters of its dims alone.

For each axis the operands together split at most one letter of the operation. Where the result has that letter, the
result is split there; where the letter was summed over, the result is partial over the axis; letters that the
operation needs whole may not be split. Gradients follow from the same letters ("semantics", section 9, Ein, Nonlin,
Lin'). No name of a layer or parameter is looked at. Not for: opaque layers (`rules`).
"""

from __future__ import annotations

from collections.abc import Iterable

from placelang.check.fault import Fault, Ill
from placelang.check.premises import Context, Types, clean, same_layout
from placelang.check.types import COMPLETE, Coefficient, Type, ValueId
from placelang.model.graph import DIMS
from placelang.program.event import Compute, Event, Label, Layout


def _letter(label: Label, letters: str, is_tensor: bool) -> str | None:
    """The operation's letter that a label splits; None where the operand has no such dim."""
    if is_tensor:
        k = int(label.dim) if label.dim.isdecimal() else len(letters)
        return letters[k] if k < len(letters) else None
    return next((letter for letter in letters if DIMS.get(letter) == label.dim), None)


def _splits(event: Event, compute: Compute, operands: Iterable[tuple[int, Layout]]) -> dict[str, str]:
    """The letter that each axis splits, over all operands (-1: the result). Raises Ill where they do not fit."""
    found: dict[str, str] = {}
    by_operand: dict[int, dict[str, str]] = {}
    for k, layout in operands:
        letters = compute.out if k < 0 else compute.letters[k]
        mine = by_operand.setdefault(k, {})
        for axis, label in layout:
            letter = _letter(label, letters, k >= compute.activations)
            tensor = k >= compute.activations
            buf = event.ins[min(max(k, 0), len(event.ins) - 1)]
            if letter is None or letter in compute.whole:
                code = "E302" if tensor else "E306"
                raise Ill(
                    Fault(
                        code=code,
                        rule="Nonlin",
                        event=event,
                        buf=buf,
                        axes=(axis,),
                        label=label,
                        found=layout,
                        detail="x",
                    )
                )
            mine[axis] = letter
            if found.setdefault(axis, letter) != letter:
                code = "E302" if tensor else "E306"
                raise Ill(
                    Fault(
                        code=code, rule="Ein", event=event, buf=buf, axes=(axis,), label=label, found=layout, detail="x"
                    )
                )
    for axis, letter in found.items():
        for k, mine in by_operand.items():
            letters = compute.out if k < 0 else compute.letters[k]
            if letter in letters and axis not in mine and k not in compute.shares:
                buf = event.ins[min(max(k, 0), len(event.ins) - 1)]
                label = Label(DIMS.get(letter, letter), "contiguous")
                raise Ill(Fault(code="E306", rule="Ein", event=event, buf=buf, axes=(axis,), label=label, detail="x"))
    return found


def _takes(event: Event, compute: Compute, operands: int) -> None:
    """(Total): an operation has as many operands as it has letters for."""
    if operands != len(compute.letters_read) or compute.activations > len(compute.letters):
        raise Ill(Fault(code="E306", rule="Total", event=event, detail=f"a {compute.kind} with other operands"))


def _layout(splits: dict[str, str], letters: str, order: Iterable[tuple[str, Label]]) -> Layout:
    """How a result with these letters lies, its axes in the order of the operands'."""
    labels: dict[str, Label] = {}
    for axis, label in order:  # activations come first, and say how
        labels.setdefault(axis, label)
    return tuple(
        (axis, Label(DIMS.get(splits[axis], splits[axis]), labels[axis].partition))
        for axis in labels
        if axis in splits and splits[axis] in letters
    )


def forward(event: Event, compute: Compute, ins: Types, ctx: Context) -> Types:
    """(Ein) and (Nonlin): the result, and a stash that remembers how each operand lay."""
    _takes(event, compute, len(ins))
    values = tuple(clean(event, k, ins) for k in range(len(ins)))
    splits = _splits(event, compute, enumerate(t.layout for t in ins))
    ordered = [pair for t in ins[: compute.activations] for pair in t.layout]
    ordered += [pair for t in ins[compute.activations :] for pair in t.layout]
    layout = _layout(splits, compute.out, _contiguous(ordered, compute.activations, ins))
    summed = tuple(axis for axis, letter in splits.items() if letter not in compute.out)
    made, stash = (ctx.values.made("forward", event.site, k, values, None, compute) for k in range(2))
    out = Type.of(layout, {made: COMPLETE.contracted(summed)})
    kept = tuple(t.layout for t in ins)
    return out, Type(Type.clean(layout, stash).layout, ((stash, COMPLETE),), kept)


def _contiguous(ordered: list[tuple[str, Label]], activations: int, ins: Types) -> list[tuple[str, Label]]:
    """Results split where a tensor was lie in equal runs."""
    theirs = {axis for t in ins[:activations] for axis, _ in t.layout}
    return [(a, label if a in theirs else Label(label.dim, "contiguous")) for a, label in ordered]


def backward(event: Event, compute: Compute, ins: Types, ctx: Context) -> Types:
    """(Lin'): the gradient of one activation, laid as it was; partial over axes that split letters it lacks."""
    dy, stash = ins[0], ins[1]
    others = (clean(event, 1, ins), *(clean(event, k, ins) for k in range(2, len(ins))))
    same_layout(event, ins, 0, 1, "Lin'")
    splits = _kept_splits(event, compute, stash, ins)
    k = compute.wrt
    if k >= compute.activations or k >= len(stash.kept):
        raise Ill(Fault(code="E306", rule="Lin'", event=event, buf=event.ins[1], detail="a gradient of no operand"))
    mine = {axis for axis, _ in stash.kept[k]}
    summed = tuple(axis for axis in splits if axis not in mine)
    return (Type.of(stash.kept[k], _mapped(event, dy, others, summed, k, ctx, None)),)


def wgrad(event: Event, compute: Compute, ins: Types, ctx: Context) -> Types:
    """(Ein): the gradients of the tensors, laid as compute reads them; partial over axes that split what they lack."""
    dy, stash = ins[0], ins[1]
    others = (clean(event, 1, ins), *(clean(event, k, ins) for k in range(2, len(ins))))
    same_layout(event, ins, 0, 1, "Ein")
    splits = _kept_splits(event, compute, stash, ins)
    result: list[Type] = []
    for k in range(2, 2 + len(event.outs)):
        view = ins[k]
        mine = {axis for axis, _ in view.layout}
        summed = tuple(axis for axis in splits if axis not in mine)
        owner = ctx.values[clean(event, k, ins)].owner
        result.append(Type.of(view.layout, _mapped(event, dy, others, summed, 0, ctx, owner)))
    return tuple(result)


def _kept_splits(event: Event, compute: Compute, stash: Type, ins: Types) -> dict[str, str]:
    """What each axis splits, as it was in forward: the stash remembers the operands, the views are read again."""
    _takes(event, compute, compute.activations + len(ins) - 2)
    if len(stash.kept) != len(compute.letters_read):
        raise Ill(Fault(code="E306", rule="Lin'", event=event, buf=event.ins[1], detail="another operation's stash"))
    layouts = [*stash.kept[: compute.activations], *(t.layout for t in ins[2:])]
    return _splits(event, compute, enumerate(layouts))


def _mapped(
    event: Event,
    dy: Type,
    others: tuple[ValueId, ...],
    summed: tuple[str, ...],
    k: int,
    ctx: Context,
    owner: str | None,
) -> dict[ValueId, Coefficient]:
    """Every summand of dy goes through by itself."""
    op = event.op.value
    return {
        ctx.values.made(op, event.site, k, (v, *others), owner, event.compute): c.contracted(summed)
        for v, c in dy.terms
    }


def loss(event: Event, ins: Types, ctx: Context) -> Types:
    """(Nonlin): tokenwise, divided by the token count of the whole batch. Where axes split the vocabulary, the loss
    reduces its maximum, sum and target over them, and must name them."""
    logits, targets = clean(event, 0, ins), clean(event, 1, ins)
    vocab = tuple(axis for axis, label in ins[0].layout if label.dim == "vocab")
    if set(vocab) != {a for a in event.axes if ctx.sizes.numbers.get(a, 1) != 1}:
        raise Ill(Fault(code="E306", rule="Nonlin", event=event, buf=event.ins[0], axes=vocab, found=ins[0].layout))
    rows = tuple(pair for pair in ins[0].layout if pair[0] not in vocab)
    if rows != ins[1].layout:
        raise Ill(Fault(code="E306", rule="Nonlin", event=event, buf=event.ins[0], found=rows, wanted=ins[1].layout))
    scaled = COMPLETE.scaled(ctx.sizes.scale**event.power)
    return (Type.of(ins[0].layout, {ctx.values.made("loss", "", 0, (logits, targets)): scaled}),)


def add(event: Event, ins: Types, ctx: Context) -> Types:
    """(Add): of equal layouts; summands with equal coefficients become one value, their sum."""
    for k in range(1, len(ins)):
        same_layout(event, ins, 0, k, "Add")
    if any(ctx.values[v].op == "finite" for type_ in ins for v, _ in type_.terms):
        raise Ill(Fault(code="E306", rule="Add", event=event, buf=event.ins[0], detail="a sum of flags"))
    by_coefficient: dict[Coefficient, list[ValueId]] = {}
    for type_ in ins:
        for v, c in type_.terms:
            by_coefficient.setdefault(c, []).append(v)
    terms: dict[ValueId, Coefficient] = {}
    for c, summands in by_coefficient.items():
        v = summands[0] if len(summands) == 1 else ctx.values.made("add", "", 0, _flat(summands, ctx))
        terms[v] = terms[v].plus(c) if v in terms else c
    return (Type.of(ins[0].layout, terms),)


def _flat(summands: Iterable[ValueId], ctx: Context) -> tuple[ValueId, ...]:
    """A sum of sums is one sum, in one order."""
    found: list[ValueId] = []
    for v in summands:
        node = ctx.values[v]
        found += node.operands if node.op == "add" else (v,)
    return tuple(sorted(found))
