"""The REPL: what a session is, what it answers, and that nothing ends it but its user."""

import re
from pathlib import Path

import pytest

from placelang.diagnostics.diagnostic import Diagnostic, Verdict
from placelang.tools import session as room
from placelang.tools.session import Session, attempt, changes, enter
from tests.tools.place import CARD, place, process


def after(*typed: str, start: Session | None = None) -> Session:
    session = start or Session()
    for text in typed:
        new = enter(session, text)
        assert isinstance(new, Session), new
        session = new
    return session


# --- sessions -------------------------------------------------------------------------------------------------------


def test_statements_add_up() -> None:
    session = after("params: shard(dp)", "grads: reduce_scatter")
    assert session.text == "params: shard(dp)\ngrads: reduce_scatter\n"
    assert session.strategy.ok


def test_a_state_said_again_takes_its_place() -> None:
    session = after(
        "mesh (dp = 2)", "params: replicate  # all of it", "grads: all_reduce(dp)", "params: shard(dp) | gather"
    )
    assert session.text == "mesh (dp = 2)\nparams: shard(dp) | gather  # all of it\ngrads: all_reduce(dp)\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("mesh (dp = 2)", "mesh (dp = 4)"),
        ("let x = 1", "let x = 2"),
        ("model gpt2_124m", "model nano_gpt"),
        ("train (seq = 8)", "train (seq = 16)"),
        ("apply ddp(dp)", "apply zero3(dp)"),
        ("strategy s { params: replicate }", "strategy s { params: shard(dp) }"),
    ],
)
def test_so_does_everything_else_that_is_said_once(first: str, second: str) -> None:
    assert after(first, second).text == f"{second}\n"


def test_one_line_may_replace_and_add() -> None:
    session = after("params: replicate", "params: shard(dp) ; grads: reduce_scatter(dp)")
    assert session.text == "params: shard(dp)\ngrads: reduce_scatter(dp)\n"


def test_declarations_wait_for_a_state() -> None:
    session = after("model gpt2_124m", "mesh (dp = 2)", "strategy mine { params: shard(dp) }")
    assert session.empty
    assert not after("apply mine", start=session).empty


@pytest.mark.parametrize("typed", ["parms: shard(dp)", "params: shard(", "params: shard(xx)", "\x00", "mesh (dp = 0)"])
def test_what_means_nothing_is_not_kept(typed: str) -> None:
    session = after("params: shard(dp)")
    refused = enter(session, typed)
    assert isinstance(refused, tuple)
    assert all(isinstance(d, Diagnostic) for d in refused)
    assert any(d.is_error for d in refused)


def test_what_is_unsound_is_kept() -> None:
    assert after("params: replicate", "grads: partial(dp)").strategy.verdict is Verdict.UNSOUND


def test_undo_goes_back_step_by_step() -> None:
    session = after("params: shard(dp)", "params: replicate")
    back = session.undo()
    assert back is not None
    assert back.text == "params: shard(dp)\n"
    first = back.undo()
    assert first is not None
    assert first.text == ""
    assert first.undo() is None


def test_what_was_set_waits_for_its_name() -> None:
    session = attempt(Session(), sets={"dp": "4"})
    assert isinstance(session, Session)
    session = after(CARD, start=session)
    assert session.strategy.plan is not None
    assert session.strategy.plan.mesh.size(["dp"]) == 4
    assert isinstance(attempt(session, sets={"dp": "nonsense("}), tuple)


def test_changes_are_differences_of_costs() -> None:
    facts = "model gpt2_124m ; mesh (dp = 2) ; train (seq = 1024, micro_batch = 1)"
    before = after(facts, "apply ddp(dp)")
    now = after("apply zero3(dp)", start=before)
    found = {(c.unit, c.name): (c.before, c.after) for c in changes(before, now)}
    assert found["memory", "params"] == (497_759_232, 248_881_152)
    assert found["traffic", "dp"][1] == 3 * 497_762_304
    assert list(changes(before, Session())) == []


