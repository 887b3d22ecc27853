"""How gradients go from where they are produced to rest: the rule of elaboration that takes the most telling.

Source: language reference, "What is inferred, and shown", rule 3. Not for: the other states (`infer`), or whether what
is written reduces what it must (`check`).
"""

from __future__ import annotations

import attrs

from placelang.diagnostics.problems import Problems, fault
from placelang.plan.mesh import Mesh, Role
from placelang.plan.steps import Consume, Journey, Partial, Reduce, Shard, When


def sharded(journey: Journey) -> tuple[str, ...]:
    """The axes that split a state at rest, outer first."""
    return tuple(a for s in journey if isinstance(s, Shard) for a in s.axes)


def gradients(written: Journey, optimizer: Journey, produced: Partial, problems: Problems) -> Journey:
    """Rule 3: produced partial, then reduce_scatter where the optimizer is sharded and all_reduce elsewhere."""
    split = produced.axes
    claims = tuple(s for s in written if isinstance(s, Partial))
    moves = tuple(s for s in written if not isinstance(s, Partial))
    reductions = tuple(s for s in moves if isinstance(s, Reduce))
    _check_claims(claims, split, problems)
    head: Journey = claims or ((produced,) if split else ())
    if not reductions and not (claims and not moves):
        consumed = any(isinstance(s, Consume) for s in moves)
        reductions = _reductions(optimizer, split, When.MICROBATCH if consumed else None)
        return (*head, *reductions, *moves)
    filled = tuple(
        attrs.evolve(s, axes=open_axes(s, written, split)) if isinstance(s, Reduce) and not s.axes else s for s in moves
    )
    filled = tuple(s for s in filled if s.axes or not isinstance(s, Reduce))  # nothing is partial where that is all
    _check_times(filled, problems)
    return (*head, *filled)


def _reductions(optimizer: Journey, split: tuple[str, ...], when: When | None) -> tuple[Reduce, ...]:
    moves: list[Reduce] = []
    scatter = tuple(a for a in sharded(optimizer) if a in split)
    rest = tuple(a for a in split if a not in scatter)
    if scatter:
        dim, pad = next((s.dim, s.pad) for s in optimizer if isinstance(s, Shard) and set(s.axes) & set(scatter))
        why = "the optimizer holds a shard over these axes"
        moves.append(Reduce(axes=scatter, scatter=True, when=When.MICROBATCH, dim=dim, pad=pad, why=why))
    if rest:
        why = "every rank of these axes updates the whole"
        moves.append(Reduce(axes=rest, scatter=False, when=when or When.STEP, why=why))
    return tuple(moves)


def _check_claims(claims: Journey, split: tuple[str, ...], problems: Problems) -> None:
    """A written `partial(...)` must say what is so."""
    if claims and {a for s in claims for a in s.axes} != set(split):
        truth = f"partial over {' * '.join(split)}" if split else "whole on every rank"
        problems.add(
            fault(
                "E118",
                f"gradients are produced {truth}, the text says otherwise",
                claims[0].span,
                help=f"`partial({' * '.join(split)})`, or leave it out" if split else "leave it out",
                rule="a gradient is partial over the axes whose ranks see other tokens, which `activations` says",
            )
        )


def open_axes(step: Reduce, grads: Journey, split: tuple[str, ...]) -> tuple[str, ...]:
    """What a reduction without an axis reduces: every axis still partial that no other reduction names."""
    named = {a for s in grads if isinstance(s, Reduce) and s is not step for a in s.axes}
    return tuple(a for a in split if a not in named)


_SEEN = {
    Role.DATA: "samples",
    Role.EXPERT: "samples",
    Role.SEQUENCE: "positions",
    Role.TENSOR: "positions",  # sequence parallelism around the split products
    Role.STAGE: "uses",  # of weights that stages share
}
_SEEN_ALONG = {"batch": "samples", "seq": "positions"}


def seen(axes: tuple[str, ...], activations: Journey, mesh: Mesh) -> str:
    """What the ranks of the axes see other ones of: as the activations say, else what axes of that role split."""
    said = {a: _SEEN_ALONG.get(s.dim) for s in activations if isinstance(s, Shard) for a in s.axes}
    return " or ".join(dict.fromkeys(said.get(a) or _SEEN[mesh[a].role] for a in axes))


def _check_times(moves: Journey, problems: Problems) -> None:
    once = False
    for s in moves:
        if isinstance(s, Reduce):
            if once and s.when is When.MICROBATCH:
                help_ = "give both the same `when`"
                problems.add(fault("E118", "a reduction per microbatch cannot follow one per step", s.span, help=help_))
            once = once or s.when is not When.MICROBATCH
