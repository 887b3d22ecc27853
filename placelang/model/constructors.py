"""The functions that a text may call for a model of its own, by name: `transformer(layers = 4, ...)`.

Each takes keyword facts and gives a Model or a ModelError; nothing raises. Not for: published shapes (`catalogue`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from placelang.model import decoder, encoders
from placelang.model.facts import Arg, Refused, hint
from placelang.model.model import Model, ModelError

Constructor = Callable[[str, str, Mapping[str, object], str], Model]

CONSTRUCTORS: Final[Mapping[str, tuple[Constructor, Mapping[str, Arg]]]] = {
    "transformer": (decoder.transformer, decoder.ARGS),
    "encoder": (encoders.encoder, encoders.ENCODER),
    "encoder_decoder": (encoders.encoder_decoder, encoders.ENCODER_DECODER),
    "vision": (encoders.vision, encoders.VISION),
}
"""Each constructor with the arguments it knows, for help and completion."""


def build(
    constructor: str, facts: Mapping[str, object], *, name: str = "model", family: str = "", source: str = ""
) -> Model | ModelError:
    """The model that `constructor(**facts)` says. Facts are ints, bools, words as str, and `Learned(n)`."""
    found = CONSTRUCTORS.get(constructor)
    if found is None:
        return ModelError(f"no model constructor is named `{constructor}`", hint(constructor, CONSTRUCTORS))
    try:
        return found[0](name, family or constructor, facts, source)
    except Refused as refused:
        return refused.error
