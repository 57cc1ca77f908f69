"""Dynamo's Forward Pass Metrics, as a listener writes them: JSON lines of a file that grows.

Each message is one iteration of the scheduler with its own shape and time, so chunks, hits and
fuller batches are recorded as they were executed. Wire schema: ecosystem.md §5.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from collectors.errors import InputError
from collectors.writing import reason

QUIET_S = 0.3
"""A point's messages are all there when none has come for so long."""
MOST_WAIT_S = 10.0


class Events:
    """Messages that come while points are asked for.

    Args:
        path: file that the listener writes.

    Raises:
        InputError: it is not there.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._stream = path.open("rb")
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({reason(error)})") from None
        self._stream.seek(0, 2)
        self._rest = b""

    def close(self) -> None:
        """Stop reading."""
        self._stream.close()

    def new(self, quiet_s: float = QUIET_S) -> list[dict[str, Any]]:
        """Messages since the last time, once they have ceased; heartbeats are left out."""
        found: list[dict[str, Any]] = []
        until, last = time.monotonic() + MOST_WAIT_S, time.monotonic()
        while time.monotonic() < until and time.monotonic() - last < quiet_s:
            raw = self._stream.read()
            if raw:
                last = time.monotonic()
                *lines, self._rest = (self._rest + raw).split(b"\n")
                found += [message for message in map(_message, lines) if message]
            else:
                time.sleep(0.01)
        return found


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    wall = message.get("wall_time") if isinstance(message, dict) else None
    return message if isinstance(wall, (int, float)) and wall > 0 else None
