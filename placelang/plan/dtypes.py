"""Number formats and the precision presets: which format each use of a state has.

Dtypes differ per use (at rest, in a view, on the wire, in the accumulator); one name for all of them is a preset.
Not for: casts as events (`program`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import attrs

from placelang.frozen import Frozen

BYTES: Mapping[str, Fraction] = {
    "fp64": Fraction(8),
    "fp32": Fraction(4),
    "tf32": Fraction(4),
    "bf16": Fraction(2),
    "fp16": Fraction(2),
    "fp8": Fraction(1),
    "int8": Fraction(1),
    "int4": Fraction(1, 2),
    "nf4": Fraction(1, 2),
}
"""Bytes an element of each format takes."""


@attrs.frozen(eq=False, repr=False)
class Precision(Frozen):
    """The format of each use. `master` is None where the parameters at rest are the master copy."""

    name: str
    rest: str  # parameters between uses
    view: str  # parameters as compute reads them, and activations
    raw: str  # gradients as backward produces them
    wire: str  # gradients while they are reduced
    accumulate: str  # gradients at rest
    master: str | None
    moments: str

    @property
    def bytes_per_parameter(self) -> Fraction:
        """Parameters, gradients and Adam's state, all unsharded."""
        master = BYTES[self.master] if self.master else Fraction(0)
        return BYTES[self.rest] + BYTES[self.accumulate] + master + 2 * BYTES[self.moments]


def _same(name: str) -> Precision:
    return Precision(name, name, name, name, name, name, None, name)


PRECISIONS: Mapping[str, Precision] = {
    p.name: p
    for p in (
        _same("fp64"),  # 32 bytes a parameter with Adam: for parity tests
        _same("fp32"),  # 16
        # Mixed precision with an fp32 master copy, as DeepSpeed and Megatron hold it (ZeRO, arXiv 1910.02054, sec. 3.1)
        Precision("bf16", "bf16", "bf16", "bf16", "bf16", "bf16", "fp32", "fp32"),  # 2 + 2 + 12 = 16
        Precision("bf16_fp32_grads", "bf16", "bf16", "bf16", "fp32", "fp32", "fp32", "fp32"),  # 2 + 4 + 12 = 18
        Precision("fp16", "fp16", "fp16", "fp16", "fp16", "fp16", "fp32", "fp32"),  # 16, as ZeRO counts it
        Precision("fp16_fp32_grads", "fp16", "fp16", "fp16", "fp32", "fp32", "fp32", "fp32"),  # 18
        # FSDP2's MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=fp32): parameters at rest are the fp32 master
        Precision("fsdp_mixed", "fp32", "bf16", "bf16", "fp32", "fp32", None, "fp32"),  # 4 + 4 + 8 = 16
    )
}
