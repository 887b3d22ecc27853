"""Programs whose layers are opened to their operations, right and wrong, against one device; and what they move."""

from __future__ import annotations

from fractions import Fraction

import pytest

from placelang.program.event import Op, Phase
from placelang.simulate import Outcome, compare, simulate
from placelang.simulate.run import BATCH
from placelang.simulate.sizes import HEAD, LAYERS, SEQ, SIZES, WIDTH
from tests.simulate.opened import MODELS, alone, opened, read, small

FACTS = "train (microbatches = 2, precision = fp64)\n"
TENSOR = """mesh (tp = 2)
params[attn.qkv, mlp.up]: colwise(tp)
params[attn.out, mlp.down]: rowwise(tp)
activations[attn.out, mlp.down]: partial(tp) | all_reduce(tp)
params[embed]: shard(tp, dim = vocab)
activations[embed]: partial(tp) | all_reduce(tp)
params[head]: shard(tp, dim = vocab)
"""
HEAD_NORMS = """grads["layers.*.attn.q_norm.weight", "layers.*.attn.k_norm.weight"]: all_reduce(tp)
"""
POSITIONS = """mesh (tp = 2)
params[attn.qkv, mlp.up]: colwise(tp)
params[attn.out, mlp.down]: rowwise(tp)
activations[attn.out, mlp.down]: partial(tp) | reduce_scatter(tp, dim = seq)
params[embed]: shard(tp, dim = vocab)
activations[embed]: partial(tp) | reduce_scatter(tp, dim = seq)
params[head]: shard(tp, dim = vocab)
activations[norm]: shard(tp, dim = seq)
grads[replicated(tp)]: all_reduce(tp)
"""
CONTEXT = """mesh (cp = 2)
activations[attn]: ulysses(cp)
grads: all_reduce(cp)
"""


def programs(text, model):
    plan = read(FACTS + text, small(model))
    assert plan is not None, text
    return opened(plan, small(model)), alone(plan, small(model))


def outcome(text, model):
    return compare(*programs(text, model)).outcome


def tensor(model):
    return TENSOR + (HEAD_NORMS if model == "qk_norm" else "")


@pytest.mark.parametrize("model", [m for m in MODELS if m != "one_kv_head"])
def test_tensor_parallelism_equals_one_device(model):
    assert outcome(tensor(model), model) is Outcome.EQUAL
    assert outcome(POSITIONS, model) is Outcome.EQUAL


@pytest.mark.parametrize("model", [m for m in MODELS if m != "one_kv_head"])
def test_context_parallelism_equals_one_device(model):
    assert outcome(CONTEXT, model) is Outcome.EQUAL
    fetched = outcome(CONTEXT.replace("ulysses", "all_gather"), model)
    assert (fetched is Outcome.EQUAL) is (model not in ("fused", "embedding_norm")), "fused keys are fetched by no one"


@pytest.mark.parametrize("model", MODELS)
def test_opened_layers_on_data_axes_equal_one_device(model):
    text = "mesh (dp = 3)\nparams: shard(dp)\ngrads: reduce_scatter(dp)\noptimizer: shard(dp)\n"
    assert outcome(text, model) is Outcome.EQUAL


def test_recomputed_blocks_equal_one_device():
    assert outcome(tensor("gqa") + "activations[block]: recompute\n", "gqa") is Outcome.EQUAL


WRONG = {
    "norm gradients left partial": POSITIONS.replace("grads[replicated(tp)]: all_reduce(tp)\n", ""),
    "norm gradients counted twice": TENSOR + "grads[replicated(tp)]: all_reduce(tp)\n",
    "partial sums read": TENSOR.replace("activations[attn.out, mlp.down]: partial(tp) | all_reduce(tp)\n", ""),
    "positions' gradients left partial": CONTEXT.replace("grads: all_reduce(cp)", "grads: partial(cp)"),
    "keys of other positions missing": CONTEXT.replace("activations[attn]: ulysses(cp)\n", ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_strategies_are_not_equal(name):
    assert outcome(WRONG[name], "gqa") is not Outcome.EQUAL


def moved(text, model):
    return {(t.op, t.phase): (t.count, t.bytes) for t in simulate(programs(text, model)[0]).traffic}


HIDDEN = Fraction(BATCH * SEQ * WIDTH * 8)
"""Bytes of one hidden activation of one microbatch: X of the semantics, section 6."""


def test_tensor_parallelism_moves_four_hidden_activations_a_layer_and_two():
    """4L + 2 all_reduces of X a microbatch, and three numbers a token for the loss (semantics, section 6)."""
    (forward, back) = (moved(TENSOR, "gqa")[Op.ALL_REDUCE, phase] for phase in (Phase.FORWARD, Phase.BACKWARD))
    loss = 3 * BATCH * SEQ * 4
    assert forward == (2 * (2 * LAYERS + 1 + 3), 2 * ((2 * LAYERS + 1) * HIDDEN + loss))
    assert back == (2 * (2 * LAYERS + 1), 2 * (2 * LAYERS + 1) * HIDDEN)


def test_sequence_parallelism_moves_as_much_in_halves():
    """4 all_gathers and 4 reduce_scatters of X a layer: each is half an all_reduce (semantics, section 6)."""
    found = moved(POSITIONS, "gqa")
    gathers = [found[Op.ALL_GATHER, phase] for phase in (Phase.FORWARD, Phase.BACKWARD)]
    scatters = [found[Op.REDUCE_SCATTER, phase] for phase in (Phase.FORWARD, Phase.BACKWARD)]
    for calls, size in (*gathers, *scatters):
        assert calls == 2 * (2 * LAYERS + 1) and size == calls * HIDDEN


def test_all_to_all_attention_moves_local_pieces():
    """Queries, keys, values and the result, there and back in backward: each of X_heads / n (semantics, section 6)."""
    q, kv = (BATCH * SEQ * HEAD * heads * 8 // 2 for heads in (SIZES["heads"], SIZES["heads"] // 2))
    found = moved(CONTEXT, "gqa")
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        assert found[Op.ALL_TO_ALL, phase] == (2 * LAYERS * 4, 2 * LAYERS * 2 * (q + kv))


@pytest.mark.parametrize("model", MODELS)
def test_shrunk_transformers_are_consistent(model):
    sizes = {}
    for stack in small(model).stacks:
        for tensor_ in stack.tensors:
            for dim, size in zip(tensor_.dims, tensor_.shape, strict=True):
                assert sizes.setdefault(dim, size) == size
    found = small(model)
    assert sizes["hidden"] == WIDTH == found.size("hidden") and sizes["vocab"] == found.size("vocab")
    assert sizes["heads"] == found.size("heads") * HEAD
    assert sizes.get("kv_heads", 0) in (0, found.size("kv_heads") * HEAD)
