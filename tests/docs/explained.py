"""What explain pages claim that the tool says of their wrong texts: found, asked again, and compared or written back.

`python tests/docs/explained.py` writes the present answers into the pages whose wrong text causes their error. Not for:
pages that show a command, or events that no text can cause.
"""

import re
from pathlib import Path

from placelang.api import load_source
from placelang.diagnostics import codes, render
from placelang.source import Source

PAGES = Path(codes.__file__).parent / "explain"
NAME = "wrong.place"

_WRONG = re.compile(r"^## Wrong\n\n```place\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAYS = re.compile(r"(?<=^```text\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)


def claimed(code: str) -> str:
    """The block of a page under "What the tool says"."""
    found = _SAYS.search(codes.explain(code))
    assert found is not None, f"the page of {code} shows no message"
    return found[1]


def said(code: str) -> str | None:
    """What the tool says of the wrong text of a page; None where the page shows no text of the language."""
    wrong = _WRONG.search(codes.explain(code))
    return None if wrong is None else render.text(load_source(Source(wrong[1], NAME)).diagnostics)


def leads(code: str, text: str) -> bool:
    """Whether a message begins with this code."""
    return text.startswith(f"{codes.CODES[code].severity.value}[{code}]")


if __name__ == "__main__":
    for code in codes.CODES:
        text = said(code)
        if text is not None and leads(code, text):
            page = PAGES / f"{code}.md"
            page.write_text(_SAYS.sub(lambda _, new=text: new, codes.explain(code), count=1), encoding="utf-8")
        elif text is not None:
            print(f"{code}: its wrong text is answered with {text.splitlines()[:1] or 'nothing'}")
