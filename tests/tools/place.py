"""Running `place` in tests: in this process for speed, or as a process of its own where that is the point."""

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from placelang.tools.cli import cli

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
CARD = "params: shard(dp) ; grads: reduce_scatter\n"
WRONG = "params: replicate\ngrads: partial(dp)\n"


def place(*arguments: str, input: str | bytes | None = None) -> Result:
    """`place ARGUMENTS`, which must not raise: an exit code is the only way out."""
    done = CliRunner().invoke(cli, arguments, input=input, prog_name="place")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    return done


def process(*arguments: str, input: bytes = b"", **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "placelang", *arguments],
        input=input.decode("utf-8", "surrogateescape"),
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
        timeout=120,
    )
