"""Where a program's moves stand, without torch or processes."""

from __future__ import annotations

import pytest

from placelang.backend.errors import BackendError
from placelang.backend.sound import step_program
from placelang.backend.wiring import Move, Wiring, wiring
from placelang.program.event import Op
from tests.backend.texts import FUSED, GPT, GROUPED, NORMED, load

GATHERED = Move(Op.ALL_GATHER, Op.REDUCE_SCATTER, ("tp",), "seq")
SCATTERED = Move(Op.REDUCE_SCATTER, Op.ALL_GATHER, ("tp",), "seq")
SUMMED = Move(Op.ALL_REDUCE, None, ("tp",))
SUMMED_BACK = Move(None, Op.ALL_REDUCE, ("tp",))


def wired(text: str, model: str) -> Wiring:
    return wiring(step_program(*load(text, model)))


def test_megatron_has_one_sum_a_pair_each_way() -> None:
    """Norms' outputs are summed once in backward, and not once for each of q, k and v."""
    found = wired("mesh (tp = 2)\napply tensor_parallel(tp)", GROUPED)
    assert not found.before
    assert dict(found.after) == {
        "embed/embed.tokens": (SUMMED,),
        "layers/attn_norm": (SUMMED_BACK,),
        "layers/attn.wo": (SUMMED,),
        "layers/mlp_norm": (SUMMED_BACK,),
        "layers/mlp.down": (SUMMED,),
        "head/norm": (SUMMED_BACK,),
    }
    assert (found.loss, found.recomputed, found.axes) == (("tp",), frozenset(), {"tp"})


@pytest.mark.parametrize("model", [NORMED, FUSED, GPT])
def test_sequence_parallelism_gathers_behind_norms_and_scatters_behind_products(model: str) -> None:
    found = wired("mesh (tp = 2)\napply megatron_sp(tp)\nactivations: recompute", model)
    positions = {"embed/embed.positions": (Move(Op.SLICE, Op.UNSLICE, ("tp",), "seq"),)} if model == GPT else {}
    assert dict(found.after) == {
        "embed/embed.tokens": (SCATTERED,),
        **positions,
        "layers/attn_norm": (GATHERED,),
        "layers/attn.wo": (SCATTERED,),
        "layers/mlp_norm": (GATHERED,),
        "layers/mlp.down": (SCATTERED,),
        "head/norm": (GATHERED,),
    }
    assert found.recomputed == {"layers"}


def test_moves_of_attention_stand_at_attention() -> None:
    """Not behind the norm of keys: their rotation is in between."""
    gathered = (Move(Op.ALL_GATHER, Op.REDUCE_SCATTER, ("cp",), "seq"),)
    found = wired("mesh (cp = 2)\napply ddp(cp) * all_gather_cp(cp)", NORMED)
    assert dict(found.before) == {("layers/attn.core", 1): gathered, ("layers/attn.core", 2): gathered}
    assert not found.after

    there = (Move(Op.ALL_TO_ALL, Op.ALL_TO_ALL, ("cp",), "seq", "heads"),)
    back = (Move(Op.ALL_TO_ALL, Op.ALL_TO_ALL, ("cp",), "heads", "seq"),)
    for model, operands in ((NORMED, 3), (FUSED, 1)):
        found = wired("mesh (cp = 2)\napply ddp(cp) * ulysses(cp)", model)
        assert dict(found.before) == {("layers/attn.core", k): there for k in range(operands)}
        assert dict(found.after) == {"layers/attn.core": back}


def test_recomputing_a_part_of_a_block_is_refused() -> None:
    with pytest.raises(BackendError, match="a part of a block"):
        wired("mesh (tp = 2)\napply tensor_parallel(tp)\nactivations[attn]: recompute", GPT)


def test_data_axes_move_no_activation() -> None:
    found = wired("mesh (dp = 2)\napply zero3(dp)\nactivations: recompute", GROUPED)
    assert (dict(found.after), dict(found.before), found.loss) == ({}, {}, ())
    assert found.recomputed == {"layers"}
