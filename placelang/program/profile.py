"""Runtime profiles: the choices of a runtime that change traffic and memory and never the result.

`explain` prints the profile; cost and backend use the same one. Measured: see docs/design/torch.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from placelang.frozen import Frozen


@attrs.frozen(eq=False, repr=False)
class Profile(Frozen):
    """`root_unit`: layers outside the repeated blocks gather and reduce together, as one unit that lives from its first
    use to its last in each pass (FSDP2's root group). `backward_gathers_all`: backward gathers a unit again even
    where it reads no value of it (embeddings, biases), so Phi = 0."""

    name: str
    root_unit: bool
    backward_gathers_all: bool
    text: str


PROFILES: Mapping[str, Profile] = {
    "torch": Profile("torch", True, True, "torch 2.13: FSDP2 units per block, the rest in one root unit, resharded"),
}
