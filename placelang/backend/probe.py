"""What there is to run with: torch, numpy, gloo, the kernel. Facts, each with the reason where something is missing.

Not for: deciding what a user should do about it (`tools.doctor`).
"""

from __future__ import annotations

from importlib.util import find_spec

import attrs

from placelang.diagnostics.diagnostic import Diagnostic

INSTALL = "pip install 'placelang[torch]'"


@attrs.frozen
class Torch:
    """`why` says why `version` is None. `gloo`: processes of this machine can talk; `devices`: accelerators."""

    version: str | None
    why: str = ""
    gloo: bool = False
    devices: tuple[str, ...] = ()
    threads: int = 0


def missing() -> Diagnostic | None:
    """E502 where a run cannot even begin. Imports nothing, so it is free to ask."""
    absent = [name for name in ("torch", "numpy") if find_spec(name) is None]
    if not absent:
        return None
    return Diagnostic(
        "E502", f"running needs {' and '.join(absent)}, which this Python does not have", help=f"`{INSTALL}`"
    )


def torch() -> Torch:
    """Import torch (seconds) and ask it."""
    if find_spec("torch") is None:
        return Torch(None, "not installed")
    try:
        import torch as t
        import torch.distributed as dist
    except Exception as error:  # a broken installation fails in many ways
        return Torch(None, f"cannot be imported: {' '.join(str(error).split())[:200]}")
    devices = tuple(t.cuda.get_device_name(i) for i in range(t.cuda.device_count())) if t.cuda.is_available() else ()
    gloo = dist.is_available() and dist.is_gloo_available()
    return Torch(t.__version__, "", gloo, devices, t.get_num_threads())


def numpy() -> str | None:
    """Its version, if it is there and whole."""
    try:
        import numpy as np
    except Exception:
        return None
    return str(np.__version__)
