"""Measured conditions and values as typed records, read as data.

``profiles/deepseek-v4.1-flash/validation_cases.jsonl`` holds one JSON object a physical condition
and quantity. A null means that the source does not say; ``take`` then holds what a prediction may
put in its place (an engine default or a convention, never a statement of the source).

Source: public measurements of this model; sources and licences are in ``validation_cases.md``
beside the data. Conventions that a reader needs are repeated on the fields below.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from aisim_v41 import resources
from aisim_v41.errors import SchemaError
from aisim_v41.plan.request import KINDS, Kind
from aisim_v41.reading import MAX_FILE_BYTES, check_plain

CASES_FILE = "deepseek-v4.1-flash/validation_cases"
RATIOS_FILE = "deepseek-v4.1-flash/validation_ratios"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseParallel:
    """Mapping of one worker; None: not stated."""

    tp: int | None
    ep: int | None
    dp: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding with the model's draft blocks; None: on, but not stated."""

    draft_tokens: int | None
    accept_length: float | None
    """Tokens that a step yields for one request, the target's own included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePolicy:
    """What the source says of the engine's choices; None: not stated (or no speculation)."""

    decoder_replay: bool | None
    encoder_replay: bool | None
    encoder_form: str | None
    """"folded" or "sequential"."""
    late_anchor: str | None
    """"step_end" or "prompt_end"."""
    speculation: Speculation | None
    engram: str | None
    chunk_tokens: int | None
    max_length: int | None
    """Longest context that the engine admits [tokens]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """One request group of a step; ``prefix_tokens`` are the positions computed before it."""

    new_tokens: int
    prefix_tokens: int | None
    kind: Kind
    count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What ran. ``kind``: "step", "chunks", "closed_loop", "memory", "capacity" or "ratio".

    ``prompt_tokens`` is the whole prompt, prefix included; ``new_tokens`` is what was not cached
    and never counts replayed rows.
    """

    kind: str
    step: tuple[StepRequest, ...] = ()
    prompt_tokens: int | None = None
    prefix_tokens: int | None = None
    new_tokens: int | None = None
    output_tokens: int | None = None
    chunk_tokens: int | None = None
    concurrency: int | None = None
    requests: int | None = None
    of: tuple[str, ...] = ()
    """Cases whose values a ratio divides, the first by the second."""
    item: str | None = None
    """What a memory or capacity case counts."""
    pool_gib: float | None = None
    """KV pool of a capacity case [GiB]."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measured value and the condition it was measured in."""

    name: str
    rows: tuple[str, ...]
    kind: str
    """Class of the case: prefill, ttft, step, tpot, throughput, kernel_group, memory, ..."""
    gpu: str
    gpus: int | None
    parallel: CaseParallel
    engine: str
    execution: str
    policy: CasePolicy
    take: Mapping[str, Any]
    workload: Workload
    quantity: str
    measured: float | None
    bounds: tuple[float, float] | None
    """Interval of the true value, or spread of the repeats."""
    includes: tuple[str, ...]
    assumptions: tuple[str, ...]
    usable: str
    reason: str
    twin: str | None
    """Case that holds the same measurement in another form: a step of a time per token."""

    @cached_property
    def source(self) -> str:
        """Campaign that it belongs to: the first two words of its name."""
        return "-".join(self.name.split("-")[:2])

    def says(self, words: str) -> bool:
        """Whether the notes of the case hold some words."""
        return any(words in text for text in (*self.assumptions, self.reason))


def load_ratios() -> tuple[Case, ...]:
    """Published ratios that are not among the cases, in the same form, with their two sides.

    Raises:
        SchemaError: names file, line, field and value.
    """
    return load_cases(resources.find("profiles", RATIOS_FILE, ".jsonl"))


def load_cases(path: Path | None = None) -> tuple[Case, ...]:
    """All cases of the packaged file, or of another of the same form.

    Raises:
        SchemaError: names file, line, field and value.
    """
    if path is None:
        path = resources.find("profiles", CASES_FILE, ".jsonl")
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise SchemaError(f"{path}: {size} bytes; at most {MAX_FILE_BYTES}")
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        where = f"{path.name}:{number}"
        try:
            raw = json.loads(line)
        except ValueError as error:
            raise SchemaError(f"{where}: not JSON ({error})") from None
        check_plain(raw, where=where)
        cases.append(_case(_Fields(raw, where)))
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SchemaError(f"{path.name}: cases named twice: {', '.join(twice)}")
    return tuple(cases)


