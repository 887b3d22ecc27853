"""The functions that a text may call for a model of its own, by name: `transformer(layers = 4, ...)`.

Each takes keyword facts and gives a Model or a ModelError; nothing raises. Not for: published shapes (`catalogue`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from placelang.model import decoder, encoders, lora
from placelang.model.facts import Arg, Refused, hint
from placelang.model.model import Model, ModelError

Constructor = Callable[[str, str, Mapping[str, object], str], Model]

CONSTRUCTORS: Final[Mapping[str, tuple[Constructor, Mapping[str, Arg]]]] = {
    "transformer": (decoder.transformer, {**decoder.ARGS, **lora.ARGS}),
    "encoder": (encoders.encoder, {**encoders.ENCODER, **lora.ARGS}),
    "encoder_decoder": (encoders.encoder_decoder, {**encoders.ENCODER_DECODER, **lora.ARGS}),
    "vision": (encoders.vision, {**encoders.VISION, **lora.ARGS}),
}
"""Each constructor with the arguments it knows, for help and completion."""


def build(
    constructor: str, facts: Mapping[str, object], *, name: str = "model", family: str = "", source: str = ""
) -> Model | ModelError:
    """The model that `constructor(**facts)` says.

    Facts are ints, Fractions, bools, words as str, tuples of words, `Learned(n)` and `Lora(...)`.
    """
    found = CONSTRUCTORS.get(constructor)
    if found is None:
        return ModelError(f"no model constructor is named `{constructor}`", hint(constructor, CONSTRUCTORS))
    try:
        own = {argument: value for argument, value in facts.items() if argument not in lora.ARGS}
        model = found[0](name, family or constructor, own, source)
        return lora.adapted(model, facts["lora"]) if "lora" in facts else model
    except Refused as refused:
        return refused.error
