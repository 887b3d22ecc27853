"""Texts of the language in Markdown pages: found, loaded, and what is said of them compared or written back.

A block begins with "```place" and what is to become of it:

- nothing more: it is sound, or declares things and places none;
- `E201`, `W201`: this code is all that is said of it;
- `planned`: it has a complete strategy, which this version does not check, cost or run;
- `complete`: what `place explain` prints of the block before it;
- `dp=2 model=gpt2_124m`: beside any of these, what `--set` and `--model` would give.

A block of `text` that follows at once is what the tool says. `python tests/docs/texts.py PAGE...` writes the present
answers into pages and takes `planned` from what is sound by now; what is refused otherwise is left for a person.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from placelang.api import Strategy, load_source
from placelang.diagnostics import render
from placelang.diagnostics.diagnostic import Verdict
from placelang.source import Source

NAME = "example.place"
"""What messages call the text of a block; it stands in the folder of its page, so that `use` finds files from there."""

_BLOCK = re.compile(
    r"^```place(?P<info>[^\n]*)\n(?P<text>.*?)^```\n"
    r"(?P<between>\n*)(?:^```(?P<kind>text|place complete)\n(?P<said>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@attrs.frozen
class Text:
    """A block, with what its page says of it."""

    page: Path
    text: str
    outcome: str = ""
    sets: tuple[tuple[str, str], ...] = ()
    kind: str = ""  # of the block that follows: "text", "place complete" or none
    said: str = ""

    def load(self) -> Strategy:
        """What the text denotes, seen from the folder of its page, which must be the current one."""
        sets = dict(self.sets)
        return load_source(Source(self.text, NAME), model=sets.pop("model", None), sets=sets)

    def answer(self, strategy: Strategy) -> str:
        """What stands in the block that follows."""
        if self.kind == "text":
            return render.text(strategy.diagnostics)
        return strategy.explain() if self.kind else ""


def texts(page: Path) -> Iterator[Text]:
    """The blocks of a page."""
    return (_text(page, match) for match in _BLOCK.finditer(page.read_text(encoding="utf-8")))


def _text(page: Path, match: re.Match[str]) -> Text:
    words = match["info"].split()
    sets = tuple((name, value) for name, _, value in (word.partition("=") for word in words if "=" in word))
    outcome = " ".join(word for word in words if "=" not in word)
    return Text(page, match["text"], outcome, sets, match["kind"] or "", match["said"] or "")


def ends(strategy: Strategy) -> str:
    """How a text ends, in the words of a block: a code, several codes, `planned`, or nothing for what is sound."""
    codes = [d.code for d in strategy.diagnostics]
    if strategy.plan is not None and strategy.verdict is Verdict.NOT_SUPPORTED and set(codes) == {"E112"}:
        return "planned"
    if codes == ["E107"] and strategy.diagnostics[0].primary is None:
        return ""  # it declares things and places none, and nothing else is wrong with it
    return " ".join(codes)


def refreshed(page: Path) -> str:
    """The page with what is said of its blocks today."""

    def block(match: re.Match[str]) -> str:
        one = _text(page, match)
        strategy = one.load()
        info = match["info"]
        if one.outcome == "planned" and not ends(strategy):
            info = re.sub(r" planned\b", "", info)
        said = f"```{one.kind}\n{one.answer(strategy)}```\n" if one.kind else ""
        return f"```place{info}\n{one.text}```\n{match['between']}{said}"

    return _BLOCK.sub(block, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for path in [Path(name).resolve() for name in sys.argv[1:]]:
        os.chdir(path.parent)
        path.write_text(refreshed(path), encoding="utf-8")
        for one in texts(path):
            if one.outcome != (found := ends(one.load())):
                print(f"{path.name}: {one.text.splitlines()[0]}: `{one.outcome}`, but it ends as `{found}`")
                print(render.text(one.load().diagnostics))
