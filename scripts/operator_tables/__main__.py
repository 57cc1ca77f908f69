"""The command: read the CSV files, write the tables, list them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from aisim_v41.errors import AisimError
from scripts.operator_tables.build import build


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all tables; 0, or 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="scripts.operator_tables", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the CSV files")
    parser.add_argument("--out", type=Path, required=True, help="profiles folder to write into")
    parser.add_argument("--family", action="append", help="only these families")
    given = parser.parse_args(arguments)
    try:
        for path, rows in build(given.data, given.out, families=given.family):
            sys.stdout.write(f"{path.relative_to(given.out)} {rows} {path.stat().st_size}\n")
    except (AisimError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
