"""Claims: what `require` and `assert` conditions say, evaluated over facts, sizes and costs.

Not for: computing the costs (`cost`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import Refused, fault, refuse
from placelang.model.model import Model
from placelang.plan.meant import listed, meant
from placelang.plan.mesh import Mesh
from placelang.plan.plan import Train
from placelang.plan.scope import Scope
from placelang.plan.values import Axes, Lookup, Unknown, Value, evaluate, kind
from placelang.quantity import Quantity
from placelang.source import Span
from placelang.syntax import ast

Costs = Callable[[str, Span], Value | None]
"""The value of `memory.peak` and the like; None for a name that is no cost."""


def facts(mesh: Mesh, train: Train, model: Model | None) -> dict[str, Value]:
    """The names that a condition may use beside declared ones: sizes of the model, of the job, and `world`."""
    found: dict[str, Value] = {}
    for name, value in model.sizes if model else ():
        found[name] = Fraction(value)
    for name in ("seq", "micro_batch", "microbatches"):
        given = getattr(train, name)
        found[name] = Unknown(name) if given is None else Fraction(given)
    found["world"] = Unknown("world") if mesh.world is None else Fraction(mesh.world)
    return found


def check(claim: ast.Claim, scope: Scope, known: Mapping[str, Value], costs: Costs) -> tuple[Diagnostic, ...]:
    """What is wrong with a claim, or a note of the fact that it waits for; nothing when it holds."""
    lookup = _lookup(claim, scope, known, costs)
    condition = claim.condition
    try:
        value = evaluate(condition, lookup)
    except Refused as refused:
        return refused.diagnostics
    if isinstance(value, Unknown):
        return (_undecided(claim, value, scope, known),)
    if not isinstance(value, bool):
        return (fault("E105", f"a condition is true or false, this is {kind(value)}", condition.span),)
    if value:
        return ()
    code = "E122" if claim.kind == "require" else "E403"
    said = claim.message.value if claim.message else f"`{condition.span.text}` does not hold"
    shown = ", ".join(f"{text} = {show(value)}" for text, value in _values(condition, lookup))
    notes = (text,) if (text := _by_state(condition, costs)) else ()
    return (fault(code, said, condition.span, cause=shown, notes=notes),)


def _by_state(condition: ast.Expr, costs: Costs) -> str:
    """What makes up the memory that a failed condition is about."""
    if not any(name.text.startswith("memory.") for name in _names(condition)):
        return ""
    states = ((name, costs(f"memory.{name}", condition.span)) for name in STATES)
    shown = [f"{name} {show(v)}" for name, v in states if isinstance(v, Quantity) and v.value]
    return f"memory by state: {', '.join(shown)}" if shown else ""


def without_costs(claim: ast.Claim, scope: Scope, known: Mapping[str, Value], modelled: bool) -> tuple[Diagnostic, ...]:
    """What is wrong with an `assert` before any cost is known: a name, or units that do not mix. Without a model there
    will be no cost (`modelled` is false), and what can be said of it is said."""

    def costs(name: str, _: Span) -> Value | None:
        dimension = "bytes" if name.startswith("comm.bytes(") else COSTS.get(name)
        return None if dimension is None else Unknown(name, dimension)

    found = check(claim, scope, known, costs)
    return found if not modelled else tuple(d for d in found if d.code not in ("N102", "E403"))


def _undecided(claim: ast.Claim, value: Unknown, scope: Scope, known: Mapping[str, Value]) -> Diagnostic:
    """A note of the first fact that a condition waits for, and how to give it."""
    name = value.name
    axes = [axis.name for axis in scope.axes.values() if axis.size is None]
    if name in COSTS or name.startswith("comm.bytes("):
        waits, help_ = f"a model, of which `{name}` is a cost", "`model llama3_8b`, or `--model llama3_8b`"
    elif name == "world" or all(part in scope.axes for part in name.split(" * ")):
        open_ = axes if name == "world" else [part for part in name.split(" * ") if part in axes]
        sized = " and ".join(f"`{a}`" for a in open_)
        waits, help_ = f"the size of {sized}", f"`{' '.join(f'--set {a}=8' for a in open_)}`"
    elif (fact := {"s": "seq", "b": "micro_batch"}.get(name, name)) in ("seq", "micro_batch"):
        waits, help_ = f"`{fact}`", f"`train ({fact} = {2048 if fact == 'seq' else 1})`, or `--set {fact}=...`"
    elif name == "hardware":
        waits, help_ = "the machine, which no line names", "`hardware dgx_h100(nodes = 2)`, or `--set hardware=...`"
    elif name in scope.args:
        waits, help_ = f"`{name}`", f"`--set {name}=8`"
    else:
        waits, help_ = f"`{name}`", ""
    return fault("N102", f"`{claim.condition.span.text}` waits for {waits}", claim.condition.span, help=help_)


STATES = ("params", "grads", "optimizer", "activations", "views", "raw_grads", "logits")
"""What a device's memory holds; the last three for a while of each step."""

