"""What Dynamo's self-benchmark leaves: one JSON file a rank (docs/io.md, "self_benchmark").

An engine under Dynamo can time its own grid of steps at start. Every data-parallel rank writes a
`benchmark*.json` of schema version 2; the ranks of one run belong together, and a step takes as
long as the slowest of them (ai-dynamo/aisimulate, `collector/fpm_forward/native_artifact.py`).
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisim_v41.errors import AisimError, MissingProfileError, SchemaError
from aisim_v41.forwards.identity import TIMERS
from aisim_v41.forwards.records import StepRecord
from aisim_v41.io.balanced import FAKE_KV, FAKE_REGIME, FakeKv, decode_point, prefill_point
from aisim_v41.io.fields import (
    entries,
    mapping,
    number,
    require_choice,
    require_flag,
    require_size,
    text,
    whole,
)
from aisim_v41.io.forward_pass import Load, parse_load
from aisim_v41.io.imported import Hint, Imported, Skipped
from aisim_v41.reading import parse_mapping, read_bytes
from aisim_v41.units import MIB, MILLISECOND

SCHEMA_VERSION = 2
PATTERN = "benchmark*.json"
MAX_FILE_BYTES = 128 * MIB
MAX_FILES = 4096
COORDINATES = ("point_type", "benchmark_id", "batch_size", "total_prefill_tokens",
               "total_kv_read_tokens")  # fmt: skip
REAL_KV = ("real_kv", "real_prefix")
"""Words for KV that the model computed."""
SYNTHETIC = (
    "prompts are not said to be text; the benchmark's own are one token repeated, whose experts "
    "and Engram rows are not those of text"
)
_VERDICTS = ("status", "valid", "usable", "timing_valid", "error")
_SAME = 1e-9
"""Relative difference at which two statements of one time are the same."""


@dataclass(frozen=True, slots=True)
class _Rank:
    """One rank's file."""

    place: str
    run: str
    grid: str
    rank: int
    ranks: int
    results: tuple[Mapping[str, Any], ...]
    document: Mapping[str, Any]


