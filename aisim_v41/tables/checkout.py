"""Tables out of a local checkout of AISimulate or AIConfigurator, written as tables of ours.

The checkout is read, never run. Its Parquet files lie under a folder ``systems``, as in the
installed package (`aisim_v41.tables.aisimulate`); what is written carries its licence, its notice
and the revision that was checked out, and says how many rows came from which file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError, nearest
from aisim_v41.tables.aisimulate import SYSTEMS, rows_of
from aisim_v41.tables.load import family_named
from aisim_v41.tables.write import write_table

LICENCE = "Apache-2.0"
NOTICE = (
    "Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES. All rights reserved. Licensed under "
    "the Apache License, Version 2.0. Changed on import: rows selected, columns renamed, "
    "milliseconds turned into microseconds, repeats merged, rows marked."
)
ENGINE_TABLES = ("gemm", "experts", "collectives", "hyper_connections", "attention", "quantise",
                 "v41_modules", "v41_dense")  # fmt: skip
"""Families that such a checkout can fill."""
EAGER = ("v41_modules", "v41_dense")
"""Families whose rows are modules issued call by call."""
_FOLDERS = ("", "systems", "*/systems", "*/*/systems", "*/*/*/systems", "*/*/*/*/systems")
_REVISION = re.compile(r"[0-9a-f]{40}")
_POINTER = b"version https://git-lfs"
UNKNOWN = "of unknown revision"


class Written(NamedTuple):
    """One table that was written."""

    family: str
    path: Path
    rows: int
    sources: int


def systems_of(checkout: str | os.PathLike[str]) -> Path:
    """The folder ``systems`` of a checkout: the one that has ``data`` with a system we know.

    Raises:
        MissingProfileError: no such folder, or several; the message says where was looked.
    """
    root = Path(checkout)
    if not root.is_dir():
        raise MissingProfileError(f"{root}: no such folder; give the root of a checkout")
    found = [
        place
        for pattern in _FOLDERS
        for place in (sorted(root.glob(pattern)) if pattern else [root])
        if any((place / "data" / system).is_dir() for system in SYSTEMS.values())
    ]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(str(place.relative_to(root)) for place in found)
    raise MissingProfileError(
        f"{root}: {f'several folders of tables ({shown}); give one' if found else 'no tables'}; "
        f"they lie at .../systems/data/<system>, of which we know {', '.join(SYSTEMS.values())}"
    )


def revision_of(checkout: str | os.PathLike[str]) -> str:
    """The commit that is checked out, read from ``.git``; says so if that is not known."""
    for folder in (Path(checkout).resolve(), *Path(checkout).resolve().parents):
        git = folder / ".git"
        if git.is_dir():
            return _head(git) or UNKNOWN
    return UNKNOWN


def import_checkout(
    checkout: str | os.PathLike[str],
    gpu: str,
    folder: str | os.PathLike[str],
    *,
    families: Sequence[str] = (),
    replace: bool = False,
) -> Iterator[Written]:
    """Write the tables of a GPU that a checkout has; yields each as it is written.

    Args:
        checkout: its root, or a folder ``systems``.
        gpu: as in ``hardware/``.
        folder: a folder as in ``AISIM_V41_PATH``: tables go to ``profiles/<gpu>/op`` in it.
        families: which; all that there are if none is named.
        replace: write over a table that is there.

    Raises:
        InvalidInputError: no such GPU there, or a table that would be replaced.
        MissingProfileError: no tables, or a named family has none.
        SchemaError: a file is not what it was in the version that this was written for.
    """
    if gpu not in SYSTEMS:
        raise InvalidInputError(f"no tables of {gpu!r:.80} in such checkouts; "
                                f"{nearest(str(gpu), SYSTEMS)}")  # fmt: skip
    wanted = [family_named(family).name for family in families] or list(ENGINE_TABLES)
    foreign = sorted(set(wanted) - set(ENGINE_TABLES))
    if foreign:
        raise InvalidInputError(f"checkouts have no {foreign[0]}: {', '.join(ENGINE_TABLES)}")
    systems, revision = systems_of(checkout), revision_of(checkout)
    _refuse_pointers(systems, gpu)
    target = Path(folder) / "profiles"
    there = [f for f in wanted if (target / gpu / "op" / f"{f}.parquet").exists()]
    if there and not replace:
        raise InvalidInputError(
            f"{target / gpu / 'op'} has {', '.join(there)} already; choose another folder, name "
            "families, or say that they may be replaced"
        )
    wrote = False
    for family in wanted:
        where = f"{systems}, {gpu}, {family}"
        try:
            frame = rows_of(systems, gpu, family, where=where)
        except MissingProfileError:
            if families:
                raise
            continue
        sources = sorted(set(frame["source"]))
        path = write_table(
            frame,
            gpu=gpu,
            family=family,
            folder=target,
            licence=LICENCE,
            notice=NOTICE,
            sources=[_source(name, gpu, revision) for name in sources],
            timing=_timing(family),
            changed=[{"column": "latency_us", "change": "milliseconds of the source times 1000"}],
            remarks=["Read out of a checkout; docs/tables.md says what each family holds."],
        )
        wrote = True
        yield Written(family, path, len(frame), len(sources))
    if not wrote:
        raise MissingProfileError(f"{systems}: no table of {gpu} that this release can read")


def _source(name: str, gpu: str, revision: str) -> dict[str, str]:
    return {
        "id": name,
        "package": "aisimulate",
        "version": revision,
        "path": f"systems: data/{SYSTEMS[gpu]}/*/*/*/{name}",
        "date": "as checked out",
        "note": "every row of every engine version in the checkout",
    }


def _timing(family: str) -> dict[str, str]:
    eager = family in EAGER
    return {
        "method": "interval around one module call, eager" if eager
        else "device time of captured or replayed kernels; eager rows say so",
        "statistic": "median over samples, the slowest rank" if eager
        else "one mean a point, as the source's collector writes it",
        "environment": "not stated in the files beyond engine and version",
    }  # fmt: skip


def _head(git: Path) -> str | None:
    """Commit of HEAD, through one reference, packed or not."""
    try:
        head = (git / "HEAD").read_text(encoding="ascii").strip()
        name = head.removeprefix("ref: ")
        if name == head:
            return head if _REVISION.fullmatch(head) else None
        loose = git / name
        if ".." not in Path(name).parts and loose.is_file():
            commit = loose.read_text(encoding="ascii").strip()
            return commit if _REVISION.fullmatch(commit) else None
        for line in (git / "packed-refs").read_text(encoding="utf-8").splitlines():
            commit, _, reference = line.partition(" ")
            if reference == name and _REVISION.fullmatch(commit):
                return commit
    except (OSError, UnicodeDecodeError):
        return None
    return None


def _refuse_pointers(systems: Path, gpu: str) -> None:
    """Refuse files that Git LFS has not fetched.

    Raises:
        SchemaError: names the first one and what fetches it.
    """
    for path in sorted(systems.glob(f"**/data/{SYSTEMS[gpu]}/*/*/*/*.parquet")):
        with path.open("rb") as stream:
            if stream.read(len(_POINTER)) == _POINTER:
                raise SchemaError(f"{path}: a pointer of Git LFS; run `git lfs pull` there first")
