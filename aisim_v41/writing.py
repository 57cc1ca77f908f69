"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

UNFINISHED: Final = ".unfinished-"
"""Beginning of the name of a file that is being written."""
_MODE: Final = 0o644


def replace_file(target: Path, raw: bytes) -> None:
    """Write a file so that it is whole on the disk before it has its name.

    Whenever the process dies, ``target`` is the old file or the new one; at worst a file whose name
    begins with `UNFINISHED` stays beside it.

    Raises:
        OSError: the system refuses; the old file is unchanged, and nothing stays beside it.
    """
    stream = NamedTemporaryFile(  # noqa: SIM115 - it outlives the block that writes it
        dir=target.parent, prefix=f"{UNFINISHED}{target.name}-", delete=False
    )
    try:
        with stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
            os.chmod(stream.name, _MODE)
        os.replace(stream.name, target)
        _sync_folder(target.parent)
    except OSError:
        with suppress(OSError):
            Path(stream.name).unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
