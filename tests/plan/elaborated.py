"""What tests of plans ask of a text: that it has a plan, and that elaborating the elaboration changes nothing."""

from __future__ import annotations

from pathlib import Path

from placelang.api import Strategy, load_source
from placelang.plan.plan import Plan
from placelang.source import Source

ROOT = Path(__file__).parents[2]


def read(text: str, name: str = "<text>") -> Strategy:
    return load_source(Source(text, name))


def plan_of(text: str, name: str = "<text>") -> Plan:
    strategy = read(text, name)
    assert strategy.plan is not None, [f"{d.code} {d.message}" for d in strategy.diagnostics]
    return strategy.plan


def is_fixed_point(strategy: Strategy) -> None:
    """`explain` prints valid text, whose plan and whose elaboration are the same."""
    assert strategy.plan is not None, [f"{d.code} {d.message}" for d in strategy.diagnostics]
    text = strategy.explain()
    again = read(text, strategy.source.name)
    assert again.plan is not None, [f"{d.code} {d.message}" for d in again.diagnostics]
    for part in ("mesh", "placed", "update", "train", "schedule", "model", "hardware"):
        assert getattr(again.plan, part) == getattr(strategy.plan, part), part
    assert statements(again.explain()) == statements(text)


def statements(text: str) -> list[str]:
    """The lines that are no reasons."""
    return [line for line in text.splitlines() if not line.startswith("#")]


def journeys(text: str) -> dict[str, str]:
    """The elaborated journeys of a text by what stands before the colon, without spacing."""
    found = {}
    for line in statements(read(text).explain()):
        head, colon, journey = line.removesuffix(" }").partition(": ")
        if colon and not line.startswith(("mesh", "train", "let", "require", "assert", "hardware")):
            found[head.strip()] = journey.strip()
    return found
