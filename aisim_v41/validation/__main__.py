"""``python -m aisim_v41.validation``: print the floor check; exit status 1 on a violation."""

from __future__ import annotations

import sys

from aisim_v41.validation.floor import run_floor_check


def main() -> int:
    """Run the check and print it."""
    report = run_floor_check()
    sys.stdout.write(report.to_text() + "\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
