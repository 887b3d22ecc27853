"""Texts that are nearly right: shipped files and cases, with a few words deleted, doubled, moved or swapped for others.

Seeded, so that a run can be repeated. Not for: judging what is said of them (`test_mutations`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
WORD = re.compile(r"\n|[ \t]+|##?[^\n]*|\"[^\"\n]*\"?|[\w.]+|[^\w\s]")
LONGEST = 2_000  # characters of a text to begin from
ODD = (
    "",
    "\0",
    "\ufeff",
    "\r\n",
    "é",
    "\u202e",
    "((((((((",
    "))))",
    "{{{{",
    "**",
    "||",
    "1e30",
    "1e-30",
    "0",
    "-1",
    "9" * 40,
)


def corpus() -> list[str]:
    """The texts to begin from, long ones cut at statements."""
    folders = ("stdlib", "tests/cases", "docs/examples", "tests/syntax/blocks")
    files = [f for folder in folders for f in sorted((ROOT / folder).glob("**/*.place"))]
    return [part for f in files for part in _parts(f.read_text("utf-8"))]


def _parts(text: str) -> Iterator[str]:
    part = ""
    for statement in re.split(r"\n(?=\S)", text):
        if part and len(part) + len(statement) > LONGEST:
            yield part
            part = ""
        part += statement + "\n"
    yield part


def mutants(seed: int, count: int) -> Iterator[str]:
    random = Random(seed)
    texts = corpus()
    words = sorted({w for text in texts for w in WORD.findall(text) if w.strip() and len(w) < 40})
    for _ in range(count):
        found = WORD.findall(random.choice(texts))
        for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
            _mutate(found, words, texts, random)
        yield "".join(found)


def _mutate(found: list[str], words: list[str], texts: list[str], random: Random) -> None:
    i = random.randrange(len(found) + 1)
    match random.randrange(8):
        case 0:
            del found[i : i + random.choice((1, 1, 2, 5))]
        case 1:
            found[i:i] = found[i : i + random.choice((1, 3, 20))]
        case 2:
            found.insert(i, random.choice(words))
        case 3 if i < len(found):
            found[i] = random.choice(words)
        case 4 if found:
            j = random.randrange(len(found))
            if i < len(found):
                found[i], found[j] = found[j], found[i]
        case 5:
            found.insert(i, random.choice(ODD))
        case 6 if i < len(found) and found[i]:  # a slip of the finger inside a word
            at = random.randrange(len(found[i]))
            found[i] = found[i][:at] + random.choice("aedpt_01.(") + found[i][at + random.randrange(2) :]
        case _:
            lines = random.choice(texts).splitlines()
            found.insert(i, "\n" + random.choice(lines or [""]) + "\n")
