"""``aisim-v41 validate``: bounds and OP against public measurements."""

from __future__ import annotations

import typer

from aisim_v41.cli.options import JsonOption
from aisim_v41.cli.output import print_json, print_text


def validate(json: JsonOption = False) -> None:
    """Bounds against every convertible measurement, and OP's error table.

    Exit code 1 if a measurement lies below its bound.
    """
    from aisim_v41.validation import run_error_table, run_floor_check

    report, errors = run_floor_check(), run_error_table()
    if json:
        print_json(
            {
                "ok": report.ok,
                "cases": report.to_frame().to_dict(orient="records"),
                "op_median_absolute_error": errors.median_absolute(),
                "op_errors": errors.to_frame().to_dict(orient="records"),
            }
        )
    else:
        print_text(f"{report.to_text()}\n\n{errors.to_text()}")
    if not report.ok:
        raise typer.Exit(1)