COSTS = {
    **{f"memory.{name}": "bytes" for name in ("peak", *STATES, "host")},
    **{f"time.{name}": "seconds" for name in ("step", "exposed", "hidden", "bubble")},
    "mfu": "",
}
"""Costs that an `assert` may use and their dimension, beside `comm.bytes(axis)`."""

_LATER = ("time.",)
OF_MODELS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts", "top_k")


def _lookup(claim: ast.Claim, scope: Scope, known: Mapping[str, Value], costs: Costs) -> Lookup:
    def lookup(name: str, span: Span, needed: bool = False, /) -> Value:
        found = scope.lookup(name, span)
        if found is None:
            found = known.get(name)
        if found is None:
            found = costs(name, span)
        if found is not None:
            return found
        if name.startswith(_LATER):
            raise refuse("E112", f"this version does not compute `{name}`", span)
        if claim.kind == "require" and (name in COSTS or name.startswith("comm.bytes(")):
            help_ = f"`assert {claim.condition.span.text}`"
            raise refuse("E101", f"`{name}` is a cost, which no `require` can know", span, help=help_)
        if name in OF_MODELS and "layers" not in known:
            message = f"`{name}` is a size of the model, and no line names one"
            raise refuse("E121", message, span, help="`model llama3_8b`, or `--model llama3_8b`")
        declared = (*scope.axes, *scope.lets, *scope.args)
        exact = name.replace("mem.", "memory.", 1) if name.startswith("mem.") else ""
        near = exact if exact in COSTS else meant(name, (*known, *declared, *COSTS))
        all_ = listed((*declared, *known, *(COSTS if claim.kind == "assert" else ())))
        help_ = f"did you mean `{near}`?" if near else f"known here: {all_}"
        raise refuse("E101", f"no fact is called `{name}`", span, help=help_)

    return lookup


def _values(condition: ast.Expr, lookup: Lookup) -> list[tuple[str, Value]]:
    """The sides of a comparison, then the names in it, with their values, so that a failed one shows why."""
    parts = [*_sides(condition), *_names(condition)]
    found: dict[str, Value] = {}
    for part in parts:
        try:
            value = evaluate(part, lookup)
        except Refused:
            continue
        found[part.span.text] = Fraction(value.size) if isinstance(value, Axes) and value.size else value
    return list(found.items())


def _sides(expr: ast.Expr) -> list[ast.Expr]:
    """What a condition compares, where that is computed."""
    match expr:
        case ast.Binary(op="and" | "or", left=left, right=right):
            return [*_sides(left), *_sides(right)]
        case ast.Binary(op="<" | "<=" | ">" | ">=" | "==" | "!=", left=left, right=right):
            return [side for side in (left, right) if isinstance(side, ast.Binary | ast.Call)]
        case ast.Unary(operand=inner) | ast.Group(inner=inner):
            return _sides(inner)
        case _:
            return []


def _names(expr: ast.Expr) -> list[ast.Name]:
    match expr:
        case ast.Name(text=text):
            return [] if text in ("true", "false") else [expr]
        case ast.Binary(left=left, right=right):
            return [*_names(left), *_names(right)]
        case ast.Unary(operand=inner) | ast.Group(inner=inner):
            return _names(inner)
        case ast.Call(args=args):
            return [n for a in args for n in _names(a.value)]
        case _:
            return []


def show(value: Value) -> str:
    """A value in words: `28`, `76.84 GiB (82.51 GB)`, `unknown`."""
    match value:
        case Quantity(value=v, dimension="bytes"):
            return f"{float(v) / 2**30:.4g} GiB ({float(v) / 10**9:.4g} GB)"
        case Quantity(value=v, dimension=d):
            return f"{float(v):.4g} {d}"
        case Fraction():
            return str(value.numerator) if value.denominator == 1 else f"{float(value):.6g}"
        case Unknown():
            return "unknown"
        case _:
            return str(value)
