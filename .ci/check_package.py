"""Install each built distribution in a clean environment without torch, and see that it is whole and works.

python .ci/check_package.py FOLDER
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

# Runs isolated (-I) in the clean environment, so that nothing of the checkout can stand in for what is missing.
PROBE = """
import importlib.util

import placelang
from placelang._resources import data
from placelang.backend.offload import kernel

assert "site-packages" in placelang.__file__, placelang.__file__
assert importlib.util.find_spec("torch") is None, "the package brought torch"
assert kernel.available(), kernel.why_not()
assert (data("grammar") / "place.lark").is_file(), "no grammar"
assert any(data("stdlib").rglob("*.place")), "no standard library"
print(f"  kernel loads ({kernel.isa()}), grammar and standard library are there, torch is not")
"""

STRATEGY = "params: shard(dp) ; grads: reduce_scatter\n"


def check(distribution: Path, scratch: Path) -> None:
    print(distribution.name, flush=True)
    venv.create(scratch / "venv", with_pip=True)
    tools = scratch / "venv" / "bin"
    strategy = scratch / "card.place"
    strategy.write_text(STRATEGY)

    def run(*command: str | Path) -> None:
        subprocess.run(command, check=True, cwd=scratch)

    run(tools / "python", "-m", "pip", "install", "--quiet", distribution.resolve())
    run(tools / "python", "-I", "-c", PROBE)
    run(tools / "place", "--version")
    run(tools / "place", "check", strategy)


def main() -> None:
    folder = Path(sys.argv[1])
    distributions = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    if {path.suffix for path in distributions} != {".whl", ".gz"}:
        sys.exit(f"{folder} must hold a wheel and an sdist, not {[path.name for path in distributions]}")
    for distribution in distributions:
        with tempfile.TemporaryDirectory() as scratch:
            check(distribution, Path(scratch))


if __name__ == "__main__":
    main()
