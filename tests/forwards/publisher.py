"""Publishes two tables in turn without end, as a process that a test may kill.

``python -m tests.forwards.publisher ROOT``: each line on stdin starts a child that publishes, whose
id is printed. Children are forked, so that imports are paid for once.
"""

from __future__ import annotations

import os
import sys
from itertools import cycle
from pathlib import Path

from aisim_v41 import Request
from aisim_v41.forwards.records import StepRecord
from aisim_v41.forwards.store import publish_table
from aisim_v41.forwards.table import StepTable
from tests.forwards.worlds import identity


def tables() -> tuple[StepTable, StepTable]:
    """Two contents of one identity."""
    return tuple(
        StepTable(
            identity=identity(),
            records=[
                StepRecord(step=(Request(new_tokens=n + 1),), latency_ms=latency_ms, order=n)
                for n in range(40)
            ],
            sources=({"file": f"run of {latency_ms} ms"},),
        )
        for latency_ms in (1.0, 2.0)
    )  # type: ignore[return-value]


def _say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(root: Path) -> None:
    contents = tables()
    publish_table(contents[0], root)
    _say("ready")
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            for content in cycle(contents):
                publish_table(content, root)
        _say(child)
        os.waitpid(child, 0)
        _say("gone")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