def read_self_benchmark(
    path: str | os.PathLike[str],
    *,
    timer: str = "scheduler_wall",
    kv_includes_current: bool = False,
    block_tokens: int | None = None,
    fake_kv: FakeKv = "skip",
    regime: str = "",
) -> Imported:
    """Records of the rank files of one or more runs.

    Args:
        path: A folder, searched with everything in it; or the file of a run of one rank.
        timer: What ``wall_time`` is.
        kv_includes_current: Whether contexts of decodes count the token being decoded; the
            benchmark of vLLM under Dynamo does not count it.
        block_tokens: Size of a cache block, in which prefixes of a batch are spread [tokens];
            without it only prefixes that every usual size spreads alike become lengths.
        fake_kv: What becomes of steps that read KV which no model computed: "skip" lists them,
            "mark" keeps them under the regime "fake_kv".
        regime: Label for the conditions of the others.

    Raises:
        MissingProfileError: no such file, or no rank file in the folder.
        SchemaError: a file is no complete, usable rank file, ranks of a run disagree, or runs are
            of different builds or numbers of ranks.
        InvalidInputError: an argument has no such value.
    """
    require_choice("timer", timer, TIMERS)
    require_choice("fake_kv", fake_kv, FAKE_KV)
    require_size("block_tokens", block_tokens)
    require_flag("kv_includes_current", kv_includes_current)
    root = Path(path)
    skipped: list[Skipped] = []
    runs: defaultdict[str, list[_Rank]] = defaultdict(list)
    for file in _files(root):
        place = file.relative_to(root).as_posix() if file != root else file.name
        document = parse_mapping(read_bytes(file, most=MAX_FILE_BYTES), where=place)
        if document.get("artifact_type") == "merged" or file.stem.endswith("_merged"):
            skipped.append(Skipped(place, "merged from rank files, which are read themselves"))
            continue
        rank = _rank(document, place)
        runs[rank.run].append(rank)
    if not runs:
        raise SchemaError(f"{root}: only merged files; give the folder of the rank files")
    records: list[StepRecord] = []
    remarks: list[str] = []
    hints = _same_hints(runs)
    for ranks in runs.values():
        reader = _Run(ranks, kv_includes_current, block_tokens, fake_kv, regime)
        records += reader.records()
        skipped += reader.skipped
        remarks += reader.remarks
    return Imported(
        records=tuple(records),
        skipped=tuple(skipped),
        build_hints={"timer": timer, **hints},
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _files(root: Path) -> list[Path]:
    if not root.is_dir():
        return [root]
    found: list[Path] = []
    for file in root.rglob(PATTERN):
        found.append(file)
        if len(found) > MAX_FILES:
            raise SchemaError(
                f"{root}: more than {MAX_FILES} files {PATTERN}; give one run's folder"
            )
    if not found:
        raise MissingProfileError(f"{root}: no file {PATTERN} in it")
    return sorted(found)


def _rank(document: Mapping[str, Any], place: str) -> _Rank:
    """A rank file whose envelope says that its times can be used."""
    version, kind = document.get("schema_version"), document.get("artifact_type")
    if version != SCHEMA_VERSION or kind != "rank":
        raise SchemaError(
            f"{place}: schema_version {version!r:.20}, artifact_type {kind!r:.20}; only rank files "
            f"of version {SCHEMA_VERSION} are known"
        )
    try:
        status = text(document, "status")
        dp = mapping(document, "dp")
        results = entries(document, "results")
        return _Rank(
            place=place,
            run=_name(document, "run_id"),
            grid=_name(document, "grid_digest"),
            rank=whole(dp, "rank", default=0),
            ranks=whole(dp, "size", least=1, default=1),
            results=tuple(_result(entry) for entry in _usable(document, status, results)),
            document=document,
        )
    except SchemaError as bad:
        raise SchemaError(f"{place}: {bad}") from None


def _usable(document: Mapping[str, Any], status: str, results: list[Any]) -> list[Any]:
    good = status in ("complete", "partial") and document.get("usable", True) is True
    good = good and (status == "partial" or document.get("valid", True) is True)
    if not good or document.get("timing_valid", True) is not True or document.get("error"):
        told = ", ".join(f"{name} {document.get(name)!r:.80}" for name in _VERDICTS)
        raise SchemaError(f"{told}: the benchmark itself says that its times cannot be used")
    done = mapping(document, "coverage").get("completed_points")
    if done is not None and done != len(results):
        raise SchemaError(f"coverage.completed_points = {done!r:.20}, but {len(results)} results")
    return results


def _name(document: Mapping[str, Any], field: str) -> str:
    name = text(document, field)
    if not name:
        raise SchemaError(f"{field} is empty")
    return name


def _result(entry: object) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        raise SchemaError(f"results: {entry!r:.40} must be a mapping")
    point = mapping(entry, "point")
    missing = [name for name in COORDINATES if name not in point]
    if missing:
        raise SchemaError(f"results: a point without {', '.join(missing)}")
    text(point, "point_type")
    for name in COORDINATES[1:]:
        whole(point, name)
    return entry


def _check_ranks(ranks: Sequence[_Rank]) -> None:
    """Refuse rank files that are not those of one run."""
    first = ranks[0]
    seen = sorted(rank.rank for rank in ranks)
    if len(seen) != first.ranks or seen != list(range(len(seen))):
        raise SchemaError(
            f"{first.place}: run {first.run!r:.60} has {first.ranks} ranks, found files of ranks "
            f"{', '.join(map(str, seen))}; give the folder that has all of them once"
        )
    for other in ranks[1:]:
        for field, ours, theirs in (
            ("grid_digest", first.grid, other.grid),
            ("dp.size", first.ranks, other.ranks),
            ("points", _points(first), _points(other)),
            ("kvwarm", first.document.get("kvwarm"), other.document.get("kvwarm")),
            ("iteration_groups", *(r.document.get("iteration_groups") for r in (first, other))),
        ):
            if ours != theirs:
                shown = f": {ours!r:.80} and {theirs!r:.80}" if isinstance(ours, (str, int)) else ""
                raise SchemaError(
                    f"{first.place} and {other.place}: ranks of run {first.run!r:.60} disagree on "
                    f"{field}{shown}"
                )


def _same_hints(runs: Mapping[str, Sequence[_Rank]]) -> dict[str, Hint]:
    """What every run says of the build, which must be the same of each: none speaks for another."""
    said: list[tuple[str, dict[str, Hint]]] = []
    for ranks in runs.values():
        _check_ranks(ranks)
        said += [(rank.place, _hints(rank.document, len(ranks))) for rank in ranks]
    place, first = said[0]
    for other, hints in said[1:]:
        for name in dict.fromkeys((*first, *hints)):
            ours, theirs = first.get(name), hints.get(name)
            if ours != theirs:
                raise SchemaError(
                    f"{place} and {other}: measured in different builds, as {name} is {ours!r:.60} "
                    f"and {theirs!r:.60}; read each folder by itself"
                )
    return first


def _points(rank: _Rank) -> list[tuple[Any, ...]]:
    return [tuple(entry["point"][name] for name in COORDINATES) for entry in rank.results]


class _Run:
    """Records of the ranks of one run."""

    def __init__(
        self,
        ranks: Sequence[_Rank],
        kv_includes_current: bool,
        block_tokens: int | None,
        fake_kv: str,
        regime: str,
    ) -> None:
        self.ranks = sorted(ranks, key=lambda rank: rank.rank)
        self.first = self.ranks[0]
        self.counted = 1 if kv_includes_current else 0
        self.block_tokens = block_tokens
        self.fake_kv, self.regime = fake_kv, regime
        self.skipped: list[Skipped] = []
        self.remarks: list[str] = []
        warm = self.first.document.get("kvwarm")
        self.warmed = isinstance(warm, dict) and warm.get("warm_eligible") is True
        self.groups = self._groups()

    def records(self) -> list[StepRecord]:
        """One a point, in the order in which they ran."""
        records = []
        for order, found in enumerate(zip(*(rank.results for rank in self.ranks), strict=True)):
            place = f"{self.first.place}: results[{order}]"
            try:
                records.append(self._record(order, found, place))
            except AisimError as bad:
                self.skipped.append(Skipped(place, str(bad)))
        for place, entry in self._others("warmup_results"):
            self.skipped.append(Skipped(place, f"warm-up ({_short(entry)})"))
        for place, entry in self._others("skipped_points"):
            try:
                records.append(self._missing(entry, place))
            except AisimError as bad:
                self.skipped.append(Skipped(place, str(bad)))
        document = self.first.document
        if document.get("status") == "partial":
            reason = document.get("stop_reason")
            self.remarks.append(f"run {self.first.run!r:.60} stopped early: {reason!r:.60}")
        if not isinstance(document.get("input_provenance"), dict):
            self.remarks.append(SYNTHETIC)
        if len(self.ranks) > 1:
            self.remarks.append("requests are those of each rank, times those of the slowest")
        return records

    def _record(self, order: int, found: Sequence[Mapping[str, Any]], place: str) -> StepRecord:
        point = found[0]["point"]
        if any("eager_warmup" in entries(entry["point"], "sample_reasons") for entry in found):
            raise SchemaError("warm-up (eager_warmup)")
        seconds = []
        loads = []
        for entry in found:
            messages = entries(entry, "fpms")
            if len(messages) != 1 or not isinstance(messages[0], dict):
                raise SchemaError(f"{len(messages)} forward pass messages; a point has one")
            seconds.append(number(messages[0], "wall_time"))
            loads.append(parse_load(mapping(messages[0], "scheduled_requests")))
        if min(seconds) <= 0:
            raise SchemaError(f"wall_time = {min(seconds):g} s")
        for load in loads:
            _check_load(point, load)
        self._check_group(point, max(seconds))
        step = self._step(point, loads[0])
        fake = next(filter(None, (self._fake(entry, entry["point"]) for entry in found)), "")
        if fake and self.fake_kv == "skip":
            raise SchemaError(fake)
        graph = point.get("expected_cudagraph_mode")
        size = point.get("expected_capture_size")
        notes = [f"graph {graph} {size}" if size else f"graph {graph}" if graph else "", fake]
        return StepRecord(
            step=step,
            latency_ms=max(seconds) / MILLISECOND,
            run=self.first.run,
            order=order,
            regime=FAKE_REGIME if fake else self.regime,
            point=_short({"point": point}),
            source=place,
            note="; ".join(note for note in notes if note),
        )

    def _missing(self, entry: Mapping[str, Any], place: str) -> StepRecord:
        point = mapping(entry, "point")
        return StepRecord(
            step=self._step(point, None),
            status="missing",
            run=self.first.run,
            regime=self.regime,
            point=_short({"point": point}),
            source=place,
            note=f"skipped by the benchmark: {entry.get('reason')!r:.200}",
        )

    def _step(self, point: Mapping[str, Any], load: Load | None) -> Any:
        kind, batch = text(point, "point_type"), whole(point, "batch_size", least=1)
        kv = whole(point, "total_kv_read_tokens", default=0)
        if kind == "prefill":
            return prefill_point(
                batch,
                whole(point, "total_prefill_tokens", least=batch),
                kv,
                block_tokens=self.block_tokens,
                prompt_variance=load.prompt_variance if load else None,
            )
        if kind == "decode":
            least = batch * (1 + self.counted)
            if kv < least:
                raise SchemaError(f"total_kv_read_tokens = {kv}: below {least}, {batch} decodes")
            return decode_point(batch, kv - batch * self.counted)
        raise SchemaError(f"point_type = {kind!r:.40}: must be prefill or decode")

    def _fake(self, entry: Mapping[str, Any], point: Mapping[str, Any]) -> str:
        """Why the KV that a step reads was not computed by a model; nothing where it was."""
        kind = point.get("point_type")
        if not point.get("total_kv_read_tokens"):
            return ""
        said = entry.get("kv_seed_regime")
        reasons = entries(point, "sample_reasons")
        if said in REAL_KV or (self.warmed and "kvwarm_real_kv" in reasons):
            return ""
        if said is None and kind == "prefill" and "kvwarm_fake_fallback" not in reasons:
            return ""  # cached prefixes are computed by a forward before the step
        why = said or ("kvwarm_fake_fallback" if "kvwarm_fake_fallback" in reasons else "no kvwarm")
        return f"the KV that it reads was allocated, not computed ({why!s:.60})"

    def _others(self, field: str) -> list[tuple[str, Mapping[str, Any]]]:
        return [
            (f"{self.first.place}: {field}[{place}]", entry if isinstance(entry, dict) else {})
            for place, entry in enumerate(entries(self.first.document, field))
        ]

    def _groups(self) -> dict[Any, Mapping[str, Any]]:
        groups = entries(self.first.document, "iteration_groups")
        return {g.get("benchmark_id"): g for g in groups if isinstance(g, dict)
                and isinstance(g.get("benchmark_id"), int)}  # fmt: skip

    def _check_group(self, point: Mapping[str, Any], slowest: float) -> None:
        """The synchronised group of a point must state the same time."""
        group = self.groups.get(point["benchmark_id"])
        if group is None:
            return
        if group.get("complete", True) is not True:
            raise SchemaError("its iteration group is not complete")
        said = number(group, "wall_time", default=slowest)
        if not math.isclose(said, slowest, rel_tol=_SAME, abs_tol=0.0):
            raise SchemaError(
                f"iteration group: wall_time {said!r} s, but the slowest rank took {slowest!r} s"
            )


def _check_load(point: Mapping[str, Any], load: Load) -> None:
    """The message must show the load that the point names."""
    prefill = point.get("point_type") == "prefill"
    batch, new = point.get("batch_size"), point.get("total_prefill_tokens")
    kv = point.get("total_kv_read_tokens")
    wanted = (batch, new, kv, 0, 0) if prefill else (0, 0, 0, batch, kv)
    found = (load.prefills, load.prefill_tokens, load.prefill_kv, load.decodes, load.decode_kv)
    if wanted != found or (not prefill and new):
        raise SchemaError(f"ran {load.text()}, which is not the point's load")


def _short(entry: Mapping[str, Any]) -> str:
    point = entry.get("point")
    if not isinstance(point, dict):
        return "unnamed"
    return f"{point.get('point_type')!s:.20}-{point.get('benchmark_id')!s:.20}"


def _hints(document: Mapping[str, Any], ranks: int) -> dict[str, Hint]:
    hints: dict[str, Hint] = {"dp": ranks} if ranks > 1 else {}
    producer = document.get("producer")
    if isinstance(producer, dict) and isinstance(producer.get("vllm_package_version"), str):
        hints |= {"engine": "vllm", "engine_build": producer["vllm_package_version"]}
    identity = document.get("execution_identity")
    if isinstance(identity, dict) and isinstance(identity.get("input_modality"), str):
        hints["modality"] = identity["input_modality"]
    if isinstance(document.get("execution_mode"), str):
        hints["settings.execution_mode"] = document["execution_mode"]
    return hints
