"""`place doctor` says what is there, what is not, and what that means."""

import json
from pathlib import Path

import pytest

from placelang.tools import doctor
from tests.tools.place import place


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing torch takes seconds; what is said of it is tested, not it."""
    from placelang.backend import probe

    monkeypatch.setattr(probe, "torch", lambda: probe.Torch("2.13.0", gloo=True, threads=2))


def states() -> dict[str, str]:
    return {f.name: f.state for f in doctor.examine()}


def test_all_is_well_here() -> None:
    done = place("doctor")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Checking and costing work.\nRunning works.\n" in done.stdout
    assert set(states()) >= {"python", "torch", "numpy", "gloo", "offload kernel", "cores", "memory", "grammar"}


def test_without_torch_running_does_not_work_and_the_rest_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from placelang.backend import probe

    monkeypatch.setattr(probe, "torch", lambda: probe.Torch(None, "not installed"))
    done = place("doctor")
    assert done.exit_code == 0
    assert "pip install 'placelang[torch]'" in " ".join(done.stdout.split())
    assert "Running does not work here" in done.stdout
    told = json.loads(place("doctor", "--json").stdout)
    assert (told["ok"], told["can_run"]) == (True, False)


def test_a_torch_that_cannot_be_imported_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    from placelang.backend import probe

    monkeypatch.setattr(probe, "torch", lambda: probe.Torch(None, "cannot be imported: no libgomp"))
    assert place("doctor").exit_code == 1
    assert states()["torch"] == "broken"


def test_without_kernel_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from placelang.backend.offload import kernel

    monkeypatch.setattr(kernel, "available", lambda: False)
    monkeypatch.setattr(kernel, "why_not", lambda: "no compiler was there")
    done = place("doctor")
    assert done.exit_code == 0
    assert "no compiler was there" in done.stdout


def test_a_damaged_installation_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from placelang.model import catalogue
    from placelang.syntax import table

    def lost() -> tuple[str, ...]:
        raise FileNotFoundError("the folder is missing")

    monkeypatch.setattr(catalogue, "names", lost)
    monkeypatch.setattr(table, "grammar_file", lambda: tmp_path / "none.lark")
    done = place("doctor")
    assert done.exit_code == 1
    assert {"standard library": "broken", "grammar": "broken"}.items() <= states().items()


def test_a_stale_table_is_only_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from placelang.syntax import table

    monkeypatch.setattr(table, "table_file", lambda: tmp_path / "none.json")
    assert states()["grammar"] == "missing"
    assert place("doctor").exit_code == 0
