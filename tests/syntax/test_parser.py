"""The shape of trees, their spans, and how far a mistake reaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.parser import needs_more, parse
from placelang.syntax.recovery import MAX_ERRORS
from placelang.syntax.scan import MAX_DEPTH
from tests.syntax import trees
from tests.syntax.test_roundtrip import parsed


def value(text: str) -> Any:
    (statement,) = parsed(f"let x = {text}").statements
    assert isinstance(statement, ast.Let)
    return statement.value


def shape(node: Any) -> str:
    """The tree with all its parentheses."""
    match node:
        case ast.Binary():
            return f"({shape(node.left)} {node.op} {shape(node.right)})"
        case ast.Unary():
            return f"({node.op} {shape(node.operand)})"
        case ast.Then():
            return f"({' | '.join(map(shape, node.steps))})"
        case ast.As():
            return f"({shape(node.form) if node.form else ''} as {shape(node.dtypes)})"
        case ast.With():
            return f"({shape(node.base)} with {len(node.body)})"
        case ast.Group():
            return f"[{shape(node.inner)}]"
        case ast.Call():
            return f"{node.func.text}({', '.join(shape(a.value) for a in node.args)})"
        case ast.Number():
            return f"{node.value}{node.unit}"
    return node.text if isinstance(node, ast.Name) else repr(node)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a * b * c", "((a * b) * c)"),
        ("a - b - c", "((a - b) - c)"),
        ("a + b * c", "(a + (b * c))"),
        ("-a * b", "((- a) * b)"),
        ("a | b * c as d | e", "(a | ((b * c) as d) | e)"),
        ("a | b with { }", "((a | b) with 0)"),
        ("a with { } with { p: q }", "((a with 0) with 1)"),
        ("as d | e", "(( as d) | e)"),
        ("not a == b and c or d", "(((not (a == b)) and c) or d)"),
        ("a + 1 <= b * 2", "((a + 1) <= (b * 2))"),
        ("(a + b) * c", "([(a + b)] * c)"),
        ("(a with { }) * b", "([(a with 0)] * b)"),
        ("80GiB/stages", "(80GiB / stages)"),
        ("80GiB/s", "80GiB/s"),
        ("16/s", "(16 / s)"),
        ("1e-3 - 1", "(1/1000 - 1)"),
        ("1f1b", "1f1b"),
        ("f(1f1b(x), 2)", "f(1f1b(x), 2)"),
    ],
)
def test_binding(text: str, tree: str) -> None:
    assert shape(value(text)) == tree


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a: b; c: d", 2),
        ("a: b;;\n;c: d;", 2),
        ("a: b\n| c", 1),
        ("a: b # x\n # y * z\n | c", 1),
        ("a: b # | c\nd: e", 2),
        ("a: b # or * = what\nd: e", 2),
        ("a: b |\n\n c", 1),
        ("a: b\n* c\nd: e", 2),
        ("a: b\nwith { c: d }", 1),
        ("a: b\nwithin: d", 2),
        ("strategy a\n{ b: c\nd: e }\nf: g", 2),
        ("a: f(b,\n\n  c # d\n)", 1),
        ("a: f\n(b)", 1),
        ("apply\nzero3", 1),
        ("on a,\n b { c: d }", 1),
        ("model a\nhardware b", 2),
    ],
)
def test_separators(text: str, count: int) -> None:
    assert len(parsed(text).statements) == count


@pytest.mark.parametrize("word", ["place", "axis", "model", "on", "train", "use", "mesh", "strategy"])
def test_keywords_are_names_where_no_statement_begins(word: str) -> None:
    assert value(f"f({word} = {word}, {word})").args[0] == ast.Arg(ast.Name(word), word)


def test_fields() -> None:
    text = """mesh moe (efsdp: data = *, ep) over (dp, cp)
override params["a", b.c, sharded(ep)]: x
use "./h.place" (a, b as c)
"""
    mesh, placement, use = parsed(text).statements
    assert mesh == ast.Mesh(
        (ast.AxisDecl(ast.Name("efsdp"), ast.Name("data"), ast.Star()), ast.AxisDecl(ast.Name("ep"))),
        ast.Name("moe"),
        (ast.Name("dp"), ast.Name("cp")),
    )
    sharded = ast.Call(ast.Name("sharded"), (ast.Arg(ast.Name("ep")),))
    selectors = tuple(ast.Selector(v) for v in (ast.String("a"), ast.Name("b.c"), sharded))
    assert placement == ast.Placement(ast.Name("params"), ast.Name("x"), selectors, True)
    assert use == ast.Use("./h.place", (ast.Import(ast.Name("a")), ast.Import(ast.Name("b"), ast.Name("c"))))


def nodes(node: Any) -> Iterator[ast.Node]:
    """The node and all below it."""
    if isinstance(node, ast.Node):
        yield node
        for field in attrs.fields(type(node)):
            if field.name not in ("span", "source"):
                yield from nodes(getattr(node, field.name))
    elif isinstance(node, tuple):
        for item in node:
            yield from nodes(item)


@pytest.mark.parametrize("text", trees.samples())
def test_spans_are_exact(text: str) -> None:
    """Each node's text is the node, bare of spaces, and inside the text of what holds it."""
    file = parsed(text)
    for statement in file.statements:
        undocumented = attrs.evolve(statement, doc="") if isinstance(statement, ast.Documented) else statement
        if not isinstance(statement, ast.Edition):
            (alone,) = parsed(statement.span.text).statements
            assert alone == undocumented
        for node in nodes(statement):
            inside = node.span.text
            assert inside == inside.strip() != ""
            assert statement.span.start <= node.span.start < node.span.end <= statement.span.end
            if isinstance(node, ast.Name):
                assert inside == node.text
            elif isinstance(node, ast.Expr) and not isinstance(node, ast.Star):
                assert value(inside) == node
            elif isinstance(node, ast.Arg) and node.name:
                assert node.name_span.text == node.name


