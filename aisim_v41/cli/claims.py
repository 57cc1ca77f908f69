"""``aisim-v41 claims``: every published figure that we know, ours beside it."""

from __future__ import annotations

import typer

from aisim_v41.cli.options import JsonOption
from aisim_v41.cli.output import print_json, print_text


def claims(json: JsonOption = False) -> None:
    """Recompute published figures; exit code 1 if one that should reproduce does not."""
    from aisim_v41.claims import run_claims

    report = run_claims()
    if json:
        print_json(report.to_dict())
    else:
        print_text(report.to_text())
    if not report.ok:
        raise typer.Exit(1)
