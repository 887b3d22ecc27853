"""The untyped syntax tree of a `.place` text, one frozen class per construct.

Everything in a text is here, nothing of its meaning: names are unresolved, journeys and values share one expression
grammar. Equality ignores spans, so `parse(print(tree)) == tree` can be asked. Not for: checked values (`plan`).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import attrs

from placelang.source import Source, Span

_NOWHERE = Span(Source("", "<built>"), 0, 0)


@attrs.frozen(kw_only=True)
class Node:
    """Anything with a place in the text; trees built by hand have none."""

    span: Span = attrs.field(default=_NOWHERE, eq=False, repr=False)


# --- expressions: journeys and values alike -------------------------------------------------------------------------


@attrs.frozen
class Name(Node):
    """A bare or dotted name: `dp`, `attn.q`, `memory.peak`, and digit-words that are names (`1f1b`)."""

    text: str


@attrs.frozen
class Number(Node):
    """`16_384`, `0.9`, `40GB/s`. `value` is exact, in the written unit; `unit` is the written unit or empty."""

    value: Fraction
    unit: str = ""


@attrs.frozen
class String(Node):
    value: str


@attrs.frozen
class Star(Node):
    """A lone `*` as a mesh size: what is left of the devices."""


@attrs.frozen
class List(Node):
    items: tuple[Expr, ...]


@attrs.frozen
class Arg(Node):
    """`value` or `name = value` inside parentheses."""

    value: Expr
    name: str | None = None
    name_span: Span = attrs.field(default=_NOWHERE, eq=False, repr=False)


@attrs.frozen
class Call(Node):
    """`shard(dp, dim = 0)`. A bare name stays a `Name`, though it means a call without arguments."""

    func: Name
    args: tuple[Arg, ...]


@attrs.frozen
class Unary(Node):
    op: str  # "-" | "not"
    operand: Expr


@attrs.frozen
class Binary(Node):
    op: str  # "*" "/" "%" "+" "-" "<" "<=" ">" ">=" "==" "!=" "and" "or"
    left: Expr
    right: Expr


@attrs.frozen
class Then(Node):
    """`a | b | c`: steps in the order of time."""

    steps: tuple[Expr, ...]


@attrs.frozen
class As(Node):
    """`form as bf16` or `form as (master = fp32, moments = bf16)`; `form` may be missing: `optimizer: as (...)`."""

    form: Expr | None
    dtypes: Name | tuple[Arg, ...]


@attrs.frozen
class With(Node):
    """`base with { override ... }`."""

    base: Expr
    body: tuple[Statement, ...]


@attrs.frozen
class Group(Node):
    """Parentheses around an expression, kept so that the printer gives back what was written."""

    inner: Expr


Expr = Name | Number | String | Star | List | Call | Unary | Binary | Then | As | With | Group


def names(expr: Expr) -> Iterator[Name]:
    """The names in a value that may be those of values: all but what is called."""
    match expr:
        case Name():
            yield expr
        case Group(inner):
            yield from names(inner)
        case Unary(_, operand):
            yield from names(operand)
        case Binary(_, left, right):
            yield from names(left)
            yield from names(right)
        case List(items):
            for item in items:
                yield from names(item)
        case Call(_, args):
            for arg in args:
                yield from names(arg.value)


# --- statements -----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Documented(Node):
    """A statement that `##` lines may document; `doc` is their text without the marks."""

    doc: str = ""


@attrs.frozen
class Edition(Node):
    """`place 1`."""

    number: int


@attrs.frozen
class Import(Node):
    """`ours` or `theirs as t` in the parentheses of `use`."""

    name: Name
    alias: Name | None = None


@attrs.frozen
class Use(Node):
    """`use "./house.place" (ours, theirs as t)`; no names: all of them."""

    path: str
    names: tuple[Import, ...] = ()


@attrs.frozen
class AxisDecl(Node):
    """One axis inside `mesh (...)`: `name: role = size`; `size` is None when symbolic."""

    name: Name
    role: Name | None = None
    size: Expr | None = None


@attrs.frozen
class Mesh(Documented):
    """`mesh moe (efsdp = *, ep = 32) over (dp, tp)`; the main mesh has no name and no `over`."""

    axes: tuple[AxisDecl, ...]
    name: Name | None = None
    over: tuple[Name, ...] = ()


@attrs.frozen
class FoldedAxis(Documented):
    """`axis fsdp = dp_shard * cp`."""

    name: Name
    value: Expr


@attrs.frozen
class ArgDecl(Documented):
    """`arg depth: int = 8`."""

    name: Name
    kind: Name | None = None
    default: Expr | None = None


@attrs.frozen
class Let(Documented):
    name: Name
    value: Expr
    kind: Name | None = None


@attrs.frozen
class Param(Node):
    """`d: axis = dp` in the head of a strategy."""

    name: Name
    kind: Name | None = None
    default: Expr | None = None


@attrs.frozen
class Strategy(Documented):
    """`strategy zero3(d: axis = dp) { ... }` or `strategy big = a * b`: exactly one of `body` and `value` is given."""

    name: Name
    params: tuple[Param, ...] = ()
    body: tuple[Statement, ...] | None = None
    value: Expr | None = None


@attrs.frozen
class Apply(Documented):
    value: Expr


@attrs.frozen
class Selector(Node):
    """What stands in `[...]` or after `on`: a quoted glob, a dotted role, or a placement such as `replicated(tp)`."""

    value: String | Name | Call


@attrs.frozen
class Placement(Documented):
    """`params["layers.*"]: shard(dp) | gather`; also `update:` and `schedule:`. The head is resolved later."""

    head: Name
    journey: Expr
    selectors: tuple[Selector, ...] = ()
    override: bool = False


@attrs.frozen
class On(Documented):
    """`on attn.qkv, mlp.up { ... }`: each placement inside carries these selectors."""

    selectors: tuple[Selector, ...]
    body: tuple[Statement, ...]


@attrs.frozen
class Fact(Documented):
    """`model gpt2_124m`, `hardware dgx_a100(nodes = 4)`."""

    kind: str  # "model" | "hardware"
    value: Expr


@attrs.frozen
class Train(Documented):
    """`train (optimizer = adamw, seq = 2048)`."""

    args: tuple[Arg, ...]


@attrs.frozen
class Claim(Documented):
    """`require cond, "why"` (before interpretation) or `assert cond` (after)."""

    kind: str  # "require" | "assert"
    condition: Expr
    message: String | None = None


@attrs.frozen
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


@attrs.frozen
class Comment(Node):
    """`# text` with its mark; the formatter puts it back beside the statement that it belongs to."""

    text: str


@attrs.frozen
class File(Node):
    """A whole text. `comments` are in order of place and take no part in equality."""

    source: Source = attrs.field(eq=False, repr=False)
    statements: tuple[Statement, ...] = ()
    comments: tuple[Comment, ...] = attrs.field(default=(), eq=False)
