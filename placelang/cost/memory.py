"""Memory of one rank: what rests between steps, and the most that a step adds to it.

    Mem = sum over states of bytes(rest) + max over events of (views + raw gradients + activations kept)

(docs/design/semantics, section 6). Gradients count as at rest all through the step. Activations follow what each layer
says it keeps (Korthikanti et al. 2022, section 4, generalised in `model`). Host memory is that of offloaded states.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from placelang.cost.expr import BYTES, Expr, constant, maximum, named, product, symbol, total
from placelang.cost.recompute import split
from placelang.cost.sizes import local, name_of, padded, ranks, shared_by, width
from placelang.model.model import Model, Saved, Stack
from placelang.plan.plan import Assumption, Plan, State
from placelang.plan.steps import Gather, Keep
from placelang.program.event import Buf, Layout, Op
from placelang.program.layouts import events, layouts
from placelang.program.program import Group, Program
from placelang.program.recompute import policy

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


def memory(plan: Plan, model: Model, program: Program, in_flight: Expr | None = None) -> Memory:
    """Memory of one device under the program's profile. `in_flight`: microbatches whose activations it holds at once;
    without it, one."""
    kept = _kept(plan, model, program, in_flight or constant(1))
    at_rest = tuple((state.value, e) for state, e in rest(program).items())
    return Memory(at_rest, _views(plan, program), _raw(program), kept, _logits(model, program))


def rest(program: Program) -> dict[State, Expr]:
    """Bytes of each state between steps, on the rank that holds most (gradients: until the optimizer has read them)."""
    found = {state: constant(0, BYTES) + 0 for state in (State.PARAMS, State.GRADS, State.OPTIMIZER)}
    kinds: dict[tuple[State, str, Layout, str, int], list[Group]] = {}
    for r in program.rests:
        kinds.setdefault((r.state, r.kind, r.layout, r.dtype, r.copies), []).append(program.group(r.group))
    for (state, _, layout, dtype, copies), groups in kinds.items():
        if copies:
            found[state] += copies * _held(tuple(groups), layout, program) * width(dtype)
    return found


def _held(groups: tuple[Group, ...], layout: Layout, program: Program) -> Expr:
    return padded(groups, layout, name_of(groups, program.groups, layout)) / ranks(axis for axis, _ in layout)


def _units(program: Program) -> tuple[tuple[Group, ...], tuple[tuple[Group, ...], ...]]:
    """Groups outside the blocks, and those of one layer of each run of blocks."""
    runs: dict[str, list[Group]] = {}
    for g in program.groups:
        if g.loop is not None:
            runs.setdefault(g.loop, []).append(attrs.evolve(g, count=1))
    return tuple(g for g in program.groups if g.loop is None), tuple(tuple(groups) for groups in runs.values())


def _views(plan: Plan, program: Program) -> Expr:
    """The root unit's view lives through the pass; of the blocks, the one in use and those gathered ahead."""
    known = layouts(program)
    gather = next((s for s in plan.journey(State.PARAMS) if isinstance(s, Gather)), None)
    viewed = {g.name for g in program.groups if ("view", g.name) in known}
    if gather is None or not viewed:
        return constant(0, BYTES)

    def view(groups: tuple[Group, ...], name: str) -> Expr:
        by_layout: dict[tuple[Layout, Layout], list[Group]] = {}
        for g in groups:
            if g.name in viewed:
                by_layout.setdefault((known["w", g.name], known["view", g.name]), []).append(g)
        return total(
            padded(tuple(members), rest, name if len(by_layout) == 1 else name_of(tuple(members), (), rest))
            / ranks(axis for axis, _ in use)
            for (rest, use), members in by_layout.items()
        )

    dtype = width(gather.dtype or plan.train.precision.view)
    outside, blocks = _units(program)
    if gather.keep is not Keep.UNIT:
        return view(program.groups, "P") * dtype
    largest = maximum(*(view(b, f"P_{b[0].loop}") for b in blocks)) if blocks else constant(0)
    return (view(outside, "P_root") + (1 + gather.prefetch) * largest) * dtype


def _raw(program: Program) -> Expr:
    """Raw gradients that wait for their reduction: the root unit's until the end, one block's. None where the
    accumulator itself is what backward writes."""
    known = layouts(program)
    trained = {g.name for g in program.groups if ("dw", g.name) in known}
    if all(known.get(("dw", g.name)) == known.get(("g", g.name)) for g in program.groups):
        return constant(0, BYTES)

    def raw(groups: tuple[Group, ...]) -> Expr:
        return total(local((g,), known["dw", g.name]) for g in groups if g.name in trained)

    outside, blocks = _units(program)
    largest = maximum(*(raw(b) for b in blocks)) if blocks else constant(0)
    waiting = named("P_raw", raw(outside) + largest, "gradients that wait for their reduction")
    return waiting * width(program.train.precision.raw)


def _size(name: str, model: Model) -> Expr:
    known = {"batch": ("b", "samples a rank has in one microbatch"), "seq": ("s", "sequence length")}
    if name in known:
        return symbol(*known[name])
    value = model.size(name)
    assert value is not None, f"{model.name} keeps an activation of unknown size {name}"
    return symbol(name, f"{name} of the model")


