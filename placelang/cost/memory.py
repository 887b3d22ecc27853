"""Memory of one rank: what rests between steps, and the most that a step adds to it.

    Mem = sum over states of bytes(rest) + max over events of (views + raw gradients + activations kept)

(docs/design/semantics, section 6). Gradients count as at rest all through the step. Activations follow what each layer
says it keeps (Korthikanti et al. 2022, section 4, generalised in `model`). Host memory is that of offloaded states.
"""

from __future__ import annotations

import attrs

from placelang.cost.expr import BYTES, Expr, constant, maximum, named, product, symbol, total
from placelang.cost.sizes import local, name_of, padded, ranks, width
from placelang.model.model import Model, Saved
from placelang.plan.plan import Assumption, Plan, State
from placelang.plan.steps import Gather, Keep
from placelang.program.event import Layout
from placelang.program.layouts import layouts
from placelang.program.program import Group, Program

CONDITIONS = ("fused_attention",)
"""Which saved activations count: a fused attention kernel keeps no score matrix, and nothing is dropped."""

ASSUMPTIONS = (
    Assumption("attention", "a fused kernel that keeps no score matrix"),
    Assumption("dropout", "none"),
    Assumption("gradients", "counted whole during the step, though they appear as backward goes on"),
    Assumption("overhead", "no allocator, context or communication buffers"),
)


@attrs.frozen
class Memory:
    """Bytes of the largest rank. `activations` is None where the model does not say what its layers keep."""

    rest: tuple[tuple[str, Expr], ...]  # by state
    views: Expr
    raw: Expr  # gradients between production and reduction
    activations: Expr | None
    logits: Expr | None

    @property
    def by_state(self) -> dict[str, Expr | None]:
        """`views` and `raw_grads` are the transient copies of a step."""
        return {
            **dict(self.rest),
            "activations": self.activations,
            "views": self.views,
            "raw_grads": self.raw,
            "logits": self.logits,
        }

    @property
    def peak(self) -> Expr | None:
        """Written over the names of `by_state`."""
        parts = {
            k: named(k, e) if e is not constant(0, BYTES) else e for k, e in self.by_state.items() if e is not None
        }
        if len(parts) < len(self.by_state):
            return None
        after_forward = parts["activations"] + 2 * parts["logits"]
        in_backward = parts["activations"] + parts["raw_grads"]
        return total(parts[name] for name, _ in self.rest) + parts["views"] + maximum(after_forward, in_backward)


def memory(plan: Plan, model: Model, program: Program) -> Memory:
    """Memory of one device under the program's profile."""
    rest = {state.value: constant(0, BYTES) + 0 for state in (State.PARAMS, State.GRADS, State.OPTIMIZER)}
    kinds: dict[tuple[State, str, Layout, str, int], list[Group]] = {}
    for r in program.rests:
        kinds.setdefault((r.state, r.kind, r.layout, r.dtype, r.copies), []).append(program.group(r.group))
    for (state, _, layout, dtype, copies), groups in kinds.items():
        if copies:
            rest[state.value] += copies * _held(tuple(groups), layout, program) * width(dtype)
    return Memory(
        tuple(rest.items()), _views(plan, program), _raw(program), _kept(model, program), _logits(model, program)
    )


def _held(groups: tuple[Group, ...], layout: Layout, program: Program) -> Expr:
    return padded(groups, layout, name_of(groups, program.groups, layout)) / ranks(axis for axis, _ in layout)


def _units(program: Program) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """Groups outside the blocks, and one layer of each run of blocks."""
    outside = tuple(g for g in program.groups if not g.indexed)
    blocks = tuple(attrs.evolve(g, count=1) for g in program.groups if g.indexed)
    return outside, blocks


def _views(plan: Plan, program: Program) -> Expr:
    """The root unit's view lives through the pass; of the blocks, the one in use and those gathered ahead."""
    gather = next((s for s in plan.journey(State.PARAMS) if isinstance(s, Gather)), None)
    if gather is None:
        return constant(0, BYTES)
    outside, blocks = _units(program)
    dtype = width(gather.dtype or plan.train.precision.view)
    if gather.keep is not Keep.UNIT:
        return padded(program.groups, program.rests[0].layout, "P") * dtype
    largest = (
        maximum(*(padded((b,), program.rests[0].layout, f"P_{b.name}") for b in blocks)) if blocks else constant(0)
    )
    root = padded(outside, program.rests[0].layout, "P_root") if outside else constant(0)
    return (root + (1 + gather.prefetch) * largest) * dtype


def _raw(program: Program) -> Expr:
    """Raw gradients that wait for their reduction: the root unit's until the end, one block's. None where the
    accumulator itself is what backward writes."""
    known = layouts(program)
    if all(known.get(("dw", g.name)) == known.get(("g", g.name)) for g in program.groups):
        return constant(0, BYTES)
    outside, blocks = _units(program)
    dtype = width(program.train.precision.raw)
    largest = maximum(*(local((b,), ()) for b in blocks)) if blocks else constant(0)
    return (local(outside, ()) + largest) * dtype


def _size(name: str, model: Model) -> Expr:
    known = {"batch": ("b", "samples a rank has in one microbatch"), "seq": ("s", "sequence length")}
    if name in known:
        return symbol(*known[name])
    value = model.size(name)
    assert value is not None, f"{model.name} keeps an activation of unknown size {name}"
    return symbol(name, f"{name} of the model")


def _bytes(saved: Saved, model: Model, program: Program) -> Expr:
    wide = {"mask": constant(1, BYTES), "fp32": width("fp32")}.get(saved.width) or width(program.train.precision.view)
    return product((*(_size(d, model) for d in saved.dims), wide))


def _kept(model: Model, program: Program) -> Expr | None:
    if any(s.block and not s.saved for s in model.stacks):
        return None
    return total(
        stack.count * total(_bytes(s, model, program) for s in stack.kept(*CONDITIONS))
        for stack in model.stacks
        if stack.saved
    )


def _logits(model: Model, program: Program) -> Expr | None:
    if model.size("vocab") is None:
        return None
    return product(
        (_size("batch", model), _size("seq", model), _size("vocab", model), width(program.train.precision.view))
    )
