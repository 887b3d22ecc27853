"""What the tool says of a strategy's text, and how papers print the same: for tests against published figures.

Not for: the figures themselves (benchmarks/facts).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from math import floor
from pathlib import Path
from typing import Any

import attrs
import sympy
from sympy.parsing.sympy_parser import convert_xor, implicit_multiplication, parse_expr, standard_transformations

import placelang
from placelang.cost import memory as memory_room
from placelang.cost.cost import Cost
from placelang.cost.expr import Expr, evaluate
from placelang.cost.stages import at, in_flight
from placelang.cost.traffic import Traffic, traffic

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Row = dict[str, Any]


def table(path: Path) -> dict[str, Any]:
    """What a TOML file says."""
    return tomllib.loads(path.read_text("utf-8"))


FACTS = Path(__file__).parents[2] / "benchmarks" / "facts"


def rows(kind: str = "analytic") -> Iterator[tuple[str, Row]]:
    """The rows of a kind in all files, each with the name of its file."""
    for path in sorted(FACTS.glob("*.toml")):
        for row in table(path).get("case", ()):
            if row["kind"] == kind:
                yield path.stem, row


def cost(text: str, **sets: object) -> Cost:
    strategy = placelang.load(text, **sets)  # type: ignore[arg-type]
    assert strategy.ok, strategy.diagnostics
    return strategy.cost()


def number(found: Cost, *parts: Expr) -> Fraction:
    return sum((Fraction(evaluate(part, found.values)) for part in parts), Fraction(0))


def at_rest(found: Cost) -> Fraction:
    """Bytes of parameters, gradients and optimizer."""
    return number(found, *(e for _, e in found.memory.rest))


def alg(found: Cost, rows: tuple[Traffic, ...] | None = None) -> Fraction:
    return number(found, *(t.alg for t in (found.traffic if rows is None else rows)))


def wire(found: Cost, rows: tuple[Traffic, ...]) -> Fraction:
    return number(found, *(t.wire for t in rows))


def printed(value: Fraction, text: str) -> bool:
    """Whether a value is a printed figure, rounded or truncated to its digits."""
    match = re.search(r"\d+(?:\.(\d+))?", text)
    assert match
    unit = 10 ** len(match[1] or "")
    return Fraction(match[0]) * unit in (floor(value * unit), floor(value * unit + Fraction(1, 2)))


def formula(text: str, **values: object) -> Fraction:
    """A published formula in numbers."""
    parsed = parse_expr(text, transformations=(*standard_transformations, implicit_multiplication, convert_xor))
    found = sympy.Rational(parsed.subs({sympy.Symbol(k): sympy.Rational(str(v)) for k, v in values.items()}))
    return Fraction(int(found.p), int(found.q))


EXACT = {
    7_500_000_000: "layers = 81, hidden = 6400, heads = 50, kv_heads = 2, ffn = 512, vocab = 10_496",
    128_000_000_000: "layers = 207, hidden = 25_600, heads = 5, kv_heads = 1, head_dim = 1024, ffn = 5120,"
    " vocab = 335_872, norm = layernorm, embedding_norm = true",
    1_000_000_000_000: "layers = 248, hidden = 25_600, heads = 8, kv_heads = 8, head_dim = 1024, ffn = 61_440,"
    " vocab = 460_800, norm = layernorm, embedding_norm = true",
}
"""Shapes with just so many parameters, whose rows 64 ranks and more divide: no published model has them."""


def model(parameters: int) -> str:
    """A line for a model of just so many parameters."""
    shape = EXACT.get(parameters)
    if shape is None:
        vocab = parameters // 1000 - 1 - 2 * (3000 + 1)
        shape = f"layers = 1, hidden = 1000, heads = 1, ffn = 1000, vocab = {vocab}"
    return f"model transformer({shape}, mlp = gelu, tied = true)"


STAGE = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}


@cache
def zero(stage: int, parameters: int, dp: int, tp: int = 1, precision: str = "fp16", microbatches: int = 1) -> Cost:
    split = " * tensor_parallel(tp)" if tp > 1 else ""
    train = f"train (precision = {precision}, seq = 1024, micro_batch = 1, microbatches = {microbatches})"
    return cost(f"{model(parameters)}\n{train}\nmesh (dp = {dp}, tp = {tp})\napply {STAGE[stage]}(dp){split}")


SHAPE = "model transformer(layers = 48, hidden = 64, heads = 4, ffn = 256, vocab = 128)"
TRAIN = "train (precision = bf16, seq = 128, micro_batch = 1, microbatches = {m})"


@attrs.frozen
class Pipeline:
    """Of a pipeline of `SHAPE`, the most microbatches in flight on a rank, bytes that all ranks send on, and copies of
    the model states on all ranks."""

    in_flight: Fraction
    sent: Fraction
    copies: Fraction


def pipelined(schedule: str, p: int, m: int) -> Pipeline:
    train = TRAIN.format(m=m)
    text = f"{SHAPE}\n{train}\nmesh (pp = {p})\napply pipelined(pp, schedule = {schedule})"
    strategy = placelang.load(text)
    assert strategy.ok and strategy.plan and strategy.program.stages, strategy.diagnostics
    found, stages = strategy.cost(), strategy.program.stages
    held = max(number(found, in_flight(strategy.plan, stages, rank)) for rank in stages.coordinates)
    parts = [at(strategy.program, strategy.model, rank)[0] for rank in stages.coordinates]
    sent = sum((wire(found, tuple(t for t in traffic(part) if t.kind == "send")) for part in parts), Fraction(0))
    rest = sum((number(found, *memory_room.rest(part).values()) for part in parts), Fraction(0))
    alone = cost(f"{SHAPE}\n{train}\nmesh (dp = 1)\napply ddp(dp)")
    return Pipeline(held, sent, rest / at_rest(alone))
