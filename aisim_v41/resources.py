"""Where packaged data lies: ``hardware/`` and ``profiles/``.

In an installed wheel both folders are inside the package (``aisim_v41/data/``); in a checkout
they are beside it. A user adds folders of the same shape with ``AISIM_V41_PATH`` (separated as
in PATH) or by passing a path to a loader; user folders are searched first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from aisim_v41.errors import MissingProfileError, nearest

P = ParamSpec("P")
Made = TypeVar("Made")

_PACKAGE = Path(__file__).resolve().parent
SEARCH_PATH_VARIABLE = "AISIM_V41_PATH"


def data_root() -> Path:
    """Folder that holds the packaged ``hardware/`` and ``profiles/``."""
    installed = _PACKAGE / "data"
    return installed if installed.is_dir() else _PACKAGE.parent


def search_roots() -> list[Path]:
    """User folders of ``AISIM_V41_PATH`` first, then the packaged data."""
    user = os.environ.get(SEARCH_PATH_VARIABLE, "")
    return [*(Path(part).expanduser() for part in user.split(os.pathsep) if part), data_root()]


def kept_for_roots(maxsize: int) -> Callable[[Callable[P, Made]], Callable[P, Made]]:
    """`functools.lru_cache` for what is made from data: other search roots make it anew.

    Args:
        maxsize: results that are kept.
    """

    def decorate(make: Callable[P, Made]) -> Callable[P, Made]:
        @lru_cache(maxsize)
        def kept(_roots: tuple[Path, ...], *args: P.args, **kwargs: P.kwargs) -> Made:
            return make(*args, **kwargs)

        @wraps(make)
        def call(*args: P.args, **kwargs: P.kwargs) -> Made:
            return kept(tuple(search_roots()), *args, **kwargs)  # type: ignore[arg-type]

        return call

    return decorate


def find(folder: str, name: str, suffix: str) -> Path:
    """Path of ``folder/name + suffix`` in the first root that has it.

    Raises:
        MissingProfileError: no root has it, or ``name`` would leave the folder.
    """
    if name and not Path(name).is_absolute() and ".." not in Path(name).parts:
        for root in search_roots():
            candidate = root / folder / f"{name}{suffix}"
            if candidate.is_file():
                return candidate
    raise MissingProfileError(
        f"no {folder} entry named {name!r}; {nearest(name, names(folder, suffix))}. "
        f"Pass a path to a file, or add a folder to {SEARCH_PATH_VARIABLE}."
    )


def names(folder: str, suffix: str) -> list[str]:
    """Names that `find` would accept, sorted."""
    found: set[str] = set()
    for root in search_roots():
        base = root / folder
        for path in base.glob(f"**/*{suffix}" if "/" in suffix else f"*{suffix}"):
            found.add(path.relative_to(base).as_posix().removesuffix(suffix))
        if suffix.startswith("/"):
            found.update(p.parent.relative_to(base).as_posix() for p in base.glob(f"*{suffix}"))
    return sorted(found)
