"""The command `place`: its options, its help and its exit codes.

0 sound or done, 1 refused or not verified, 2 bad usage, 70 a fault of placelang itself, 130 interrupted,
141 nobody read the output. Everything but click is imported by the command that needs it, so that `place check` feels
instant. Not for: what a command says (one module each).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any, cast

import click

from placelang import __version__

REFUSED, INTERNAL, INTERRUPTED, UNREAD = 1, 70, 130, 141

_EPILOG = """\b
Examples:
  place check train.place                        is it sound, and what was inferred
  place cost train.place --model gpt2_124m --set dp=2
  place run train.place --nproc 2                train a small model, for real
  place verify train.place --nproc 2             hold the run against the prediction
  echo 'params: shard(dp) ; grads: reduce_scatter' | place check -

Exit codes: 0 sound or done, 1 refused or not verified, 2 bad usage."""


class _Group(click.Group):
    """Turns what no command foresaw into one clear line: users never see a traceback they did not ask for."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # What is still buffered goes nowhere, so that the interpreter's last flush does not fail too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(UNREAD)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if os.environ.get("PLACE_DEBUG"):
                raise
            what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            click.echo(
                f"place {ctx.invoked_subcommand}: internal error, {what}\n"
                "This is a fault of placelang, not of your file. Please report it together with the file; "
                "PLACE_DEBUG=1 shows the traceback.",
                err=True,
            )
            ctx.exit(INTERNAL)


class _Whole(click.Command):
    """A command whose line in the list is never cut: it is folded."""

    def get_short_help_str(self, limit: int = 1000) -> str:
        return super().get_short_help_str(1000)


