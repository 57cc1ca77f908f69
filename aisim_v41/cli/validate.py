"""``aisim-v41 validate``: bounds and OP against public measurements."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from aisim_v41.cli.options import JsonOption
from aisim_v41.cli.output import print_json, print_text
from aisim_v41.errors import InvalidInputError, nearest

CasesOption = Annotated[
    bool, typer.Option("--cases", help="Every reading with its band and assumptions.")
]
SourceOption = Annotated[
    str, typer.Option("--source", help="Only sources whose name starts so, such as gb300-39674.")
]
FloorOption = Annotated[
    bool, typer.Option("--floor", help="The check of the bound by class and source.")
]


def validate(
    cases: CasesOption = False,
    source: SourceOption = "",
    floor: FloorOption = False,
    json: JsonOption = False,
) -> None:
    """Bounds against every convertible measurement, and OP's error table.

    Exit code 1 if a measurement lies below its bound.
    """
    from aisim_v41.validation import load_cases, load_ratios, run_error_table, run_floor_check
    from aisim_v41.validation.error_text import case_lines
    from aisim_v41.validation.errors import Standing, row

    every = load_cases()
    known = {case.source for case in (*every, *load_ratios())}
    if not any(name.startswith(source) for name in known):
        raise InvalidInputError(f"no source {source!r}; {nearest(source, known)}")
    report = run_floor_check(case for case in every if case.source.startswith(source))
    errors = run_error_table(source=source)
    if json:
        headline = any(error.in_headline for error in errors.errors)
        bands = any(error.contained is not None for error in errors.of(Standing.COUNTED))
        print_json(
            {
                "ok": report.ok,
                "cases": report.to_frame().to_dict(orient="records"),
                "op_headline": asdict(errors.headline) if headline else None,
                "op_bands": asdict(errors.bands) if bands else None,
                "op_errors": [row(error) for error in errors.errors],
            }
        )
    else:
        blocks = [report.to_text() if floor else report.brief(), errors.to_text()]
        if cases:
            blocks.append(case_lines(errors))
        print_text("\n\n".join(blocks))
    if not report.ok:
        raise typer.Exit(1)
