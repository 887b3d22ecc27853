"""What each command says, where it says it, and how it exits."""

import json
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import placelang
from placelang.diagnostics.codes import CODES
from placelang.tools import cli, inputs
from placelang.tools.running import Ready, ready
from tests.tools.place import CARD, EXAMPLES, WRONG, place, process

COMMANDS = ["check", "explain", "fmt", "cost", "run", "verify", "doctor", "repl"]
SIZES = ["--set", "dp=2", "--set", "seq=1024", "--set", "micro_batch=1"]


@pytest.fixture
def card(tmp_path: Path) -> str:
    file = tmp_path / "card.place"
    file.write_text(CARD)
    return str(file)


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    file = tmp_path / "wrong.place"
    file.write_text(WRONG)
    return str(file)


def test_version() -> None:
    assert place("--version").output == f"place {placelang.__version__}\n"


def test_the_console_script_is_this_one() -> None:
    (script,) = [e for e in entry_points(group="console_scripts") if e.name == "place"]
    assert script.load() is cli.main


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_of_the_command(command: str) -> None:
    said = place(command, "--help").output
    examples = said.partition("Examples:")[2]
    assert f"place {command}" in examples
    assert "--plain" in said


def test_help_lists_every_command() -> None:
    said = place("--help").output
    assert re.findall(r"^  (\w+)  ", said.partition("Commands:")[2], re.MULTILINE) == sorted(COMMANDS)


