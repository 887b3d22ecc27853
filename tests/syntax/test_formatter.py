"""How texts look after formatting: `formats/NAME.place` becomes `NAME.expected.place`, which stays as it is.

`pytest tests/syntax/test_formatter.py --update-goldens` writes the expected files.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from placelang.syntax import ast
from placelang.syntax.formatter import format_file, print_node
from tests.syntax.test_roundtrip import check_format, parsed

FORMATS = Path(__file__).parent / "formats"
CASES = sorted(path for path in FORMATS.glob("*.place") if not path.name.endswith(".expected.place"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_layout(path: Path, update_goldens: bool) -> None:
    text = path.read_text(encoding="utf-8")
    check_format(text)
    result, golden = format_file(parsed(text)), path.with_suffix(".expected.place")
    if update_goldens:
        golden.write_text(result, encoding="utf-8")
    assert result == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("\n\n", ""),
        ("# c", "# c\n"),
        ("a:b", "a: b\n"),
        ("a: b;c: d", "a: b\nc: d\n"),
        ("a:   f( x,y = 1 , )", "a: f(x, y = 1)\n"),
        ("let x=16384", "let x = 16384\n"),
        ("let x=-( a+1 )*-b", "let x = -(a + 1) * -b\n"),
        ("a: b\n\n\n\nc: d", "a: b\n\nc: d\n"),
        ("\n\na: b", "a: b\n"),
        ("a: b # c", "a: b  # c\n"),
        ("strategy x{ }", "strategy x {}\n"),
        ("strategy x() {\n}", "strategy x {}\n"),
        ("strategy x { # c\n}", "strategy x {  # c\n}\n"),
        ("strategy x {\n# c\n}", "strategy x {\n  # c\n}\n"),
        ("a # c\n: b", "# c\na: b\n"),
        ("a ## c\n: b", "# c\na: b\n"),
        ("strategy s(a = 1\n## {no doc\n) {\nc: d\n}", "strategy s(a = 1) {\n  # {no doc\n  c: d\n}\n"),
        ("##doc\na: b", "## doc\na: b\n"),
        ("apply x with{a:b}", "apply x with { a: b }\n"),
        ("optimizer: as(master=fp32)", "optimizer: as (master = fp32)\n"),
    ],
)
def test_small(before: str, after: str) -> None:
    check_format(before)
    assert format_file(parsed(before)) == after


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (ast.Name("dp"), "dp"),
        (ast.Number(Fraction(16384)), "16_384"),
        (ast.Number(Fraction(80), "GiB"), "80GiB"),
        (ast.Binary("*", ast.Binary("+", ast.Name("a"), ast.Name("b")), ast.Name("c")), "(a + b) * c"),
        (ast.Binary("-", ast.Name("a"), ast.Binary("-", ast.Name("b"), ast.Name("c"))), "a - (b - c)"),
        (ast.Binary("*", ast.Name("a"), ast.Number(Fraction(1, 3))), "a * (1 / 3)"),
        (ast.As(ast.Then((ast.Name("a"), ast.Name("b"))), ast.Name("c")), "(a | b) as c"),
        (ast.Unary("-", ast.Binary("+", ast.Name("a"), ast.Name("b"))), "-(a + b)"),
        (ast.Arg(ast.Number(Fraction(0)), "dim"), "dim = 0"),
        (ast.AxisDecl(ast.Name("dp"), ast.Name("data"), ast.Star()), "dp: data = *"),
        (ast.Selector(ast.String("layers.*")), '"layers.*"'),
        (ast.Placement(ast.Name("params"), ast.Name("replicate"), override=True), "override params: replicate"),
        (ast.Placement(ast.Name("a"), ast.Name("b"), doc="one\ntwo"), "## one\n## two\na: b"),
        (ast.Import(ast.Name("a"), ast.Name("b")), "a as b"),
    ],
)
def test_nodes_without_a_text(node: ast.Node, text: str) -> None:
    assert print_node(node) == text


def test_a_changed_number_is_not_printed_as_it_was() -> None:
    import attrs

    number = parsed("let x = 1e3").statements[0].value  # type: ignore[union-attr]
    assert print_node(number) == "1e3"  # type: ignore[arg-type]
    assert print_node(attrs.evolve(number, value=Fraction(5))) == "5"  # type: ignore[arg-type]