class _Fields:
    """One JSON object, read field by field; a field of another type is refused by name."""

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, dict):
            raise SchemaError(f"{where}: must be a mapping, found {type(raw).__name__}")
        self.raw: dict[str, Any] = raw
        self.where = where

    def get(self, key: str, expected: type[_T]) -> _T:
        """A field that is there."""
        value = self.maybe(key, expected)
        if value is None:
            raise SchemaError(f"{self.where}: {key} is missing")
        return value

    def maybe(self, key: str, expected: type[_T]) -> _T | None:
        """A field that may be null or absent."""
        value = self.raw.get(key)
        if value is None:
            return None
        if expected is float and type(value) is int:
            return cast(_T, float(value))
        if type(value) is not expected:
            raise SchemaError(
                f"{self.where}: {key} = {value!r}: must be of type {expected.__name__}"
            )
        return value

    def count(self, key: str) -> int | None:
        """A whole number of at least 0, or null."""
        value = self.maybe(key, int)
        if value is not None and value < 0:
            raise SchemaError(f"{self.where}: {key} = {value}: must not be negative")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        items = self.get(key, list)
        if not all(isinstance(item, str) for item in items):
            raise SchemaError(f"{self.where}: {key} must be a list of texts")
        return tuple(items)

    def inside(self, key: str) -> _Fields:
        """A nested object."""
        return _Fields(self.get(key, dict), f"{self.where}: {key}")


def _case(fields: _Fields) -> Case:
    policy = fields.inside("policy")
    bounds = fields.maybe("bounds", list)
    parallel = fields.inside("parallel")
    return Case(
        name=fields.get("case", str),
        rows=fields.texts("rows"),
        kind=fields.get("class", str),
        gpu=fields.get("gpu", str),
        gpus=fields.count("gpus"),
        parallel=CaseParallel(**{key: parallel.count(key) for key in ("tp", "ep", "dp")}),
        engine=fields.get("engine", str),
        execution=fields.get("execution", str),
        policy=CasePolicy(
            decoder_replay=policy.maybe("decoder_replay", bool),
            encoder_replay=policy.maybe("encoder_replay", bool),
            encoder_form=policy.maybe("encoder_form", str),
            late_anchor=policy.maybe("late_anchor", str),
            speculation=_speculation(policy),
            engram=policy.maybe("engram", str),
            chunk_tokens=policy.count("chunk_tokens"),
            max_length=policy.count("max_model_len"),
        ),
        take=fields.get("take", dict),
        workload=_WORKLOADS.get(fields.inside("workload").get("kind", str), _other)(
            fields.inside("workload")
        ),
        quantity=fields.get("quantity", str),
        measured=fields.maybe("measured", float),
        bounds=None if bounds is None else (float(bounds[0]), float(bounds[1])),
        includes=fields.texts("includes"),
        assumptions=fields.texts("assumptions"),
        usable=fields.get("usable", str),
        reason=fields.get("reason", str),
        twin=fields.maybe("twin", str),
    )


def _speculation(policy: _Fields) -> Speculation | None:
    if policy.raw.get("dspark") is None:
        return None
    fields = policy.inside("dspark")
    return Speculation(
        draft_tokens=fields.count("draft_tokens"),
        accept_length=fields.maybe("accept_length", float),
    )


def _step(fields: _Fields) -> Workload:
    groups = []
    for number, raw in enumerate(fields.get("requests", list)):
        group = _Fields(raw, f"{fields.where}: requests[{number}]")
        kind = group.get("kind", str)
        if kind not in KINDS:
            raise SchemaError(f"{group.where}: kind = {kind!r}: must be one of {KINDS}")
        groups.append(
            StepRequest(
                new_tokens=group.get("new_tokens", int),
                prefix_tokens=group.count("prefix_tokens"),
                kind=cast(Kind, kind),
                count=group.count("count"),
            )
        )
    return Workload(kind="step", step=tuple(groups))


def _chunks(fields: _Fields) -> Workload:
    return Workload(
        kind="chunks",
        prompt_tokens=fields.count("prompt_tokens"),
        prefix_tokens=fields.count("prefix_tokens"),
        new_tokens=fields.count("new_tokens"),
        chunk_tokens=fields.count("chunk_tokens"),
        requests=fields.count("requests"),
    )


def _closed_loop(fields: _Fields) -> Workload:
    return Workload(
        kind="closed_loop",
        prompt_tokens=fields.count("isl"),
        output_tokens=fields.count("osl"),
        prefix_tokens=fields.count("prefix_tokens"),
        new_tokens=fields.count("new_tokens"),
        concurrency=fields.count("concurrency"),
        requests=fields.count("requests"),
    )


def _size(fields: _Fields) -> Workload:
    return Workload(
        kind=fields.get("kind", str),
        item=fields.get("item", str),
        pool_gib=fields.maybe("pool_gib", float),
    )


def _ratio(fields: _Fields) -> Workload:
    return Workload(kind="ratio", of=fields.texts("of"))


def _other(fields: _Fields) -> Workload:
    return Workload(kind=fields.get("kind", str))


_WORKLOADS: dict[str, Callable[[_Fields], Workload]] = {
    "step": _step,
    "chunks": _chunks,
    "closed_loop": _closed_loop,
    "memory": _size,
    "capacity": _size,
    "ratio": _ratio,
}
