"""Commands with their output in Markdown pages: found, run again, and compared or written back.

`python tests/docs/consoles.py PAGE...` puts the present output into pages. Speeds, losses, digests and rounding errors
may be others on another machine; all else must agree to the letter.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```console\n(\$ .*\n)((?:(?!```).*\n)*)^```$", re.MULTILINE)


_VOLATILE = re.compile(r"[\d,]+(?= tokens/s)|(?<=loss )\d+\.\d+|(?<=-> )\d+\.\d+|(?<=sha256 )\w+|\d\.\de[+-]\d+")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Each `$ command` of a page with the output that it claims."""
    return [(command[2:].strip(), said) for command, said in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def run(command: str) -> str:
    """What a command prints on both streams, in the order in which it comes. `place` is that of this Python."""
    script = f'place() {{ "{sys.executable}" -m placelang "$@"; }}\n{command}'
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return done.stdout


def stable(text: str) -> str:
    """The text without what differs from run to run and from machine to machine."""
    return _VOLATILE.sub("~", text).strip()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        text = page.read_text(encoding="utf-8")
        page.write_text(_BLOCK.sub(lambda m: f"```console\n{m[1]}{run(m[1][2:].strip())}```", text), encoding="utf-8")