_MADE_BY = {
    "attn.q": ("attn.wq", "attn.wqkv", "attn.wq_b"),
    "attn.k": ("attn.wk", "attn.wqkv", "attn.wkv_b"),
    "attn.v": ("attn.wv", "attn.wqkv", "attn.wkv_b"),
    "attn.logsumexp": ("attn.core",),
    "attn.softmax": ("attn.core",),
    "attn.softmax_mask": ("attn.core",),
    "attn.softmax_dropped": ("attn.core",),
    "attn.dropout_mask": ("attn.add",),
    "mlp.up": ("mlp.up",),
    "mlp.gate": ("mlp.gate",),
    "mlp.act": ("mlp.up",),
    "mlp.dropout_mask": ("mlp.add",),
    "mlp.experts.up": ("mlp.experts.up",),
    "mlp.experts.gate": ("mlp.experts.gate",),
    "mlp.experts.act": ("mlp.experts.up",),
    "mlp.experts.output": ("mlp.experts.down",),
    "mlp.router.probabilities": ("mlp.gates",),
    "mlp.shared.up": ("mlp.shared.up",),
    "mlp.shared.gate": ("mlp.shared.gate",),
    "mlp.shared.act": ("mlp.shared.up",),
    "head.logits": ("head",),
    "embed.dropout_mask": ("embed.tokens",),
}
"""The operation whose result a saved activation is, or is shaped like; those called `OP.input` are what OP reads."""

_READ_BY = {
    "attn": ("attn.wq", "attn.wqkv", "attn.wq_a"),
    "mlp": ("mlp.up", "mlp.router"),
    "mlp.experts": ("mlp.experts.up",),
    "mlp.experts.down": ("mlp.experts.down",),
}


def _keys(stack: Stack) -> tuple[str, str]:
    """What a program may call a stack: by its name, or by its first layer too where several share a name."""
    return stack.name, f"{stack.name}.{stack.first}"


class _Flows:
    """How the operands and results of each operation lie, read off the forward events."""

    def __init__(self, program: Program) -> None:
        self.tokens = program.tokens
        self.reads: dict[str, Layout] = {}
        self.makes: dict[str, Layout] = {}
        pieces: dict[str, Buf] = {}  # by what a ring would make whole, the piece that a rank keeps
        for event, _ in events(program.body):
            if event.hops:
                pieces.setdefault(event.outs[0].of, event.ins[0])
            if event.op is Op.FORWARD and event.compute is not None and event.compute.kind != "opaque":
                self.reads[event.site] = self._layout(program, event.ins[0])
                self.makes[event.site] = self._layout(program, event.outs[0])
                if event.compute.kind == "attention" and event.compute.activations > 1:  # kept as they are read
                    queries, keys, values = (pieces.get(b.of, b) for b in event.ins[:3])
                    latent = event.compute.letters[2] == "btk"
                    kept = {"q": queries, "k": keys, "v": keys if latent else values}
                    key = event.site.removesuffix(".core")
                    self.makes |= {f"{key}.{n}": self._layout(program, buf) for n, buf in kept.items()}

    @staticmethod
    def _layout(program: Program, buf: Buf) -> Layout:
        value = program.activations.get(buf.of)
        return value.layout if value else ()

    def split(self, saved: Saved, stack: Stack) -> tuple[str, ...]:
        """The axes, beside those of samples, over which ranks share what is saved."""
        if saved.name.endswith(".input"):
            name = saved.name.removesuffix(".input")
            known, names = self.reads, _READ_BY.get(name, (name,))
        else:
            known, names = self.makes, (saved.name, *_MADE_BY.get(saved.name, ()))
        sites = (f"{key}/{n}" for n in names for key in _keys(stack))
        layout = next((known[site] for site in sites if site in known), ())
        return shared_by(layout, self.tokens)


def _bytes(saved: Saved, stack: Stack, model: Model, program: Program, flows: _Flows) -> Expr:
    wide = {"mask": constant(1, BYTES), "fp32": width("fp32")}.get(saved.width) or width(program.train.precision.view)
    return product((*(_size(d, model) for d in saved.dims), wide)) / ranks(flows.split(saved, stack))


def _kept(plan: Plan, model: Model, program: Program, in_flight: Expr) -> Expr | None:
    if any(s.block and not s.saved for s in model.stacks):
        return None
    flows, replay = _Flows(program), policy(plan)
    parts: list[Expr] = []
    layers: list[Expr] = []
    for stack in model.stacks:

        def size(some: Iterable[Saved], stack: Stack = stack) -> Expr:
            return total((constant(0, BYTES), *(_bytes(s, stack, model, program, flows) for s in some)))

        if stack.block and replay is not None and replay.full:  # the input of each block, and one block at work
            parts.append(stack.count * _input(stack, model, program))
            layers.append(size(stack.kept(*CONDITIONS)))
        elif stack.block and replay is not None:
            stays, again = split(stack, replay, *CONDITIONS)
            parts.append(stack.count * size(stays))
            layers.append(size(again))
        elif stack.saved:
            parts.append(stack.count * size(stack.kept(*CONDITIONS)))
    return total((constant(0, BYTES), *(in_flight * part for part in parts), *((maximum(*layers),) if layers else ())))


def _input(stack: Stack, model: Model, program: Program) -> Expr:
    value = next((program.activations[key] for key in _keys(stack) if key in program.activations), None)
    split = shared_by(value.layout, program.tokens) if value else ()
    sizes = (_size("batch", model), _size("seq", model), _size("hidden", model))
    return product((*sizes, width(program.train.precision.view))) / ranks(split)


def _logits(model: Model, program: Program) -> Expr | None:
    if model.size("vocab") is None:
        return None
    if not any(t.role == "head" for s in model.stacks for t in s.tensors) and any(s.block for s in model.stacks):
        return constant(0, BYTES)  # the stage of a pipeline that makes none
    sizes = (_size("batch", model), _size("seq", model), _size("vocab", model))
    value = program.activations.get("logits")
    split = shared_by(value.layout, program.tokens) if value else ()
    return product((*sizes, width(program.train.precision.view))) / ranks(split)
