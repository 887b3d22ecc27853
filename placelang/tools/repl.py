"""`place repl`: statements in, verdict and cost out, and what each statement changed.

On a terminal with editing, history and completion; piped, line by line without prompts. No error ends it. Not for: what
a session is (`session`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping

import attrs

from placelang.api import Strategy
from placelang.cost.expr import bytes_text
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.plan.explain import lines
from placelang.syntax.parser import needs_more
from placelang.tools import cost, fmt, inputs
from placelang.tools.check import inferred, verdict_line
from placelang.tools.screen import Screen, columns, is_terminal
from placelang.tools.session import Change, Session, attempt, changes, enter

PROMPT, MORE = "place> ", "   ...> "
HELP = """\
Type statements: `params: shard(dp)`, `mesh (dp = 8)`, `model gpt2_124m`. A new word on a state replaces the old one.
  :model NAME      the model to cost (a catalogue name or a config.json); without NAME: none
  :set NAME=VALUE  a size or fact: `:set seq=1024`, `:set dp=8`
  :show            the text so far
  :explain         the complete strategy, with reasons
  :cost            memory and traffic, formula beside number
  :undo            take the last change back
  :reset           start again
  :load FILE       go on from a file
  :save FILE       write the text to a file (:save! to replace one)
  :help            this
  :quit            leave (so does Ctrl-D)"""


class _Quit(Exception):
    pass


@attrs.define
class Repl:
    """A session and the screen that it answers on."""

    screen: Screen
    session: Session = attrs.field(factory=Session)

    def take(self, typed: str) -> None:
        """Answer one input: a command that begins with `:`, or statements."""
        typed = typed.strip("\n")
        if not typed.strip():
            return
        word, _, rest = typed.strip().partition(" ")
        if word in ("quit", "exit", "help"):
            word = f":{word}"
        if word.startswith(":"):
            self._command(word[1:], rest.strip())
        else:
            self.move(enter(self.session, typed))

    def move(self, new: Session | tuple[Diagnostic, ...]) -> None:
        """Go on with a new session and say what it changed, or say why not."""
        if isinstance(new, tuple):
            self.screen.show(new, result=True)
            self.screen.out(self.screen.paint("dim", "not kept"))
            return
        old, self.session = self.session, new
        self._answer(old)

    def _answer(self, old: Session) -> None:
        strategy = self.session.strategy
        if self.session.empty:
            self.screen.out(self.screen.paint("dim", "noted; no state is placed yet"))
            return
        self.screen.show(strategy.diagnostics, result=True)
        self.screen.out(verdict_line(self.screen, strategy))
        if strategy.plan is None or not strategy.ok:
            return
        before = old.strategy
        known = () if before.plan is None else lines(before.plan)
        for row in inferred(self.screen, (line for line in lines(strategy.plan) if line not in known)):
            self.screen.out(row)
        for row in _changes(self.screen, list(changes(old, self.session))):
            self.screen.out(row)
        for hint in _hints(strategy):
            self.screen.out(self.screen.paint("dim", hint))

    def _command(self, name: str, rest: str) -> None:
        commands: Mapping[str, Callable[[str], None]] = {
            "model": self._model,
            "set": self._set,
            "show": lambda _: self.screen.out(self.session.text.rstrip("\n")),
            "explain": self._explain,
            "cost": self._cost,
            "undo": self._undo,
            "reset": lambda _: self.move(self.session.then(text="", sets={}, model=None)),
            "load": self._load,
            "save": self._save,
            "save!": lambda file: self._save(file, replace=True),
            "help": lambda _: self.screen.out(HELP),
            "quit": self._quit,
            "exit": self._quit,
        }
        if name not in commands:
            from placelang.diagnostics.suggest import did_you_mean

            near = did_you_mean(name, commands)
            said = f"did you mean `:{near}`?" if near else "`:help` lists them"
            self.screen.out(f"no command `:{name}`; {said}")
            return
        commands[name](rest)

    def _quit(self, _: str) -> None:
        raise _Quit

    def _model(self, name: str) -> None:
        self.move(attempt(self.session, model=name or None))

    def _set(self, given: str) -> None:
        name, equals, value = (part.strip() for part in given.partition("="))
        if not (equals and value and name.isidentifier()):
            self.screen.out("`:set NAME=VALUE`, as in `:set dp=8`")
            return
        self.move(attempt(self.session, sets={**self.session.sets, name: value}))

    def _explain(self, _: str) -> None:
        strategy = self.session.strategy
        if strategy.plan is None:
            self.screen.out("no strategy yet")
            return
        self.screen.out(strategy.explain().rstrip("\n"))

    def _cost(self, _: str) -> None:
        strategy = self.session.strategy
        if not strategy.ok or strategy.plan is None:
            self.screen.out("no sound strategy yet")
        elif strategy.plan.model is None:
            self.screen.out("no model yet: `:model gpt2_124m`")
        elif strategy.lacks:
            self.screen.show(strategy.lacks)
        else:
            for row in cost.table(self.screen, strategy, strategy.cost()):
                self.screen.out(row)

    def _undo(self, _: str) -> None:
        back = self.session.undo()
        if back is None:
            self.screen.out("nothing to undo")
            return
        self.move(back)

    def _load(self, file: str) -> None:
        source = inputs.read(file) if file and file != inputs.STDIN else None
        if source is None:
            self.screen.out("`:load FILE`")
        else:
            self.move((source,) if isinstance(source, Diagnostic) else attempt(self.session, text=source.text))

    def _save(self, file: str, replace: bool = False) -> None:
        if not file:
            self.screen.out("`:save FILE`")
        elif os.path.exists(file) and not replace:
            self.screen.out(f"`{file}` is there already; `:save! {file}` replaces it")
        else:
            try:
                fmt.write(file, self.session.text)
            except (OSError, ValueError) as error:
                self.screen.out(f"`{file}` cannot be written: {getattr(error, 'strerror', None) or error}")
            else:
                self.screen.out(f"saved {file}")


def _hints(strategy: Strategy) -> Iterator[str]:
    """What a number still needs."""
    if strategy.plan is not None and strategy.plan.model is None:
        yield "`:model gpt2_124m` says what it costs"
    elif strategy.lacks:
        yield from (f"{d.message}: {d.help}" for d in strategy.lacks)
    elif sizes := cost.hints(strategy.cost()):
        yield f"? needs {', '.join(f'`:set {size}`' for size in sizes)}"


def _changes(screen: Screen, table: list[Change]) -> list[str]:
    """Numbers with their changes, memory first."""
    rows = []
    for unit, title in (("memory", "memory of a device"), ("traffic", "traffic of a step")):
        of_unit = [c for c in table if c.unit == unit and (c.before or c.after or c.after is None)]
        if of_unit:
            fields = [(c.name, "?" if c.after is None else bytes_text(c.after), _difference(c)) for c in of_unit]
            rows += [screen.paint("dim", title), *columns(fields, right=(1, 2))]
    return rows


def _difference(change: Change) -> str:
    if change.before is None or change.after is None or change.before == change.after:
        return ""
    gap = change.after - change.before
    return f"{'+' if gap > 0 else '-'}{bytes_text(abs(gap))}"


# --- input ----------------------------------------------------------------------------------------------------------


def repl(screen: Screen, file: str | None, sets: Mapping[str, str], model: str | None) -> bool:
    """Read, answer, repeat until the input ends."""
    talk = Repl(screen, Session(sets=sets, model=model))
    on_terminal = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    if on_terminal:
        screen.out("place: statements and `:help`; Ctrl-D leaves")
    if file is not None:
        source = inputs.read(file)
        talk.move((source,) if isinstance(source, Diagnostic) else attempt(talk.session, text=source.text))
    for typed in _typed() if on_terminal else _piped():
        try:
            talk.take(typed)
        except _Quit:
            break
        except Exception as error:
            if os.environ.get("PLACE_DEBUG"):
                raise
            screen.out(f"internal error, {type(error).__name__}: {error}; the session goes on. Please report it.")
    return True


def _piped() -> Iterator[str]:
    """Inputs from lines, each as long as it needs to be."""
    buffer = ""
    for raw in getattr(sys.stdin, "buffer", sys.stdin):
        # What is no UTF-8 becomes surrogates, which the reader refuses with a proper message.
        line = raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
        buffer += line
        if line.startswith(":") or not line.strip() or not needs_more(buffer):
            yield buffer
            buffer = ""
    if buffer.strip():
        yield buffer


def _typed() -> Iterator[str]:
    """Inputs from a terminal. Ctrl-C drops the one begun; an empty line ends it as it is."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter

    from placelang.model import catalogue
    from placelang.plan import library

    words = re.findall(r"^  (:\w+)", HELP, re.MULTILINE)
    words += ["params:", "grads:", "optimizer:", "activations:", "mesh", "model", "train", "apply", "update:"]
    words += ["shard", "replicate", "partial", "gather", "all_reduce", "reduce_scatter", "all_gather"]
    words += [*library.names(), *catalogue.names()]
    prompt: PromptSession[str] = PromptSession(completer=WordCompleter(words, WORD=True), complete_while_typing=False)
    while True:
        try:
            buffer = prompt.prompt(PROMPT)
            while not buffer.startswith(":") and needs_more(buffer):
                line = prompt.prompt(MORE)
                buffer += f"\n{line}"
                if not line.strip():
                    break
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        yield buffer
