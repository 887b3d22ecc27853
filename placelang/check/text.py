"""Small phrases that messages and fixes share: axes, layouts, steps and events as the language writes them.

Not for: whole strategies with their reasons (`plan.explain`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from placelang.plan.steps import AllGather, Collective, Gather, Keep, Partial, Reduce, Replicate, Shard, Step, When
from placelang.program.event import Event, Layout, Op


def listed(names: Iterable[str]) -> str:
    """`a`, `b` and `c`, in backquotes."""
    quoted = [f"`{name}`" for name in names]
    return " and ".join(filter(None, [", ".join(quoted[:-1]), *quoted[-1:]]))


def placed(layout: Layout) -> str:
    """A layout as a form: `shard(dp_replicate * dp_shard)`, `shard(dp, dim = batch)`, `replicate`."""
    if not layout:
        return "`replicate`"
    runs: list[tuple[str, list[str]]] = []
    for axis, label in layout:
        if not runs or runs[-1][0] != label.dim:
            runs.append((label.dim, []))
        runs[-1][1].append(axis)
    return f"`{' * '.join(_call('shard', axes, [] if dim == '0' else [f'dim = {dim}']) for dim, axes in runs)}`"


def reduction(event: Event) -> str:
    """An event as the subject of a sentence: `all_reduce` over `dp`, or the forward of `h`."""
    if event.axes:
        return f"`{event.op.value}` over {listed(event.axes)}"
    name = {Op.OPT: "the optimizer", Op.WGRAD: "the weight gradient", Op.ACC: "the accumulation"}.get(event.op)
    return f"{name or f'the {event.op.value}'}{f' of `{event.site}`' if event.site else ''}"


def written(journey: Sequence[Step]) -> str:
    """A journey as short as the language allows; `partial` is left out, as inference adds it.

    Empty if it holds what is said in other words than axes, dims, times and formats: no edit should retype those.
    """
    steps = [step for step in journey if not isinstance(step, Partial)]
    texts = [_step(step) for step in steps]
    if "" in texts:
        return ""
    forms = [text for step, text in zip(steps, texts, strict=True) if isinstance(step, (Shard, Replicate))]
    return " | ".join(filter(None, [" * ".join(forms), *texts[len(forms) :]]))


def _step(step: Step) -> str:
    if isinstance(step, Collective) and (step.bucket is not None or not step.overlap):
        return ""
    options: list[str] = []
    match step:
        case Shard(word="shard", split=None, min=None):
            name = "shard"
            options = [] if step.dim == "0" else [f"dim = {step.dim}"]
            options += [] if step.pad == "even" else [f"pad = {step.pad}"]
        case Replicate():
            name = "replicate"
        case Gather(keep=Keep() as keep):
            name = "gather"
            options = [] if keep is Keep.UNIT else [f"keep = {keep.value}"]
            options += [] if step.prefetch == 1 else [f"prefetch = {step.prefetch}"]
            options += [] if step.unit == "layer" else [f"unit = {step.unit}"]
        case AllGather():
            name = "all_gather"
        case Reduce(when=When() as when):
            name = "reduce_scatter" if step.scatter else "all_reduce"
            usual = When.MICROBATCH if step.scatter else When.STEP
            options = ["mean"] if step.mean else []
            options += [] if when is usual else [f"when = {when.value}"]
            options += [] if step.dim == "0" or not step.scatter else [f"dim = {step.dim}"]
            options += [] if step.pad == "even" or not step.scatter else [f"pad = {step.pad}"]
            options += [f"wire = {step.wire}"] if step.wire else []
        case _:
            return ""
    text = _call(name, step.axes, options)
    return f"{text} as {step.dtype}" if step.dtype else text


def _call(name: str, axes: Sequence[str], options: Sequence[str]) -> str:
    inside = ", ".join(filter(None, [" * ".join(axes), *options]))
    return f"{name}({inside})" if inside else name
