"""Strategies that split layers inside, right and wrong: tensor, sequence and context parallelism with and over ZeRO.

A recipe is a text with its knobs; `recipes` draws sound ones and turns up to three knobs. Not for: data axes alone
(`families`), or single events (`mutants`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from random import Random

import attrs

from placelang.model.model import Model
from placelang.plan.plan import Plan
from placelang.program.supported import unsupported
from tests.oracle.families import Judge, Table
from tests.simulate.opened import MODELS, alone, opened, read, small

REDUCED = "partial(tp) | all_reduce(tp)"
RING = "ring(cp, balance = headtail)"
HEAD_NORMS = '"layers.*.attn.q_norm.weight", "layers.*.attn.k_norm.weight"'
SCATTERED = "partial(tp) | reduce_scatter(tp, dim = seq)"


FUSED = ("fused", "embedding_norm")
"""Models with one matrix for queries, keys and values: nobody can fetch keys alone."""


@attrs.frozen
class Recipe:
    """`grads` and the like are journeys as text ("": no line). `model`: a key of `MODELS`."""

    model: str
    sizes: tuple[tuple[str, int], ...]
    query: str = ""  # parameters of attn.q, attn.kv, mlp.up; of attn.out, mlp.down; of embed and head
    keys: str = ""
    up: str = ""
    out: str = ""
    down: str = ""
    embed: str = ""
    head: str = ""
    attended: str = ""  # activations: of attn, of attn.out, mlp.down, embed, norm
    after_out: str = ""
    after_down: str = ""
    after_embed: str = ""
    norms: str = ""
    params: str = ""
    grads: str = ""
    optimizer: str = ""
    replicated: str = ""  # gradients of what tp does not split; of norms; of keys and values
    norm_grads: str = ""
    keys_grads: str = ""
    head_norms: str = ""
    replay: str = ""  # of blocks in backward
    train: str = "microbatches = 2, precision = fp64"

    @property
    def text(self) -> str:
        axes = ", ".join(f"{name} = {size}" for name, size in self.sizes)
        fused = self.model in FUSED
        lines = [f"mesh ({axes})", f"train ({self.train})"]
        lines += [f"params[{sel}]: {said}" for sel, said in self._params(fused) if said]
        lines += [f"activations[{sel}]: {said}" for sel, said in self._activations() if said]
        for name in ("params", "grads", "optimizer"):
            if said := getattr(self, name):
                lines.append(f"{name}: {said}")
        selected = (
            ("replicated(tp)", self.replicated),
            ("norm", self.norm_grads),
            ("attn.kv", self.keys_grads),
            (HEAD_NORMS, self.head_norms),
        )
        lines += [f"grads[{sel}]: {said}" for sel, said in selected if said]
        return "\n".join(lines) + "\n"

    def _params(self, fused: bool) -> Iterable[tuple[str, str]]:
        heads = [("attn.qkv", self.query)] if fused else [("attn.q", self.query), ("attn.kv", self.keys)]
        rest = [("mlp.up", self.up), ("attn.out", self.out), ("mlp.down", self.down)]
        return (*heads, *rest, ("embed", self.embed), ("head", self.head))

    def _activations(self) -> Iterable[tuple[str, str]]:
        return (
            ("attn", self.attended),
            ("attn.out", self.after_out),
            ("mlp.down", self.after_down),
            ("embed", self.after_embed),
            ("norm", self.norms),
            ("block", self.replay),
        )

    def plan(self) -> Plan | None:
        """None where the language or the lowering refuses the text."""
        plan = read(self.text, small(self.model))
        return None if plan is None or unsupported(plan, small(self.model)) else plan


def _split_layers(said: str) -> dict[str, str]:
    """Megatron's layer: columns then rows; `said` of what row-parallel products return."""
    rows = {"query": "colwise(tp)", "keys": "colwise(tp)", "up": "colwise(tp)", "out": "rowwise(tp)"}
    return {**rows, "down": "rowwise(tp)", "after_out": said, "after_down": said}


def _split_vocabulary(said: str) -> dict[str, str]:
    return {"embed": "shard(tp, dim = vocab)", "head": "shard(tp, dim = vocab)", "after_embed": said}


TENSOR = {**_split_layers(REDUCED), **_split_vocabulary(REDUCED)}
POSITIONS = {
    **_split_layers(SCATTERED),
    **_split_vocabulary(SCATTERED),
    "norms": "shard(tp, dim = seq)",
    "replicated": "all_reduce(tp)",
}
LAYERS_ONLY = _split_layers(REDUCED)
MLP_ONLY = {"up": "colwise(tp)", "down": "rowwise(tp)", "after_down": REDUCED}
KEYS_WHOLE = {**TENSOR, "keys": "", "keys_grads": "all_reduce(tp)"}


REPLAYS = (
    "recompute(full)",
    "recompute(selective, save = [matmul, sdpa])",
    "recompute(selective, save = [linear])",
    "recompute(selective, save = [matmul, norm, collective])",
)


def _zero(axes: str) -> list[dict[str, str]]:
    """DDP, ZeRO-1, ZeRO-2 and ZeRO-3 over the axes that split tokens."""
    return [
        {"grads": f"all_reduce({axes})"},
        {"grads": f"all_reduce({axes}, when = step)", "optimizer": f"shard({axes})"},
        {"grads": f"reduce_scatter({axes})", "optimizer": f"shard({axes})"},
        {"params": f"shard({axes})", "grads": f"reduce_scatter({axes})", "optimizer": f"shard({axes})"},
    ]


