"""A plan printed as the text that says all of it, with a reason beside each line. Elaborating it changes nothing.

Not for: layout of users' own files (`syntax.formatter`).
"""

from __future__ import annotations

from collections.abc import Iterator

from placelang.plan.mesh import WELL_KNOWN, Mesh
from placelang.plan.plan import AllGather, Gather, Journey, Partial, Plan, Reduce, Replicate, Shard, Step


def explain(plan: Plan, model_name: str | None = None) -> str:
    """The complete strategy as `.place` text, one statement a line."""
    lines = [*_facts(plan, model_name), *_states(plan)]
    width = max(len(text) for text, _ in lines)
    shown = (f"{text:<{width}}  # {why}" if why else text for text, why in lines)
    return "\n".join(line.rstrip() for line in shown) + "\n"


def _facts(plan: Plan, model_name: str | None) -> Iterator[tuple[str, str]]:
    if model_name:
        yield f"model {model_name}", ""
    if plan.mesh.axes:
        sizes = "" if plan.mesh.world else "sizes without a number stay symbols"
        yield f"mesh ({', '.join(_axis(plan.mesh, name) for name in plan.mesh.names)})", sizes
    t = plan.train
    counts = {"seq": t.seq, "micro_batch": t.micro_batch, "microbatches": t.microbatches}
    facts = [f"optimizer = {t.optimizer}", f"precision = {t.precision.name}"]
    facts += [f"{name} = {value}" for name, value in counts.items() if value is not None]
    assumed = "; ".join(a.text for a in plan.assumptions if a.name in ("precision", "optimizer"))
    yield f"train ({', '.join((*facts, f'loss = {t.loss}'))})", assumed


def _axis(mesh: Mesh, name: str) -> str:
    axis = mesh[name]
    role = "" if WELL_KNOWN.get(name) is axis.role else f": {axis.role.value}"
    return f"{name}{role}" + (f" = {axis.size}" if axis.size is not None else "")


def _states(plan: Plan) -> Iterator[tuple[str, str]]:
    rows = [(p.state.value, p.journey) for p in plan.placed]
    if plan.update:
        rows.append(("update", plan.update))
    widest = max(len(head) for head, _ in rows)
    for head, journey in rows:
        yield f"{head + ':':<{widest + 1}} {journey_text(journey)}", _why(journey)


def _why(journey: Journey) -> str:
    reasons = dict.fromkeys(f"{step_text(s).partition('(')[0]}: {s.why}" for s in journey if s.why)
    return "; ".join(reasons) or "as written"


def journey_text(journey: Journey) -> str:
    """The journey as written in the language, with every option."""
    forms = [s for s in journey if isinstance(s, (Replicate, Shard, Partial))]
    rest = [s for s in journey if s not in forms]
    first = " * ".join(step_text(s) for s in forms)
    return " | ".join((*((first,) if first else ()), *(step_text(s) for s in rest)))


def step_text(step: Step) -> str:
    over = " * ".join(step.axes)
    match step:
        case Replicate():
            text = f"replicate({over})" if over else "replicate"
        case Shard(dim="0"):
            text = f"shard({over}, dim = 0, pad = {step.pad})"
        case Shard():
            text = f"shard({over}, dim = {step.dim})"
        case Partial():
            text = f"partial({over})"
        case Gather():
            text = f"gather({over}, unit = {step.unit}, keep = {step.keep.value}, prefetch = {step.prefetch})"
        case Reduce():
            word = "reduce_scatter" if step.scatter else "all_reduce"
            how = f"{over}, mean" if step.mean else over
            wire = f", wire = {step.wire}" if step.wire else ""
            text = f"{word}({how}, when = {step.when.value}{wire})"
        case AllGather():
            text = f"all_gather({over})"
        case _:
            raise TypeError(f"no text for {step!r}")
    return f"{text} as {step.dtype}" if step.dtype else text
