"""``aisim-v41 validate``: the bounds against public measurements."""

from __future__ import annotations

import typer

from aisim_v41.cli.options import JsonOption
from aisim_v41.cli.output import print_json, print_text


def validate(json: JsonOption = False) -> None:
    """Speed of light against every convertible measurement; exit code 1 if one lies below."""
    from aisim_v41.validation import run_floor_check

    report = run_floor_check()
    if json:
        print_json({"ok": report.ok, "cases": report.to_frame().to_dict(orient="records")})
    else:
        print_text(report.to_text())
    if not report.ok:
        raise typer.Exit(1)
