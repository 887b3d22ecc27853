"""The package itself: a lazy front door, the version in one place, and the demo's commands."""

import shlex
import subprocess
import sys

import pytest

import placelang
from placelang.tools import demo
from placelang.tools.cli import cli


def test_front_door_is_lazy_and_complete() -> None:
    code = "import sys, placelang; print([m for m in ('attr', 'lark', 'click', 'placelang.api') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    for name in placelang.__all__:
        assert getattr(placelang, name) is not None
    assert set(placelang.__all__) == set(dir(placelang))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        placelang.nonsense  # noqa: B018


def test_example_in_the_docstring() -> None:
    import doctest

    assert doctest.testmod(placelang).failed == 0


def test_load_never_raises_on_what_a_user_wrote() -> None:
    for text in ("", "x" * 3000, "params: shard(", "\0", "none.place", "a/b.place", "params: shard(dp)\n\x07"):
        assert not placelang.load(text).ok


def test_the_demo_shows_commands_that_exist() -> None:
    for step in demo.STEPS:
        name, file, *_ = shlex.split(step.command)
        assert name in cli.commands
        assert (demo.ROOT / file).is_file()
    assert (demo.ROOT / demo.CARD).read_text() == "params: shard(dp) ; grads: reduce_scatter\n"


@pytest.mark.slow
def test_the_demo_does_what_it_should() -> None:
    done = subprocess.run([sys.executable, "-m", "placelang.tools.demo"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
