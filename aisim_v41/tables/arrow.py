"""Parquet files of others, opened without trust. pyarrow is imported here, with the first table.

Bytes are bounded before they are parsed, pages carry checksums, and whatever the parser says is
wrong becomes one error that names the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

from aisim_v41.errors import SchemaError
from aisim_v41.units import GIB, MIB

MAX_FILE_BYTES = 32 * MIB
MAX_ROWS = 1_000_000
MAX_UNPACKED_BYTES = GIB
_THRIFT_BYTES = 8 * MIB
_THRIFT_ENTRIES = 1_000_000
_BUILT_IN = (OSError, ValueError, TypeError, LookupError, MemoryError)


@lru_cache(maxsize=1)
def arrow() -> tuple[Any, Any]:
    """The modules ``pyarrow`` and ``pyarrow.parquet``."""
    return import_module("pyarrow"), import_module("pyarrow.parquet")


@contextmanager
def parquet_errors(where: str) -> Iterator[None]:
    """Whatever the parser raises, as one error that names the file.

    Raises:
        SchemaError: the bytes are not readable as Parquet.
    """
    pyarrow, _ = arrow()
    try:
        yield
    except SchemaError:
        raise
    except (*_BUILT_IN, pyarrow.ArrowException) as error:
        reason = " ".join(str(error).split())[:300]
        raise SchemaError(
            f"{where}: not readable as Parquet ({type(error).__name__}: {reason}). "
            "Copy the file again from where it came."
        ) from None


def open_parquet(raw: bytes, *, where: str, what: str) -> Any:
    """A ``ParquetFile`` over bytes, its size and the size of its content bounded.

    Args:
        raw: the file.
        where: name for messages.
        what: what it should be, such as "an operator table".

    Raises:
        SchemaError: too large. Call it inside `parquet_errors`.
    """
    pyarrow, parquet = arrow()
    if len(raw) > MAX_FILE_BYTES:
        raise SchemaError(f"{where}: larger than {MAX_FILE_BYTES} bytes, not {what}")
    file = parquet.ParquetFile(
        pyarrow.BufferReader(raw),
        thrift_string_size_limit=_THRIFT_BYTES,
        thrift_container_size_limit=_THRIFT_ENTRIES,
        page_checksum_verification=True,
    )
    metadata = file.metadata
    unpacked = sum(metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups))
    if metadata.num_rows > MAX_ROWS or not 0 <= unpacked <= MAX_UNPACKED_BYTES:
        raise SchemaError(
            f"{where}: {metadata.num_rows} rows, {unpacked} bytes unpacked; at most {MAX_ROWS} "
            f"rows and {MAX_UNPACKED_BYTES} bytes make {what}"
        )
    return file


def check_names(names: list[str], wanted: list[str], *, where: str, what: str) -> None:
    """Refuse columns of other names or another order.

    Raises:
        SchemaError: names what is missing, not known or there twice.
    """
    if names == wanted:
        return
    missing = [name for name in wanted if name not in names]
    extra = [name for name in names if name not in wanted]
    twice = sorted({name for name in names if names.count(name) > 1})
    said = [
        f"{label} {', '.join(found)}"
        for label, found in (("missing", missing), ("not known", extra), ("twice", twice))
        if found
    ]
    raise SchemaError(
        f"{where}: the columns are not those of {what} ({'; '.join(said) or 'another order'})."
    )


def parquet_bytes(table: Any, *, level: int) -> bytes:
    """A table as Parquet bytes; the same table gives the same bytes with the same pyarrow.

    Args:
        table: a ``pyarrow.Table``.
        level: of the compression; higher is smaller and slower.
    """
    pyarrow, parquet = arrow()
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=level,
        use_dictionary=True,
        write_page_checksum=True,
        data_page_version="2.0",
        version="2.6",
    )
    raw: bytes = sink.getvalue().to_pybytes()
    return raw
