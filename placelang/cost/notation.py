"""How each construct of a formula is written, in plain text and in LaTeX.

Not for choosing what to write: that is `render.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, Protocol

import attrs

from placelang.cost.exact import Rational

SUM, PRODUCT, POWER, ATOM = range(4)
"""How tightly a piece of text binds; a looser one needs parentheses inside a tighter one."""


@attrs.frozen
class Piece:
    """Text and how tightly it binds.

    `named`: it is a name that stands for a clause. `split`: it is a numerator whose denominator is still to be written.
    """

    text: str
    binding: int
    named: bool = False
    split: bool = False


class Notation(Protocol):
    """A way of writing formulas."""

    def name(self, name: str) -> str:
        """A symbol."""

    def scaled(self, number: str, zeros: int) -> str:
        """A number followed by so many zeros."""

    def literal(self, number: str, unit: str) -> str:
        """A number with a unit."""

    def grouped(self, piece: Piece, binding: int) -> str:
        """The text, in parentheses if it binds less tightly than asked."""

    def power(self, grouped: str, plain: str, exponent: Rational) -> str:
        """A power with a positive exponent other than 1; the base is given with and without parentheses."""

    def quotient(self, above: Sequence[Piece], below: Sequence[Piece]) -> Piece:
        """A product over a product; either may be empty."""

    def ceil(self, argument: str) -> str:
        """Rounded up."""

    def floor(self, argument: str) -> str:
        """Rounded down."""

    def call(self, function: str, arguments: Sequence[str]) -> str:
        """`max` or `min` of the arguments."""

    def relation(self, left: str, relation: str, right: str) -> str:
        """A comparison."""

    def cases(self, cases: Sequence[tuple[str, str]], otherwise: str) -> str:
        """(value, condition) pairs and the remaining value."""


_SUPERSCRIPTS: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_TEXT_RELATIONS: Final = {"<=": "≤", ">=": "≥", "==": "=", "!=": "≠"}


class _Text:
    def name(self, name: str) -> str:
        return name

    def scaled(self, number: str, zeros: int) -> str:
        return f"{number}e{zeros}"

    def literal(self, number: str, unit: str) -> str:
        return number + unit[1:] if unit.startswith("1/") else f"{number} {unit}"

    def grouped(self, piece: Piece, binding: int) -> str:
        return f"({piece.text})" if piece.binding < binding else piece.text

    def power(self, grouped: str, plain: str, exponent: Rational) -> str:
        if exponent == Fraction(1, 2):
            return f"sqrt({plain})"
        if exponent.denominator == 1:
            return grouped + str(exponent).translate(_SUPERSCRIPTS)
        return f"{grouped}^({exponent})"

    def quotient(self, above: Sequence[Piece], below: Sequence[Piece]) -> Piece:
        top = self._joined(above)
        if not below:
            return above[0] if len(above) == 1 else Piece(top, PRODUCT)
        bottom = self._joined(below) if len(below) > 1 else self.grouped(below[0], POWER)
        return Piece(f"{top}/({bottom})" if len(below) > 1 else f"{top}/{bottom}", PRODUCT)

    def _joined(self, parts: Sequence[Piece]) -> str:
        if not parts:
            return "1"
        *most, last = parts
        # A unit like B/s at the end of a product needs no parentheses.
        return "·".join([*(self.grouped(part, POWER) for part in most), self.grouped(last, PRODUCT)])

    def ceil(self, argument: str) -> str:
        return f"ceil({argument})"

    def floor(self, argument: str) -> str:
        return f"floor({argument})"

    def call(self, function: str, arguments: Sequence[str]) -> str:
        return f"{function}({', '.join(arguments)})"

    def relation(self, left: str, relation: str, right: str) -> str:
        return f"{left} {_TEXT_RELATIONS.get(relation, relation)} {right}"

    def cases(self, cases: Sequence[tuple[str, str]], otherwise: str) -> str:
        return "{" + "; ".join([*(f"{value} if {when}" for value, when in cases), f"{otherwise} otherwise"]) + "}"


_GREEK: Final = frozenset(
    re.findall(
        r"\w+",
        "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi chi psi "
        "omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ",
    )
)
_LATEX_RELATIONS: Final = {"<=": r"\le", ">=": r"\ge", "==": "=", "!=": r"\ne"}
_LATEX_SPECIAL: Final = {"\\": r"\backslash ", "^": r"\hat{}", "~": r"\tilde{}", "_": r"\_"}


class _Latex:
    def name(self, name: str) -> str:
        head, _, index = name.partition("_")
        if not head or not index:
            return self._word(name)
        return f"{self._word(head)}_{{{self._word(index)}}}"

    def _word(self, word: str) -> str:
        if word in _GREEK:
            return f"\\{word}"
        escaped = re.sub(r"[\\^~_#$%&{}]", lambda hit: _LATEX_SPECIAL.get(hit[0], f"\\{hit[0]}"), word)
        return escaped if len(word) == 1 or word.isdecimal() else f"\\mathrm{{{escaped}}}"

    def scaled(self, number: str, zeros: int) -> str:
        return f"{number} {{\\cdot}} 10^{{{zeros}}}"

    def literal(self, number: str, unit: str) -> str:
        spelled = unit.replace("·", r"{\cdot}")
        return f"{number}\\,\\mathrm{{{spelled}}}"

    def grouped(self, piece: Piece, binding: int) -> str:
        return f"\\left({piece.text}\\right)" if piece.binding < binding else piece.text

    def power(self, grouped: str, plain: str, exponent: Rational) -> str:
        return f"\\sqrt{{{plain}}}" if exponent == Fraction(1, 2) else f"{grouped}^{{{exponent}}}"

    def quotient(self, above: Sequence[Piece], below: Sequence[Piece]) -> Piece:
        top = self._joined(above)
        if not below:
            return above[0] if len(above) == 1 else Piece(top, PRODUCT)
        return Piece(f"\\frac{{{top}}}{{{self._joined(below)}}}", PRODUCT)

    def _joined(self, parts: Sequence[Piece]) -> str:
        if len(parts) == 1:
            return parts[0].text
        return r" \cdot ".join(self.grouped(part, PRODUCT) for part in parts) or "1"

    def ceil(self, argument: str) -> str:
        return f"\\left\\lceil {argument} \\right\\rceil"

    def floor(self, argument: str) -> str:
        return f"\\left\\lfloor {argument} \\right\\rfloor"

    def call(self, function: str, arguments: Sequence[str]) -> str:
        return f"\\{function}\\left({', '.join(arguments)}\\right)"

    def relation(self, left: str, relation: str, right: str) -> str:
        return f"{left} {_LATEX_RELATIONS.get(relation, relation)} {right}"

    def cases(self, cases: Sequence[tuple[str, str]], otherwise: str) -> str:
        rows = [f"{value} & \\text{{if }} {when}" for value, when in cases]
        return "\\begin{cases} " + r" \\ ".join([*rows, f"{otherwise} & \\text{{otherwise}}"]) + " \\end{cases}"


TEXT: Final[Notation] = _Text()
LATEX: Final[Notation] = _Latex()
