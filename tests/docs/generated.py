"""Parts of pages that are generated from the code: tables of words and options, of codes, and rules of the grammar.

A part begins with `<!-- generated: NAME ARGUMENTS -->` and ends with `<!-- end -->`. `python tests/docs/generated.py
PAGE...` writes them again; a test holds that they are fresh.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import attrs

from placelang._resources import data
from placelang.diagnostics.codes import CODES
from placelang.model.constructors import CONSTRUCTORS
from placelang.model.facts import Arg
from placelang.plan.dtypes import BYTES, PRECISIONS, Precision
from placelang.plan.mesh import WELL_KNOWN, Role
from placelang.plan.options import DIMS, takes
from placelang.plan.plan import MOMENTS
from placelang.plan.selectors import known_roles
from placelang.plan.text import value_text
from placelang.plan.words import FLAGS, SCHEDULES, TAKES, WORDS, Option, Word
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.formatter import print_node
from placelang.syntax.parser import parse

PART = re.compile(
    r"(?P<open><!-- generated: (?P<name>\w+) ?(?P<args>[^\n]*?) -->\n).*?(?P<close><!-- end -->)", re.DOTALL
)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; `|` inside a cell is escaped."""
    lines = [list(head), *(list(row) for row in rows)]
    text = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]
    return "\n".join((text[0], "|" + "---|" * len(lines[0]), *text[1:]))


def quoted(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


# --- journeys -------------------------------------------------------------------------------------------------------


def words() -> str:
    """Every word of journeys, where it may stand, and whether it names axes."""
    axes = {"required": "names its axes", "optional": "may", "none": "none"}
    rows = (
        (f"`{w.name}`", quoted(head for head, taken in TAKES.items() if w.name in taken), axes[w.axes], w.doc)
        for w in WORDS.values()
    )
    return table(("word", "stands in", "axes", "means"), rows)


def options() -> str:
    """Every option of every word, but for those of all collectives, which stand once."""
    common = {o.name for o in WORDS["all_gather"].options}
    rows = [(f"`{w.name}`", *_option(w, o)) for w in WORDS.values() for o in _own(w, common)]
    rows += [("any collective", *_option(WORDS["all_gather"], o)) for o in WORDS["all_gather"].options]
    return table(("word", "option", "takes", "unless said", "says"), rows)


def _own(word: Word, common: set[str]) -> list[Option]:
    stand_alone = [FLAGS[name] for name in word.flags if name != "op"]
    return [*stand_alone, *(o for o in word.options if o.name not in common)]


def _option(word: Word, option: Option) -> tuple[str, str, str, str]:
    what = {"dim": "a dim", "dtype": "a format"}.get(option.kind) or takes(option.kind, option.words)
    return f"`{option.name}`", what, _default(word, option), option.doc


_UNSAID = {
    "op": "`sum`",
    "bucket": "all at once",
    "wire": "that of `precision`",
    "split": "equal parts",
    "min": "none stays whole",
    "reshard_after_forward": "`true`",
    "path": "the working folder",
    "buffer_size": "the largest piece",
    "save": "nothing",
    "dim of all_to_all": "tokens to their experts",
}


def _default(word: Word, option: Option) -> str:
    if option.name == "when":
        return "`microbatch`" if word.name == "reduce_scatter" else "`step`"
    said = _UNSAID.get(f"{option.name} of {word.name}") or _UNSAID.get(option.name)
    return said or f"`{value_text(attrs.fields_dict(word.step)[option.name].default)}`"


def schedules() -> str:
    """Every schedule with its options."""
    rows = ((f"`{name}`", quoted(options) or "none") for name, options in SCHEDULES.items())
    return table(("schedule", "options"), rows)


def dims() -> str:
    return quoted(DIMS)


# --- strategies -----------------------------------------------------------------------------------------------------


def strategies() -> str:
    """The standard library: each strategy as it is declared, and the first sentence of what its text says of it."""
    rows = []
    for path in sorted((data("stdlib") / "strategies").glob("*.place")):
        file, _ = parse(Source(path.read_text(encoding="utf-8"), path.name))
        for s in file.statements:
            if isinstance(s, ast.Strategy):
                head = f"{s.name.text}({', '.join(map(print_node, s.params))})" if s.params else s.name.text
                rows.append((f"`{head}`", re.split(r"\.(?: |$)", s.doc.replace("\n", " "))[0]))
    return table(("strategy", "is"), rows)


# --- facts ----------------------------------------------------------------------------------------------------------


def axes() -> str:
    """The names that carry a role."""
    rows = ((f"`{role.value}`", quoted(n for n, r in WELL_KNOWN.items() if r is role)) for role in Role)
    return table(("role", "well-known names"), rows)


def roles() -> str:
    return quoted(known_roles())


def precisions() -> str:
    """The presets of `precision`, with the format of each use."""
    fields = [f.name for f in attrs.fields(Precision) if f.name != "name"]
    rows = (
        (f"`{p.name}`", *(str(getattr(p, field) or "none") for field in fields), str(p.bytes_per_parameter))
        for p in PRECISIONS.values()
    )
    return table(("precision", *fields, "bytes a parameter"), rows)


def formats() -> str:
    return table(("format", "bytes"), ((f"`{name}`", value_text(size)) for name, size in BYTES.items()))


def optimizers() -> str:
    return table(("optimizer", "states a parameter"), ((f"`{name}`", str(n)) for name, n in MOMENTS.items()))


def constructor(name: str) -> str:
    """The arguments of one constructor of models."""
    rows = ((f"`{argument}`", _given(arg), _missing(arg), arg.doc) for argument, arg in CONSTRUCTORS[name][1].items())
    return table(("argument", "takes", "unless said", "says"), rows)


def _given(arg: Arg) -> str:
    kinds = {"size": "a whole number", "ratio": "a number", "flag": "true or false", "positions": "a word"}
    if isinstance(arg.kind, tuple):
        return quoted(arg.kind)
    return kinds.get(arg.kind, {"group": "axes or `global`", "lora": "a rank"}.get(arg.kind, arg.kind))


def _missing(arg: Arg) -> str:
    if arg.required:
        return "required"
    return "" if arg.default is None else f"`{str(arg.default).lower()}`"


# --- errors and grammar ---------------------------------------------------------------------------------------------


def codes(group: str) -> str:
    """The codes that begin with `group`."""
    found = (c for c in CODES.values() if c.code.startswith(group))
    return table(("code", "name", "means"), ((f"`{c.code}`", f"`{c.name}`", c.title) for c in found))


def grammar(*rules: str) -> str:
    """Rules of the grammar as they stand in its file; all of it without a name."""
    text = (data("grammar") / "place.lark").read_text(encoding="utf-8")
    if rules:
        found = {
            m[1]: m[0].rstrip() for m in re.finditer(r"^[?]?(\w+)(?:\{\w+\})?:.*\n(?: +[|].*\n)*", text, re.MULTILINE)
        }
        text = "\n".join(re.sub(r"^(\S+:) +", r"\1 ", found[name]) for name in rules) + "\n"
    return f"```text\n{text}```"


GENERATORS: Mapping[str, Callable[..., str]] = {
    f.__name__: f
    for f in (
        words, options, schedules, dims, strategies, axes, roles, precisions, formats, optimizers, constructor, codes,
        grammar,
    )
}  # fmt: skip


def fresh(text: str) -> str:
    """A page with its generated parts made again."""
    return PART.sub(lambda m: f"{m['open']}{GENERATORS[m['name']](*m['args'].split())}\n{m['close']}", text)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(fresh(page.read_text(encoding="utf-8")), encoding="utf-8")
