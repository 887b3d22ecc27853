"""A Model of what Python code makes: `model "pkg.module:build"` calls `build()` and reads the `nn.Module` it returns.

The module is made on the meta device, so that a model of any size costs nothing. The folder of the text is on the
import path while its code runs and not after, and modules from there are forgotten, so that two texts may have a
`model.py` each. torch is imported only inside `load`. Not for: training what is made (`apply` places a user's module).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from placelang.backend.probe import INSTALL
from placelang.diagnostics.diagnostic import Diagnostic
from placelang.diagnostics.suggest import did_you_mean
from placelang.model.model import Model


def load(path: str, folder: Path) -> Model | Diagnostic:
    """The model of `pkg.module:name`, imported as from `folder`. `name` takes no arguments and returns an `nn.Module`.

    E502 without torch; E120 where there is no such module or name, where the code raises, or makes no parameters.
    """
    if find_spec("torch") is None:
        return Diagnostic("E502", f"`{path}` needs torch, which this Python does not have", help=f"`{INSTALL}`")
    import torch
    from torch import nn

    from placelang.backend.read import read

    module, _, name = path.partition(":")
    with _importing(folder), redirect_stdout(sys.stderr):
        try:
            home: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
                return _fault(f"there is no Python module `{module}`", f"it is looked for in {folder.resolve()} first")
            return _raised(f"importing `{module}`", error)
        except (Exception, SystemExit) as error:
            return _raised(f"importing `{module}`", error)
        if _shadowed(module, folder, getattr(home, "__file__", None)):
            return _fault(
                f"`{module}` is the name of another module, which is loaded already", "give yours another name"
            )
        factory: Any = home
        for part in name.split("."):
            near = did_you_mean(part, [n for n in dir(factory) if not n.startswith("_")])
            factory = getattr(factory, part, None)
            if factory is None:
                return _fault(f"`{module}` has no `{name}`", f"did you mean `{near}`?" if near else "")
        try:
            with torch.device("meta"):
                made = factory()
            if not isinstance(made, nn.Module):
                kind = type(made).__name__
                return _fault(f"`{path}()` returns {kind}, not an nn.Module", "a factory takes no arguments")
            if next(made.parameters(), None) is None:
                return _fault(f"the module of `{path}()` has no parameters")
            return read(made, path)
        except (Exception, SystemExit) as error:
            return _raised(f"`{path}()`", error)


def _shadowed(module: str, folder: Path, file: str | None) -> bool:
    """Whether `folder` has a module of this name, and another was loaded before it."""
    root = folder.resolve() / module.partition(".")[0]
    theirs = root.with_name(f"{root.name}.py").is_file() or (root / "__init__.py").is_file()
    return theirs and (file is None or not Path(file).resolve().is_relative_to(folder.resolve()))


@contextmanager
def _importing(folder: Path) -> Iterator[None]:
    """Imports see `folder` first; afterwards nothing of it is left on the import path or in `sys.modules`."""
    here = str(folder.resolve())
    before = set(sys.modules)
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            installed = name.partition(".")[0] == "placelang" or "site-packages" in str(file)
            if file is not None and not installed and Path(file).is_relative_to(here):
                del sys.modules[name]


def _fault(message: str, help: str = "") -> Diagnostic:
    return Diagnostic("E120", message, help=help)


def _raised(what: str, error: BaseException) -> Diagnostic:
    """The last line of a traceback, and where in the user's code it comes from."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    file = last.tb_frame.f_code.co_filename if last is not None else __file__
    theirs = last is not None and file != __file__ and not file.startswith("<")
    place = f" ({Path(file).name}:{last.tb_lineno})" if last is not None and theirs else ""
    said = " ".join(str(error).split())[:200]
    return _fault(f"{what} raises {type(error).__name__}{f': {said}' if said else ''}{place}")
