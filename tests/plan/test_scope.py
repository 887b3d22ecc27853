"""Names: one namespace, declarations in any order, parameters, imports, `--set`, claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from placelang import api
from placelang.plan.plan import State
from placelang.plan.text import journey_text

Z3 = "params: shard(dp) ; grads: reduce_scatter\n"


def codes(text: str, **sets: object) -> list[str]:
    return [d.code for d in api.load(text, **sets).diagnostics]


def params(strategy: api.Strategy) -> str:
    assert strategy.plan is not None, strategy.diagnostics
    return journey_text(strategy.plan.journey(State.PARAMS), full=False)


# --- one namespace --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "second",
    ["let x = 2", "arg x: int = 2", "axis x = dp", f"strategy x {{ {Z3} }}", "mesh (x: data = 2, dp = 2)"],
)
def test_a_name_is_declared_once(second: str) -> None:
    for first in ("let x = 2", f"strategy x {{ {Z3} }}"):
        assert codes(f"{first}\n{second}\n{Z3}") == ["E103"]


def test_declarations_stand_in_any_order() -> None:
    text = f"mesh (dp = n)\n{Z3}let n = m * 2\narg m: int = 2\n"
    strategy = api.load(text)
    assert strategy.plan is not None
    assert strategy.plan.mesh.world == 4


def test_an_unused_declaration_is_checked_all_the_same() -> None:
    assert codes(f"let x = 3GB + 2s\n{Z3}") == ["E111"]
    assert codes(f"let x = nothing * 2\n{Z3}") == ["E101"]
    assert codes(f"axis x = dp * nothing\n{Z3}") == ["E101"]
    assert codes(f"arg x: int = 1.5\n{Z3}") == ["E105"]
    assert codes(f"let x: colour = 3\n{Z3}") == ["E101"]


def test_an_unused_let_makes_no_axis() -> None:
    plan = api.load(f"let x = tp * 2\n{Z3}").plan
    assert plan is not None
    assert plan.mesh.names == ("dp",)


@pytest.mark.parametrize("length", [2, 3, 50, 2000])
def test_cycles_of_any_length_end(length: int) -> None:
    lets = "\n".join(f"let x{i} = x{(i + 1) % length}" for i in range(length))
    assert codes(f"{lets}\nmesh (dp = x0)\n{Z3}") == ["E115"]


def test_long_chains_end_in_their_value() -> None:
    lets = "\n".join(f"let x{i} = x{i + 1} + 1" for i in range(5000))
    plan = api.load(f"{lets}\nlet x5000 = 1\nmesh (dp = x0)\n{Z3}").plan
    assert plan is not None
    assert plan.mesh.world == 5001


def test_shared_names_are_read_once() -> None:
    lets = "\n".join(f"let x{i} = x{i + 1} + x{i + 1}" for i in range(40))
    plan = api.load(f"{lets}\nlet x40 = 1 / 1_000_000_000_000\nmesh (dp = ceil(x0))\n{Z3}").plan
    assert plan is not None
    assert plan.mesh.world == 2


# --- strategies -----------------------------------------------------------------------------------------------------

MINE = "strategy mine(d: axis = dp, n: int = 1) "
MINE += "{ params: shard(d) | gather(d, prefetch = n) ; grads: reduce_scatter(d) }\n"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("mine", "shard(dp) | gather(dp)"),
        ("mine()", "shard(dp) | gather(dp)"),
        ("mine(fsdp)", "shard(fsdp) | gather(fsdp)"),
        ("mine(d = fsdp)", "shard(fsdp) | gather(fsdp)"),
        ("mine(n = 2)", "shard(dp) | gather(dp, prefetch = 2)"),
        ("mine(fsdp, 2)", "shard(fsdp) | gather(fsdp, prefetch = 2)"),
        ("mine(dp * fsdp)", "shard(dp * fsdp) | gather(dp * fsdp)"),
        ("(mine)", "shard(dp) | gather(dp)"),
    ],
)
def test_arguments(call: str, expected: str) -> None:
    assert params(api.load(f"{MINE}apply {call}")) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("mine(dp, 1, 2)", "E106"),
        ("mine(e = dp)", "E106"),
        ("mine(dp, d = dp)", "E119"),
        ("mine(8)", "E105"),
        ("mine(n = 1.5)", "E105"),
        ("mine(n = true)", "E105"),
        ("mine(nothing)", "E102"),
        ("yours", "E101"),
        ("8", "E105"),
    ],
)
def test_refused_arguments(call: str, expected: str) -> None:
    assert codes(f"{MINE}apply {call}") == [expected]


def test_parameters_hide_declarations_and_are_not_seen_by_others() -> None:
    text = "let n = 3\nlet m = n\nstrategy mine(n: int = 1) { params: shard(dp) | gather(prefetch = m) }\napply mine(7)"
    assert params(api.load(text)) == "shard(dp) | gather(dp, prefetch = 3)"


def test_an_argument_without_value_stays_a_symbol_until_it_is_set() -> None:
    text = f"arg n: int\nmesh (dp = n)\n{Z3}"
    symbolic, set_ = api.load(text).plan, api.load(text, n=4).plan
    assert symbolic is not None
    assert set_ is not None
    assert (symbolic.mesh.world, set_.mesh.world) == (None, 4)
    assert codes(text, n=0.5) == ["E105"]
    assert codes(text, m=4) == ["E101"]


# --- other files ----------------------------------------------------------------------------------------------------


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.place").write_text(text)
    return folder / "main.place"


OURS = "let ahead = 3\nstrategy ours(d: axis = dp) "
OURS += "{ params: shard(d) | gather(d, prefetch = ahead) ; grads: reduce_scatter(d) }\n"


@pytest.mark.parametrize(
    ("use", "call"),
    [
        ('use "./house.place" (ours)', "ours"),
        ('use "./house.place"', "ours"),
        ('use "./house.place" (ours as theirs)', "theirs"),
        ('use "./house.place" (ours as theirs, ahead as far)', "theirs"),
        ('let ahead = 9\nuse "./house.place" (ours)', "ours"),  # an imported strategy reads its own lets
    ],
)
def test_imports(tmp_path: Path, use: str, call: str) -> None:
    main = write(tmp_path, house=OURS, main=f"{use}\nmesh (dp = 4)\napply {call}(dp)")
    assert params(api.load(main)) == "shard(dp) | gather(dp, prefetch = 3)"


def test_imported_values_are_values(tmp_path: Path) -> None:
    main = write(tmp_path, house=OURS, main=f'use "./house.place" (ahead)\nmesh (dp = ahead)\n{Z3}')
    plan = api.load(main).plan
    assert plan is not None
    assert plan.mesh.world == 3


def test_what_is_imported_may_be_imported_again(tmp_path: Path) -> None:
    between = 'use "./house.place" (ours as middle)'
    main = write(tmp_path, house=OURS, between=between, main='use "./between.place" (middle)\napply middle')
    assert params(api.load(main)) == "shard(dp) | gather(dp, prefetch = 3)"


def test_files_that_use_each_other_are_refused(tmp_path: Path) -> None:
    use_a, use_b = 'use "./a.place" (x)\n', 'use "./b.place" (x)\n'
    main = write(tmp_path, a=use_b, b=use_a, main=f"{use_a}apply x")
    assert [d.code for d in api.load(main).diagnostics] == ["E115"]


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ('use "./missing.place" (x)', "E116"),
        ('use "./house.place" (x)', "E101"),
        ('use "." (x)', "E116"),
        ('use "no_such_package/x.place" (x)', "E116"),
        ('use "placelang/no_such_file.place" (x)', "E116"),
    ],
)
def test_what_is_not_there(tmp_path: Path, use: str, expected: str) -> None:
    main = write(tmp_path, house=OURS, main=f"{use}\napply x")
    assert [d.code for d in api.load(main).diagnostics] == [expected]


def test_a_package_is_found_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "houseofplace"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "house.place").write_text(OURS)
    monkeypatch.syspath_prepend(tmp_path)
    assert (
        params(api.load('use "houseofplace/house.place" (ours)\napply ours')) == "shard(dp) | gather(dp, prefetch = 3)"
    )


# --- claims ---------------------------------------------------------------------------------------------------------

LLAMA = "model llama3_8b\nmesh (dp = 4, tp = 2)\n"


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("require heads % tp == 0", []),
        ("require heads % 5 == 0", ["E122"]),
        ("require dp * tp == world", []),
        ("require world == 8 and layers == 32", []),
        ("require min(heads, kv_heads) == 8", []),
        ("require heads", ["E105"]),
        ("require nothing > 1", ["E101"]),
        ("require memory.peak < 1GB", ["E101"]),
        ("require seq == 8", ["N102"]),  # no line gives it
        ("require seq == 8 or dp == 4", []),  # either way
        ("assert memory.peak < 1GB", ["N102"]),
        ("assert memory.host < 1GB", []),
        ("assert memory.peak < 1", ["E111"]),
        ("assert memory.peek < 1GB", ["E101"]),
        ("assert time.step < 20s", ["N102"]),  # no hardware
    ],
)
def test_claims(claim: str, expected: list[str]) -> None:
    found = api.load(f"{LLAMA}{claim}\n{Z3}").diagnostics
    inside = range(len(LLAMA), len(LLAMA) + len(claim))
    assert [d.code for d in found if d.primary and d.primary.span.start in inside] == expected


@pytest.mark.parametrize(
    ("claim", "given", "said"),
    [
        ("require dp <= 8", {"dp": 8}, []),
        ("require dp <= 8", {"dp": 16}, ["E122"]),
        ("require world % 8 == 0", {"dp": 4, "tp": 2}, []),
        ("require min(dp, 4) == 4", {"dp": 8}, []),
        ("require seq % 128 == 0", {"seq": 2048}, []),
        ("assert dp == 4", {"dp": 4}, []),
        ("assert dp == 4", {"dp": 2}, ["E403"]),
        ("assert memory.params < 1MB", {"model": "gpt2_124m", "dp": 4, "tp": 2}, ["E403"]),
    ],
)
def test_a_claim_waits_for_facts_and_says_so(claim: str, given: dict[str, object], said: list[str]) -> None:
    text = f"mesh (dp, tp)\n{claim}\n{Z3}"
    waits, holds = api.load(text), api.load(text, **given)
    assert waits.ok
    # Nothing is split over tp, which is another matter.
    assert [d.code for d in waits.diagnostics if d.code != "W401"] == ["N102"]
    assert [d.code for d in holds.diagnostics if d.code != "W401"] == said


def test_a_refused_text_says_nothing_of_what_waits() -> None:
    assert codes(f"require seq == 8\nrequire nothing == 1\n{Z3}") == ["E101"]


def test_a_failed_claim_shows_the_values() -> None:
    (found,) = api.load(f"mesh (dp = 6)\nlet most = 4\nrequire dp % most == 0 or dp < most\n{Z3}").diagnostics
    assert found.cause == "dp % most = 2, dp = 6, most = 4"


def test_facts_of_a_model_are_asked_for() -> None:
    assert codes(f"require heads == 8\n{Z3}") == ["E121"]
    assert codes(f"model no_such_model\nrequire heads == 8\n{Z3}") == ["E101"]
