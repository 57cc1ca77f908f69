"""``python -m aisim_v41.claims``: print the report; exit 1 if a row is not what the list says."""

from __future__ import annotations

import sys

from aisim_v41.claims.run import run_claims


def main() -> int:
    """Print the report and say whether it is in order."""
    report = run_claims()
    sys.stdout.write(report.to_text() + "\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
