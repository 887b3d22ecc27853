"""Real text: there, deterministic, long enough or refused."""

from __future__ import annotations

import pytest
import torch

from placelang.backend.errors import BackendError
from placelang.backend.text import read, reference_pages, text


def test_the_reference_pages_are_english() -> None:
    pages = reference_pages()
    assert len(pages) > 300_000
    assert b"assignment" in pages


def test_targets_are_the_next_tokens_of_the_text() -> None:
    found = text(seq=32, batch=4, vocab=256)
    batch = found.batch(0, 4)
    assert batch.tokens.shape == batch.targets.shape == (4, 32)
    assert torch.equal(batch.tokens[:, 1:], batch.targets[:, :-1])
    assert bytes(batch.tokens[0].tolist()) in reference_pages()


def test_a_step_is_a_function_of_seed_and_number() -> None:
    a, b, c = (text(seq=32, batch=4, vocab=256, seed=s).batch(5, 4) for s in (0, 0, 1))
    assert torch.equal(a.tokens, b.tokens)
    assert not torch.equal(a.index, c.index)


def test_a_pass_reads_every_window_once_and_the_next_in_another_order() -> None:
    found = text(seq=10, batch=3, vocab=256, source=bytes(range(200)))
    assert found.windows == 19
    passes = [[int(i) for step in range(6) for i in found.batch(6 * n + step, 3).index] for n in range(2)]
    assert all(len(set(order)) == 18 for order in passes)
    assert passes[0] != passes[1]


@pytest.mark.parametrize("source", [b"", b"a", b"too short"])
def test_too_short(source: bytes) -> None:
    with pytest.raises(BackendError, match="too short"):
        text(seq=8, batch=2, vocab=256, source=source)


def test_a_vocabulary_without_room_for_bytes() -> None:
    with pytest.raises(BackendError, match="vocabulary of 256"):
        text(seq=8, batch=2, vocab=255)


def test_a_file_that_cannot_be_read(tmp_path: object) -> None:
    with pytest.raises(BackendError) as error:
        read(str(tmp_path))
    assert error.value.diagnostic.code == "E002"
