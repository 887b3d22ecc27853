"""Parameters rest whole on every rank; gradients are all-reduced, or scattered to a sharded optimizer (ZeRO-1 and 2).

Each unit has one flat gradient buffer of which the gradients of its parameters are views. A unit's collective starts in
backward, when its last gradient of the step is there and all units before it in a fixed order have started, so ranks
never disagree about the order. torch's own ZeroRedundancyOptimizer is not used: it sends half as much again.
Not for: parameters that rest split (`gathered`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from placelang.backend import comm
from placelang.backend.build import DTYPES
from placelang.backend.comm import Groups
from placelang.backend.recipe import Recipe, Reduction
from placelang.backend.runtime import Masters
from placelang.backend.units import Unit, pack, rows, unpack
from placelang.plan.dtypes import Precision


class _Piece:
    """A unit's buffers. `total` accumulates its gradient: whole, or this rank's rows where microbatches scatter.

    `views` are the gradients of the parameters in `total`; None where each microbatch's gradient is reduced apart.
    `result` is what the reductions of the step left, `scattered` whether this is this rank's rows only.
    """

    def __init__(self, unit: Unit, parts: int, recipe: Recipe, dtype: torch.dtype) -> None:
        self.names, self.params = tuple(unit.params), tuple(unit.params.values())
        self.groups = tuple(unit.groups[name] for name in self.names)
        self.each, self.once = (self._own(chain) for chain in (recipe.each, recipe.once))
        self.places = rows([tuple(p.shape) for p in self.params], parts)
        self.scattered = any(r.scatter for r in self.each)
        last = self.places[-1]
        size = last.offset + last.elements if self.scattered else sum(p.numel() for p in self.params)
        self.total = self.params[0].new_zeros(size, dtype=dtype)
        self.result = self.total
        self.views = None if self.each else split(self.total, self.params)
        self.missing: set[int] = set()
        self.running: Iterator[dist.Work] = iter(())
        self.work: dist.Work | None = None

    def _own(self, chain: Sequence[Reduction]) -> tuple[Reduction, ...]:
        """The reductions that some parameter of this unit takes part in."""
        return tuple(r for r in chain if r.groups is None or r.groups.intersection(self.groups))

    def rows(self, flat: Tensor, scattered: bool) -> Sequence[Tensor]:
        """The part of each parameter in a flat buffer, with padding if that is a piece."""
        if not scattered:
            return split(flat, self.params)
        return [flat[place.offset :][: place.elements] for place in self.places]

    def take(self) -> list[Tensor]:
        """The raw gradients of one microbatch, which are given up; zeros where a parameter was not used."""
        found = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in self.params]
        for p in self.params:
            p.grad = None
        return found


def split(flat: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of a flat buffer in the shapes of `like`."""
    parts: tuple[Tensor, ...] = flat.split([t.numel() for t in like])  # type: ignore[no-untyped-call]
    return tuple(part.view(t.shape) for part, t in zip(parts, like, strict=True))


