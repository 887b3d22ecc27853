"""Where the files that the package reads live: ``grammar/`` and ``stdlib/``.

Both stand at the top of the repository, for readers, and in a wheel inside the package. Not for files of users.
"""

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).parent


def data(name: Literal["grammar", "stdlib"]) -> Path:
    """The folder ``name``: that of the installed package, else that of the checkout around it.

    :raises FileNotFoundError: the installation is damaged.
    """
    # Plain paths, not importlib.resources: that costs milliseconds of start-up, and wheels are always unpacked.
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"placelang's folder {name!r} is missing: install placelang again")