def test_documentation_and_comments() -> None:
    text = """## header of the file
place 1

## What it is.
##   More of it.
# not part of it

strategy a {  ## beside
  ## inner
  params: b  # beside
  #### a rule
}
##
model m
## nothing follows
"""
    file = parsed(text)
    strategy = file.statements[1]
    assert isinstance(strategy, ast.Strategy)
    assert strategy.doc == "What it is.\n  More of it."
    assert strategy.body is not None
    assert strategy.body[0] == ast.Placement(ast.Name("params"), ast.Name("b"), doc="inner")
    assert [c.text for c in file.comments] == [
        "## header of the file", "# not part of it", "## beside", "# beside", "#### a rule", "##", "## nothing follows",
    ]  # fmt: skip


def errors(text: str) -> list[str]:
    return [d.primary.span.text for d in parse(Source(text))[1] if d.primary]


def test_each_statement_has_its_own_error_and_the_others_are_kept() -> None:
    text = "params shard(dp)\ngrads: x\nstrategy a { params: b -> c; grads: d\n optimizer = e }\nmodle m\nhardware h"
    file, _ = parse(Source(text))
    assert errors(text) == ["shard", "->", "=", "modle"]
    grads, strategy, hardware = file.statements
    assert (grads, hardware) == (parsed("grads: x").statements[0], parsed("hardware h").statements[0])
    assert strategy == parsed("strategy a { grads: d }").statements[0]


def test_a_line_that_goes_on_is_no_error_beside_a_real_one() -> None:
    assert errors("apply\n  zero3\nparams shard(dp)") == ["shard"]


@pytest.mark.parametrize(
    "text",
    [
        "params: f(a\ngrads: b\noptimizer: c",
        "params[a: b\ngrads: b\noptimizer: c",
        "params: f(a,\ngrads: b\noptimizer: c",
        "params: f(a ; grads: b\noptimizer: c",
        "strategy s {\n  params: f(a }\ngrads: b\noptimizer: c",
        "strategy s {\n  params: a\ngrads: b\noptimizer: c",
        "params: a)\ngrads: b\noptimizer: c",
        "params: f(a]\ngrads: b\noptimizer: c",
        "params: f[a)\ngrads: b\noptimizer: c",
        "params: a }\ngrads: b\noptimizer: c",
        'params["x: a\ngrads: b\noptimizer: c',
        "params: f(a, $)\ngrads: b\noptimizer: c",
        "params: " + "(" * 200 + ")" * 200 + "\ngrads: b\noptimizer: c",
    ],
)
def test_a_wrong_bracket_spoils_one_statement(text: str) -> None:
    file, diagnostics = parse(Source(text))
    assert len(diagnostics) == 1
    assert file.statements[-2:] == parsed("grads: b\noptimizer: c").statements


def test_too_many_errors_are_cut() -> None:
    _, diagnostics = parse(Source("a b\n" * 1000))
    assert len(diagnostics) == MAX_ERRORS + 1
    assert not diagnostics[-1].is_error


@pytest.mark.parametrize(
    "text",
    [
        "let x = " + "(" * 5000 + "1" + ")" * 5000,
        "let x = " + "(" * 5000,
        "strategy a { on b { " * 5000,
        "let x = " + "a * " * 5000 + "b",
        "let x = " + "a\n* " * 5000 + "b",
        "let x = " + "a and\n" * 5000 + "b",
        "let x = " + "-" * 5000 + "1",
        "require " + "not " * 5000 + "a",
        "apply a " + "with { } " * 5000,
        "let x = " + "[f(" * 5000 + ")]" * 5000,
        "let x = " + "((a + a + a + a) + " * 5000,
    ],
)
def test_depth_has_a_limit(text: str) -> None:
    file, diagnostics = parse(Source(text + "\nparams: a"))
    assert diagnostics
    assert len(repr(file)) < 10_000


def test_long_is_not_deep() -> None:
    parsed("let x = [" + "a + 1, " * 3000 + "b]")
    parsed("params: " + "f(a * b) | " * 3000 + "b")
    parsed("require a * b * c + d == e\n" * 500)
    parsed("let x = " + " + ".join("a" * MAX_DEPTH))


@pytest.mark.parametrize(
    "text",
    [
        "params:",
        "params: f(",
        "params: a |",
        "params: a *\n",
        "strategy x",
        "strategy x {",
        "strategy x { params: a",
        "apply",
        "let x =",
        "on a,",
        "mesh (dp = 8,",
        "require a ==",
        "apply a with",
        "params[",
        "# c\nparams: f(  # d\n",
    ],
)
def test_needs_more(text: str) -> None:
    assert needs_more(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "params: a",
        "params: a\n",
        "strategy x { }",
        "params: )",
        'params: "a',
        "params: a b",
        "params: f(]",
        "a: $ (",
        "# c",
        "mesh (dp = 8)",
        ") (",
    ],
)
def test_needs_no_more(text: str) -> None:
    assert not needs_more(text)
