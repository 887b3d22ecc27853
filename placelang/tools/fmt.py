"""`place fmt`: files in their canonical layout, written so that nothing can be lost.

A file with syntax errors is left alone, so is one whose formatted text would not say the same; a write is atomic. Not
for: the layout itself (`syntax.formatter`).
"""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from collections.abc import Sequence

import attrs

from placelang.diagnostics import render
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.syntax import ast
from placelang.syntax.formatter import format_file
from placelang.syntax.parser import parse
from placelang.syntax.reader import from_text
from placelang.tools import inputs
from placelang.tools.screen import Screen


@attrs.frozen
class Formatted:
    """A file before and after. With errors the two are equal."""

    file: str
    before: str
    after: str
    diagnostics: tuple[Diagnostic, ...] = ()
    raw_differs: bool = False  # in byte order mark or line ends, which a Source no longer shows

    @property
    def changed(self) -> bool:
        return self.after != self.before or self.raw_differs

    @property
    def refused(self) -> bool:
        return any(d.is_error for d in self.diagnostics)


def fmt(screen: Screen, files: Sequence[str], only_check: bool, diff: bool) -> bool:
    """Format each file; whether all could be (and, with `only_check`, were already)."""
    found = [formatted(file) for file in dict.fromkeys(files)]
    if not (only_check or diff):
        found = [_written(f) if f.changed and f.file != inputs.STDIN else f for f in found]
    ok = not any(f.refused or (only_check and f.changed) for f in found)
    screen.answer({"ok": ok, "files": [_json(f) for f in found]})
    for f in found:
        screen.show(f.diagnostics)
        if f.refused:
            continue
        if diff:
            _diff(screen, f)
        elif f.file == inputs.STDIN and not only_check:
            screen.out(f.after.removesuffix("\n")) if f.after else None
        elif f.changed:
            screen.err(f"{f.file}: {'would be formatted' if only_check else 'formatted'}")
    return ok


def formatted(file: str) -> Formatted:
    """The file in canonical layout; unchanged, with the reason, where it has none. Writes nothing."""
    source = inputs.read(file)
    if isinstance(source, Diagnostic):
        return Formatted(file, "", "", (source,))
    tree, problems = parse(source)
    if any(d.is_error for d in problems):
        return Formatted(file, source.text, source.text, problems)
    after = format_file(tree)
    if not _says_the_same(tree, after):
        lost = Diagnostic(
            "E001", "the formatted text would not say the same; the file is left as it is", help="please report it"
        )
        return Formatted(file, source.text, source.text, (lost,))
    return Formatted(file, source.text, after, problems, _raw_differs(file, source.text))


def _says_the_same(tree: ast.File, after: str) -> bool:
    again = from_text(after)
    if isinstance(again, Diagnostic):
        return False
    parsed, problems = parse(again)
    comments = [sorted(c.text.strip() for c in file.comments) for file in (tree, parsed)]
    return not any(d.is_error for d in problems) and parsed == tree and comments[0] == comments[1]


def _raw_differs(file: str, text: str) -> bool:
    if file == inputs.STDIN:
        return False
    with open(file, "rb") as handle:
        return handle.read() != text.encode()


def _written(f: Formatted) -> Formatted:
    try:
        write(f.file, f.after)
    except OSError as error:
        why = Diagnostic(
            "E002", f"`{f.file}` cannot be written: {error.strerror or error}", help="its text is as it was"
        )
        return attrs.evolve(f, after=f.before, raw_differs=False, diagnostics=(*f.diagnostics, why))
    return f


def write(file: str, text: str) -> None:
    """Replace a file's text at once or not at all, through a link where there is one. Raises OSError."""
    target = os.path.realpath(file)
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise PermissionError(13, "permission denied", target)
    handle, scratch = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".place-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        if os.path.exists(target):
            shutil.copymode(target, scratch)
        else:
            os.chmod(scratch, 0o666 & ~_umask())
        os.replace(scratch, target)
    except BaseException:
        os.unlink(scratch)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _diff(screen: Screen, f: Formatted) -> None:
    before, after = f.before.splitlines(), f.after.splitlines()
    for line in difflib.unified_diff(before, after, f.file, f"{f.file} (formatted)", lineterm=""):
        style = {"+": "good", "-": "bad", "@": "dim"}.get(line[:1], "")
        screen.out(screen.paint(style, line) if style else line)


def _json(f: Formatted) -> dict[str, object]:
    return {
        "file": f.file,
        "ok": not f.refused,
        "changed": f.changed,
        "text": None if f.refused else f.after,
        "diagnostics": render.json_value(f.diagnostics),
    }
