"""Loading tables: by GPU and family, from packaged and user folders, or from another package.

A table lies at ``profiles/<gpu>/op/<family>.parquet`` with ``<family>.json`` beside it, in a
folder of ``AISIM_V41_PATH`` or in the packaged data. Nothing in it is believed before it has been
checked: digest, schema version, names, types, units, values, keys, counts, folder.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from aisim_v41 import resources
from aisim_v41.errors import InvalidInputError, MissingProfileError, SchemaError, nearest
from aisim_v41.tables.arrow import MAX_FILE_BYTES
from aisim_v41.tables.columns import check_columns
from aisim_v41.tables.parquet import decode
from aisim_v41.tables.schema import FAMILIES, Family
from aisim_v41.tables.sidecar import SUFFIX, check_against_rows, digest, read_sidecar
from aisim_v41.tables.table import OperatorTable

FOLDER = "profiles"
INNER = "op"
TABLE_SUFFIX = ".parquet"
COMING = ".parquet-coming"
"""Of a table whose sidecar has its name already: its writer died before the last of three moves."""
Source = Literal["profiles", "aisimulate"]
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


def load_table(gpu: str, family: str, *, source: Source = "profiles") -> OperatorTable:
    """The table of a GPU and family.

    Args:
        gpu: as in ``hardware/``, such as ``gb300``.
        family: one of `aisim_v41.tables.FAMILIES`.
        source: ``profiles``: user folders of ``AISIM_V41_PATH`` first, then the packaged data;
            ``aisimulate``: the installed package of that name.

    Raises:
        InvalidInputError: a name that cannot be one, or no such source.
        MissingProfileError: no such table; the message lists what there is.
        SchemaError: the table or its sidecar is not what it must be.

    >>> products = load_table("h200", "gemm").select(engine="vllm", dtype="bf16")
    >>> products.exact(rows=1024, outputs=4096, inputs=5120).latency_us
    57.24
    """
    known = family_named(family)
    if not isinstance(gpu, str) or not _NAME.fullmatch(gpu):
        raise InvalidInputError(f"not a GPU's name: {gpu!r:.80}; {nearest('', _gpus())}")
    if source == "aisimulate":
        from aisim_v41.tables.aisimulate import load_installed

        return load_installed(gpu, family)
    if source != "profiles":
        raise InvalidInputError(f"no source {source!r}; known: profiles, aisimulate")
    for root in resources.search_roots():
        path = root / FOLDER / gpu / INNER / f"{known.name}{TABLE_SUFFIX}"
        if path.is_file():
            return read_table(path)
    raise MissingProfileError(_absent(gpu, family))


def read_table(path: str | os.PathLike[str]) -> OperatorTable:
    """The table in a file ``.../<gpu>/op/<family>.parquet``, with its sidecar beside it.

    Raises:
        MissingProfileError: the file or its sidecar is not there.
        SchemaError: the table, the sidecar or the place of the file is not what it must be.
    """
    path = Path(path)
    try:
        stamps = [path.stat(), path.with_suffix(SUFFIX).stat()]
    except (OSError, ValueError):
        return _read(path)  # which says in a typed error what is wrong with it
    return _read_once(path, tuple((s.st_mtime_ns, s.st_size) for s in stamps))


def available_tables() -> tuple[tuple[str, str], ...]:
    """GPU and family of every table that `load_table` finds in ``profiles``, sorted."""
    found: set[tuple[str, str]] = set()
    for root in resources.search_roots():
        for path in (root / FOLDER).glob(f"*/{INNER}/*{TABLE_SUFFIX}"):
            if path.stem in FAMILIES:
                found.add((path.parts[-3], path.stem))
    return tuple(sorted(found))


def family_named(family: str) -> Family:
    """The schema of a family.

    Raises:
        MissingProfileError: no such family.
    """
    if not isinstance(family, str) or family not in FAMILIES:
        raise MissingProfileError(
            f"no family of operator tables named {family!r:.80}; {nearest(str(family), FAMILIES)}"
        )
    return FAMILIES[family]


@lru_cache(maxsize=256)
def _read_once(path: Path, _stamps: tuple[tuple[int, int], ...]) -> OperatorTable:
    return _read(path)


def _read(path: Path) -> OperatorTable:
    if path.suffix != TABLE_SUFFIX or path.parent.name != INNER:
        raise SchemaError(f"{path}: a table lies at <gpu>/{INNER}/<family>{TABLE_SUFFIX}")
    try:
        family = family_named(path.stem)
    except MissingProfileError as error:
        raise SchemaError(f"{path}: {error}") from None
    gpu = path.parent.parent.name
    coming, companion = path.with_suffix(COMING), path.with_suffix(SUFFIX)
    raw = _bytes_of(path)
    sidecar = read_sidecar(companion, gpu=gpu, family=family)
    if digest(raw) != sidecar["sha256"] and coming.exists():
        raw = _bytes_of(coming)
    if digest(raw) != sidecar["sha256"]:
        raise SchemaError(
            f"{path}: its SHA-256 is {digest(raw)}, {companion.name} says {sidecar['sha256']}. "
            "The file is damaged or was changed: copy both again, or write both with "
            "aisim_v41.tables.write_table."
        )
    columns = decode(raw, family, where=str(path))
    check_columns(columns, family, where=str(path))
    check_against_rows(sidecar, columns, where=str(companion))
    return OperatorTable(
        gpu=gpu,
        family=family.name,
        origin=str(path),
        sidecar=MappingProxyType(sidecar),
        columns=MappingProxyType(dict(columns)),
    )


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingProfileError(f"no such file: {path}") from None
    except (OSError, ValueError) as error:
        raise SchemaError(f"{path}: cannot be read ({error})") from None


def _gpus() -> set[str]:
    return {gpu for gpu, _ in available_tables()}


def _absent(gpu: str, family: str) -> str:
    tables = available_tables()
    here = [name for known, name in tables if known == gpu]
    if here:
        what = f"{gpu} has {', '.join(here)}"
    else:
        what = f"tables of {', '.join(sorted(_gpus())) or 'no GPU'}; {nearest(gpu, _gpus())}"
    return (
        f"no {family} table of {gpu}; there are: {what}. Put {gpu}/{INNER}/{family}{TABLE_SUFFIX} "
        f"with its sidecar into {FOLDER}/ of a folder in {resources.SEARCH_PATH_VARIABLE} "
        '(docs/tables.md, "Adding tables").'
    )
