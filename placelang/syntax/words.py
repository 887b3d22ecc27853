"""How single words are spelt: digit-words as numbers, quantities or names, and strings with their escapes.

A digit-word is one token of the grammar, told apart here: `16_384` and `1e-3` are numbers, `40GB/s` a quantity, `1f1b`
a name. Not for: what a unit is worth (the plan's business); here units are only words.
"""

from __future__ import annotations

import re
from fractions import Fraction

import attrs

from placelang.diagnostics.suggest import did_you_mean

_BYTES = ("B", "KB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "PiB")
_BITS = ("b", "Kb", "Mb", "Gb", "Tb")
_RATES = ("FLOP/s", "KFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s")
UNITS = frozenset(
    (*_BYTES, *_BITS, *(f"{unit}/s" for unit in (*_BYTES, *_BITS)), *_RATES, "ns", "us", "ms", "s", "min", "h")
)

# Words for units that people write elsewhere; `None` has no spelling here.
_FOREIGN = {
    "sec": "s",
    "second": "s",
    "msec": "ms",
    "usec": "us",
    "nsec": "ns",
    "minute": "min",
    "hour": "h",
    "hr": "h",
}
_MULTIPLIERS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30}

_PARTS = re.compile(r"(?P<digits>[0-9][0-9_]*(?:\.[0-9_]+)?(?:[eE][+-]?[0-9]+)?)(?P<unit>.*)", re.DOTALL)
_PLAIN = re.compile(r"[0-9]+(?:_[0-9]+)*(?:\.[0-9]+(?:_[0-9]+)*)?(?:[eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[0-9][A-Za-z0-9_]*")
_LONGEST = 40  # digits of a number, and the largest exponent: no count of bytes or flops needs more


@attrs.frozen
class BadWord(Exception):
    """A digit-word that is nothing. `better` is a spelling that is right, or empty."""

    message: str
    better: str = ""
    help: str = ""


def number(text: str) -> tuple[Fraction, str] | None:
    """The exact value, in its unit, and the unit of a digit-word; None if it is a name such as `1f1b`.

    :raises BadWord: it is neither.
    """
    match = _PARTS.fullmatch(text)
    assert match is not None, "the grammar's DIGITS begin with a digit"
    digits, unit = match["digits"], match["unit"]
    if not unit or unit in UNITS:
        return _value(text, digits, unit), unit
    nearest = _meant(unit)
    if nearest is not None:
        units = " or ".join(f"`{u}`" for u in nearest)
        raise BadWord(
            f"unknown unit `{unit}` in `{text}`: did you mean {units}?",
            digits + nearest[0] if len(nearest) == 1 else "",
        )
    factor = _MULTIPLIERS.get(unit.lower())
    if factor is not None and _PLAIN.fullmatch(digits):
        better = spell(_value(text, digits, "") * factor, "")
        prefix = unit.upper()
        sizes = f"`{digits}{prefix}B` or `{digits}{prefix}iB`"
        said = f"`{text}` has a multiplier but no unit"
        if prefix in "GTP":  # rather bytes than a count
            raise BadWord(said, "", f"{sizes}; counts are written out: `{better}`")
        raise BadWord(said, better, f"counts are written out, sizes have a unit: {sizes}")
    if _NAME.fullmatch(text) and not digits.endswith("_"):
        return None
    if unit.startswith("."):
        raise BadWord(f"`{text}` is not a number: it has one `.` at most, with digits on both sides")
    if digits.endswith("_"):
        raise BadWord(f"`{text}` is not a number: `_` stands between digits only", digits.rstrip("_") + unit)
    guess = did_you_mean(unit, UNITS)
    hint = f": did you mean `{guess}`?" if guess else ""
    raise BadWord(f"unknown unit `{unit}` in `{text}`{hint}", digits + guess if guess else "", _KNOWN)


_KNOWN = "units are B KB ... PB, KiB ... PiB, b Kb ... Tb (bits), each also as a rate `/s`; TFLOP/s; us ms s min h"


def _value(text: str, digits: str, unit: str) -> Fraction:
    if not _PLAIN.fullmatch(digits):
        better = re.sub("_+(?![0-9])|_(?=_)", "", digits)
        raise BadWord(f"`{text}` is not a number: `_` stands between digits only", better + unit)
    mantissa, _, exponent = digits.lower().replace("_", "").partition("e")
    if len(mantissa) > _LONGEST or len(exponent) > 4 or abs(int(exponent or 0)) > _LONGEST:
        raise BadWord(f"the number is out of range: at most {_LONGEST} digits and exponents up to {_LONGEST}")
    return Fraction(mantissa) * Fraction(10) ** int(exponent or 0)


def _meant(unit: str) -> tuple[str, ...] | None:
    """The units that a slip of case or a spelling from elsewhere (`GBps`, `TFLOPS`, `secs`) stands for."""
    folded = unit.casefold()
    singular = folded.removesuffix("s")
    if folded in _FOREIGN or singular in _FOREIGN:
        return (_FOREIGN.get(folded) or _FOREIGN[singular],)
    exact = re.sub(r"ps$", "/s", unit)
    if exact in UNITS:
        return (exact,)
    rate = re.sub(r"flops?(?:/s|ps)?$", "flop/s", folded) if "flop" in folded else re.sub(r"(?:/sec|ps)$", "/s", folded)
    for wanted in (folded, rate, singular):
        found = tuple(sorted(known for known in UNITS if known.casefold() == wanted))
        if found:
            return found
    return None


def spelling(text: str, value: Fraction, unit: str) -> str:
    """How to write a number: as it is written in `text` if that says this very number, else plainly."""
    try:
        if _PARTS.fullmatch(text) and number(text) == (value, unit):
            return text
    except BadWord:
        pass
    return spell(value, unit)


def is_decimal(value: Fraction) -> bool:
    """Whether finitely many decimals write it: its denominator has no factors but 2 and 5."""
    rest = value.denominator
    for factor in (2, 5):
        while rest % factor == 0:
            rest //= factor
    return rest == 1


def spell(value: Fraction, unit: str) -> str:
    """The plainest spelling: thousands grouped from five digits on, decimals in full, other fractions as divisions."""
    if value < 0:
        return "-" + spell(-value, unit)
    if not is_decimal(value):
        return f"{_grouped(value.numerator)}{unit} / {_grouped(value.denominator)}"
    whole, rest = divmod(value, 1)
    decimals = ""
    while rest:
        digit, rest = divmod(rest * 10, 1)
        decimals += str(digit)
    return f"{_grouped(whole)}{'.' if decimals else ''}{decimals}{unit}"


def _grouped(n: int) -> str:
    return f"{n:_}" if n >= 10_000 else str(n)


_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def unquote(text: str) -> str:
    """The value of a string with its quotes.

    :raises BadWord: it holds an unknown escape.
    """
    if "\\" not in text:
        return text[1:-1]
    unknown = next((e for e in re.findall(r"\\(.)", text[1:-1]) if e not in _ESCAPES), None)
    if unknown is not None:
        better = re.sub(r"\\(.)", lambda m: m[0] if m[1] in _ESCAPES else "\\" + m[0], text)
        raise BadWord(f"unknown escape `\\{unknown}` in a string", better, "a backslash is written `\\\\`")
    return re.sub(r"\\(.)", lambda m: _ESCAPES[m[1]], text[1:-1])


def quote(value: str) -> str:
    """The string literal of a value."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
