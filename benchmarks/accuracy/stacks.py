"""Software stacks as runtime profiles: what each of them does, and the few figures that say how well.

`said` is what the stack's makers say it does; the other figures are fitted over all rows of all sources that ran it,
and the same figure is shared by stacks that are alike. Not for: devices (`stdlib/hardware`).
"""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Stack:
    """How a stack runs a step.

    `fusion` and `host` are names of fitted figures: passes over memory of elementwise operations against the least that
    they need, and seconds of the host for one operation.
    """

    fusion: str
    host: str
    flash: str = ""  # the fitted share of the device's fused attention that its kernel reaches; "": not fused
    tensor_hidden: bool = False  # tensor-parallel collectives run beside matrix products
    data_hidden: bool = False  # gradients are reduced while backward goes on
    send_hidden: bool = False  # sends between stages run beside compute
    striped: bool = True  # collectives use all NICs of a node
    gradient: int = 4  # bytes of a gradient on the wire
    zero: int = 0  # data parallelism where a case does not say
    logits: str = "logits"  # bytes for each logit that the loss moves
    padded_vocab: bool = True
    once_a_node: bool = False  # tokens go once to each node of their experts, and on from there over links
    permuting: str = "permuted"  # bytes for each token, expert and hidden element that dealing tokens to experts moves
    early_stop: bool = False  # recomputing a layer leaves out its last product, which no gradient needs


STACKS: Final = {
    "megatron_2021": Stack("fused_2021", "eager", gradient=2, logits="logits_eager"),
    "megatron_2022": Stack("fused_2021", "eager", gradient=2, logits="logits_eager"),
    "megatron_deepspeed": Stack("fused_2021", "eager", gradient=2, logits="logits_eager"),
    "megatron_deepspeed_alibi": Stack("plain_2021", "eager", gradient=2, logits="logits_eager"),
    "deepspeed_2021": Stack("plain_2021", "eager", gradient=2, logits="logits_eager", data_hidden=True, striped=False),
    "composer": Stack(
        "eager_bytes",
        "eager",
        flash="triton",
        data_hidden=True,
        zero=3,
        gradient=2,
        logits="logits_torch",
        padded_vocab=False,
        early_stop=True,
    ),
    "nemo": Stack("compiled", "lean", flash="cudnn", tensor_hidden=True, data_hidden=True, send_hidden=True, zero=1),
    "nemo_2025": Stack(
        "compiled",
        "lean",
        flash="cudnn",
        tensor_hidden=True,
        data_hidden=True,
        send_hidden=True,
        zero=1,
        once_a_node=True,
    ),
    "nemo_2026": Stack(
        "compiled",
        "graphed",
        flash="cudnn",
        tensor_hidden=True,
        data_hidden=True,
        send_hidden=True,
        zero=1,
        once_a_node=True,
        permuting="permuted_fused",
    ),
    "paxml": Stack("compiled", "traced", flash="cudnn", data_hidden=True, zero=3),
    "megatron_plain": Stack("compiled", "lean", flash="cudnn", zero=1),
    "maxtext": Stack(
        "compiled", "traced", flash="cudnn", data_hidden=True, tensor_hidden=True, zero=3, gradient=4, early_stop=True
    ),
    "torchtitan": Stack(
        "compiled", "lean", flash="fa2", data_hidden=True, zero=3, logits="logits_torch", early_stop=True
    ),
    "llama3": Stack("compiled", "lean", flash="cudnn", data_hidden=True, send_hidden=True, zero=2),
    "fms": Stack(
        "compiled", "lean", flash="fa2", data_hidden=True, zero=3, gradient=2, logits="logits_torch", early_stop=True
    ),
    "xtuner": Stack("compiled", "eager", flash="fa2", data_hidden=True, zero=3, early_stop=True),
    "internevo": Stack("compiled", "eager", flash="fa2", data_hidden=True, zero=1, gradient=2),
}
"""By name."""
