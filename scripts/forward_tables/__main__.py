"""The command: read the CSV files, write the tables, list them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from aisim_v41.errors import AisimError
from aisim_v41.forwards.store import LOCK, publish_table
from scripts.forward_tables.build import tables


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all tables; 0, or 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="scripts.forward_tables", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the CSV files")
    parser.add_argument("--out", type=Path, required=True, help="folder that holds profiles/")
    given = parser.parse_args(arguments)
    try:
        for table in tables(given.data):
            folder = publish_table(table, given.out)
            (folder / LOCK).unlink()  # packaged data has no second writer
            sys.stdout.write(f"{folder.relative_to(given.out)} {len(table.records)}\n")
    except (AisimError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
