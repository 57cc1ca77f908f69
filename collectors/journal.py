"""What a run has measured: a header, then one JSON line a case, each on the disk before the next.

A run may die at any moment: at most the line that was being written is lost, and the next run cuts
it off and goes on. Two runs never write one file, and a file never holds two identities.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from collectors.errors import ConflictError, InputError, WriteError
from collectors.writing import reason, sync_folder

FORMAT = "aisim_v41 collection"
VERSION = 1
MAX_LINE_BYTES = 1 << 20
MAX_FILE_BYTES = 1 << 31
_MODE = 0o644


class Journal:
    """A file of results, open for adding.

    Use `Journal.resume`; close it, or use it as a context.

    Attributes:
        path: the file.
        header: what all its lines share.
        records: lines that are in it, oldest first.
    """

    def __init__(self, path: Path, stream: IO[bytes], header: dict, records: list[dict]) -> None:
        self.path, self._stream = path, stream
        self.header, self.records = header, records

    @staticmethod
    def resume(path: Path, header: Mapping[str, Any]) -> Journal:
        """Open a file to go on with it, or begin it.

        Args:
            path: the file.
            header: what the run is: plan, machine, options. It must be that of the file.

        Raises:
            ConflictError: another run has it open, or the file is of another plan, machine or
                option; the message names the field and both values.
            InputError: it is no such file, or a line in its middle is damaged.
            WriteError: it cannot be written.
        """
        wanted = {"format": FORMAT, "version": VERSION, **header}
        try:
            stream = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, _MODE), "r+b")
        except OSError as error:
            raise WriteError(f"{path}: cannot be written ({reason(error)})") from None
        try:
            _lock(stream, path)
            _begin(stream, path, wanted)
            found, records, whole = _parsed(stream, path)
            differing = difference(found, wanted)
            if differing is not None:
                field, theirs, ours = differing
                raise ConflictError(
                    f"{path}: {field} is {theirs!r:.200} there and {ours!r:.200} here; a file "
                    "holds one identity: give another --results, or run what it was begun with"
                )
            stream.truncate(whole)
            stream.seek(whole)
        except BaseException:
            stream.close()
            raise
        return Journal(path, stream, found, records)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line; it is on the disk when this returns.

        Raises:
            WriteError: it cannot be written; the file is as it was.
        """
        before = self._stream.tell()
        try:
            self._stream.write(_line(record))
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            self._undo(before)
            raise WriteError(
                f"{self.path}: cannot be written ({reason(error)}); the {len(self.records)} lines "
                "before are safe: make room and run again, it goes on where it stopped"
            ) from None
        self.records.append(dict(record))

    def _undo(self, size: int) -> None:
        """Cut off what was written in part; the buffer may still hold the rest of it."""
        descriptor = os.dup(self._stream.fileno())
        try:
            with suppress(OSError):
                self._stream.close()
            with suppress(OSError):  # else the next run cuts it off
                os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close the file; another run may go on with it."""
        if not self._stream.closed:
            self._stream.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_journal(path: Path) -> tuple[dict, list[dict]]:
    """Header and lines of a file, without a last line that is torn.

    Raises:
        InputError: no such file, or not one of these.
    """
    try:
        with path.open("rb") as stream:
            header, records, _ = _parsed(stream, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({reason(error)})") from None
    return header, records


def difference(found: Any, wanted: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first field in which two headers differ, with both values."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for field in sorted(set(found) | set(wanted)):
            at = f"{name}.{field}" if name else field
            inner = difference(found.get(field), wanted.get(field), at)
            if inner is not None:
                return inner
        return None
    return None if found == wanted else (name, found, wanted)


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False, sort_keys=True).encode() + b"\n"


def _begin(stream: IO[bytes], path: Path, header: Mapping[str, Any]) -> None:
    """Write the header of a file that has not one whole line; it is ours alone, so nothing is lost.

    Raises:
        WriteError: it cannot be written.
    """
    if b"\n" in stream.readline(MAX_LINE_BYTES):
        stream.seek(0)
        return
    try:
        stream.seek(0)
        stream.truncate()
        stream.write(_line(header))
        stream.flush()
        os.fsync(stream.fileno())
        sync_folder(path.parent)
    except OSError as error:
        raise WriteError(f"{path}: cannot be written ({reason(error)})") from None
    stream.seek(0)


def _lock(stream: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ConflictError(f"{path}: another run is writing it; wait, or name another") from None


def _parsed(stream: IO[bytes], path: Path) -> tuple[dict, list[dict], int]:
    """Header, lines, and where the last whole line ends."""
    raw = stream.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise InputError(f"{path}: larger than {MAX_FILE_BYTES} bytes: not a file of results")
    whole = raw.rfind(b"\n") + 1
    lines = [_object(line, path, n) for n, line in enumerate(raw[:whole].split(b"\n")[:-1], 1)]
    if not lines or lines[0].get("format") != FORMAT:
        raise InputError(f"{path}: not a file of results: its first line must say {FORMAT!r}")
    if lines[0].get("version") != VERSION:
        raise InputError(
            f"{path}: version {lines[0].get('version')!r:.40} of the format, this is {VERSION}; "
            "use the release of the collectors that wrote it"
        )
    return lines[0], lines[1:], whole


def _object(line: bytes, path: Path, number: int) -> dict:
    try:
        if len(line) > MAX_LINE_BYTES:
            raise ValueError("too long")
        found = json.loads(line)
        if not isinstance(found, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as bad:
        raise InputError(
            f"{path}, line {number}: damaged ({bad}); only a last line may be"
        ) from None
    return found
