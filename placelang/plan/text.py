"""Steps and journeys as the language writes them: with every option (`full`), or only with those that are not usual.

The inverse of `journeys`. Not for: reasons (`explain`), or layout of users' files (`syntax.formatter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from fractions import Fraction

import attrs

from placelang.plan.steps import (
    FORMS,
    Balanced,
    Every,
    Formats,
    Journey,
    Reduce,
    Shard,
    SmallerShard,
    Step,
    When,
)
from placelang.plan.words import WORDS, Word


def journey_text(journey: Journey, full: bool = True, hide: tuple[str, ...] = ()) -> str:
    """`shard(dp, dim = 0) | gather(dp)`, without the options in `hide`."""
    forms = _forms([s for s in journey if isinstance(s, FORMS)], full, hide)
    formats = " ".join(step_text(s, full) for s in journey if isinstance(s, Formats))
    first = " ".join(part for part in (forms, formats) if part)
    moves = (step_text(s, full, hide) for s in journey if not isinstance(s, (*FORMS, Formats)))
    return " | ".join((*((first,) if first else ()), *moves))


def _forms(forms: Sequence[Step], full: bool, hide: tuple[str, ...]) -> str:
    """`shard(a) * shard(b) as bf16`: the format after the last is that of all."""
    bare = (step_text(s if s is forms[-1] else attrs.evolve(s, dtype=None), full, hide) for s in forms)
    return " * ".join(bare)


def step_text(step: Step, full: bool = True, hide: tuple[str, ...] = ()) -> str:
    """`reduce_scatter(dp, when = microbatch)`."""
    if isinstance(step, Formats):
        parts = (("master", step.master), ("moments", step.moments))
        return f"as ({', '.join(f'{name} = {value}' for name, value in parts if value)})"
    word = word_of(step)
    inside = [" * ".join(step.axes)] if step.axes else []
    usual = _usual(word)
    for flag in word.flags:
        if flag == "op":
            inside += ["mean"] if getattr(step, "mean", False) else []
        else:
            inside.append(str(getattr(step, flag)))
    for option in word.options:
        if option.name in ("op", "reshard_after_forward", *hide) or option.name in word.flags:
            continue
        value = getattr(step, option.name)
        if value in (None, (), "") or (value == usual.get(option.name) and not _shown(step, option.name, full)):
            continue
        in_bytes = option.kind == "bytes" and isinstance(value, int)
        shown = bytes_word(value) if in_bytes else f'"{value}"' if option.kind == "text" else value_text(value)
        inside.append(_reshard(value) or f"{option.name} = {shown}")
    text = f"{word.name}({', '.join(inside)})" if inside else word.name
    return f"{text} as {step.dtype}" if step.dtype else text


def _reshard(value: object) -> str:
    """torch's spelling, where the language has no other: a number of ranks."""
    if isinstance(value, SmallerShard) and value.ranks is not None:
        return f"reshard_after_forward = {value.ranks}"
    return ""


def word_of(step: Step) -> Word:
    """The word that makes such a step."""
    name = getattr(step, "word", None)
    if isinstance(name, str):
        return WORDS[name]
    if isinstance(step, Reduce):
        return WORDS["reduce_scatter" if step.scatter else "all_reduce"]
    return next(w for w in WORDS.values() if w.step is type(step))


def _usual(word: Word) -> dict[str, object]:
    usual = {field.name: field.default for field in attrs.fields(word.step) if field.default is not attrs.NOTHING}
    if word.step is Reduce:
        usual["when"] = When.MICROBATCH if word.name == "reduce_scatter" else When.STEP
    return usual


_ALWAYS = {
    "shard": ("dim", "pad"),
    "gather": ("unit", "keep", "prefetch"),
    "all_reduce": ("when",),
    "reduce_scatter": ("when",),
    "offload": ("fraction", "pin_memory", "prefetch", "overlap"),
    "all_to_all": ("dim",),
    "ring": ("balance",),
    "delay": ("steps", "fraction"),
}
"""Options that a complete strategy says even where they are usual."""


def _shown(step: Step, option: str, full: bool) -> bool:
    if not full:
        return False
    if option == "pad" and isinstance(step, Shard) and not step.dim.isdigit():
        return False  # padding rounds up rows; other dims say how they split
    return option in _ALWAYS.get(word_of(step).name, ())


def value_text(value: object) -> str:
    """An option's value as written."""
    match value:
        case bool():
            return "true" if value else "false"
        case Every(steps=n):
            return f"every({n})"
        case SmallerShard(axes=axes):
            return f"shard({' * '.join(axes)})"
        case Balanced():
            given = {"first_less": value.first_less, "last_less": value.last_less}
            return f"balanced({', '.join(f'{k} = {v}' for k, v in given.items() if v)})"
        case Enum():
            return str(value.value)
        case Fraction():
            return str(value.numerator) if value.denominator == 1 else str(float(value))
        case tuple():
            return f"[{', '.join(value_text(v) for v in value)}]"
        case _:
            return str(value)


def bytes_word(value: int) -> str:
    """A size with the largest unit that divides it."""
    for power, unit in enumerate(("TiB", "GiB", "MiB", "KiB")):
        scale = 1024 ** (4 - power)
        if value % scale == 0:
            return f"{value // scale}{unit}"
    for power, unit in enumerate(("TB", "GB", "MB", "KB")):
        scale = 1000 ** (4 - power)
        if value % scale == 0:
            return f"{value // scale}{unit}"
    return f"{value}B"
