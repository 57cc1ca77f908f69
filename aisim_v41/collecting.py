"""``aisim-v41-collect``: the collectors, from wherever they lie.

They are programs beside the library and not a part of it: in an installed wheel their folder is
among the packaged data, in a checkout it is beside the package. This starts them, and imports
nothing of theirs before that.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from aisim_v41 import resources
from aisim_v41.errors import MissingProfileError

FOLDER = "collectors"


def collectors_folder() -> Path:
    """The folder of the collectors, which may be copied into an engine's image.

    Raises:
        MissingProfileError: it is not here.
    """
    folder = resources.data_root() / FOLDER
    if not (folder / "main.py").is_file():
        raise MissingProfileError(f"no collectors at {folder}: install aisim-v41 again")
    return folder


def run() -> int:
    """Run the collectors' shell with the arguments of this process; the exit code."""
    root = str(collectors_folder().parent)
    if root not in sys.path:
        sys.path.insert(0, root)
    code: int = import_module(f"{FOLDER}.main").main()
    return code


if __name__ == "__main__":
    sys.exit(run())
