"""Publishes and adds to tables in turn without end, as a process that a test may kill.

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
from aisim_v41.forwards.store import add_to_table, publish_table
from aisim_v41.forwards.table import StepTable
from tests.forwards.worlds import identity


def table(latency_ms: float, run: str = "run") -> StepTable:
    """Forty steps of one identity."""
    return StepTable(
        identity=identity(),
        records=tuple(
            StepRecord(step=(Request(new_tokens=n + 1),), latency_ms=latency_ms, order=n, run=run)
            for n in range(40)
        ),
        sources=({"file": f"{run} of {latency_ms} ms"},),
    )


MORE = table(3.0, run="another")
"""What an import adds."""


def tables() -> tuple[StepTable, StepTable]:
    """Two contents of one identity."""
    return table(1.0), table(2.0)


def whole_tables() -> tuple[StepTable, ...]:
    """What a reader may find: each content alone and with what was added."""
    return (*tables(), *(one.merged(MORE) for one in tables()))


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
                add_to_table(MORE, root)
        _say(child)
        os.waitpid(child, 0)
        _say("gone")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
