"""Several selections on one tensor: on different axes they join, on one the later needs `override`; and what the plan
says of the tensors that they share is valid text that says it again."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from placelang.api import Strategy
from placelang.model.model import Tensor, generic
from placelang.plan.plan import State
from placelang.plan.text import journey_text
from placelang.program.placement import journey, placement
from tests.plan.elaborated import is_fixed_point, read, statements

MESH = "mesh (pp = 2, dp = 2, tp = 2)\n"


def does(strategy: Strategy, tensor: str, state: State = State.PARAMS, layer: int = 0) -> str:
    """What a tensor does by the plan, as the program sees it."""
    plan, model = strategy.plan, strategy.model
    assert plan is not None, [d.message for d in strategy.diagnostics]
    for stack in model.stacks:
        for t in stack.tensors:
            if stack.fqn(t) == tensor:
                return journey_text(journey(plan, state, model, stack, [t]), full=False)
    raise AssertionError(f"no tensor {tensor}")


WO, WQ = "layers.0.attn.wo.weight", "layers.0.attn.wq.weight"


BOTH = "rowwise(tp) * shard(dp) | gather(dp)"
ONE = "shard(dp) | gather(dp)"


@pytest.mark.parametrize("model", ["", "model llama3_8b\n"])
@pytest.mark.parametrize(
    ("first", "second", "wo", "wq"),
    [
        ("params[attn]: shard(dp)", "params[attn.out]: rowwise(tp)", BOTH, ONE),
        ("params[attn.out]: rowwise(tp)", "params[attn]: shard(dp)", BOTH, ONE),
        ("params[attn]: shard(dp)", 'params["layers.*.attn.wo"]: rowwise(tp)', BOTH, ONE),
        (
            "params[attn]: offload(cpu)",
            "params[attn.out]: rowwise(tp)",
            "rowwise(tp) | offload(cpu)",
            "replicate | offload(cpu)",
        ),
        ("params[attn.out]: rowwise(tp)", "override params[attn]: replicate(tp)", "replicate", "replicate"),
        ("params[attn]: shard(dp)", "override params[attn.out]: replicate", "replicate", ONE),
        ("params[attn.q]: colwise(tp)", "params[attn.out]: rowwise(tp)", "rowwise(tp)", "colwise(tp)"),
    ],
)
def test_selections_join(model: str, first: str, second: str, wo: str, wq: str) -> None:
    strategy = read("\n".join((f"{model}mesh (dp = 2, tp = 2)", "params: replicate", first, second)))
    assert (does(strategy, WO), does(strategy, WQ)) == (wo, wq)
    is_fixed_point(strategy)


def test_a_base_that_both_refine_is_no_clash() -> None:
    text = "mesh (dp = 2, tp = 2)\nparams: shard(dp)\nparams[attn]: shard(dp, dim = 1)\nparams[attn.out]: rowwise(tp)"
    assert does(read(text), WO) == "rowwise(tp) * shard(dp, dim = 1) | gather(dp)"


def test_what_follows_of_joined_params_follows_of_both() -> None:
    strategy = read("mesh (dp = 2, tp = 2)\nparams[attn]: shard(dp)\nparams[attn.out]: rowwise(tp)")
    assert does(strategy, WO, State.OPTIMIZER) == "rowwise(tp) * shard(dp)"
    assert does(strategy, WO, State.GRADS) == "partial(dp) | reduce_scatter(dp)"


def test_states_of_one_tensor_that_different_selections_place() -> None:
    strategy = read("mesh (dp = 2, tp = 2)\nparams[attn]: rowwise(tp)\noptimizer[attn.out]: shard(dp)")
    assert does(strategy, WO, State.OPTIMIZER) == "rowwise(tp) * shard(dp)"
    assert does(strategy, WO) == "rowwise(tp)"


def test_the_narrower_selection_says_what_both_do() -> None:
    text = "mesh (dp = 2, tp = 2)\nparams[attn.out]: rowwise(tp)\nparams[attn]: shard(dp)"
    lines = [line for line in statements(read(text).explain()) if line.startswith(("params[", "override params["))]
    assert [line.partition(":")[0] for line in lines] == ["params[attn]", "override params[attn.out]"]


def test_selections_that_cross_name_what_they_share() -> None:
    strategy = read('model llama3_8b\nmesh (dp = 2, tp = 2)\nparams[attn]: shard(dp)\nparams["**.wo"]: rowwise(tp)')
    assert does(strategy, WO) == "rowwise(tp) * shard(dp) | gather(dp)"
    text = 'model llama3_8b\nmesh (dp = 2, tp = 2)\nparams[attn]: shard(dp)\nparams["layers.{0..3}"]: rowwise(tp)'
    shared = [line for line in statements(read(text).explain()) if "{ override params" in line]
    assert len(shared) == 1
    assert '"layers.{0..3}.attn.wq.weight"' in shared[0]
    assert "rowwise(tp) * shard(dp" in shared[0]


def test_tied_tensors_do_what_is_said_of_ties_and_of_roles() -> None:
    text = f"model gpt2_124m\n{MESH}params: shard(pp, dim = layer) ; schedule: gpipe\n"
    strategy = read(f"{text}params[embed, head]: shard(tp, dim = vocab)\ngrads[tied]: all_reduce(pp)")
    assert does(strategy, "embed.tokens.weight") == "shard(pp, dim = layer) * shard(tp, dim = vocab)"
    assert does(strategy, "embed.tokens.weight", State.GRADS) == "partial(dp * pp) | all_reduce(dp) | all_reduce(pp)"


@pytest.mark.parametrize(("view", "matched"), [("tp", False), ("kv_tp", False), ("dp", True)])
def test_what_a_view_of_an_axis_splits_is_not_replicated_over_it(view: str, matched: bool) -> None:
    """`grads[replicated(tp)]` is about tensors that all ranks of `tp` read whole, whatever these are called."""
    mesh = "mesh (dp = 2, tp = 4)\nmesh kv (kv_tp: tensor = 2, kv_copy: tensor = 2) over (tp)\n"
    shard = f"colwise({view})" if view != "dp" else "shard(dp)"
    strategy = read(f"{mesh}params: replicate\nparams[attn.q]: {shard}\ngrads[replicated(tp)]: all_reduce(tp)")
    assert strategy.plan is not None
    model = generic()
    stack = model.stacks[1]
    (wq,) = (t for t in stack.tensors if t.role == "attn.q")
    norm: Tensor = stack.tensors[0]
    over = [{a for r in placement(strategy.plan, model, stack, [t]).reductions for a in r.axes} for t in (wq, norm)]
    assert ["tp" in axes for axes in over] == [matched, True]


# --- any selections -------------------------------------------------------------------------------------------------

SELECTORS = (
    *("attn", "attn.q", "attn.out", "attn.qkv", "mlp", "norm", "block", "embed", "tied", "head", "attn.q, mlp.up"),
    *('"layers.{0..3}"', '"layers.*.attn.wo"', '"**.weight"'),
)
WORDS = {
    "params": (
        *("shard(dp, dim = 1)", "shard(dp)", "shard(dp * tp)", "shard(pp, dim = layer)", "colwise(tp)", "rowwise(tp)"),
        *("replicate", "replicate(dp)", "replicate(tp)", "offload(cpu)", "gather(keep = step)", "as bf16"),
    ),
    "grads": (
        *("all_reduce(dp)", "reduce_scatter(dp)", "all_reduce", "reduce_scatter", "all_reduce(tp)", "all_reduce(pp)"),
        "offload(cpu)",
    ),
    "optimizer": ("shard(dp)", "replicate", "offload(cpu)", "shard(dp, dim = 1)", "replicate(tp)"),
    "activations": (
        *("recompute(full)", "partial(tp) | all_reduce(tp)", "shard(tp, dim = seq)", "replicate"),
        "offload(cpu)",
    ),
}
BASES = (
    *("params: replicate", "params: shard(dp)", "params: shard(pp, dim = layer) * shard(dp) ; schedule: 1f1b"),
    *("grads: all_reduce", "grads: reduce_scatter(dp)", "optimizer: replicate", "optimizer: shard(dp)"),
    *("apply megatron_sp(tp)", "apply fsdp(dp) * megatron_sp(tp)", "apply pipelined(pp) * tied_stages(pp)"),
)
LINES = st.sampled_from([f"{head}[{s}]: {word}" for head, words in WORDS.items() for s in SELECTORS for word in words])
TEXTS = st.tuples(
    st.sampled_from(["", "model llama3_2_1b\n", "model gpt2_124m\n"]),
    st.lists(st.sampled_from(BASES), min_size=1, max_size=2, unique=True),
    st.lists(st.tuples(st.sampled_from(["", "", "override "]), LINES).map("".join), min_size=2, max_size=4),
)
HARD = [
    ("", ["params: replicate"], ["params[attn.q, mlp.up]: colwise(tp)", "optimizer[attn.qkv]: replicate"]),
    (
        "",
        ["apply fsdp(dp) * megatron_sp(tp)"],
        ['override activations["**.weight"]: shard(tp, dim = seq)', 'optimizer["**.weight"]: shard(dp, dim = 1)'],
    ),
    (
        "",
        ["params: shard(dp)"],
        [
            'override optimizer["layers.{0..3}"]: shard(dp)',
            "params[attn.q, mlp.up]: shard(dp * tp)",
            'override params["layers.{0..3}"]: rowwise(tp)',
            "params[block]: offload(cpu)",
        ],
    ),
    (
        "model gpt2_124m\n",
        ["grads: all_reduce"],
        [
            "optimizer[block]: replicate(tp)",
            "override params[norm]: offload(cpu)",
            "override params[tied]: shard(pp, dim = layer)",
        ],
    ),
    ("model llama3_2_1b\n", ["apply fsdp(dp) * megatron_sp(tp)"], ["override params[tied]: replicate(tp)"]),
]


@example(HARD[0])
@example(HARD[1])
@example(HARD[2])
@example(HARD[3])
@example(HARD[4])
@given(TEXTS)
def test_explain_is_a_fixed_point(text: tuple[str, list[str], list[str]]) -> None:
    model, base, lines = text
    strategy = read(model + MESH + "\n".join((*base, *lines)))
    if strategy.plan is not None:
        is_fixed_point(strategy)
