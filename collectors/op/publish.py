"""From results to a table that the library reads: qualified rows, written whole or not at all.

The library writes the table, so that nothing is in it that it would not read. Where the library is
not installed, as in an engine's image, results are copied to a machine that has it.
"""

from __future__ import annotations

import argparse
import fcntl
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.errors import ConflictError, InputError, UnavailableError, WriteError
from collectors.op.check import ERROR, SPREAD_BOUND, Run, checked, identity_text, read_run
from collectors.op.results import Result
from collectors.writing import reason

if TYPE_CHECKING:
    import pandas

FAMILY = "v41_kernels"
NOISY = "noisy"
"""Flag of a row whose samples lie too far apart; the library leaves such rows out unless asked."""
LICENCE = "LicenseRef-own-measurement"
PAIR_AGREE = 0.10
"""A row that is there and a new one of the same key may differ by so much; the new one is kept."""


@dataclass(frozen=True)
class Publication:
    """What became of results.

    Attributes:
        table: the file that was written.
        rows: in it, those that were there included.
        added: rows of these results.
        left_out: results without a row, by reason.
    """

    table: Path
    rows: int
    added: int
    left_out: Mapping[str, int] = field(default_factory=dict)


def add_publish_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("results", type=Path, nargs="+", help="files of results")
    parser.add_argument(
        "--to", type=Path, required=True, help="folder for profiles/<gpu>/op/ (AISIM_V41_PATH)"
    )
    parser.add_argument("--gpu", default="", help="name in hardware/, if not what the GPU says")
    parser.add_argument("--campaign", default="own", help="name of this campaign (own)")
    parser.add_argument("--licence", default=LICENCE, help="of the numbers (SPDX)")
    parser.add_argument("--notice", default="Measured by its owner.", help="goes with them")
    parser.add_argument("--with-noisy", action="store_true", help="publish noisy rows as sound")
    parser.add_argument("--despite-errors", action="store_true",
                        help="publish the sound rows although check finds errors")  # fmt: skip
    parser.add_argument("--replace", action="store_true", help="take new values where both exist")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def publish(arguments: argparse.Namespace) -> dict[str, Any]:
    """Publish as the shell's arguments say; what became of it, as plain data."""
    found = publish_results(
        arguments.results,
        arguments.to,
        gpu=arguments.gpu,
        campaign=arguments.campaign,
        licence=arguments.licence,
        notice=arguments.notice,
        with_noisy=arguments.with_noisy,
        despite_errors=arguments.despite_errors,
        replace=arguments.replace,
    )
    return {"table": str(found.table), "rows": found.rows, "added": found.added,
            "left_out": dict(found.left_out)}  # fmt: skip


