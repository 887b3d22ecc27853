"""Selectors: globs, roles and placements, and what they hit in a model."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from placelang import api
from placelang.model import catalogue
from placelang.model.model import Model
from placelang.plan.globs import glob
from placelang.plan.plan import Selection, State
from placelang.plan.selectors import known_roles, matches

SEGMENT = st.sampled_from(["layers", "0", "1", "12", "attn", "wq", "weight", "a"])


def model(name: str) -> Model:
    found = catalogue.lookup(name)
    assert isinstance(found, Model)
    return found


def hits(pattern: str, *names: str) -> list[str]:
    return [n for n in names if glob(pattern).matches(n)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("layers.0", ["layers.0.attn.wq", "layers.0.norm"]),
        ("layers.*", ["layers.0.attn.wq", "layers.0.norm", "layers.12.attn.wk"]),
        ("layers.*.attn", ["layers.0.attn.wq", "layers.12.attn.wk"]),
        ("layers.*.attn.{wq,wv}", ["layers.0.attn.wq"]),
        ("layers.*.attn.{wq, wk}", ["layers.0.attn.wq", "layers.12.attn.wk"]),
        ("layers.{0..3}", ["layers.0.attn.wq", "layers.0.norm"]),
        ("layers.{0..3,12}", ["layers.0.attn.wq", "layers.0.norm", "layers.12.attn.wk"]),
        ("layers.1", []),  # not layers.12
        ("**.wk", ["layers.12.attn.wk"]),
        ("**", ["layers.0.attn.wq", "layers.0.norm", "layers.12.attn.wk", "norm"]),
        ("*", ["layers.0.attn.wq", "layers.0.norm", "layers.12.attn.wk", "norm"]),  # a module selects all below it
        ("norm", ["norm"]),
        ("*.norm", []),
        ("**.norm", ["layers.0.norm"]),
        ("layers.0.n*", ["layers.0.norm"]),
        ("layers.0.nor", []),
    ],
)
def test_globs(pattern: str, expected: list[str]) -> None:
    assert hits(pattern, "layers.0.attn.wq", "layers.0.norm", "layers.12.attn.wk", "norm") == expected


@given(st.lists(SEGMENT, min_size=1, max_size=5), st.data())
def test_a_name_with_some_segments_starred_matches_itself(segments: list[str], data: st.DataObject) -> None:
    starred = [s if data.draw(st.booleans()) else "*" for s in segments]
    assert glob(".".join(starred)).matches(".".join(segments))
    assert glob(".".join(starred)).matches(".".join((*segments, "below")))


@given(st.text(st.sampled_from("ab.*{},0123[]()\\+?^$|")))
def test_no_pattern_is_more_than_a_glob(pattern: str) -> None:
    found = api.load(f'model gpt2_124m\nparams["{pattern}"]: shard(dp)'.replace("\\", "\\\\"))
    assert all(d.code in ("E110", "E112") for d in found.diagnostics)
    if re.fullmatch(r"[a-z0-9.]+", pattern):
        assert glob(pattern).matches(pattern)


def reference(pattern: str) -> re.Pattern[str]:
    """The same as a regular expression, which may take long where `glob` does not."""
    parts = re.findall(r"\*\*+|\*|\{[^}]*\}|[^*{]+", pattern)
    texts = {"*": "[^.]*"}
    inside = (f"(?:{'|'.join(map(re.escape, p[1:-1].split(',')))})" if p[0] == "{" else re.escape(p) for p in parts)
    joined = (".*" if p.startswith("**") else texts.get(p, r) for p, r in zip(parts, inside, strict=True))
    return re.compile("".join(joined) + r"(?:\..*)?")


@example(["*", "*", "{a,b.a}"], "aa...a")
@given(st.lists(st.sampled_from(["a", "b", ".", "*", "**", "{a,b.a}", "{,b}"]), max_size=6), st.text("ab.", max_size=8))
def test_globs_are_regular_expressions(parts: list[str], name: str) -> None:
    pattern = "".join(parts)
    assert glob(pattern).matches(name) == (reference(pattern).fullmatch(name) is not None)


@pytest.mark.parametrize("pattern", ["*" * 5000 + "x", "**a" * 5000 + "x", "{a,*}" * 5000 + "x", "*a" * 5000, "{" * 50])
def test_no_pattern_takes_long(pattern: str) -> None:
    assert not glob(pattern).matches("a" * 200)


def test_braces_that_do_not_pair_are_refused_wherever_a_glob_stands() -> None:
    for text in ('params["a{"]: shard(dp)', 'train (frozen = "a{")\nparams: shard(dp)'):
        assert [d.code for d in api.load(f"model gpt2_124m\n{text}").diagnostics] == ["E110"]


def roles(model: Model, role: str, frozen: tuple[str, ...] = ()) -> set[str]:
    """The ends of the names of the tensors that a role hits."""
    found = matches(Selection("role", role), model, frozen)
    return {re.sub(r"^layers\.\d+\.|\.weight$", "", n) for n in found}


def test_roles_of_a_decoder() -> None:
    llama = model("llama3_8b")
    assert roles(llama, "embed") == {"embed.tokens"}
    assert roles(llama, "attn.q") == {"attn.wq"}
    assert roles(llama, "attn.kv") == {"attn.wk", "attn.wv"}
    assert roles(llama, "attn.qkv") == {"attn.wq", "attn.wk", "attn.wv"}
    assert roles(llama, "attn.out") == {"attn.wo"}
    assert roles(llama, "attn") == {"attn.wq", "attn.wk", "attn.wv", "attn.wo"}
    assert roles(llama, "norm") == {"attn_norm", "mlp_norm", "norm"}
    assert "head" in roles(llama, "head")
    assert roles(llama, "router") == set()


def test_a_prefix_selects_its_subtree_and_block_a_layer() -> None:
    mixtral = model("mixtral_8x7b")
    assert roles(mixtral, "experts") == roles(mixtral, "experts.up") | roles(mixtral, "experts.down")
    assert roles(mixtral, "block").isdisjoint(roles(mixtral, "embed"))
    assert roles(mixtral, "block") >= roles(mixtral, "attn") | roles(mixtral, "experts") | roles(mixtral, "router")


def test_tied_frozen_and_trainable() -> None:
    gpt2 = model("gpt2_124m")
    assert roles(gpt2, "tied")
    assert roles(model("llama3_8b"), "tied") == set()
    everything = {name for name, _ in gpt2.named()}
    frozen, trainable = (matches(Selection("role", r), gpt2, ("**.attn",)) for r in ("frozen", "trainable"))
    assert frozen
    assert frozen.isdisjoint(trainable)
    assert frozen | trainable == everything


@pytest.mark.parametrize("role", known_roles())
def test_every_role_is_a_selector(role: str) -> None:
    assert api.load(f"params: shard(dp)\nactivations[{role}]: recompute(full)").plan is not None


def test_placements() -> None:
    plan = api.load("mesh (dp = 2, tp = 2)\nparams: shard(dp)\ngrads[replicated(tp)]: all_reduce(tp)").plan
    assert plan is not None
    (refined,) = plan.refinements(State.GRADS)
    assert refined.selections == (Selection("replicated", "tp"),)


def test_on_gives_each_placement_its_selectors() -> None:
    a = api.load("params: shard(dp)\non attn.q, attn.kv { params: colwise(tp) ; activations: all_gather(tp) }").plan
    assert a is not None
    wanted = (Selection("role", "attn.q"), Selection("role", "attn.kv"))
    assert {p.selections for p in a.placed if p.selections} == {wanted}


@pytest.mark.parametrize(
    ("second", "clash"),
    [
        ("params[attn.out]: replicate(dp)", True),
        ("override params[attn.out]: replicate(dp)", False),
        ("params[mlp]: replicate(dp)", False),  # other tensors
        ("params[attn.out]: shard(dp, dim = 1)", False),  # the same
    ],
)
def test_two_selectors_that_differ_on_an_axis_need_override(second: str, clash: bool) -> None:
    first = "model llama3_8b\nmesh (dp = 2, tp = 2)\nparams: shard(dp)\nparams[attn]: shard(dp, dim = 1)\n"
    found = [d.code for d in api.load(first + second).diagnostics if d.code != "E112"]
    assert found == (["E108"] if clash else [])
