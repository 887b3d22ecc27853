"""Where a diagnostic points in the text, and what its edits do there."""

from __future__ import annotations

import attrs

from placelang.check import check_plan
from placelang.diagnostics.diagnostic import Diagnostic, Fix
from placelang.diagnostics.render import text as rendered
from placelang.plan.plan import Plan
from placelang.plan.steps import Partial, Reduce, Replicate, Shard, Step
from placelang.source import Source, Span
from tests.simulate.strategies import mesh, plan, tiny

A = ("dp",)


def at(source: Source, step: Step, words: str) -> Step:
    start = source.text.index(words)
    return attrs.evolve(step, span=Span(source, start, start + len(words)))


def edited(fix: Fix, source: Source) -> str:
    text = source.text
    for edit in sorted(fix.edits, key=lambda e: -e.span.start):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


def only(job: Plan) -> Diagnostic:
    (diagnostic,) = check_plan(job, tiny()).diagnostics
    return diagnostic


def test_a_partial_gradient_points_at_grads_and_at_activations() -> None:
    source = Source("activations: shard(dp, dim = batch)\ngrads: partial(dp)  # reduced nowhere\n", "bad.place")
    grads = at(source, Partial(axes=A), "partial(dp)")
    activations = at(source, Shard(axes=A, dim="batch"), "shard(dp, dim = batch)")
    d = only(plan(mesh(dp=2), (Replicate(),), (grads,), (Replicate(),), activations=(activations,)))
    assert d.primary is not None and d.primary.span.text == "partial(dp)"
    assert [(label.span.text, label.text) for label in d.causes] == [
        ("shard(dp, dim = batch)", "each `dp` rank sees other samples")
    ]
    assert edited(d.fixes[0], source).endswith("grads: all_reduce(dp)  # reduced nowhere\n")
    shown = rendered([d])
    assert "bad.place:2:8" in shown and "each `dp` rank sees other samples" in shown and "counterexample" in shown


def test_a_second_sum_points_at_the_first() -> None:
    source = Source("grads: reduce_scatter(dp) | all_reduce(dp, when = microbatch) | all_reduce(dp)")
    first = at(source, Reduce(axes=A, scatter=False), "all_reduce(dp, when = microbatch)")
    again = at(source, Reduce(axes=A, scatter=False), "all_reduce(dp)")
    d = only(plan(mesh(dp=2), (Replicate(),), (Partial(axes=A), first, again), (Replicate(),)))
    assert d.primary is not None and d.primary.span == again.span
    assert [label.span for label in d.causes] == [first.span]


def test_a_missing_refresh_points_at_params_and_optimizer() -> None:
    source = Source("params: replicate\noptimizer: shard(dp)\n")
    params = at(source, Replicate(), "replicate")
    optimizer = at(source, Shard(axes=A), "shard(dp)")
    grads = (Partial(axes=A), Reduce(axes=A, scatter=False))
    d = only(plan(mesh(dp=2), (params,), grads, (optimizer,)))
    assert d.primary is not None and d.primary.span.text == "replicate"
    assert [label.span.text for label in d.causes] == ["shard(dp)"]
    assert edited(d.fixes[0], source) == "params: replicate\noptimizer: shard(dp); update: all_gather(dp)\n"


def test_a_format_that_stays_is_not_edited() -> None:
    source = Source("grads: partial(dp) as fp32")
    grads = attrs.evolve(at(source, Partial(axes=A), "partial(dp)"), dtype="fp32")
    d = only(plan(mesh(dp=2), (Replicate(),), (grads,), (Replicate(),)))
    assert d.fixes[0].title == "`grads: all_reduce(dp)`" and d.fixes[0].edits == ()
