"""The untyped syntax tree of a `.place` text, one frozen class per construct.

Everything in a text is here, nothing of its meaning: names are unresolved, journeys and values share one expression
grammar. Equality ignores spans, so `parse(print(tree)) == tree` can be asked. Not for: checked values (`plan`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

import attrs

from placelang.frozen import Frozen
from placelang.source import Source, Span

_NOWHERE = Span(Source("", "<built>"), 0, 0)


@attrs.frozen(eq=False, repr=False, kw_only=True)
class Node(Frozen):
    """Anything with a place in the text; trees built by hand have none."""

    span: Span = attrs.field(default=_NOWHERE, eq=False, repr=False)


# --- expressions: journeys and values alike -------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class Name(Node):
    """A bare or dotted name: `dp`, `attn.q`, `memory.peak`, and digit-words that are names (`1f1b`)."""

    text: str


@attrs.frozen(eq=False, repr=False)
class Number(Node):
    """`16_384`, `0.9`, `40GB/s`. `value` is exact, in the written unit; `unit` is the written unit or empty."""

    value: Fraction
    unit: str = ""


@attrs.frozen(eq=False, repr=False)
class String(Node):
    value: str


@attrs.frozen(eq=False, repr=False)
class Star(Node):
    """A lone `*` as a mesh size: what is left of the devices."""


@attrs.frozen(eq=False, repr=False)
class List(Node):
    items: tuple[Expr, ...]


@attrs.frozen(eq=False, repr=False)
class Arg(Node):
    """`value` or `name = value` inside parentheses."""

    value: Expr
    name: str | None = None
    name_span: Span = attrs.field(default=_NOWHERE, eq=False, repr=False)


@attrs.frozen(eq=False, repr=False)
class Call(Node):
    """`shard(dp, dim = 0)`. A bare name stays a `Name`, though it means a call without arguments."""

    func: Name
    args: tuple[Arg, ...]


@attrs.frozen(eq=False, repr=False)
class Unary(Node):
    op: str  # "-" | "not"
    operand: Expr


@attrs.frozen(eq=False, repr=False)
class Binary(Node):
    op: str  # "*" "/" "%" "+" "-" "<" "<=" ">" ">=" "==" "!=" "and" "or"
    left: Expr
    right: Expr


@attrs.frozen(eq=False, repr=False)
class Then(Node):
    """`a | b | c`: steps in the order of time."""

    steps: tuple[Expr, ...]


@attrs.frozen(eq=False, repr=False)
class As(Node):
    """`form as bf16` or `form as (master = fp32, moments = bf16)`; `form` may be missing: `optimizer: as (...)`."""

    form: Expr | None
    dtypes: Name | tuple[Arg, ...]


@attrs.frozen(eq=False, repr=False)
class With(Node):
    """`base with { override ... }`."""

    base: Expr
    body: tuple[Statement, ...]


@attrs.frozen(eq=False, repr=False)
class Group(Node):
    """Parentheses around an expression, kept so that the printer gives back what was written."""

    inner: Expr


Expr = Name | Number | String | Star | List | Call | Unary | Binary | Then | As | With | Group


def names(expr: Expr, called: bool = False) -> Iterator[Name]:
    """The names in a value that may be those of values; what is `called` too, if asked."""
    match expr:
        case Name():
            yield expr
        case Group(inner):
            yield from names(inner, called)
        case Unary(_, operand):
            yield from names(operand, called)
        case Binary(_, left, right):
            yield from names(left, called)
            yield from names(right, called)
        case List(items):
            for item in items:
                yield from names(item, called)
        case Call(func, args):
            if called:
                yield func
            for arg in args:
                yield from names(arg.value, called)


def renamed(expr: Expr, new: Mapping[str, str]) -> Expr:
    """A value with other names in the places of those in `new`."""
    return replaced(expr, {old: Name(name) for old, name in new.items()})


def replaced(expr: Expr, new: Mapping[str, Expr]) -> Expr:
    """A value with expressions in the places of names; what is called is renamed where a name takes its place."""
    match expr:
        case Name(text) if text in new:
            return attrs.evolve(new[text], span=expr.span)
        case Group(inner):
            return attrs.evolve(expr, inner=replaced(inner, new))
        case Unary(_, operand):
            return attrs.evolve(expr, operand=replaced(operand, new))
        case Binary(_, left, right):
            return attrs.evolve(expr, left=replaced(left, new), right=replaced(right, new))
        case List(items):
            return attrs.evolve(expr, items=tuple(replaced(item, new) for item in items))
        case Call(func, args):
            name = replaced(func, new)
            inside = tuple(attrs.evolve(arg, value=replaced(arg.value, new)) for arg in args)
            return attrs.evolve(expr, func=name if isinstance(name, Name) else func, args=inside)
        case _:
            return expr


# --- statements -----------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False, kw_only=True)
class Documented(Node):
    """A statement that `##` lines may document; `doc` is their text without the marks."""

    doc: str = ""


@attrs.frozen(eq=False, repr=False)
class Edition(Node):
    """`place 1`."""

    number: int


@attrs.frozen(eq=False, repr=False)
class Import(Node):
    """`ours` or `theirs as t` in the parentheses of `use`."""

    name: Name
    alias: Name | None = None


@attrs.frozen(eq=False, repr=False)
class Use(Node):
    """`use "./house.place" (ours, theirs as t)`; no names: all of them."""

    path: str
    names: tuple[Import, ...] = ()


@attrs.frozen(eq=False, repr=False)
class AxisDecl(Node):
    """One axis inside `mesh (...)`: `name: role = size`; `size` is None when symbolic."""

    name: Name
    role: Name | None = None
    size: Expr | None = None


@attrs.frozen(eq=False, repr=False)
class Mesh(Documented):
    """`mesh moe (efsdp = *, ep = 32) over (dp, tp)`; the main mesh has no name and no `over`."""

    axes: tuple[AxisDecl, ...]
    name: Name | None = None
    over: tuple[Name, ...] = ()


@attrs.frozen(eq=False, repr=False)
class FoldedAxis(Documented):
    """`axis fsdp = dp_shard * cp`."""

    name: Name
    value: Expr


@attrs.frozen(eq=False, repr=False)
class ArgDecl(Documented):
    """`arg depth: int = 8`."""

    name: Name
    kind: Name | None = None
    default: Expr | None = None


@attrs.frozen(eq=False, repr=False)
class Let(Documented):
    name: Name
    value: Expr
    kind: Name | None = None


@attrs.frozen(eq=False, repr=False)
class Param(Node):
    """`d: axis = dp` in the head of a strategy."""

    name: Name
    kind: Name | None = None
    default: Expr | None = None


@attrs.frozen(eq=False, repr=False)
class Strategy(Documented):
    """`strategy zero3(d: axis = dp) { ... }` or `strategy big = a * b`: exactly one of `body` and `value` is given."""

    name: Name
    params: tuple[Param, ...] = ()
    body: tuple[Statement, ...] | None = None
    value: Expr | None = None


@attrs.frozen(eq=False, repr=False)
class Apply(Documented):
    value: Expr


@attrs.frozen(eq=False, repr=False)
class Selector(Node):
    """What stands in `[...]` or after `on`: a quoted glob, a dotted role, or a placement such as `replicated(tp)`."""

    value: String | Name | Call


@attrs.frozen(eq=False, repr=False)
class Placement(Documented):
    """`params["layers.*"]: shard(dp) | gather`; also `update:` and `schedule:`. The head is resolved later."""

    head: Name
    journey: Expr
    selectors: tuple[Selector, ...] = ()
    override: bool = False


@attrs.frozen(eq=False, repr=False)
class On(Documented):
    """`on attn.qkv, mlp.up { ... }`: each placement inside carries these selectors."""

    selectors: tuple[Selector, ...]
    body: tuple[Statement, ...]


@attrs.frozen(eq=False, repr=False)
class Fact(Documented):
    """`model gpt2_124m`, `hardware dgx_a100(nodes = 4)`."""

    kind: str  # "model" | "hardware"
    value: Expr


@attrs.frozen(eq=False, repr=False)
class Train(Documented):
    """`train (optimizer = adamw, seq = 2048)`."""

    args: tuple[Arg, ...]


@attrs.frozen(eq=False, repr=False)
class Claim(Documented):
    """`require cond, "why"` (before interpretation) or `assert cond` (after)."""

    kind: str  # "require" | "assert"
    condition: Expr
    message: String | None = None


@attrs.frozen(eq=False, repr=False)
class Backend(Documented):
    """`backend torch (compile = true)`."""

    name: Name
    args: tuple[Arg, ...] = ()


Statement = (
    Edition
    | Use
    | Mesh
    | FoldedAxis
    | ArgDecl
    | Let
    | Strategy
    | Apply
    | Placement
    | On
    | Fact
    | Train
    | Claim
    | Backend
)


@attrs.frozen(eq=False, repr=False)
class Comment(Node):
    """`# text` with its mark; the formatter puts it back beside the statement that it belongs to."""

    text: str


@attrs.frozen(eq=False, repr=False)
class Gap(Node):
    """A part of `statement` that could not be read: what it would have said is not known."""

    statement: Span


@attrs.frozen(eq=False, repr=False)
class File(Node):
    """A whole text. `comments` are in order of place and take no part in equality, nor do the `gaps` of a text with
    errors."""

    source: Source = attrs.field(eq=False, repr=False)
    statements: tuple[Statement, ...] = ()
    comments: tuple[Comment, ...] = attrs.field(default=(), eq=False)
    gaps: tuple[Gap, ...] = attrs.field(default=(), eq=False, repr=False)
