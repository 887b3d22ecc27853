"""How long a whole ``place check FILE`` takes, against a Python that only imports what it stands on (lark, attrs).

``python -m benchmarks.startup [FILE] [--rounds N] [--json FILE]``; without FILE it checks the line of the design card.
Every sample is a new process. Fails if the check imported a heavy package.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs

from benchmarks.harness import interleave, ratio, show, write

CARD = "params: shard(dp) ; grads: reduce_scatter\n"
HEAVY = ("numpy", "prompt_toolkit", "rich", "torch")
BASE = "python -c 'import lark, attrs'"
CHECK = "place check FILE"

# What the console script does.
PLACE = "from placelang.tools.cli import main; main()"
# The same, and then which of the heavy packages it imported, as the last line.
AUDIT = f"""
import json, sys
from placelang.tools.cli import main
try:
    main()
except SystemExit as exit:
    status = exit.code
else:
    status = 0
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
sys.exit(status)
"""


def python(code: str, *arguments: str) -> str:
    """Run code in a new interpreter; returns what it printed.

    :raises subprocess.CalledProcessError: it didn't end with status 0.
    """
    command = [sys.executable, "-c", code, *arguments]
    # Installed packages are byte-compiled; a checkout is from its second use on, unless this variable forbids it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment
    )
    return done.stdout


@attrs.frozen
class Result:
    """Wall times by process, in milliseconds and as multiples of :data:`BASE`'s; the heavy packages that came along."""

    rounds: int
    median_ms: dict[str, float]
    ratio: dict[str, float]
    heavy_imports: list[str]


def measure(file: Path, rounds: int) -> Result:
    """Time the check of a file against the bases."""
    heavy = json.loads(python(AUDIT, "check", str(file)).splitlines()[-1])
    seconds = interleave(
        {
            "python -c pass": lambda: python("pass"),
            BASE: lambda: python("import lark, attrs"),
            CHECK: lambda: python(PLACE, "check", str(file)),
        },
        rounds,
    )
    return Result(
        rounds=rounds,
        median_ms={name: 1e3 * statistics.median(samples) for name, samples in seconds.items()},
        ratio={name: ratio(samples, seconds[BASE]) for name, samples in seconds.items()},
        heavy_imports=heavy,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, nargs="?", help="the text to check (default: the design card's line)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        file = options.file
        if file is None:
            file = Path(scratch) / "card.place"
            file.write_text(CARD, encoding="utf-8")
        result = measure(file, options.rounds)

    rows = [(name, f"{ms:.1f}", f"{result.ratio[name]:.2f}") for name, ms in result.median_ms.items()]
    show(f"Whole process, median of {options.rounds} interleaved rounds", ("process", "ms", "ratio"), rows)
    write(options.json, attrs.asdict(result))
    if result.heavy_imports:
        sys.exit(f"place check imported {', '.join(result.heavy_imports)}: it must not")
    print(f"place check imported none of {', '.join(HEAVY)}.")


if __name__ == "__main__":
    main()
