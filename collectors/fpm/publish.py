"""From samples to a table of forwards that the library reads.

Samples become files of forms that the library imports anyway: a CSV of steps, Dynamo's messages, or
bench_one_batch's lines, one a process run; they are kept beside the table. The library checks,
names and writes the table, whole or not at all.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collectors.errors import ConflictError, InputError, UnavailableError, WriteError
from collectors.fpm.check import ERROR, Forwards, checked, read_forwards
from collectors.fpm.drive import OK
from collectors.fpm.run import BENCH, EVENTS
from collectors.writing import reason, replace_file

FORMATS = {EVENTS: ("dynamo_fpm", "jsonl"), BENCH: ("sglang_bench", "jsonl")}
COLUMNS = ("new_tokens", "prefix_tokens", "kind", "count", "latency_s", "samples", "run", "order",
           "point", "note")  # fmt: skip


def publish(
    paths: Sequence[Path], folder: Path, identity: Path, *, dry_run: bool = False
) -> dict[str, Any]:
    """Publish files of samples of one engine.

    Args:
        paths: one file a process run.
        folder: gets ``profiles/<gpu>/fpm/`` and the files that were imported.
        identity: YAML file with what the engine does not say (docs/io.md, "Identity files").
        dry_run: check everything, write no table.

    Returns:
        What the library's import says, and how many samples were left out, by reason.

    Raises:
        ConflictError: `check` finds an error, such as two identities.
        InputError: nothing has a time, or the library refuses it.
        UnavailableError: the library is not installed here.
        WriteError: a file cannot be written.
    """
    errors = [finding for finding in checked(paths) if finding.severity == ERROR]
    if errors:
        raise ConflictError(f"{errors[0].where}: {errors[0].said}")
    runs = [read_forwards(path) for path in paths]
    form, ending = FORMATS.get(str(runs[0].header["driver"]), ("csv", "csv"))
    files, left_out = [], 0
    place = folder / "forwards"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{place}: cannot be made ({reason(error)})") from None
    for one in runs:
        text, dropped = _text(one, form)
        left_out += dropped
        file = place / f"{one.header['run']}.{ending}"
        replace_file(file, text.encode())
        files.append(file)
    said = _imported(files, folder, identity, form, str(runs[0].header["timer"]), dry_run=dry_run)
    return {**said, "left_out": left_out}


def _text(one: Forwards, form: str) -> tuple[str, int]:
    """What the library imports, and how many samples have no time or no known shape."""
    dropped = sum(s["status"] != OK for record in one.records for s in record["samples"])
    if form != "csv":
        key = "event" if form == "dynamo_fpm" else "line"
        lines = [json.dumps(sample[key]) for record in one.records for sample in record["samples"]
                 if sample["status"] == OK]  # fmt: skip
        return "".join(f"{line}\n" for line in lines), dropped
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for record in one.records:
        for sample in record["samples"]:
            if sample["status"] == OK:
                table.writerow(_row(one, record, sample))
    return out.getvalue(), dropped


def _row(one: Forwards, record: Any, sample: Any) -> list[Any]:
    shapes = sample["requests"]
    cells = {name: ";".join(str(shape[name]) for shape in shapes)
             for name in ("new_tokens", "prefix_tokens", "kind")}  # fmt: skip
    return [cells["new_tokens"], cells["prefix_tokens"], cells["kind"],
            ";".join("1" for _ in shapes), repr(sample["seconds"]), max(1, sample["steps"]),
            one.header["run"], record["order"], record["point"], "asked over HTTP"]  # fmt: skip


def _imported(
    files: list[Path], folder: Path, identity: Path, form: str, timer: str, *, dry_run: bool
) -> dict[str, Any]:
    try:
        from contextlib import redirect_stdout

        from aisim_v41.cli.fpm.importing import import_files
        from aisim_v41.errors import AisimError
    except ImportError as error:
        raise UnavailableError(
            f"publishing needs the library aisim_v41 ({error}): install it here, or copy the files "
            "of samples to a machine that has it and publish there"
        ) from None
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            import_files(files, out=folder, form=form, identity=identity, timer=timer,
                         dry_run=dry_run, json=True)  # fmt: skip
    except AisimError as error:
        raise InputError(str(error)) from None
    except OSError as error:
        raise WriteError(f"{folder}: cannot be written ({reason(error)})") from None
    return dict(json.loads(printed.getvalue()))
