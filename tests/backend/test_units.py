"""Packing rows for equal shards, and units against the model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from placelang.backend.build import build
from placelang.backend.errors import BackendError
from placelang.backend.units import pack, rows, units, unpack
from tests.backend.plans import tiny

SHAPES = st.lists(st.lists(st.integers(1, 7), min_size=0, max_size=3).map(tuple), min_size=1, max_size=4)


@given(SHAPES, st.integers(1, 6))
def test_packing_is_undone_and_pads_as_fsdp2_does(shapes: list[tuple[int, ...]], parts: int) -> None:
    tensors = [torch.arange(1.0, 1 + max(1, torch.Size(s).numel())).view(s) for s in shapes]
    places = rows(shapes, parts)
    packed = pack(tensors, places, torch.float64)
    padded = sum(parts * -(-(s or (1,))[0] // parts) * torch.Size((s or (1,))[1:]).numel() for s in shapes)
    assert len(packed) == padded
    assert packed.sum() == sum(t.sum() for t in tensors)  # padding is zero
    back = [torch.zeros_like(t) for t in tensors]
    unpack(packed, back, places)
    assert all(torch.equal(a, b) for a, b in zip(tensors, back, strict=True))
    for part, piece in enumerate(packed.view(parts, -1)):
        for tensor, place in zip(tensors, places, strict=True):
            assert torch.equal(place.of_piece(piece, part), place.of_whole(tensor, part).to(torch.float64))


def test_a_unit_for_each_block_and_one_for_the_rest() -> None:
    model = tiny(tied=True)
    found = units(build(model), model)
    assert [u.name for u in found] == ["root", "layers.0", "layers.1"]
    assert set(found[0].params) == {"embed.tokens.weight", "norm.weight"}
    assert sum(len(u.params) for u in found) == sum(1 for _, t in model.named() if t.tied is None)


def test_another_module_than_the_models_is_refused() -> None:
    with pytest.raises(BackendError, match=r"embed\.tokens\.weight"):
        units(build(tiny(vocab=300)), tiny())


def test_frozen_parameters_are_refused() -> None:
    module = build(tiny())
    module.get_parameter("norm.weight").requires_grad = False
    with pytest.raises(BackendError, match=r"frozen parameters: norm\.weight"):
        units(module, tiny())
