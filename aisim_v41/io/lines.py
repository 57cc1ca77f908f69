"""Files of one JSON object a line, read line by line within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any

from aisim_v41.errors import MissingProfileError, SchemaError
from aisim_v41.io.imported import Skipped
from aisim_v41.reading import parse_mapping
from aisim_v41.units import GIB, MIB

MAX_FILE_BYTES = GIB
MAX_LINE_BYTES = 4 * MIB
MAX_LINES = 2_000_000


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | Skipped]]:
    """Number and content of every line that is not blank; a line that is no object is skipped.

    Raises:
        MissingProfileError: there is no such file.
        SchemaError: not a regular file, unreadable, or beyond the bounds.
    """
    for line, raw in _raw_lines(path):
        place = f"{path.name}:{line}"
        if not raw.startswith(b"{"):
            yield line, Skipped(place, "not a JSON object")
            continue
        try:
            yield line, parse_mapping(raw, where=place)
        except SchemaError as bad:
            yield line, Skipped(place, str(bad).removeprefix(f"{place}: "))


def first_line(path: Path) -> bytes:
    """The first line that is not blank, or nothing.

    Raises:
        MissingProfileError, SchemaError: as `json_lines`.
    """
    return next((raw for _, raw in _raw_lines(path)), b"")


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        if not S_ISREG(path.stat().st_mode):
            raise SchemaError(f"{path}: cannot be read: not a regular file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SchemaError(f"{path}: larger than {MAX_FILE_BYTES} bytes; split it by lines")
        with path.open("rb") as stream:
            for line in range(1, MAX_LINES + 1):
                raw = stream.readline(MAX_LINE_BYTES + 1)
                if not raw:
                    return
                if len(raw) > MAX_LINE_BYTES:
                    raise SchemaError(f"{path}:{line}: a line longer than {MAX_LINE_BYTES} bytes")
                stripped = raw.removeprefix(b"\xef\xbb\xbf" if line == 1 else b"").strip()
                if stripped:
                    yield line, stripped
            if stream.read(1):
                raise SchemaError(f"{path}: more than {MAX_LINES} lines; split it by lines")
    except (FileNotFoundError, NotADirectoryError):
        raise MissingProfileError(f"no such file: {path}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"{path}: cannot be read ({error})") from None