def publish_results(
    paths: Sequence[Path],
    folder: Path,
    *,
    gpu: str = "",
    campaign: str = "own",
    licence: str = LICENCE,
    notice: str = "Measured by its owner.",
    with_noisy: bool = False,
    despite_errors: bool = False,
    replace: bool = False,
) -> Publication:
    """Add results to the table of their GPU.

    Args:
        paths: files of results of one GPU.
        folder: gets ``profiles/<gpu>/op/v41_kernels.parquet``.
        gpu: name in ``hardware/``; what the GPU says of itself if not given.
        campaign: rows of one campaign share a level.
        licence, notice: of the numbers.
        with_noisy: noisy rows get no flag.
        despite_errors: sound rows are published although `check` finds errors elsewhere.
        replace: where a row is there already with another value, take the new one.

    Raises:
        ConflictError: `check` finds errors, GPUs differ, or a row is there with another value.
        InputError: nothing is qualified, or a file is not one of results.
        UnavailableError: the library is not installed here.
        WriteError: the table cannot be written; what was there is unchanged.
    """
    tables = _library()
    errors = [finding for finding in checked(paths) if finding.severity == ERROR]
    if errors and not despite_errors:
        first = errors[0]
        raise ConflictError(
            f"{len(errors)} errors, such as {first.rule} at {first.where}: {first.said}; mend "
            "them, or publish the sound rows with --despite-errors"
        )
    runs = [read_run(path) for path in paths]
    named = sorted({gpu or run.gpu for run in runs})
    if len(named) != 1:
        raise ConflictError(f"results of several GPUs ({', '.join(named)}); publish each alone")
    refused = {finding.where for finding in errors}
    left_out: Counter[str] = Counter()
    rows = list(_rows(runs, tables, refused, left_out, campaign=campaign, with_noisy=with_noisy))
    if not rows:
        raise InputError(f"no qualified result in {', '.join(str(path) for path in paths)}: "
                         f"{dict(left_out) or 'they are empty'}")  # fmt: skip
    fresh = tables.frame(rows)
    target = folder / "profiles" / named[0] / "op" / f"{FAMILY}.parquet"
    added = [_source(run) for run in runs]
    try:
        with _alone(target):
            whole, sources = tables.joined(target, fresh, added, replace=replace)
            path = tables.write_table(
                whole, gpu=named[0], family=FAMILY, folder=folder / "profiles", licence=licence,
                notice=notice, sources=sources, timing=_timing(runs),
            )  # fmt: skip
    except OSError as error:
        raise WriteError(f"{target}: cannot be written ({reason(error)}); what was there is "
                         "unchanged") from None  # fmt: skip
    return Publication(path, len(whole), len(fresh), dict(left_out))


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Wait until no other publishes to this folder, and keep others waiting."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".publishing").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _rows(
    runs: Sequence[Run],
    tables: _Library,
    refused: set[str],
    left_out: Counter[str],
    *,
    campaign: str,
    with_noisy: bool,
) -> Iterator[dict[str, Any]]:
    """One row a case and identity: the newest good one."""
    newest: dict[tuple[str, str], tuple[Run, Result]] = {}
    for run in runs:
        timed = {id(result) for result in run.timed}
        for result in run.results:
            if id(result) in timed:
                newest[(identity_text(run, result), result.case.text)] = (run, result)
            elif result.asked not in {one.asked for one in run.timed}:
                left_out[result.status] += 1
    for run, result in newest.values():
        if f"{run.name}: {result.asked}" in refused:
            left_out["check finds an error"] += 1
            continue
        if result.case.operator not in tables.operators:
            left_out[f"{result.case.operator} is no operator of the table"] += 1
            continue
        yield _row(run, result, tables, campaign, with_noisy=with_noisy)


def _row(
    run: Run, result: Result, tables: _Library, campaign: str, *, with_noisy: bool
) -> dict[str, Any]:
    timing = result.timing or {}
    median = timing["median_us"]
    noisy = timing["spread"] > SPREAD_BOUND and not with_noisy
    said: dict[str, Any] = {
        "operator": result.case.operator,
        "engine": result.engine,
        "engine_version": result.engine_version or _version(run),
        "kernel_source": result.kernel_source,
        "dtype": result.case.options.get("dtype", "none"),
        "execution": timing["execution"],
        "cache_state": timing["cache_state"],
        "decoder_replay": "none",
        "campaign": campaign,
        "model_shapes": _shapes(run),
        "timer": timing["timer"],
        **result.case.options,
        **result.case.sizes,
        **result.outcome,
        "latency_us": median,
        "samples": timing["samples"],
        "resolution_us": timing["resolution_us"],
        **{name: timing[name] for name in ("p10_us", "p90_us", "min_us")},
        "flag": NOISY if noisy else "",
        "caveat": "",
        "source": run.name,
    }
    return {name: said.get(name, neutral) for name, neutral in tables.columns.items()}


def _version(run: Run) -> str:
    """Of the collectors' own kernels: what compiled them."""
    packages = run.header["machine"].get("packages") or {}
    return f"torch {packages.get('torch', 'of unknown version')}"


def _source(run: Run) -> dict[str, str]:
    machine = run.header["machine"]
    software = ", ".join(f"{n} {v}" for n, v in sorted((machine.get("packages") or {}).items()))
    return {
        "id": run.name,
        "package": "aisim_v41 collectors",
        "version": str(run.header.get("version")),
        "path": run.name,
        "date": "as collected",
        "note": f"{machine['device'].get('name')}, driver {machine.get('driver')}, CUDA "
        f"{machine.get('cuda')}, image {machine.get('image')}; {software}",
    }


