"""Tables of forwards in folders: read without trust, published whole or not at all.

A table lies at ``profiles/<gpu>/fpm/<slug>/``: ``table.json`` and the Parquet file that it names.
Publishing writes the rows under a name of their own, then replaces ``table.json`` in one move, then
removes the rows that no sidecar names any more. So a reader sees the old table or the new one,
whenever the writer dies. Two writers of one table wait for each other.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from aisim_v41 import resources
from aisim_v41.errors import AisimError, InvalidInputError, MissingProfileError, SchemaError
from aisim_v41.forwards.parquet import decode, encode
from aisim_v41.forwards.sidecar import (
    check_sidecar,
    file_name,
    sidecar_of,
    table_from,
)
from aisim_v41.forwards.table import StepTable
from aisim_v41.reading import parse_mapping, read_bytes
from aisim_v41.tables.arrow import MAX_FILE_BYTES
from aisim_v41.tables.sidecar import digest
from aisim_v41.writing import UNFINISHED, replace_file

FOLDER: Final = "profiles"
INNER: Final = "fpm"
SIDECAR: Final = "table.json"
LOCK: Final = ".lock"
ROWS: Final = "steps-*.parquet"
WAIT_S: Final = 60.0
"""How long a writer waits for another [s]."""
_POLL_S = 0.02
_READS = 20
"""A table may be replaced between its sidecar and its rows; so often is that taken for granted."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_SLUG = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")


def read_table(folder: str | os.PathLike[str]) -> StepTable:
    """The table in a folder ``.../<gpu>/fpm/<slug>``.

    Raises:
        MissingProfileError: there is no table.
        SchemaError: the table or its place is not what it must be; the message names file, row or
            field, and remedy.
    """
    path = Path(folder)
    stamp = _stamp(path)
    # Without one, reading says in a typed error what is wrong.
    return _read(path) if stamp is None else _read_once(path, stamp)


def find_tables(gpu: str) -> tuple[StepTable, ...]:
    """Every table of a GPU, user folders of ``AISIM_V41_PATH`` first, then the packaged data.

    Of an identity that several have, the first.

    Raises:
        InvalidInputError: not a GPU's name.
        SchemaError: a table is not what it must be.
    """
    if not isinstance(gpu, str) or not _NAME.fullmatch(gpu):
        raise InvalidInputError(f"not a GPU's name: {gpu!r:.80}")
    found: dict[str, StepTable] = {}
    for root in resources.search_roots():
        for path in sorted((root / FOLDER / gpu / INNER).glob(f"*/{SIDECAR}")):
            if path.parent.name not in found:
                found[path.parent.name] = read_table(path.parent)
    return tuple(found.values())


def publish_table(table: StepTable, root: str | os.PathLike[str]) -> Path:
    """Write a table in place of what there was of its identity; its folder.

    Args:
        table: one record at least.
        root: folder that has or gets ``profiles/``, as in ``AISIM_V41_PATH``.

    Raises:
        InvalidInputError: the table has no records, or the folder cannot be written; what was
            there is still there.
        SchemaError: the table could not be read again.
    """
    folder = folder_of(table, root)
    with _writing(folder):
        _replace_table(table, folder)
    return folder


def add_to_table(table: StepTable, root: str | os.PathLike[str]) -> Path:
    """Write what there was of a table's identity together with it; the folder.

    Raises:
        InvalidInputError: as `publish_table`; or a record contradicts one that is there.
        SchemaError: what is there is no table.
    """
    folder = folder_of(table, root)
    with _writing(folder):
        there = (folder / SIDECAR).exists()
        _replace_table(_read(folder).merged(table) if there else table, folder)
    return folder


def folder_of(table: StepTable, root: str | os.PathLike[str]) -> Path:
    """Where a table lies under a root.

    Raises:
        InvalidInputError: the identity names a GPU or a mapping that is no part of a path, and so
            might lie anywhere.
    """
    slug = table.identity.slug()
    if not _NAME.fullmatch(table.gpu):
        raise InvalidInputError(f"{root}: {table.gpu!r:.80} is not a GPU's name")
    if not _SLUG.fullmatch(slug):
        raise InvalidInputError(f"{root}: {slug!r:.200} is not the name of a folder")
    return Path(root) / FOLDER / table.gpu / INNER / slug


@lru_cache(maxsize=64)
def _read_once(path: Path, _stamp: tuple[int, int, int]) -> StepTable:
    return _read(path)


def _read(folder: Path) -> StepTable:
    for _ in range(_READS):
        stamp = _stamp(folder)
        try:
            return _checked(folder, read_bytes(folder / SIDECAR))
        except (MissingProfileError, SchemaError):
            if _stamp(folder) == stamp:
                raise
    raise SchemaError(f"{folder}: was replaced {_READS} times while it was read; try again later")


def _stamp(folder: Path) -> tuple[int, int, int] | None:
    """Another one for every table that is published; None where there is no table."""
    try:
        status = (folder / SIDECAR).stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _checked(folder: Path, text: bytes) -> StepTable:
    where = str(folder / SIDECAR)
    sidecar = parse_mapping(text, where=where)
    check_sidecar(sidecar, where=where)
    path = folder / sidecar["file"]
    raw = read_bytes(path, most=MAX_FILE_BYTES)
    if digest(raw) != sidecar["sha256"]:
        raise SchemaError(
            f"{path}: its SHA-256 is {digest(raw)}, {SIDECAR} says {sidecar['sha256']}. The file "
            "is damaged or was changed: copy the folder again, or import the measurements again."
        )
    table = table_from(sidecar, decode(raw, where=str(path)), where=where)
    place = (table.gpu, INNER, table.identity.slug())
    if folder.absolute().parts[-len(place) :] != place:
        raise SchemaError(f"{folder}: this table lies at {'/'.join(place)}, and nowhere else")
    return replace(table, path=folder)


def _replace_table(table: StepTable, folder: Path) -> None:
    if not table.records:
        raise InvalidInputError(f"{folder}: the table has no records; there is nothing to publish")
    raw = encode(table.records)
    sidecar = sidecar_of(table, raw)
    text = (json.dumps(sidecar, indent=1, ensure_ascii=False) + "\n").encode()
    where = str(folder / SIDECAR)
    again = parse_mapping(text, where=where)
    check_sidecar(again, where=where)
    if len(raw) > MAX_FILE_BYTES:
        raise InvalidInputError(f"{folder}: {len(raw)} bytes of rows; at most {MAX_FILE_BYTES}")
    table_from(again, decode(raw, where=where), where=where)
    replace_file(folder / file_name(digest(raw)), raw)
    replace_file(folder / SIDECAR, text)
    for path in (*folder.glob(ROWS), *folder.glob(f"{UNFINISHED}*")):
        if path.name != sidecar["file"]:
            path.unlink(missing_ok=True)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """The only writer of a folder; what the system refuses is one error that names it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOCK).open("ab") as stream:
            _lock(stream, folder)
            yield
    except AisimError:
        raise
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{folder}: cannot be written ({error}). What was there is unchanged; give a folder "
            "that can be written and has room."
        ) from None


def _lock(stream: Any, folder: Path) -> None:
    """The system drops the lock with the process, however that ends. Windows has no such lock."""
    try:
        import fcntl
    except ImportError:
        return
    last = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > last:
                raise InvalidInputError(
                    f"{folder}: another process has been writing it for {WAIT_S:g} s"
                ) from None
            time.sleep(_POLL_S)
        else:
            return
