"""Arguments and printing of ``import aisimulate|trace``.

Engines' own measurements of forwards are imported by ``aisim-v41 fpm import``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collectors.errors import InputError, UnavailableError

SHOWN_NAMES = 10


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    parser.epilog = "Measured forwards of others: aisim-v41 fpm import."
    verbs = parser.add_subparsers(metavar="WHAT", required=True)
    tables = verbs.add_parser("aisimulate", help="tables of a checkout of AISimulate")
    tables.add_argument("checkout", type=Path, help="its root, or a folder systems")
    tables.add_argument("--gpu", required=True, help="as in hardware/, such as gb300")
    tables.add_argument("--to", type=Path, required=True, help="folder for profiles/<gpu>/op/")
    tables.add_argument("--family", action="append", default=[], help="only this; repeatable")
    tables.add_argument("--replace", action="store_true", help="write over what is there")
    tables.add_argument("--json", action="store_true")
    tables.set_defaults(run=_aisimulate)
    trace = verbs.add_parser("trace", help="kernels of a profiler's trace, by operator")
    trace.add_argument("file", type=Path, help="Nsight Systems SQLite, or torch's Chrome trace")
    trace.add_argument("--step", help="part of the name of ranges that are steps")
    trace.add_argument("--device", type=int, default=0, help="GPU (0)")
    trace.add_argument("--names", type=Path, help="YAML of patterns (the packaged ones)")
    trace.add_argument("--json", action="store_true")
    trace.set_defaults(run=_trace)


def _aisimulate(arguments: argparse.Namespace) -> int:
    with _library():
        from aisim_v41.tables.checkout import import_checkout

        written = list(import_checkout(arguments.checkout, arguments.gpu, arguments.to,
                                       families=arguments.family,
                                       replace=arguments.replace))  # fmt: skip
    if arguments.json:
        print(json.dumps([{**one._asdict(), "path": str(one.path)} for one in written]))
    else:
        for one in written:
            print(f"{one.family:20}{one.rows:8} rows of {one.sources} files  {one.path}")
    return 0


def _trace(arguments: argparse.Namespace) -> int:
    with _library():
        from aisim_v41.io.traces.names import UNKNOWN, by_operator, name_rules

        rules = name_rules(arguments.names) if arguments.names else name_rules()
        rows, steps = by_operator(_read(arguments.file), named=arguments.step,
                                  device=arguments.device, rules=rules)  # fmt: skip
    if arguments.json:
        print(json.dumps({"steps": steps, "operators": [_plain(row) for row in rows]}, indent=1))
        return 0
    print(f"{steps} steps; a step in the median:")
    print(f"{'operator':20}{'kernels':>9}{'us':>11}{'us each':>10}{'share':>8}")
    for row in rows:
        print(f"{row.operator:20}{row.calls:9.0f}{row.time_us:11.1f}{row.median_us:10.2f}"
              f"{row.share:8.1%}")  # fmt: skip
    lost = next((row.kernels for row in rows if row.operator == UNKNOWN), ())
    for name in lost[:SHOWN_NAMES]:
        print(f"no operator is known for: {name[:100]}")
    return 0


def _read(file: Path) -> Any:
    from aisim_v41.io.traces.chrome import read_chrome
    from aisim_v41.io.traces.nsight import read_nsight

    try:
        with file.open("rb") as stream:
            is_base = stream.read(6) == b"SQLite"
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None
    return read_nsight(file) if is_base else read_chrome(file)


def _plain(row: Any) -> dict[str, Any]:
    names = ("operator", "also", "calls", "time_us", "median_us", "share", "kernels")
    return {name: getattr(row, name) for name in names}


@contextmanager
def _library() -> Iterator[None]:
    """What the library refuses, in the words of the collectors."""
    try:
        from aisim_v41.errors import AisimError
    except ImportError as error:
        raise UnavailableError(f"importing needs the library aisim_v41 ({error})") from None
    try:
        yield
    except AisimError as error:
        raise InputError(str(error)) from None
