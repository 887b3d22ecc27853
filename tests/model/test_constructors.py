"""Constructors: what they build, and that every wrong argument is refused with a value that helps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.model.constructors import CONSTRUCTORS, build
from placelang.model.facts import Learned
from placelang.model.model import Model, ModelError, generic

TINY: dict[str, Any] = {"layers": 4, "hidden": 256, "heads": 8, "kv_heads": 2, "ffn": 1024, "vocab": 1000}
MOE: dict[str, Any] = {**TINY, "experts": 8, "top_k": 2}
LATENT = {"attention": "mla", "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
MLA: dict[str, Any] = {**TINY, "kv_heads": 8, **LATENT}


def transformer(**facts: object) -> Model:
    model = build("transformer", facts)
    assert isinstance(model, Model), model
    return model


def test_names_follow_one_scheme() -> None:
    model = transformer(**TINY)
    assert [s.label for s in model.stacks] == ["embed", "layers.0..3", "head"]
    assert model.stacks[0].fqns() == ("embed.tokens.weight",)
    assert model.stacks[1].fqns(3) == (
        "layers.3.attn_norm.weight",
        "layers.3.attn.wq.weight",
        "layers.3.attn.wk.weight",
        "layers.3.attn.wv.weight",
        "layers.3.attn.wo.weight",
        "layers.3.mlp_norm.weight",
        "layers.3.mlp.gate.weight",
        "layers.3.mlp.up.weight",
        "layers.3.mlp.down.weight",
    )
    assert model.stacks[2].fqns() == ("norm.weight", "head.weight")


def test_shapes_are_those_of_torch() -> None:
    shapes = {t.name: (t.shape, t.dims, t.role) for t in transformer(**TINY).stacks[1].tensors}
    assert shapes["attn.wk.weight"] == ((64, 256), ("kv_heads", "hidden"), "attn.kv")
    assert shapes["mlp.down.weight"] == ((256, 1024), ("hidden", "ffn"), "mlp.down")


def test_a_tied_head_is_counted_once() -> None:
    tied, untied = transformer(**TINY, tied=True), transformer(**TINY)
    assert untied.params - tied.params == 1000 * 256
    assert tied.stacks[-1].tensors[-1].tied == "embed.tokens.weight"


def test_dense_layers_come_first_and_share_the_numbering() -> None:
    model = transformer(**MOE, dense_layers=1)
    assert [s.label for s in model.blocks] == ["layers.0..0", "layers.1..3"]
    assert model.blocks[1].fqn(model.blocks[1].tensors[0]) == "layers.1.attn_norm.weight"
    assert {t.role for t in model.blocks[1].tensors} >= {"router", "experts.up", "experts.down"}


def test_active_parameters_leave_out_the_experts_that_a_token_does_not_meet() -> None:
    model = transformer(**MOE)
    assert model.params - model.params_active == 4 * (8 - 2) * 3 * 1024 * 256


def test_the_generic_model_has_the_structure_of_a_transformer() -> None:
    model = generic()
    assert [s.block for s in model.stacks] == [False, True, False]
    assert model.blocks[0].count >= 3


@pytest.mark.parametrize(
    ("facts", "argument", "message", "suggestion"),
    [
        ({**TINY, "layer": 4}, "layer", "`transformer` has no argument `layer`", "did you mean `layers`?"),
        ({**TINY, "heads": 7}, "kv_heads", "kv_heads = 2 does not divide heads = 7", "kv_heads in {1, 7}"),
        ({**TINY, "hidden": 250}, "heads", "heads = 8 does not divide hidden = 250", "heads in {2, 5, 10}"),
        ({**TINY, "hidden": -1}, "hidden", "`hidden` is -1", "a whole number from 1 to 1,000,000,000"),
        ({**TINY, "vocab": 0}, "vocab", "`vocab` is 0", "a whole number from 1 to 1,000,000,000"),
        ({**TINY, "vocab": 0.5}, "vocab", "`vocab` is `0.5`, not a whole number", "`vocab = 1024`"),
        ({**TINY, "layers": True}, "layers", "`layers` is `true`, not a whole number", "`layers = 1024`"),
        ({**TINY, "mlp": "swigul"}, "mlp", "`mlp` is `swigul`, which is no choice for it", "did you mean `swiglu`?"),
        ({**TINY, "tied": 1}, "tied", "`tied` is `1`, not true or false", "`tied = true`"),
        (
            {**TINY, "positions": "rotary"},
            "positions",
            "`positions` is `rotary`, not a kind of positions",
            "`rope`, `alibi`, `none` or `learned(1024)`",
        ),
        ({**TINY, "norms": 3}, "norms", "`norms` is 3", "1, 2 or 4 norms in a block"),
        ({**TINY, "top_k": 2}, "top_k", "`top_k` says nothing without experts", "add `experts = ...`"),
        ({**MOE, "top_k": 9}, "top_k", "top_k = 9 of 8 experts", "top_k up to 8"),
        ({**MOE, "dense_layers": 5}, "dense_layers", "dense_layers = 5 of 4 layers", "up to 4"),
        (
            {**TINY, "v_head_dim": 8},
            "v_head_dim",
            "`v_head_dim` belongs to latent attention",
            "add `attention = mla`",
        ),
        (
            {**MLA, "kv_heads": 2},
            "kv_heads",
            "latent attention has as many key and value heads as heads",
            "leave `kv_heads` out",
        ),
        ({**MLA, "qk_norm": True}, "qk_norm", "latent attention has no `qk_norm`", "leave `qk_norm` out"),
        (
            {**TINY, "positions": Learned(64), "max_seq_len": 65},
            "max_seq_len",
            "max_seq_len = 65 is longer than the table",
            "at most 64",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_wrong_arguments_are_refused(facts: dict[str, Any], argument: str, message: str, suggestion: str) -> None:
    assert build("transformer", facts) == ModelError(message, suggestion, argument)


def test_what_is_missing_is_named() -> None:
    error = build("transformer", {})
    assert error == ModelError("`transformer` needs `layers`: number of blocks", "add `layers = ...`")


def test_an_unknown_constructor_is_answered_with_the_nearest() -> None:
    assert build("transfomer", TINY) == ModelError(
        "no model constructor is named `transfomer`", "did you mean `transformer`?"
    )


junk = st.one_of(
    st.integers(-(10**12), 10**12),
    st.integers(1, 8),
    st.booleans(),
    st.text(max_size=8),
    st.none(),
    st.floats(),
    st.sampled_from(["swiglu", "mla", "alibi", "layernorm"]),
    st.builds(Learned, st.integers(-2, 64)),
)


@given(st.data())
def test_whatever_is_given_a_value_comes_back(data: st.DataObject) -> None:
    constructor = data.draw(st.sampled_from(sorted(CONSTRUCTORS)))
    args = CONSTRUCTORS[constructor][1]
    base = {name: 4 for name, arg in args.items() if arg.required}
    facts = base | data.draw(st.dictionaries(st.sampled_from([*args, "other"]), junk, max_size=4))
    model = build(constructor, facts)
    if isinstance(model, Model):
        assert model.params > 0 and model.params_active <= model.params
    else:
        assert model.message and "\n" not in model.message