def _timing(runs: Sequence[Run]) -> dict[str, str]:
    asked = runs[0].header.get("timing") or {}
    return {
        "method": f"{asked.get('timer')} clock, execution {asked.get('execution')}, cache "
        f"{asked.get('cache_state')}; the clock that was used is in each row",
        "statistic": "median of all samples, the slowest rank of each",
        "environment": "; ".join(sorted({_source(run)["note"] for run in runs})),
    }


class _Library:
    """What is needed of the library, loaded when something is published."""

    def __init__(self) -> None:
        import pandas

        from aisim_v41.errors import AisimError
        from aisim_v41.tables.load import family_named, read_table
        from aisim_v41.tables.write import write_table

        self._pandas, self._read, self._error = pandas, read_table, AisimError
        self._write = write_table
        self.family = family_named(FAMILY)
        self.operators = frozenset(self.family.operators)
        self.columns: dict[str, Any] = {
            column.name: None if column.kind != "text" else "none" for column in self.family.columns
        }

    def frame(self, rows: list[dict[str, Any]]) -> pandas.DataFrame:
        """Rows as a frame with the family's columns."""
        return self._pandas.DataFrame(rows, columns=list(self.columns))

    def joined(
        self,
        target: Path,
        fresh: pandas.DataFrame,
        sources: list[dict[str, str]],
        *,
        replace: bool,
    ) -> tuple[pandas.DataFrame, list[dict[str, str]]]:
        """New rows with those of the table that is there.

        Raises:
            ConflictError: a key is in both with other values, and that was not allowed.
        """
        if not target.exists():
            return fresh, sources
        try:
            there = self._read(target)
        except self._error as error:
            raise ConflictError(f"what is there is no table: {error}") from None
        old = there.to_frame()
        for axis in self.family.axes:  # sizes that an operator has not
            old[axis] = old[axis].astype(object).where(old[axis] >= 0, None)
        known, given = self._keys(old), self._keys(fresh)
        before = dict(zip(known, old["latency_us"], strict=True))
        for key, now in zip(given, fresh["latency_us"], strict=True):
            was = before.get(key, now)
            if abs(now / was - 1) > PAIR_AGREE and not replace:
                raise ConflictError(
                    f"{target}: {key[0]} is there with {was:.2f} us, now {now:.2f}; name another "
                    "--campaign, or say --replace"
                )
        new = set(given)
        kept = old[[key not in new for key in known]]
        entries = [{n: v for n, v in entry.items() if n != "rows"}
                   for entry in there.sidecar["sources"]]  # fmt: skip
        named = {entry["id"] for entry in sources}
        used = set(kept["source"])
        if used & named:
            raise ConflictError(f"{target}: rows of {sorted(used & named)[0]} are there from "
                                "other results; rename the file of results")  # fmt: skip
        older = [entry for entry in entries if entry["id"] in used]
        return self._pandas.concat([kept, fresh], ignore_index=True), [*older, *sources]

    def _keys(self, frame: pandas.DataFrame) -> list[tuple[str, ...]]:
        """What tells rows apart, as text; a size that an operator has not is empty."""
        names = [*self.family.identity_names, *self.family.axes]
        rows = frame[names].astype(object).where(frame[names].notna(), None)
        return [
            tuple("" if value is None else f"{value:g}" if not isinstance(value, str) else value
                  for value in row)
            for row in rows.itertuples(index=False)
        ]  # fmt: skip

    def write_table(self, frame: pandas.DataFrame, **given: Any) -> Path:
        """Write through the library.

        Raises:
            InputError: a row cannot be one of the table.
        """
        try:
            return self._write(frame, **given)
        except self._error as error:
            raise InputError(str(error)) from None


def _library() -> _Library:
    try:
        return _Library()
    except ImportError as error:
        raise UnavailableError(
            f"publishing needs the library aisim_v41 ({error}): install it here, or copy the "
            "files of results to a machine that has it and publish there"
        ) from None


def _shapes(run: Run) -> str:
    """Whose sizes: the published model's, or those of a smaller or changed one."""
    plan = run.header.get("plan") or {}
    own = plan.get("model") == "deepseek-v4.1-flash" and plan.get("scale") != "small"
    return "v4.1_exact" if own else "other_model"