class Replicated:
    """The runtime of parameters that rest whole."""

    def __init__(self, units: Sequence[Unit], recipe: Recipe, precision: Precision, groups: Groups) -> None:
        self._recipe, self._precision, self._groups = recipe, precision, groups
        self._place = groups.place(recipe.optimizer)
        parts, dtype = groups.size(recipe.optimizer), DTYPES[precision.accumulate]
        self._pieces = [_Piece(unit, parts, recipe, dtype) for unit in reversed(units)]
        owned: dict[str, nn.Parameter] = {}
        for piece in self._pieces:
            for i, (name, param) in enumerate(zip(piece.names, piece.params, strict=True)):
                param.register_post_accumulate_grad_hook(self._hook(piece, i))  # type: ignore[no-untyped-call]
                # The rows of a sharded optimizer are views of the parameter: they take no memory.
                part = piece.places[i].of_whole(param.detach(), self._place)
                owned[name] = nn.Parameter(part) if recipe.optimizer else param
        self._params = {name: param for unit in units for name, param in unit.params.items()}
        self._owned = owned
        self._masters = Masters(owned, DTYPES[precision.master]) if precision.master else None
        self.updates: Mapping[str, nn.Parameter] = self._masters.params if self._masters else owned
        self._last, self._next = False, 0

    # --- backward ----------------------------------------------------------------------------------------------------

    def before(self, last: bool) -> None:
        self._last, self._next = last, 0
        for piece in self._pieces:
            piece.missing = set(range(len(piece.params)))

    def _hook(self, piece: _Piece, index: int) -> Callable[[Tensor], None]:
        def arrived(param: Tensor) -> None:
            if piece.views is not None:
                _collect(piece.views[index], param)
            piece.missing.discard(index)
            if self._last or piece.each:
                while self._next < len(self._pieces) and not self._pieces[self._next].missing:
                    self._start()

        return arrived

    def _reduces(self, piece: _Piece) -> bool:
        return bool(piece.each or (self._last and piece.once))

    def _start(self) -> None:
        piece = self._pieces[self._next]
        self._next += 1
        if self._reduces(piece):
            piece.running = self._reduce(piece, self._last)
            piece.work = next(piece.running, None)

    def _reduce(self, piece: _Piece, last: bool) -> Iterator[dist.Work]:
        """The journey of a unit's gradient, one collective at each `yield`, resumed when that is done."""
        if piece.each:
            raw = piece.take()
            first, *rest = piece.each
            if first.scatter:
                flat = yield from self._scatter(first, piece, raw)
            else:
                flat = torch.cat([t.reshape(-1) for t in raw])
                rest = [first, *rest]
            for r in rest:
                flat = yield from self._sum(r, piece, flat, first.scatter)
            piece.total.add_(flat)
        if last and piece.once:
            flat, piece.scattered = piece.total, any(r.scatter for r in piece.each)
            for r in piece.once:
                if r.scatter:
                    flat = yield from self._scatter(r, piece, split(flat, piece.params))
                    piece.scattered = True
                else:
                    flat = yield from self._sum(r, piece, flat, piece.scattered)
            piece.result = flat

    def _scatter(self, r: Reduction, piece: _Piece, tensors: Sequence[Tensor]) -> Generator[dist.Work, None, Tensor]:
        whole = pack(tensors, piece.places, DTYPES[r.wire])
        flat = whole.new_empty(len(whole) // piece.places[0].parts)
        yield comm.reduce_scatter(flat, whole, self._groups.group(r.axes), mean=r.mean)
        return flat

    def _sum(self, r: Reduction, piece: _Piece, flat: Tensor, scattered: bool) -> Generator[dist.Work, None, Tensor]:
        """One all-reduce of a flat buffer, or of some parameters in it."""
        group, wire = self._groups.group(r.axes), DTYPES[r.wire]
        if r.groups is None or r.groups.issuperset(piece.groups):
            flat = flat.to(wire)
            yield comm.all_reduce(flat, group, mean=r.mean)
            return flat
        rows = piece.rows(flat, scattered)
        some = [row for row, name in zip(rows, piece.groups, strict=True) if name in r.groups]
        sent = torch.cat([row.reshape(-1) for row in some]).to(wire)
        yield comm.all_reduce(sent, group, mean=r.mean)
        for row, done in zip(some, split(sent, some), strict=True):
            row.copy_(done)
        return flat

    def after(self, last: bool) -> None:
        with torch.no_grad():
            while self._next < len(self._pieces):  # units with parameters that this loss does not use
                self._start()
            for piece in self._pieces:
                while piece.work is not None:
                    piece.work.wait()
                    piece.work = next(piece.running, None)

    # --- update ------------------------------------------------------------------------------------------------------

    def ready(self, divisor: float) -> None:
        for piece in self._pieces:
            if divisor != 1:
                piece.result.div_(divisor)
            wholes = None if piece.scattered else split(piece.result, piece.params)
            for i, (name, place) in enumerate(zip(piece.names, piece.places, strict=True)):
                if wholes is None:
                    gradient = place.of_piece(piece.result, self._place)
                else:
                    gradient = place.of_whole(wholes[i], self._place) if self._recipe.optimizer else wholes[i]
                owner = self.updates[name]
                owner.grad = gradient.view(owner.shape).to(owner.dtype)

    @torch.no_grad()
    def refresh(self) -> None:
        if self._masters:
            self._masters.write_back()
        if self._recipe.refresh:
            before: Callable[[], None] | None = None
            for piece in self._pieces:  # one gather ahead of the copies out
                finish = self._gather(piece)
                if before:
                    before()
                before = finish
            if before:
                before()
        for owner in self.updates.values():
            owner.grad = None
        for piece in self._pieces:
            piece.total.zero_()
            piece.result = piece.total
            for view, param in zip(piece.views or (), piece.params, strict=False):
                param.grad = view if view.dtype == param.dtype else None

    def _gather(self, piece: _Piece) -> Callable[[], None]:
        last = piece.places[-1]
        own = piece.params[0].new_zeros(last.offset + last.elements)
        for name, place in zip(piece.names, piece.places, strict=True):
            mine = place.of_piece(own, self._place)
            mine.copy_(self._owned[name].detach().view(mine.shape))
        everyone = own.new_empty(len(own) * last.parts)
        work = comm.all_gather(everyone, own, self._groups.group(self._recipe.refresh))

        def finish() -> None:
            work.wait()
            unpack(everyone, [p.detach() for p in piece.params], piece.places)

        return finish

    # --- looking in --------------------------------------------------------------------------------------------------

    def gradients_at_rest(self) -> Iterable[Tensor]:
        return [piece.total for piece in self._pieces]

    def full(self) -> Mapping[str, Tensor]:
        return {name: param.detach() for name, param in self._params.items()}


def _collect(view: Tensor, param: Tensor) -> None:
    """Add a gradient that autograd did not already add in place; then let it add in place where dtypes allow."""
    if param.grad is not None and param.grad is not view:
        view.add_(param.grad.detach())
        param.grad = view if view.dtype == param.dtype else None