@pytest.mark.parametrize("arguments", [["--nonsense"], ["nonsense"], ["check"], ["check", "x", "--set", "dp"]])
def test_bad_usage_exits_2(arguments: list[str]) -> None:
    done = place(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Usage: place" in done.stderr


@pytest.mark.parametrize("given", ["dp", "=8", "dp=", "d p=8", "8=dp"])
def test_set_wants_name_and_value(card: str, given: str) -> None:
    assert place("check", card, "--set", given).exit_code == 2


def test_set_twice_is_refused(card: str) -> None:
    assert place("check", card, "--set", "dp=2", "--set", "dp=4").exit_code == 2


# --- check ----------------------------------------------------------------------------------------------------------


def test_check_says_sound_and_what_was_inferred(card: str) -> None:
    done = place("check", card)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("sound: trains like one device\n")
    assert re.search(
        r"^  \+ optimizer: +shard\(dp, dim = 0, pad = even\)\n +# shard: as params rest$", done.stdout, re.M
    )


def test_check_refuses_with_place_rule_counterexample_and_count(wrong: str) -> None:
    done = place("check", wrong)
    assert (done.exit_code, done.stderr) == (1, "")
    for part in ("error[E201]", "wrong.place:2:8", "= rule:", "= counterexample: rank (dp=0)", "unsound: ", "1 error"):
        assert part in done.stdout


def test_check_takes_several_files_and_fails_if_one_does(card: str, wrong: str) -> None:
    done = place("check", card, wrong)
    assert done.exit_code == 1
    assert f"{card}: sound" in done.stdout
    assert f"{wrong}: unsound" in done.stdout
    told = json.loads(place("check", card, wrong, "--json").stdout)
    assert [told["ok"], *(f["ok"] for f in told["files"])] == [False, True, False]


def test_check_reads_standard_input() -> None:
    assert place("check", "-", input=CARD).exit_code == 0
    done = place("check", "-", input=WRONG)
    assert done.exit_code == 1
    assert "<stdin>:2:8" in done.stdout


def test_set_gives_sizes_and_refuses_names_that_are_not_there(card: str) -> None:
    assert "mesh (dp = 8)" in place("check", card, "--set", "dp=8").stdout
    done = place("check", card, "--set", "nonsense=8")
    assert done.exit_code == 1
    assert "nonsense" in done.stdout


def test_model_may_be_a_config(card: str, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100, "n_positions": 1024}
    config.write_text(json.dumps({"model_type": "gpt2", **sizes}))
    done = place("cost", card, "--model", str(config), *SIZES)
    assert done.exit_code == 0, done.output
    assert place("cost", card, "--model", str(tmp_path / "none.json"), *SIZES).exit_code == 1
    assert "did you mean `gpt2_124m`" in place("cost", card, "--model", "gpt2_124", *SIZES).stderr


# --- explain --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_explain_prints_the_page_of_every_code_by_number_and_name(code: str) -> None:
    by_number, by_name = place("explain", code), place("explain", CODES[code].name)
    assert (by_number.exit_code, by_number.output) == (0, by_name.output)
    assert by_number.output.startswith(f"# {code} ")


def test_explain_of_no_code() -> None:
    done = place("explain", "grads-left-partia")
    assert done.exit_code == 1
    assert "did you mean `grads-left-partial`?" in done.stderr


def test_explain_prints_a_text_that_means_the_same(card: str) -> None:
    done = place("explain", card)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "# runtime profile: " in done.stdout
    assert "# assumed precision: " in done.stdout
    again = placelang.load(done.stdout)
    first = placelang.load(CARD)
    assert again.ok
    assert first.plan is not None
    assert again.plan is not None
    assert again.plan.placed == first.plan.placed


def test_explain_of_a_refused_text_says_why_and_still_explains(wrong: str) -> None:
    done = place("explain", wrong)
    assert done.exit_code == 1
    assert "error[E201]" in done.stderr
    assert "grads:" in done.stdout


# --- cost -----------------------------------------------------------------------------------------------------------


def test_cost_shows_formula_and_number_in_80_columns(card: str) -> None:
    done = place("cost", card, "--model", "gpt2_124m", *SIZES)
    assert (done.exit_code, done.stderr) == (0, "")
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert re.search(r"^  params +237\.35 MiB  P_pad\(dp\)·4 B/dp$", done.stdout, re.MULTILINE)
    assert re.search(r"^  backward  reduce_scatter fp32 +13 ", done.stdout, re.MULTILINE)
    assert "P_pad(dp) = dp·(" in done.stdout
    assert "--set" not in done.stdout


def test_every_name_in_a_formula_is_explained(card: str) -> None:
    said = place("cost", card, "--model", "gpt2_124m").stdout
    tables, _, where = said.partition("\nwhere\n")
    names = set(re.findall(r"[A-Za-z_]\w*(?:\(dp\))?(?=[·/ )]|$)", " ".join(re.findall(r"(?<=  )\S*·.*", tables))))
    for name in names - {"B", "max", "ceil"}:
        assert f"{name} = " in where or re.search(rf"^  {name} ", tables, re.MULTILINE), name


def test_cost_names_sizes_that_are_missing(card: str) -> None:
    done = place("cost", card, "--model", "gpt2_124m")
    assert done.exit_code == 0
    assert "--set dp=8 --set micro_batch=1 --set seq=1024" in " ".join(done.stdout.split())


def test_cost_json_holds_what_programs_rely_on(card: str) -> None:
    told = json.loads(place("cost", card, "--model", "gpt2_124m", *SIZES, "--json").stdout)
    device = told["memory"]["device"]
    assert device["by_state"]["params"] == 248_881_152
    assert device["peak"] > sum(device["by_state"][state] for state in ("params", "grads", "optimizer"))
    assert told["memory"]["host"] == 0
    assert told["comm"]["by_axis"]["dp"]["bytes"] == 2 * told["comm"]["by_axis"]["dp"]["wire_bytes"]
    assert told["time"]["step"] is None
    assert told["assumptions"]
    assert told["formulas"]["memory.device.params"].startswith("P_pad(dp)·4 B/dp where P_pad(dp) = ")


def test_cost_asks_for_a_model(card: str) -> None:
    done = place("cost", card)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "--model gpt2_124m" in done.stderr


def test_cost_asks_for_the_number_of_stages(tmp_path: Path) -> None:
    """A number for each stage of three would be a number of nothing."""
    text = "model llama3_8b\nmesh (pp, dp = 2)\ntrain (microbatches = 8)\napply zero1(dp) * pipelined(pp)\n"
    path = tmp_path / "stages.place"
    path.write_text(f"{text}assert memory.peak <= 1GB\n", "utf-8")
    done = place("cost", str(path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "error[E121]" in done.stderr and "--set pp=4" in done.stderr
    assert "N102" in place("check", str(path)).stdout
    assert "error[E121]" not in place("cost", str(path), "--set", "pp=4").stderr


def test_cost_of_a_refused_text_is_refused(wrong: str) -> None:
    done = place("cost", wrong, "--model", "gpt2_124m", *SIZES)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "error[E201]" in done.stderr


# --- run and verify -------------------------------------------------------------------------------------------------


def test_run_and_verify_refuse_before_anything_starts(card: str, wrong: str) -> None:
    for command in ("run", "verify"):
        done = place(command, wrong, "--nproc", "2")
        assert done.exit_code == 1
        assert "error[E201]" in done.stderr
        done = place(command, card)
        assert done.exit_code == 1
        assert "`--nproc 2`" in done.stderr
    assert place("run", card, "--nproc", "0").exit_code == 2


def test_run_counts_processes_against_the_mesh(tmp_path: Path) -> None:
    file = tmp_path / "four.place"
    file.write_text("mesh (dp = 4)\n" + CARD)
    done = place("run", str(file), "--nproc", "2")
    assert done.exit_code == 1
    assert "error[E503]" in done.stderr


@pytest.mark.parametrize("mesh", ["", "mesh (dp)\n", "mesh (dp = *)\n", "hardware dgx_h100\nmesh (dp = *)\n"])
def test_processes_size_the_axis_that_has_no_size(tmp_path: Path, mesh: str) -> None:
    file = tmp_path / "open.place"
    file.write_text(f"{mesh}train (global_batch = 8, micro_batch = 2)\n{CARD}")
    job = ready(str(file), {}, None, nproc=2, text=None)
    assert isinstance(job, Ready), job
    assert (job.nproc, job.plan.mesh.world, job.plan.train.microbatches) == (2, 2, 2)


def test_run_of_a_text_file_that_is_not_there(card: str) -> None:
    done = place("run", card, "--nproc", "2", "--text", "/nowhere/book.txt")
    assert done.exit_code == 1
    assert "error[E002]" in done.stderr


def test_without_torch_it_says_what_to_install(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from placelang.backend import probe

    monkeypatch.setattr(probe, "find_spec", lambda name: None)
    for command in ("run", "verify"):
        done = place(command, card, "--nproc", "2")
        assert done.exit_code == 1
        assert "error[E502]" in done.stderr
        assert "pip install 'placelang[torch]'" in done.stderr


def test_run_trains_and_reports(card: str) -> None:
    done = process("run", card, "--nproc", "2", "--steps", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert (told["ok"], told["model"], told["ranks"], len(told["losses"])) == (True, "nano_gpt", 2, 2)
    assert told["losses"][1] < told["losses"][0]
    assert set(told["differences"]) == {0.0}


def test_a_forced_run_shows_that_the_refusal_was_right() -> None:
    done = process("run", str(EXAMPLES / "no_reduction.place"), "--nproc", "2", "--steps", "2", "--force")
    assert done.returncode == 0
    assert "DIFFER" in done.stdout
    assert "error[E201]" in done.stderr
    assert "forced" in done.stderr


@pytest.mark.parametrize("example", ["card", "data_parallel"])
def test_verify_agrees(example: str) -> None:
    done = process("verify", str(EXAMPLES / f"{example}.place"), "--nproc", "2", "--steps", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("verified: the run did what the text says\n")
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_a_forced_verification_shows_what_is_wrong() -> None:
    done = process("verify", str(EXAMPLES / "no_reduction.place"), "--nproc", "2", "--steps", "1", "--force")
    assert done.returncode == 1
    assert "error[E201]" in done.stderr
    assert "forced" in done.stderr
    assert "NOT AS PREDICTED" in done.stdout
    assert done.stdout.endswith("not verified: see the marked rows\n")


def test_simulation_needs_no_torch_and_no_processes(card: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = place("verify", card, "--simulate", "--set", "dp=2")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "equal to one device" in done.stdout
    refused = place("verify", wrong, "--simulate")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "error[E201]" in refused.stderr
    forced = place("verify", wrong, "--simulate", "--force")
    assert forced.exit_code == 1
    assert "wrong by up to" in forced.stdout
    assert forced.stdout.endswith("NOT EQUAL to one device\n")
    told = json.loads(place("verify", wrong, "--simulate", "--force", "--json").stdout)
    assert (told["ok"], told["outcome"], told["ranks"]) == (False, "differs", 2)
    assert told["mismatches"]
    assert place("verify", card, "--simulate", "--steps", "2").exit_code == 2

    from placelang.tools import simulated

    monkeypatch.setattr(simulated, "find_spec", lambda name: None)
    assert "error[E502]" in place("verify", card, "--simulate").stderr


# --- streams and faults ---------------------------------------------------------------------------------------------


READS = ("check", "explain", "fmt", "cost")
# A sound text makes `run` and `verify` start processes: their JSON is that of the tests of runs.
ANSWERS = [
    (c, t) for c in (*READS, "run", "verify") for t in (CARD, WRONG, "nonsense(", "\x00") if c in READS or t != CARD
]


@pytest.mark.parametrize(("command", "text"), ANSWERS)
def test_json_is_one_object_and_nothing_else(command: str, text: str) -> None:
    done = place(command, "-", "--json", input=text)
    assert done.stderr == ""
    assert isinstance(json.loads(done.stdout), dict)


def test_an_unforeseen_fault_is_one_clear_line(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(inputs, "strategy", fail)
    done = place("cost", card)
    assert done.exit_code == 70
    assert done.stdout == ""
    assert "internal error, RuntimeError: two lines" in done.stderr
    assert "PLACE_DEBUG=1" in done.stderr


def test_debug_shows_the_traceback(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    monkeypatch.setenv("PLACE_DEBUG", "1")
    monkeypatch.setattr(inputs, "strategy", lambda *_: 1 / 0)
    assert isinstance(CliRunner().invoke(cli.cli, ["cost", card]).exception, ZeroDivisionError)


def test_output_that_the_terminal_cannot_encode_is_spelled_in_ascii(card: str) -> None:
    done = process("cost", card, "--model", "gpt2_124m", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert "\\x" not in done.stdout and "P_pad(dp)*4 B/dp" in done.stdout


def test_check_imports_nothing_heavy(card: str) -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.argv = ['place', 'check', sys.argv[1]]\n"
        "from placelang.tools.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('torch', 'numpy', 'rich', 'prompt_toolkit', 'placelang.cost', 'placelang.syntax.recovery')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, card], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_sarif_is_one_log_of_every_message() -> None:
    run = place("check", str(EXAMPLES / "no_reduction.place"), "--sarif")
    log = json.loads(run.stdout)
    assert run.exit_code == 1
    assert log["version"] == "2.1.0"
    assert [r["ruleId"] for r in log["runs"][0]["results"]] == ["E201"]
    assert place("check", str(EXAMPLES / "card.place"), "--sarif", "--json").exit_code == 2
