"""Hypothesis strategies for syntax trees as the parser makes them, and texts made by mutation of good ones."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from placelang._resources import data
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.outline import KEYWORDS
from placelang.syntax.words import UNITS

RESERVED = {"and", "as", "not", "or", "over", "with"}
BLOCKS = sorted((Path(__file__).parent / "blocks").glob("*.place"))


def samples() -> list[str]:
    """Good texts: the blocks of the language reference and the standard library."""
    return [path.read_text() for path in (*BLOCKS, *sorted(data("stdlib").rglob("*.place")))]


_words = st.sampled_from(
    ["dp", "tp", "shard", "gather", "params", "x1", "_", "model", "mesh", "On", "a_b"]
) | st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(lambda w: w not in RESERVED)
declared = _words.map(ast.Name)
dotted = st.lists(_words, min_size=1, max_size=3).map(lambda words: ast.Name(".".join(words)))
names = dotted | st.sampled_from(["1f1b", "2d", "3x4"]).map(ast.Name)
heads = dotted.filter(lambda name: name.text not in KEYWORDS)
numbers = st.builds(
    ast.Number,
    st.integers(0, 10**18).map(Fraction) | st.decimals(0, 10**6, places=4).map(Fraction),
    st.sampled_from(["", *sorted(UNITS)]),
)
texts = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"], include_characters='\n\t"\\'), max_size=12)
strings = st.builds(ast.String, texts)
_doc_line = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=9).map(str.rstrip)
docs = (
    st.lists(_doc_line, max_size=3)
    .map("\n".join)
    .filter(lambda doc: not doc or (doc.strip() and not doc.startswith("\n")))
)


def _tuples(items: st.SearchStrategy[Any], least: int = 0, most: int = 3) -> st.SearchStrategy[Any]:
    return st.lists(items, min_size=least, max_size=most).map(tuple)


# Expressions by how tightly they bind, loosest first as in the grammar: parentheses stand only where a Group is.
_LEVELS = ("with", "then", "as", "or", "and", "not", "compare", "sum", "product", "minus", "atom")
_OPERATORS = {
    "or": ["or"], "and": ["and"], "compare": ["<", "<=", ">", ">=", "==", "!="], "sum": ["+", "-"],
    "product": ["*", "/", "%"],
}  # fmt: skip


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3, least: str = "with") -> ast.Expr:
    """An expression that binds at least as tightly as `least`."""
    levels = _LEVELS[_LEVELS.index(least) :] if depth > 0 else ("atom",)
    level = draw(st.sampled_from((*levels, "atom")))
    tighter = _LEVELS[min(_LEVELS.index(level) + 1, len(_LEVELS) - 1)]

    def inner(least: str) -> ast.Expr:
        return draw(expressions(depth - 1, least))

    match level:
        case "with":
            return ast.With(inner("with"), draw(bodies(depth - 1)))
        case "then":
            return ast.Then(draw(_tuples(expressions(depth - 1, "as"), 2)))
        case "as":
            form = draw(st.none() | expressions(depth - 1, "or"))
            return ast.As(form, draw(dotted | _tuples(arguments(depth - 1))))
        case "not" | "minus":
            return ast.Unary("not" if level == "not" else "-", inner(level))
        case "compare":
            return ast.Binary(draw(st.sampled_from(_OPERATORS[level])), inner(tighter), inner(tighter))
        case "or" | "and" | "sum" | "product":
            operator = draw(st.sampled_from(_OPERATORS[level]))
            left, right = inner(level), inner(tighter)
            if any(isinstance(x, ast.Group) and isinstance(x.inner, ast.Then | ast.As) for x in (left, right)):
                operator = {"*": "/"}.get(operator, operator)  # `*` joins no journeys in parentheses
            return ast.Binary(operator, left, right)
    return draw(_atoms(depth))


@st.composite
def _atoms(draw: st.DrawFn, depth: int) -> ast.Expr:
    kind = draw(st.sampled_from(["name", "number", "string", "call", "group", "list"][: 6 if depth > 0 else 3]))
    match kind:
        case "number":
            return draw(numbers)
        case "string":
            return draw(strings)
        case "call":
            return draw(calls(depth - 1))
        case "group":
            return ast.Group(draw(expressions(depth - 1)))
        case "list":
            return ast.List(draw(_tuples(expressions(depth - 1))))
    return draw(names)


@st.composite
def calls(draw: st.DrawFn, depth: int = 1) -> ast.Call:
    return ast.Call(draw(names), draw(_tuples(arguments(depth))))


@st.composite
def arguments(draw: st.DrawFn, depth: int = 2) -> ast.Arg:
    value, name = draw(expressions(depth)), draw(st.none() | dotted)
    if isinstance(value, ast.Binary) and value.op == "==" and isinstance(value.left, ast.Name):
        name = name or ast.Name("x")  # `f(x == 1)` is refused: most likely `=` was meant
    return ast.Arg(value, name.text if name else None)


@st.composite
def placements(draw: st.DrawFn, depth: int = 3) -> ast.Placement:
    chosen = draw(_tuples(selectors, most=2))
    return ast.Placement(draw(heads), draw(expressions(depth)), chosen, draw(st.booleans()), doc=draw(docs))


@st.composite
def bodies(draw: st.DrawFn, depth: int = 2) -> tuple[ast.Statement, ...]:
    def statement() -> ast.Statement:
        if depth > 0 and draw(st.booleans()):
            return ast.On(draw(_tuples(selectors, 1, 2)), draw(bodies(depth - 1)), doc=draw(docs))
        return draw(placements(depth))

    return tuple(statement() for _ in range(draw(st.integers(0, 2))))


selectors = st.builds(ast.Selector, strings | dotted | calls())
_kinds = st.none() | dotted
_maybe = st.none() | expressions()
_params = st.builds(ast.Param, declared, _kinds, _maybe)
_axes = st.builds(ast.AxisDecl, declared, _kinds, st.builds(ast.Star) | _maybe)
_imports = st.builds(ast.Import, dotted, st.none() | declared)
_fact = st.sampled_from(["model", "hardware"])
_claim = st.sampled_from(["require", "assert"])
statements = st.one_of(
    placements(),
    st.builds(ast.Use, texts, _tuples(_imports)),
    st.builds(ast.Mesh, _tuples(_axes, 1), st.none() | declared, _tuples(dotted), doc=docs),
    st.builds(ast.FoldedAxis, declared, expressions(), doc=docs),
    st.builds(ast.ArgDecl, declared, _kinds, _maybe, doc=docs),
    st.builds(ast.Let, declared, expressions(), _kinds, doc=docs),
    st.builds(ast.Strategy, declared, _tuples(_params), bodies(), doc=docs),
    st.builds(ast.Strategy, declared, _tuples(_params), st.none(), expressions(), doc=docs),
    st.builds(ast.Apply, expressions(), doc=docs),
    st.builds(ast.On, _tuples(selectors, 1, 2), bodies(), doc=docs),
    st.builds(ast.Fact, _fact, expressions(), doc=docs),
    st.builds(ast.Train, _tuples(arguments()), doc=docs),
    st.builds(ast.Claim, _claim, expressions(), st.none() | strings, doc=docs),
    st.builds(ast.Backend, declared, _tuples(arguments()), doc=docs),
)


@st.composite
def files(draw: st.DrawFn) -> ast.File:
    edition = draw(st.sampled_from([(), (ast.Edition(1),)]))
    return ast.File(Source("", "<built>"), (*edition, *draw(_tuples(statements, most=4))))


PIECES = (
    *'()[]{}|*:=;,\n #"\\-@.\té',
    *(
        "with",
        "as",
        "and",
        "not",
        "override ",
        "params: ",
        "strategy x {",
        "on a {",
        "apply ",
        "80GiB",
        "1f1b",
        "1e9",
        "==",
        "//",
    ),
    *("\n\n", "# c\n", "## d\n", " # e\n"),
)


def mutant(text: str, rng: random.Random) -> str:
    """The text after one to four small edits: deletions, insertions, swaps, copies of lines."""
    for _ in range(rng.randint(1, 4)):
        i = rng.randrange(len(text) + 1)
        j = min(len(text), i + rng.choice((1, 1, 2, 5, 20)))
        match rng.randrange(5):
            case 0:
                text = text[:i] + text[j:]
            case 1 | 2:
                text = text[:i] + rng.choice(PIECES) + text[i:]
            case 3:
                text = text[:i] + rng.choice(PIECES) + text[j:]
            case 4:
                k = rng.randrange(len(text) + 1)
                text = text[:k] + text[i:j] + text[k:]
    return text
