"""Real text to train on: the English reference pages of Python, which every CPython carries, or a file of one's own.

Bytes are tokens, so no tokenizer is needed. What a step reads is a function of (seed, step) alone, the same on every
rank. Not for: data sets or streaming loaders; a user's own loop brings these.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import torch
from torch import Tensor

from placelang.backend.errors import failed

BYTES = 256  # the tokens there are


def reference_pages() -> bytes:
    """The topics of Python's language reference (about 460 kB), in alphabetical order."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics)).encode()


def read(path: str) -> bytes:
    """The bytes of a file of one's own. Raises BackendError (E002)."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise failed("E002", f"cannot read {path}: {error.strerror or error}") from None


@attrs.frozen
class Batch:
    """The samples of one step: `tokens` and `targets` are (batch, seq) of int64, `index` numbers the windows read."""

    tokens: Tensor
    targets: Tensor
    index: Tensor


@attrs.frozen
class Text:
    """Windows of `seq` + 1 bytes at every `seq`-th position, in an order that is drawn anew for each pass."""

    data: Tensor = attrs.field(repr=False)  # uint8
    seq: int
    seed: int

    @property
    def windows(self) -> int:
        return (len(self.data) - 1) // self.seq

    def batch(self, step: int, size: int) -> Batch:
        """The global batch of one step: `size` windows, none of them twice."""
        per_pass = self.windows // size
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step // per_pass)
        order = torch.randperm(self.windows, generator=generator)
        index = order[(step % per_pass) * size :][:size]
        rows = self.data[index[:, None] * self.seq + torch.arange(self.seq + 1)].to(torch.int64)
        return Batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), index)


def text(seq: int, batch: int, vocab: int, seed: int = 0, source: bytes | None = None) -> Text:
    """The text in windows for batches of `batch` samples. Raises BackendError where it is too short (E504) or where the
    vocabulary has no room for bytes (E501)."""
    data = reference_pages() if source is None else source
    if vocab < BYTES:
        raise failed(
            "E501",
            f"text is read as bytes, which takes a vocabulary of {BYTES}; this model has {vocab}",
            "`vocab = 256`",
        )
    if (len(data) - 1) // seq < batch:
        raise failed(
            "E504",
            f"the text is too short: {len(data):,} bytes hold {max((len(data) - 1) // seq, 0):,} samples of {seq:,}"
            f" tokens, and a step takes {batch:,}",
            "a longer text, a shorter `seq`, or a smaller batch",
        )
    return Text(torch.frombuffer(bytearray(data), dtype=torch.uint8), seq, seed)
