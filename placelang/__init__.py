"""placelang: a small language for placing the training of large models on many devices. One text, checked, costed, run.

    >>> import placelang
    >>> strategy = placelang.load("params: shard(dp) ; grads: reduce_scatter", model="gpt2_124m", dp=2)
    >>> strategy.ok
    True
    >>> cost = strategy.cost()
    >>> cost.number(cost.by_state["params"])
    248881152

`load` takes a path or a text and never raises on what a user wrote: see `Strategy.ok` and `Strategy.diagnostics`.
The names here are imported when first used, so that `import placelang` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placelang.api import NotSound, Strategy, load, load_source
    from placelang.diagnostics.diagnostic import Diagnostic, Verdict

__version__ = "0.1.0"

__all__ = ["Diagnostic", "NotSound", "Strategy", "Verdict", "__version__", "load", "load_source"]

_HOMES = {
    "Diagnostic": "placelang.diagnostics.diagnostic",
    "NotSound": "placelang.api",
    "Strategy": "placelang.api",
    "Verdict": "placelang.diagnostics.diagnostic",
    "load": "placelang.api",
    "load_source": "placelang.api",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'placelang' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
