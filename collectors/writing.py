"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from collectors.errors import WriteError

UNFINISHED = ".unfinished-"
"""Beginning of the name of a file that is being written."""
_MODE = 0o644


def replace_file(target: Path, raw: bytes) -> None:
    """Write a file so that it is whole on the disk before it has its name.

    Raises:
        WriteError: the system refuses; what was there is unchanged, and nothing stays beside it.
    """
    unfinished = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f"{UNFINISHED}{target.name}-", delete=False
        ) as stream:
            unfinished = Path(stream.name)
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(unfinished, _MODE)
        os.replace(unfinished, target)
        sync_folder(target.parent)
    except OSError as error:
        if unfinished is not None:
            with suppress(OSError):
                unfinished.unlink()
        raise WriteError(f"{target}: cannot be written ({reason(error)})") from None


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reason(error: OSError) -> str:
    """What the system says, without the path, which the message names already."""
    return error.strerror or str(error)