def _sets(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    for item in given:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not (equals and value and name.isidentifier()):
            raise click.BadParameter(f"{item!r} is not NAME=VALUE, as in dp=8")
        if name in values:
            raise click.BadParameter(f"{name} is given twice")
        values[name] = value
    return values


_Command = Callable[..., Any]
_Option = Callable[[_Command], _Command]
_SET = click.option(
    "--set",
    "sets",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_sets,
    help="Give an arg, a mesh size or a fact a value (repeatable).",
)
_MODEL = click.option("--model", metavar="NAME|FILE", help="A model of the catalogue, or a Hugging Face config.json.")
_NPROC = click.option(
    "--nproc",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Processes to start; an axis without a size gets what they leave.",
)
_STEPS = click.option("--steps", type=click.IntRange(1), metavar="K", help="Training steps.")
_TEXT = click.option("--text", metavar="FILE", help="Train on this file's bytes (default: Python's reference pages).")
_CHECK = click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 if a file is not formatted.")
_DIFF = click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
_FORCE = click.option("--force", is_flag=True, help="Run what was refused as unsound, knowing that it trains wrongly.")
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output, nothing else.")
_PLAIN = click.option("--plain", is_flag=True, help="No colour and no redrawing (NO_COLOR does it too).")
_FILE = click.argument("file", metavar="FILE")
_FILES = click.argument("files", metavar="FILE...", nargs=-1, required=True)


def _command(*options: _Option, examples: str) -> Callable[[_Command], click.Command]:
    """A command of the group with these options, `--plain`, and examples (one a line) at the end of its help."""

    def decorate(command: _Command) -> click.Command:
        decorated, every = command, (*options, cast(_Option, _PLAIN))
        for option in reversed(every):
            decorated = option(decorated)
        lines = "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
        return cli.command(cls=_Whole, epilog=f"\b\nExamples:\n{lines}")(decorated)

    return decorate


def _finish(ok: bool) -> None:
    sys.exit(0 if ok else REFUSED)


@click.group(
    cls=_Group, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="place", message="%(prog)s %(version)s")
def cli() -> None:
    """Place the training of a model on many devices: one text, checked, costed, run.

    FILE is a .place text; - reads it from standard input.
    """


@_command(
    _FILES,
    _SET,
    _MODEL,
    _JSON,
    click.option("--sarif", "as_sarif", is_flag=True, help="A SARIF 2.1.0 log on standard output, nothing else."),
    examples="""
    place check train.place
    place check *.place
    place check train.place --set dp=8 --json
    place check *.place --sarif > place.sarif
""",
)
def check(
    files: tuple[str, ...], sets: dict[str, str], model: str | None, as_json: bool, as_sarif: bool, plain: bool
) -> None:
    """Say whether each FILE trains like one device, and show what was inferred."""
    from placelang.tools.check import check as run_check
    from placelang.tools.check import sarif
    from placelang.tools.screen import Screen

    if as_sarif and as_json:
        raise click.UsageError("--json and --sarif are two formats: choose one")
    run = sarif if as_sarif else run_check
    _finish(run(Screen(as_json, plain), files, sets, model))


@_command(
    click.argument("target", metavar="FILE|CODE"),
    _SET,
    _MODEL,
    _JSON,
    examples="""
    place explain train.place
    place explain E201
    place explain grads-left-partial
""",
)
def explain(target: str, sets: dict[str, str], model: str | None, as_json: bool, plain: bool) -> None:
    """Print the complete strategy of a FILE with a reason for each inferred line, or the page of an error CODE."""
    from placelang.tools.explain import explain as run_explain
    from placelang.tools.screen import Screen

    _finish(run_explain(Screen(as_json, plain), target, sets, model))


@_command(
    _FILES,
    _CHECK,
    _DIFF,
    _JSON,
    examples="""
    place fmt train.place
    place fmt --check *.place
    place fmt --diff train.place
    place fmt - < train.place
""",
)
def fmt(files: tuple[str, ...], only_check: bool, diff: bool, as_json: bool, plain: bool) -> None:
    """Lay out each FILE in the one canonical form. A file with syntax errors is left as it is."""
    from placelang.tools.fmt import fmt as run_fmt
    from placelang.tools.screen import Screen

    _finish(run_fmt(Screen(as_json, plain), files, only_check, diff))


@_command(
    _FILE,
    _SET,
    _MODEL,
    _JSON,
    examples="""
    place cost train.place --model gpt2_124m --set dp=2 --set seq=1024
    place cost train.place --model ./config.json --json
""",
)
def cost(file: str, sets: dict[str, str], model: str | None, as_json: bool, plain: bool) -> None:
    """Print memory per device by state, traffic per axis of one step, and its time on named hardware."""
    from placelang.tools.cost import cost as run_cost
    from placelang.tools.screen import Screen

    _finish(run_cost(Screen(as_json, plain), file, sets, model))


@_command(
    _FILE,
    _SET,
    _MODEL,
    _NPROC,
    _STEPS,
    _TEXT,
    _FORCE,
    _JSON,
    examples="""
    place run train.place --nproc 2
    place run train.place --nproc 2 --steps 100 --text book.txt
    place run wrong.place --nproc 2 --force
""",
)
def run(
    file: str,
    sets: dict[str, str],
    model: str | None,
    nproc: int | None,
    steps: int | None,
    text: str | None,
    force: bool,
    as_json: bool,
    plain: bool,
) -> None:
    """Train a model as FILE says, on N processes of this machine (needs placelang[torch])."""
    from placelang.tools.run import run as run_run
    from placelang.tools.screen import Screen

    _finish(run_run(Screen(as_json, plain), file, sets, model, nproc=nproc, steps=steps, text=text, force=force))


@_command(
    _FILE,
    _SET,
    _MODEL,
    _NPROC,
    _STEPS,
    _TEXT,
    _FORCE,
    click.option("--simulate", is_flag=True, help="Without torch: on simulated ranks, a small model, in numpy."),
    _JSON,
    examples="""
    place verify train.place --nproc 2
    place verify train.place --nproc 2 --steps 5 --json
    place verify train.place --simulate
""",
)
def verify(
    file: str,
    sets: dict[str, str],
    model: str | None,
    nproc: int | None,
    steps: int | None,
    text: str | None,
    force: bool,
    simulate: bool,
    as_json: bool,
    plain: bool,
) -> None:
    """Run FILE for a few steps and hold it against its prediction and against one device (needs placelang[torch])."""
    from placelang.tools.screen import Screen

    if simulate:
        if steps is not None or text is not None:
            raise click.UsageError("--simulate has steps and data of its own: leave --steps and --text out")
        from placelang.tools.simulated import simulate as run_simulate

        _finish(run_simulate(Screen(as_json, plain), file, sets, model, nproc=nproc, force=force))
    from placelang.tools.verify import verify as run_verify

    _finish(run_verify(Screen(as_json, plain), file, sets, model, nproc=nproc, steps=steps, text=text, force=force))


@_command(
    _JSON,
    examples="""
    place doctor
    place doctor --json
""",
)
def doctor(as_json: bool, plain: bool) -> None:
    """Say what is installed, what works here, and what would not and why."""
    from placelang.tools.doctor import doctor as run_doctor
    from placelang.tools.screen import Screen

    _finish(run_doctor(Screen(as_json, plain)))


@_command(
    click.argument("file", metavar="[FILE]", required=False),
    _SET,
    _MODEL,
    examples="""
    place repl
    place repl train.place --model gpt2_124m
    echo 'params: shard(dp)' | place repl
""",
)
def repl(file: str | None, sets: dict[str, str], model: str | None, plain: bool) -> None:
    """Write a strategy line by line; each answer says what changed. Starts from FILE, if one is given."""
    from placelang.tools.repl import repl as run_repl
    from placelang.tools.screen import Screen

    _finish(run_repl(Screen(plain=plain), file, sets, model))


def main() -> None:
    """The console script."""
    gc.set_threshold(50_000, 20, 20)  # what imports make lasts; looking through it again and again takes 5 % of a check
    from placelang.tools.screen import forgiving

    forgiving()
    try:
        cli(prog_name="place")
    except SystemExit as done:
        if "RANK" not in os.environ or "torch.distributed" not in sys.modules:
            raise
        from placelang.backend.launch import leave

        leave(done.code if isinstance(done.code, int) else int(bool(done.code)))


if __name__ == "__main__":
    main()
