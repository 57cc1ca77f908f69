"""The file of link defaults, checked field by field: ``profiles/defaults/links.yaml``."""

from __future__ import annotations

import math
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aisim_v41.errors import SchemaError, nearest
from aisim_v41.evidence.calibration_file import check_schema, mapping, number, only, texts
from aisim_v41.evidence.laws import REGIMES
from aisim_v41.evidence.links import Algorithm, Defaults, LinkDefaults, LinkKind, Protocol
from aisim_v41.reading import read_mapping

_KIND_FIELDS = ("own", "library", "error", "sources", "note")
_PROTOCOL_FIELDS = ("algorithm", "start_s", "step_s", "share", "until_bytes")


def read_links(path: Path) -> Defaults:
    """Protocols by kind of link.

    Raises:
        SchemaError: the file is not of this form; names file, field, value and remedy.
        MissingProfileError: there is no such file.
    """
    raw = read_mapping(path)
    only(path, "", raw, ("schema", "note", "kinds"))
    check_schema(path, raw)
    entries = mapping(path, "kinds", raw.get("kinds"))
    only(path, "kinds", entries, tuple(LinkKind))
    for kind in LinkKind:
        if kind not in entries:
            raise SchemaError(f"{path}: kinds.{kind} is missing")
    return MappingProxyType(
        {kind: _kind(path, f"kinds.{kind}", entries[kind]) for kind in LinkKind}
    )


def _kind(path: Path, where: str, raw: Any) -> LinkDefaults:
    entry = mapping(path, where, raw)
    only(path, where, entry, _KIND_FIELDS)
    error = mapping(path, f"{where}.error", entry.get("error"))
    only(path, f"{where}.error", error, ("median", "p90"))
    own = entry.get("own")
    return LinkDefaults(
        own=None if own is None else _protocols(path, f"{where}.own", own),
        library=_protocols(path, f"{where}.library", entry.get("library")),
        error_median=number(path, f"{where}.error.median", error.get("median"), 0.0, 10.0),
        error_p90=number(path, f"{where}.error.p90", error.get("p90"), 0.0, 10.0),
        sources=texts(path, f"{where}.sources", entry.get("sources")),
        note=str(entry.get("note", "")),
    )


def _protocols(path: Path, where: str, raw: Any) -> tuple[Protocol, ...]:
    if not isinstance(raw, list) or not 1 <= len(raw) <= len(REGIMES):
        raise SchemaError(
            f"{path}: {where} must be a list of 1 to {len(REGIMES)} protocols, found {raw!r}"
        )
    found = [_protocol(path, f"{where}[{place}]", entry) for place, entry in enumerate(raw)]
    ends = [protocol.until_bytes for protocol in found]
    if ends != sorted(ends) or ends[-1] != math.inf or math.inf in ends[:-1]:
        raise SchemaError(
            f"{path}: {where}: until_bytes must grow from one protocol to the next, and the last "
            f"has none; found {ends}"
        )
    return tuple(found)


def _protocol(path: Path, where: str, raw: Any) -> Protocol:
    entry = mapping(path, where, raw)
    only(path, where, entry, _PROTOCOL_FIELDS)
    named = str(entry.get("algorithm"))
    try:
        algorithm = Algorithm(named)
    except ValueError:
        raise SchemaError(
            f"{path}: {where}.algorithm is {named!r}; {nearest(named, list(Algorithm))}"
        ) from None
    until = entry.get("until_bytes")
    return Protocol(
        algorithm=algorithm,
        start_s=number(path, f"{where}.start_s", entry.get("start_s"), 0.0, 1e-2),
        step_s=number(path, f"{where}.step_s", entry.get("step_s"), 0.0, 1e-2),
        share=number(path, f"{where}.share", entry.get("share"), 1e-4, 1.0),
        until_bytes=(
            math.inf if until is None else number(path, f"{where}.until_bytes", until, 1.0, 1e15)
        ),
    )
