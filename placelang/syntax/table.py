"""The LALR parser of `grammar/place.lark`, from a table that is made ahead of time.

Building the grammar costs 100 ms, more than all else that `place check` does; loading its table costs 8. The table is
a generated file beside the grammar, JSON rather than a pickle in some cache: reading it can run no code, needs no
folder that others may write, and is as fast on the first run as on the next. It names the grammar and the lark that
made it; if either differs the grammar is built afresh, so a stale table is slow, never wrong.

`python -m placelang.syntax.table` writes it after a change of the grammar; a test asks that it is fresh.
Not for: what a tree means (`build`) or why a text has none (`complaints`).
"""

from __future__ import annotations

import json
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import lark

from placelang._resources import data

_OPTIONS: dict[str, Any] = {"parser": "lalr", "start": "file", "propagate_positions": True, "maybe_placeholders": True}


def grammar_file() -> Path:
    return data("grammar") / "place.lark"


def table_file() -> Path:
    return data("grammar") / "place.table.json"


def build(strict: bool = False) -> lark.Lark:
    """The parser from the grammar itself. `strict` also refuses colliding terminals (it needs interegular)."""
    return lark.Lark(grammar_file().read_text(encoding="utf-8"), strict=strict, **_OPTIONS)


@cache
def lalr() -> lark.Lark:
    """The parser, from the table if that is fresh."""
    try:
        with table_file().open(encoding="utf-8") as file:
            table = json.load(file)
        if table["key"] == _key():
            return _load(table["data"], table["memo"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        pass  # a missing or damaged table costs time, no more
    return build()


def fresh() -> bool:
    """Whether the table was made by this lark from the grammar as it is. Raises OSError if there is no grammar."""
    key = _key()
    try:
        with table_file().open(encoding="utf-8") as file:
            return bool(json.load(file)["key"] == key)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def render() -> str:
    """The text of the table for the grammar as it is, one line a record so that changes can be read."""
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    table, memo = build().memo_serialize([TerminalDef, Rule])
    table["parser"]["parser"] = _numbered(table["parser"]["parser"])
    records = ",\n".join(f"{json.dumps(str(key))}:{_compact(value)}" for key, value in memo.items())
    return f'{{"key":{_compact(_key())},\n"data":{_compact(table)},\n"memo":{{\n{records}\n}}}}\n'


def _numbered(automaton: dict[str, Any]) -> dict[str, Any]:
    """The automaton with states and symbols numbered in an order of its own: lark's varies from run to run."""
    names: dict[int, str] = automaton["tokens"]
    symbols = {name: i for i, name in enumerate(sorted(names.values()))}
    start = automaton["start_states"]
    order: list[int] = list(start.values())
    found = {state: i for i, state in enumerate(order)}
    states: dict[int, dict[int, Any]] = {}
    for state in order:  # which grows: breadth first
        actions = {}
        for token, (is_reduce, target) in sorted(automaton["states"][state].items(), key=lambda item: names[item[0]]):
            if not is_reduce and target not in found:
                found[target] = len(order)
                order.append(target)
            actions[symbols[names[token]]] = [is_reduce, target if is_reduce else found[target]]
        states[found[state]] = actions
    return {
        "tokens": {i: name for name, i in symbols.items()},
        "states": states,
        "start_states": {name: found[state] for name, state in start.items()},
        "end_states": {name: found[state] for name, state in automaton["end_states"].items()},
    }


def _key() -> list[str]:
    # Line ends are left out: a checkout may have its own.
    text = grammar_file().read_text(encoding="utf-8")
    return [lark.__version__, sha256(text.encode()).hexdigest()]


def _load(table: dict[str, Any], memo: dict[str, Any]) -> lark.Lark:
    """What lark's generated standalone parsers do, after JSON has made strings of the integer keys."""
    states = table["parser"]["parser"]
    states["tokens"] = _integer_keys(states["tokens"])
    states["states"] = {int(state): _integer_keys(actions) for state, actions in states["states"].items()}
    parser: lark.Lark = lark.Lark._load_from_dict(table, _integer_keys(memo), propagate_positions=True)  # type: ignore[no-untyped-call]
    return parser


def _integer_keys(table: dict[str, Any]) -> dict[int, Any]:
    return {int(key): value for key, value in table.items()}


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    table_file().write_text(render(), encoding="utf-8")
