"""What `backend torch (...)` may say: the options of each backend, checked without importing it.

An option that is known and not honoured is refused, never ignored. Not for: what a strategy may ask (`recipe`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.problems import fault
from placelang.diagnostics.suggest import did_you_mean
from placelang.frozen import Frozen
from placelang.plan.plan import BackendOptions
from placelang.plan.values import Unknown, Value, kind
from placelang.source import Span


@attrs.frozen(eq=False, repr=False)
class Option(Frozen):
    """One option that is true or false. `honoured`: the values that the backend does; any other is refused."""

    doc: str
    honoured: tuple[bool, ...]


BACKENDS: Final[Mapping[str, Mapping[str, Option]]] = {
    "torch": {
        "compile": Option("`torch.compile` of every block", (False,)),
        "cuda_graphs": Option("one CUDA graph a step", (False,)),
        "deterministic": Option("`torch.use_deterministic_algorithms`", (False,)),
    },
}
"""Every backend with its options: `docs/language/backend.md` describes each."""


def check(lines: Iterable[BackendOptions]) -> tuple[Diagnostic, ...]:
    """What is wrong with the `backend` lines of a text."""
    return tuple(found for line in lines for found in _line(line))


def _line(line: BackendOptions) -> Iterable[Diagnostic]:
    known = BACKENDS.get(line.name)
    if known is None:
        near = did_you_mean(line.name, BACKENDS)
        help_ = f"did you mean `{near}`?" if near else f"backends: {', '.join(BACKENDS)}"
        yield fault("E101", f"no backend is called `{line.name}`", line.span, help=help_)
        return
    for (name, value), span in zip(line.options, line.spans or (line.span,) * len(line.options), strict=True):
        if (found := _option(line.name, name, value, span)) is not None:
            yield found


def _option(backend: str, name: str, value: Value, span: Span | None) -> Diagnostic | None:
    known = BACKENDS[backend]
    if name not in known:
        near = did_you_mean(name, known)
        help_ = f"did you mean `{near}`?" if near else f"its options: {', '.join(known)}"
        return fault("E106", f"backend `{backend}` has no option `{name}`", span, help=help_)
    if isinstance(value, Unknown):
        help_ = f"`--set {value.name}=false`"
        return fault("E121", f"`{name}` needs a value, and `{value.name}` has none yet", span, help=help_)
    if not isinstance(value, bool):
        return fault("E106", f"`{name}` is true or false, not {kind(value)}", span, help=f"`{name} = false`")
    if value not in known[name].honoured:
        said = f"the {backend} backend does not do `{name} = {'true' if value else 'false'}`"
        return fault("E501", said, span, help=f"leave `{name}` out")
    return None