def test_keys_of_different_statements_differ() -> None:
    from placelang.source import Source
    from placelang.syntax.parser import parse

    text = 'params: replicate\nparams["a"]: replicate\noverride params: shard(dp)\nmesh (dp = 2)\nlet x = 1\nplace 1\n'
    file, _ = parse(Source(text))
    assert len({room.key(s) for s in file.statements}) == len(file.statements)


# --- piped ----------------------------------------------------------------------------------------------------------


def test_piped_answers_each_statement() -> None:
    done = place("repl", input="params: shard(dp)\ngrads: reduce_scatter\n:model gpt2_124m\n:set dp=2\n")
    assert done.exit_code == 0
    assert done.stdout.count("sound: trains like one device") == 4
    assert re.search(r"params +237\.35 MiB$", done.stdout, re.MULTILINE)
    assert "`:set seq=1024`" in done.stdout
    assert "place>" not in done.stdout


def test_piped_reads_statements_over_several_lines() -> None:
    done = place("repl", input="strategy mine {\n  params: shard(dp)\n  grads: reduce_scatter\n}\napply mine\n:show\n")
    assert "sound: trains like one device" in done.stdout
    assert "error" not in done.stdout
    assert done.stdout.endswith("strategy mine {\n  params: shard(dp)\n  grads: reduce_scatter\n}\napply mine\n")


def test_errors_are_as_good_as_in_files_and_end_nothing() -> None:
    done = place("repl", input="parms: shard(dp)\n:nonsense\nparams: shard(dp\n\nparams: shard(dp)\n:quit\nparams: x\n")
    assert done.exit_code == 0
    assert "did you mean `params`?" in done.stdout
    assert "no command `:nonsense`" in done.stdout
    assert "not kept" in done.stdout
    assert done.stdout.count("sound: trains like one device") == 1


def test_commands(tmp_path: Path) -> None:
    card, saved = tmp_path / "card.place", tmp_path / "saved.place"
    card.write_text(CARD)
    typed = f"""
:help
:explain
:cost
:undo
:load {card}
:explain
:cost
:model gpt2_124m
:cost
:model nonsense
:set dp
:set dp=2
:save
:save {saved}
:save {saved}
:save! {saved}
:save {tmp_path}/no/folder.place
:load {tmp_path}/none.place
:load
:reset
:show
"""
    done = place("repl", input=typed)
    assert done.exit_code == 0
    for part in (
        ":save FILE",
        "no strategy yet",
        "no sound strategy yet",
        "nothing to undo",
        "# shard: as params rest",
        "no model yet",
        "memory of a device",
        "error[E101]",
        "`:set NAME=VALUE`",
        "`:save FILE`",
        f"saved {saved}",
        "is there already",
        "cannot be written",
        "error[E002]",
        "`:load FILE`",
    ):
        assert part in done.stdout, part
    assert saved.read_text() == CARD
    assert "Traceback" not in done.stdout


def test_it_starts_from_a_file_and_options(tmp_path: Path) -> None:
    file = tmp_path / "card.place"
    file.write_text(CARD)
    done = place("repl", str(file), "--model", "gpt2_124m", "--set", "dp=2", input=":show\n")
    assert done.exit_code == 0
    assert "237.35 MiB" in done.stdout
    assert done.stdout.endswith(CARD)
    assert "error[E002]" in place("repl", str(tmp_path / "none.place"), input="").stdout


def test_an_unforeseen_fault_does_not_lose_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from placelang.tools import repl

    monkeypatch.setattr(repl.cost, "table", lambda *_: 1 / 0)
    done = place("repl", "--model", "gpt2_124m", input="params: shard(dp)\n:cost\n:show\n")
    assert "internal error, ZeroDivisionError" in done.stdout
    assert done.stdout.endswith("params: shard(dp)\n")


@pytest.mark.parametrize(
    "raw", [b"", b"\xff\xfe\n", b"\x00\n", "params: shard(dp) # café\n".encode("latin-1"), b"{" * 5000]
)
def test_any_bytes_end_in_an_answer(raw: bytes) -> None:
    done = process("repl", input=raw)
    assert (done.returncode, done.stderr) == (0, "")
    assert not raw.strip() or "error[E" in done.stdout
