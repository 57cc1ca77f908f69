"""The form of a calibration file, checked field by field.

``engines`` maps an engine (or ``any``) to laws by key; a law has kind, parameters, error, hull,
sources. docs/calibration.md describes the form for people.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aisim_v41.errors import SchemaError, nearest
from aisim_v41.evidence.calibration import CalibratedLaw, CalibrationFile, Launch, Origin
from aisim_v41.evidence.laws import FORMS, LawKind
from aisim_v41.reading import read_mapping

SCHEMA = 1
_KEY = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*(@[1-9][0-9]*)?")
_LAW_FIELDS = (
    "kind",
    "parameters",
    "error",
    "penalty",
    "hull",
    "reach",
    "origin",
    "sources",
    "note",
)
_ERROR_FIELDS = ("median", "p90", "bias", "rows")
_HOST_FIELDS = (
    "framework_call_s",
    "bare_launch_s",
    "python_call_s",
    "error_relative",
    "sources",
)


def read_calibration(path: Path) -> CalibrationFile:
    """Laws of a file, by engine and key.

    Raises:
        SchemaError: the file is not of this form; names file, law, field, value and remedy.
        MissingProfileError: there is no such file.
    """
    raw = read_mapping(path)
    only(path, "", raw, ("schema", "gpu", "note", "link_bytes_per_s", "used_cases", "engines"))
    check_schema(path, raw, "; refit with python -m aisim_v41.evidence.fit")
    engines: dict[str, Mapping[str, CalibratedLaw]] = {}
    for engine, laws in mapping(path, "engines", raw.get("engines")).items():
        where = f"engines.{engine}"
        engines[engine] = MappingProxyType(
            {
                key: _law(path, f"{where}.{key}", key, entry)
                for key, entry in mapping(path, where, laws).items()
            }
        )
    link, used = raw.get("link_bytes_per_s"), raw.get("used_cases")
    return CalibrationFile(
        link_bytes_per_s=(
            None if link is None else number(path, "link_bytes_per_s", link, 1e8, 1e15)
        ),
        engines=MappingProxyType(engines),
        used_cases=frozenset() if used is None else frozenset(texts(path, "used_cases", used)),
    )


def read_hosts(path: Path) -> Mapping[str, Launch]:
    """Host costs by platform.

    Raises:
        SchemaError: the file is not of this form.
        MissingProfileError: there is no such file.
    """
    raw = read_mapping(path)
    only(path, "", raw, ("schema", "note", "platforms"))
    check_schema(path, raw)
    hosts: dict[str, Launch] = {}
    for platform, entry in mapping(path, "platforms", raw.get("platforms")).items():
        where = f"platforms.{platform}"
        values = mapping(path, where, entry)
        only(path, where, values, _HOST_FIELDS)
        numbers = {
            name: number(path, f"{where}.{name}", values.get(name), 0.0, 1e3)
            for name in _HOST_FIELDS[:-1]
        }
        hosts[platform] = Launch(
            platform=platform,
            origin="calibrated",
            sources=texts(path, f"{where}.sources", values.get("sources")),
            **numbers,
        )
    for platform in ("x86", "grace"):
        if platform not in hosts:
            raise SchemaError(f"{path}: platforms.{platform} is missing")
    return MappingProxyType(hosts)


def _law(path: Path, where: str, key: str, raw: Any) -> CalibratedLaw:
    if not _KEY.fullmatch(key):
        raise SchemaError(
            f"{path}: {where}: a key is lower-case words joined by dots, a collective's ends in "
            f"@ and its GPUs; found {key!r}"
        )
    entry = mapping(path, where, raw)
    only(path, where, entry, _LAW_FIELDS)
    kind = _kind(path, f"{where}.kind", entry.get("kind"))
    error = mapping(path, f"{where}.error", entry.get("error"))
    only(path, f"{where}.error", error, _ERROR_FIELDS)
    rows = error.get("rows")
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise SchemaError(f"{path}: {where}.error.rows must be a whole number, found {rows!r}")
    median = number(path, f"{where}.error.median", error.get("median"), 0.0, 10.0)
    p90 = number(path, f"{where}.error.p90", error.get("p90"), 0.0, 10.0)
    penalty = number(path, f"{where}.penalty", entry.get("penalty", 0.0), 0.0, 10.0)
    if p90 < median:
        raise SchemaError(f"{path}: {where}.error: p90 {p90:g} is below the median {median:g}")
    return CalibratedLaw(
        kind=kind,
        key=key,
        parameters=_parameters(path, f"{where}.parameters", kind, entry.get("parameters")),
        error_median=median,
        error_p90=p90 + penalty,
        penalty=penalty,
        bias=number(path, f"{where}.error.bias", error.get("bias"), -1.0, 10.0),
        rows_fitted=rows,
        hull=_hull(path, f"{where}.hull", entry.get("hull", {})),
        origin=_origin(path, f"{where}.origin", entry.get("origin", "calibrated")),
        sources=texts(path, f"{where}.sources", entry.get("sources")),
        note=str(entry.get("note", "")),
        reach=str(entry.get("reach", "")),
    )


def _kind(path: Path, where: str, value: Any) -> LawKind:
    try:
        return LawKind(value)
    except ValueError:
        raise SchemaError(
            f"{path}: {where} is {value!r}; {nearest(str(value), list(LawKind))}"
        ) from None


def _origin(path: Path, where: str, value: Any) -> Origin:
    if value == "calibrated":
        return "calibrated"
    if value == "default":
        return "default"
    raise SchemaError(f"{path}: {where} is {value!r}; known: calibrated, default")


def _parameters(path: Path, where: str, kind: LawKind, raw: Any) -> Mapping[str, float]:
    entry = mapping(path, where, raw)
    wanted = FORMS[kind].parameters
    only(path, where, entry, tuple(wanted))
    values: dict[str, float] = {}
    for name, (low, high, meaning) in wanted.items():
        if name not in entry:
            raise SchemaError(f"{path}: {where}.{name} is missing ({meaning})")
        values[name] = number(path, f"{where}.{name}", entry[name], low, high)
    limits = [values[name] for name in wanted if name.startswith("limit_")]
    if limits != sorted(limits):
        raise SchemaError(f"{path}: {where}: limits must not fall from regime to regime")
    return MappingProxyType(values)


def _hull(path: Path, where: str, raw: Any) -> Mapping[str, tuple[float, float]]:
    hull: dict[str, tuple[float, float]] = {}
    for axis, ends in mapping(path, where, raw).items():
        if not isinstance(ends, list) or len(ends) != 2:
            raise SchemaError(f"{path}: {where}.{axis} must be [lowest, highest], found {ends!r}")
        low, high = (number(path, f"{where}.{axis}", end, 0.0, 1e18) for end in ends)
        if low > high:
            raise SchemaError(f"{path}: {where}.{axis}: lowest {low:g} is above highest {high:g}")
        hull[axis] = (low, high)
    return MappingProxyType(hull)


def check_schema(path: Path, raw: Mapping[str, Any], remedy: str = "") -> None:
    """Refuse a file of another form."""
    if raw.get("schema") != SCHEMA:
        raise SchemaError(
            f"{path}: schema is {raw.get('schema')!r}, this version reads {SCHEMA}{remedy}"
        )


def mapping(path: Path, where: str, value: Any) -> Mapping[str, Any]:
    """The value, which must be a mapping."""
    if not isinstance(value, dict):
        raise SchemaError(f"{path}: {where} must be a mapping, found {type(value).__name__}")
    return value


def only(path: Path, where: str, entry: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse fields that are not known."""
    for name in entry:
        if name not in known:
            raise SchemaError(
                f"{path}: {where or 'the file'} has no field {name!r}; {nearest(name, known)}"
            )


def number(path: Path, where: str, value: Any, low: float, high: float) -> float:
    """The value, which must be a finite number between two ends."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SchemaError(
            f"{path}: {where} must be a number (write 4.0e-06, not 4e-06), found {value!r}"
        )
    if not math.isfinite(value) or not low <= value <= high:
        raise SchemaError(f"{path}: {where} must be between {low:g} and {high:g}, found {value!r}")
    return float(value)


def texts(path: Path, where: str, value: Any) -> tuple[str, ...]:
    """The value, which must be a list of texts, at least one."""
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(text, str) and text.strip() for text in value)
    ):
        raise SchemaError(f"{path}: {where} must be a list of texts, at least one; found {value!r}")
    return tuple(value)
