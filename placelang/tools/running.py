"""What `place run` and `place verify` share: a strategy, a model and a number of processes, or why there is no run.

Not for: running (`backend.run`) or a user's own loop (`Strategy.parallelize`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

from placelang.api import Strategy
from placelang.backend import probe
from placelang.backend.errors import BackendError
from placelang.diagnostics import render
from placelang.diagnostics.diagnostic import Diagnostic, Verdict
from placelang.model import catalogue
from placelang.model.model import Model
from placelang.plan.plan import Plan
from placelang.tools import inputs
from placelang.tools.screen import Screen

TRAINED = "nano_gpt"  # when neither text nor command names a model: small enough for any machine

T = TypeVar("T")


@attrs.frozen
class Ready:
    """Everything that a run needs. `default_model`: nobody named it. `forced`: the text was refused."""

    strategy: Strategy
    plan: Plan
    model: Model
    nproc: int
    source: bytes | None = attrs.field(repr=False, default=None)
    default_model: bool = False
    forced: bool = False

    @property
    def head(self) -> str:
        """One line: what is about to run."""
        many = "one process" if self.nproc == 1 else f"{self.nproc} processes"
        chosen = " (no model is named)" if self.default_model else ""
        return f"{self.model.name}, {self.model.params:,} parameters{chosen}, on {many}"


def ready(
    file: str,
    sets: Mapping[str, str],
    model: str | None,
    *,
    nproc: int | None,
    text: str | None,
    force: bool = False,
) -> Ready | tuple[Diagnostic, ...]:
    """What is to run, or every reason why it cannot."""
    asked = _asked(nproc)
    strategy = inputs.strategy(file, sets, model, asked)
    plan = strategy.plan
    if plan is None or not (strategy.ok or (force and strategy.verdict is Verdict.UNSOUND)):
        return strategy.diagnostics
    if (absent := probe.missing()) is not None:
        return (absent,)
    found = plan.model or catalogue.lookup(TRAINED)
    assert isinstance(found, Model), found
    many = _processes(plan, asked)
    if isinstance(many, Diagnostic):
        return (many,)
    if _own(strategy, model):
        return (_no_loop(found.name),)
    if plan.model is not None and (large := _too_large(strategy, found, many)) is not None:
        return (large,)
    source = None if text is None else _bytes(text)
    if isinstance(source, Diagnostic):
        return (source,)
    return Ready(strategy, plan, found, many, source, default_model=plan.model is None, forced=not strategy.ok)


def _own(strategy: Strategy, model: str | None) -> bool:
    """Whether the model is what a function of the user's makes: `module:function`."""
    from placelang.plan.job import FACTORY
    from placelang.syntax import ast

    if model is not None:
        return FACTORY.fullmatch(model.strip("\"'")) is not None
    return any(
        isinstance(line, ast.Fact)
        and line.kind == "model"
        and isinstance(line.value, ast.String)
        and FACTORY.fullmatch(line.value.value) is not None
        for line in strategy.file.statements
    )


def _no_loop(name: str) -> Diagnostic:
    return Diagnostic(
        "E501",
        f"`{name}` is a module of yours: this command trains language models that it builds itself",
        help="in your own loop, `placelang.load(FILE).parallelize(module, optimizer=...)` places it as the text says",
    )


_HELD = ("params", "grads", "optimizer", "views")
_FAR = 1.5
"""How far above this machine's memory the known need lies before a run is refused: formulas count no overlap."""


def _too_large(strategy: Strategy, model: Model, nproc: int) -> Diagnostic | None:
    """Why the ranks cannot all live on this machine, if what they surely hold is far above its memory."""
    memory = _memory()
    if memory is None or not strategy.sound or strategy.lacks:
        return None
    cost = strategy.cost()
    need = nproc * sum(cost.number(cost.by_state.get(state)) or 0 for state in _HELD)
    if need < _FAR * memory:
        return None
    from placelang.cost.format import bytes_text

    many = "one process" if nproc == 1 else f"{nproc} processes"
    return Diagnostic(
        "E501",
        f"`{model.name}` on {many} needs at least {bytes_text(need)}, and this machine has {bytes_text(memory)}",
        cause="parameters, gradients, optimizer state and gathered views of all the processes, which share this memory",
        help="`place cost` says what it takes on its devices; `--model nano_gpt` trains a small model the same way",
    )


def _memory() -> int | None:
    """Bytes of this machine's memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _asked(nproc: int | None) -> int | None:
    """How many processes the command or a launcher names."""
    launched = os.environ.get("WORLD_SIZE", "")
    return int(launched) if nproc is None and launched.isdigit() else nproc


def _processes(plan: Plan, asked: int | None) -> int | Diagnostic:
    if asked is not None:
        return asked
    if (world := plan.mesh.world) is not None:
        return world
    open_ = [axis.name for axis in plan.mesh.axes if axis.size is None]
    names = ", ".join(f"`{name}`" for name in open_)
    help = "`--nproc 2`" if len(open_) == 1 else " ".join(f"`--set {name}=2`" for name in open_)
    return Diagnostic("E121", f"the number of processes is not known: no line gives a size of {names}", help=help)


def _bytes(text: str) -> bytes | Diagnostic:
    try:
        with open(text, "rb") as file:
            found = file.read()
    except OSError as error:
        return Diagnostic("E002", f"`{text}` cannot be read: {error.strerror or error}")
    return found or Diagnostic("E002", f"`{text}` is empty: there is nothing to train on")


def attempt(screen: Screen, work: Callable[[], T]) -> T | tuple[Diagnostic, ...]:
    """What `work` gives, or why the backend could not. With PLACE_DEBUG also the traceback of the rank that failed."""
    try:
        return work()
    except BackendError as error:
        if error.trace and os.environ.get("PLACE_DEBUG"):
            screen.err(error.trace)
        return (error.diagnostic,)


def refuse(screen: Screen, file: str, diagnostics: tuple[Diagnostic, ...], nothing: Mapping[str, Any]) -> bool:
    """Say why nothing ran."""
    screen.answer({"file": file, "ok": False, "diagnostics": render.json_value(diagnostics), **nothing})
    screen.show(diagnostics)
    return False


def of_this_rank(screen: Screen) -> Screen:
    """Under a launcher every rank runs the command; rank 0 speaks."""
    return attrs.evolve(screen, silent=os.environ.get("RANK", "0") != "0")