def bases() -> Iterator[Recipe]:
    """Sound strategies for every model (q/k norms and whole keys ask for a reduction more). The language refuses those
    for which a model has too few key-value heads."""
    for model in MODELS:
        few = model == "one_kv_head"
        heads = {"head_norms": "all_reduce(tp)"} if model == "qk_norm" else {}
        for split in (TENSOR, POSITIONS, LAYERS_ONLY, MLP_ONLY, KEYS_WHOLE):
            if split is KEYS_WHOLE and model == "latent":
                continue  # what comes before whole keys is partial too
            for zero in _zero("dp"):
                own = heads if split is not POSITIONS and split is not MLP_ONLY else {}
                yield Recipe(model, (("dp", 2), ("tp", 2)), **split, **own, **zero)
        for fetch in ("ulysses(cp)",) if model in FUSED else ("all_gather(cp)", "ring(cp)", RING, "ulysses(cp)"):
            for zero in _zero("dp*cp"):
                yield Recipe(model, (("dp", 2), ("cp", 2)), attended=fetch, **zero)
        fetch = "ulysses(cp)" if model in FUSED else "all_gather(cp)"
        for zero in _zero("dp*cp"):
            yield Recipe(model, (("dp", 2), ("cp", 2), ("tp", 2)), attended=fetch, **POSITIONS, **zero)
        for k, replay in enumerate(REPLAYS):
            yield Recipe(model, (("dp", 2), ("tp", 2)), **POSITIONS, **_zero("dp")[k], replay=replay)
            if not (few and fetch == "ulysses(cp)"):
                yield Recipe(
                    model, (("cp", 2), ("tp", 2)), attended=fetch, **POSITIONS, **_zero("cp")[k], replay=replay
                )
        if not few:
            yield Recipe(model, (("cp", 2), ("tp", 2)), attended="ulysses(cp)", **TENSOR, **heads, **_zero("cp")[2])


OTHERWISE = {
    "query": ("", "colwise(tp)", "rowwise(tp)"),
    "keys": ("", "colwise(tp)"),
    "up": ("", "colwise(tp)", "rowwise(tp)"),
    "out": ("", "rowwise(tp)", "colwise(tp)"),
    "down": ("", "rowwise(tp)", "colwise(tp)"),
    "embed": ("", "shard(tp, dim = vocab)"),
    "head": ("", "shard(tp, dim = vocab)"),
    "attended": ("", "all_gather(cp)", RING, "ulysses(cp)"),
    "after_out": ("", REDUCED, SCATTERED),
    "after_down": ("", REDUCED, SCATTERED),
    "after_embed": ("", REDUCED, SCATTERED),
    "norms": ("", "shard(tp, dim = seq)"),
    "replicated": ("", "all_reduce(tp)", "all_reduce(tp, mean)", "all_reduce(tp, when = step)"),
    "norm_grads": ("", "all_reduce(tp)", "all_reduce(dp)", "all_reduce(dp*tp)"),
    "head_norms": ("", "all_reduce(tp)"),
    "keys_grads": ("", "all_reduce(tp)", "all_reduce(dp*tp)"),
    "params": ("", "shard(dp) | gather(dp)", "shard(tp) | gather(tp)"),
    "grads": (
        "",
        *(f"{op}({axes})" for op in ("all_reduce", "reduce_scatter") for axes in ("dp", "cp", "tp", "dp*cp", "dp*tp")),
        "all_reduce(dp, mean)",
        "reduce_scatter(dp) | all_reduce(cp)",
        "reduce_scatter(cp) | all_reduce(dp, when = step)",
        "reduce_scatter(dp) | all_reduce(tp)",
        "partial(dp)",
    ),
    "optimizer": ("", "shard(dp)", "shard(dp*cp)", "shard(tp)"),
    "replay": ("", *REPLAYS),
    "train": ("microbatches = 1, precision = fp64", "microbatches = 2, precision = fp64, optimizer = sgd"),
}
"""Other turns of each knob."""


def recipes(count: int, random: Random) -> Iterator[Recipe]:
    sound = list(bases())
    for _ in range(count):
        recipe = random.choice(sound)
        for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
            knob = random.choice([*OTHERWISE])
            recipe = attrs.evolve(recipe, **{knob: random.choice(_possible(recipe, knob))})
        yield recipe


def _possible(recipe: Recipe, knob: str) -> list[str]:
    """The turns of a knob whose axes the mesh has."""
    missing = {"dp", "cp", "tp"} - {name for name, _ in recipe.sizes}
    return [said for said in OTHERWISE[knob] if not missing & set(re.findall(r"\w+", said))]


def judge_recipes(family: Iterable[Recipe]) -> Table:
    """Texts that the language refuses are left out."""
    judge, table = Judge(), Table()
    for recipe in family:
        plan, model = recipe.plan(), small(recipe.model)
        if plan is not None:
            add(judge, table, recipe, plan, model)
    return table


def add(judge: Judge, table: Table, recipe: Recipe, plan: Plan, model: Model) -> None:
    job = (recipe.model, plan.train)
    checked, outcome = judge.verdicts(opened(plan, model), job, lambda: alone(plan, model))
    table.add(recipe, checked.ok, outcome)
