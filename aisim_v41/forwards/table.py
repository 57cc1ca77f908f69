"""Measured forwards of one identity, with where they came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from aisim_v41.errors import InvalidInputError
from aisim_v41.forwards.execution import setting_of
from aisim_v41.forwards.identity import Identity
from aisim_v41.forwards.records import STATUSES, StepRecord
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.policy import RuntimePolicy

NOT_STATED: Final = "not stated"
MAX_TEXT: Final = 20_000
"""Longest remark or notice [characters]."""
_AND: Final = " AND "

Key = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class StepTable:
    """Measured forwards of one identity.

    Args:
        identity: What they are forwards of.
        gpu: As in ``hardware/``; that of the identity.
        records: One a measured step; no two with the same run, point, order and step.
        preset: Policy that fields outside the identity are taken from when a plan is made again;
            by default the engine's name.
        licence: Of the numbers, as an SPDX name.
        notice: Copyright notice that goes with them.
        sources: Where they came from: mappings of text, each with at least a "file".
        remarks: What a reader should know.
        path: Folder that the table was read from.

    Raises:
        InvalidInputError: names the field or the two records, and what would be right.
    """

    identity: Identity
    gpu: str = ""
    records: tuple[StepRecord, ...]
    preset: str = ""
    licence: str = NOT_STATED
    notice: str = ""
    sources: tuple[Mapping[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    path: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.identity, Identity):
            raise InvalidInputError(f"StepTable.identity = {self.identity!r:.80}: not an Identity")
        measured_on = self.identity.execution.get("gpu", "")
        if self.gpu not in ("", measured_on):
            raise InvalidInputError(
                f"StepTable.gpu = {self.gpu!r:.80}: the identity was measured on {measured_on!r}"
            )
        object.__setattr__(self, "gpu", measured_on)
        object.__setattr__(self, "preset", self.preset or self.identity.build.engine)
        for name in ("preset", "licence", "notice"):
            _require_text(f"StepTable.{name}", getattr(self, name), empty=name == "notice")
        object.__setattr__(self, "records", tuple(self.records))
        object.__setattr__(self, "remarks", tuple(self.remarks))
        object.__setattr__(self, "sources", _sources(self.sources))
        for remark in self.remarks:
            _require_text("StepTable.remarks", remark, empty=False)
        _by_key(self.records)

    def __hash__(self) -> int:
        return hash((self.identity, len(self.records), self.records[:1]))

    @property
    def measured(self) -> tuple[StepRecord, ...]:
        """Records that have a time."""
        return tuple(record for record in self.records if record.status == "ok")

    def statuses(self) -> dict[str, int]:
        """Records of each status, those of no record left out."""
        found: Counter[str] = Counter(record.status for record in self.records)
        return {status: found[status] for status in STATUSES if status in found}

    def plan_setting(self) -> tuple[Parallel, RuntimePolicy]:
        """Mapping and policy with which a plan of this identity is made.

        Raises:
            SchemaError: the execution is not one that a policy has.
            InvalidInputError: a setting names a policy field and is no value of it.
        """
        parallel, policy = setting_of(self.identity.execution, self.preset)
        return parallel, policy.with_overrides(**self.identity.policy_settings)

    def merged(self, other: StepTable) -> StepTable:
        """Records of both; equal ones once.

        Raises:
            UnsupportedPlanError: another identity; the message prints every differing field.
            InvalidInputError: both have a record of the same run, point, order and step, and the
                two differ; or both have one of the same run, named point and order, and the steps
                differ.
        """
        self.identity.require_same(other.identity)
        ours = _by_key(self.records)
        _refuse_other_readings(self.records, other.records)
        added = []
        for key, record in _by_key(other.records).items():
            if key not in ours:
                added.append(record)
            elif ours[key] != record:
                raise InvalidInputError(
                    f"two records of run {record.run!r}, point {record.point!r}, order "
                    f"{record.order!r} differ: {_brief(ours[key])} and {_brief(record)}. Give "
                    "measurements of another process another run, or drop one of the two."
                )
        licences = dict.fromkeys((*self.licence.split(_AND), *other.licence.split(_AND)))
        if len(licences) > 1:
            licences.pop(NOT_STATED, None)
        notices = [self.notice, other.notice]
        if f"\n{other.notice}\n" in f"\n{self.notice}\n":
            notices.pop()
        return replace(
            self,
            records=(*self.records, *added),
            licence=_AND.join(licences),
            notice="\n".join(filter(None, notices)),
            sources=_unique((*self.sources, *other.sources)),
            remarks=tuple(dict.fromkeys((*self.remarks, *other.remarks))),
        )


def _by_key(records: Iterable[StepRecord]) -> dict[Key, StepRecord]:
    found: dict[Key, StepRecord] = {}
    for record in records:
        if not isinstance(record, StepRecord):
            raise InvalidInputError(f"StepTable.records: {record!r:.80} is not a StepRecord")
        first = found.setdefault((record.run, record.point, record.order, record.step), record)
        if first is not record:
            raise InvalidInputError(
                f"two records of run {record.run!r}, point {record.point!r} and order "
                f"{record.order!r} have the same step: {_brief(first)} and {_brief(record)}. Give "
                "repeats as samples_ms of one record, or each its order."
            )
    return found


def _refuse_other_readings(ours: Iterable[StepRecord], theirs: Iterable[StepRecord]) -> None:
    """Refuse one measurement twice, as another step each time: a process runs one step at a time.

    So it is where a source is read again with another option, such as the size of cache blocks.
    """
    steps: dict[Key, set[Any]] = {}
    for record in ours:
        steps.setdefault(_place(record), set()).add(record.step)
    for record in theirs:
        known = steps.get(_place(record))
        if record.point and known is not None and record.step not in known:
            raise InvalidInputError(
                f"run {record.run!r}, point {record.point!r}, order {record.order!r} "
                f"({record.source!r:.80}) is there as "
                f"{next(iter(known))!r:.200} and is now {record.step!r:.200}: one measurement, "
                "read in two ways. Publish the new reading in place of the old, or give another "
                "run."
            )


def _place(record: StepRecord) -> Key:
    """Where a named point was measured: its position in the run, or in the source."""
    at = record.source if record.order is None else record.order
    return (record.run, record.point, at) if at != "" else (record.step,)


def _brief(record: StepRecord) -> str:
    return record.status if record.latency_ms is None else f"{record.latency_ms:g} ms"


def _sources(sources: Iterable[Mapping[str, str]]) -> tuple[Mapping[str, str], ...]:
    found = []
    for source in sources:
        if not isinstance(source, Mapping) or "file" not in source:
            raise InvalidInputError(
                f"StepTable.sources: {source!r:.80} must be a mapping that names its file"
            )
        for name, value in source.items():
            _require_text("StepTable.sources: a name", name, empty=False)
            _require_text(f"StepTable.sources: {name}", value, empty=False)
        found.append(dict(source))
    return tuple(found)


def _unique(sources: Iterable[Mapping[str, str]]) -> tuple[Mapping[str, str], ...]:
    found: list[Mapping[str, str]] = []
    for source in sources:
        if source not in found:
            found.append(source)
    return tuple(found)


def _require_text(where: str, value: object, *, empty: bool) -> None:
    if not isinstance(value, str) or len(value) > MAX_TEXT or not (value.strip() or empty):
        raise InvalidInputError(f"{where} = {value!r:.80}: must be text of at most {MAX_TEXT}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInputError(f"{where} = {value!r:.80}: not valid Unicode") from None
