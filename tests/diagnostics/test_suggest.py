import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.diagnostics.suggest import did_you_mean

WORDS = [
    "params", "grads", "optimizer", "activations", "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "gather",
    "shard", "replicate", "offload", "recompute", "schedule", "layers.*.mlp", "GiB", "GB", "dp", "tp", "pp",
]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("parms", "params"),  # a letter too few
        ("grades", "grads"),  # one too many
        ("shrad", "shard"),  # two swapped
        ("Shard", "shard"),  # case
        ("allreduce", "all_reduce"),  # marks left out
        ("reduce-scatter", "reduce_scatter"),
        ("reduce_scater", "reduce_scatter"),
        ("replicated", "replicate"),
        ("opt", "optimizer"),  # the only word that begins so
        ("layer.*.mlp", "layers.*.mlp"),
        ("Gib", "GiB"),
        ("tpp", "pp"),  # a tie: first in the alphabet
        ("all", None),  # begins three words
        ("zebra", None),
        ("x", None),
        ("", None),
        ("s" * 100, None),
    ],
)
def test_did_you_mean(word: str, meant: str | None) -> None:
    assert did_you_mean(word, WORDS) == meant


def test_order_of_candidates_does_not_matter() -> None:
    assert all(did_you_mean(w + "x", WORDS) == did_you_mean(w + "x", WORDS[::-1]) for w in WORDS)


@given(st.text(max_size=80), st.lists(st.text(max_size=80), max_size=6))
def test_never_raises_and_never_suggests_the_word_itself(word: str, candidates: list[str]) -> None:
    found = did_you_mean(word, candidates)
    assert found is None or (found in candidates and found != word)


@given(st.sampled_from(WORDS), st.integers(0, 20))
def test_two_swapped_letters_are_found(word: str, at: int) -> None:
    if len(word) < 4 or at + 1 >= len(word) or word[at] == word[at + 1]:
        return
    typed = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    assert did_you_mean(typed, WORDS) == word
