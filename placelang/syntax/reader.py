"""Files and texts to sources: the only place where the core reads a file of the user.

A `.place` text is UTF-8 of at most 1 MiB; a byte order mark is dropped, CRLF and lone CR become LF. What can't be text
is refused with one error, never half read, and nothing is waited for (pipes, devices). Not for: parsing.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from pathlib import Path

from placelang.diagnostics.diagnostic import Diagnostic, Label
from placelang.diagnostics.suggest import did_you_mean
from placelang.source import Source

MAX_BYTES = 1 << 20

# Control characters and those that reorder or hide text on a screen: what is read must be what is shown.
_REFUSED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def read_file(path: str | os.PathLike[str]) -> Source | Diagnostic:
    """The text of a regular file, or the one error that says why there is none. Raises nothing."""
    name = _shown(os.fspath(path))
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for its writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(handle, "rb") as file:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                return _unreadable(f"`{name}` is {_kind(mode)}, not a file", _inside(path, mode))
            return from_bytes(file.read(MAX_BYTES + 1), name)
    except FileNotFoundError:
        return _unreadable(f"there is no file `{name}`", _near(path))
    except IsADirectoryError:
        return _unreadable(f"`{name}` is a directory, not a file", _inside(path, stat.S_IFDIR))
    except NotADirectoryError:
        return _unreadable(f"there is no file `{name}`: a part of its path is a file, not a directory")
    except PermissionError:
        return _unreadable(f"`{name}` may not be read by this user (permission denied)")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return _unreadable(f"`{name}` cannot be read: {getattr(error, 'strerror', None) or error}")


def from_bytes(raw: bytes, name: str) -> Source | Diagnostic:
    """The text that these bytes are, e.g. of standard input (read at most `MAX_BYTES + 1` of them)."""
    if len(raw) > MAX_BYTES:
        return _too_large(name)
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in raw:
        utf16 = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
        return _unreadable(
            f"`{name}` is not UTF-8 text: it is UTF-16" if utf16 else f"`{name}` is a binary file, not text",
            "save it as UTF-8" if utf16 else "",
        )
    try:
        return from_text(raw.decode("utf-8"), name)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return _unreadable(
            f"`{name}` is not UTF-8 text: byte 0x{raw[error.start]:02x} at offset {error.start}, in line {line}",
            "save it as UTF-8",
        )


def from_text(text: str, name: str = "<text>") -> Source | Diagnostic:
    """A source with LF line ends and without byte order mark, if the text is one that can be shown."""
    if len(text) > MAX_BYTES:
        return _too_large(name)
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    bad = _REFUSED.search(text)
    if bad is None:
        return Source(text, name)
    character = f"U+{ord(bad[0]):04X}"
    title = unicodedata.name(bad[0], "").lower()
    kind = "surrogate" if "\ud800" <= bad[0] <= "\udfff" else "control or invisible character"
    # The text shown with the error must be one that a terminal can show.
    source = Source(_REFUSED.sub("\N{REPLACEMENT CHARACTER}", text), name)
    label = Label(source.span(bad.start(), bad.end()), f"{character} {title}".strip())
    return Diagnostic("E007", f"the text holds a {kind}, {character}", label, help="delete it")


def _too_large(name: str) -> Diagnostic:
    return Diagnostic("E003", f"`{name}` is larger than {MAX_BYTES >> 20} MiB", help="is it a `.place` text?")


def _unreadable(message: str, help: str = "") -> Diagnostic:
    return Diagnostic("E002", message, help=help)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def _near(path: str | os.PathLike[str]) -> str:
    place = Path(path)
    guess = did_you_mean(place.name, _files(place.parent))
    return f"did you mean `{_shown(str(place.parent / guess))}`?" if guess else ""


def _inside(path: str | os.PathLike[str], mode: int) -> str:
    texts = sorted(name for name in _files(Path(path)) if name.endswith(".place")) if stat.S_ISDIR(mode) else []
    shown = ", ".join(f"`{_shown(str(Path(path) / name))}`" for name in texts[:3])
    return f"it holds {shown}" + (", ..." if len(texts) > 3 else "") if texts else ""


def _files(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for _, entry in zip(range(1000), entries, strict=False)]
    except (OSError, ValueError):
        return []


def _shown(path: str | bytes) -> str:
    """A path as it may be printed: undecodable bytes and control characters replaced."""
    text = os.fsdecode(path).encode("utf-8", "replace").decode("utf-8")
    return _REFUSED.sub("\N{REPLACEMENT CHARACTER}", re.sub(r"\s", " ", text))
