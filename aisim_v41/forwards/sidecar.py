"""The sidecar of a table of forwards: identity, sources, and which Parquet file holds the rows.

It is the commit record: a table is what its sidecar names, whatever else lies in the folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from aisim_v41.errors import InvalidInputError, SchemaError
from aisim_v41.forwards.columns import COLUMNS
from aisim_v41.forwards.identity import Identity
from aisim_v41.forwards.records import StepRecord
from aisim_v41.forwards.table import StepTable

KIND: Final = "forward_table"
SCHEMA_VERSION: Final = 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNITS: Final = {column.name: column.unit for column in COLUMNS}

FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kind": "text",
        "schema_version": "whole number",
        "gpu": "text",
        "preset": "text",
        "identity": "mapping",
        "identity_sha256": "text",
        "file": "text",
        "sha256": "text",
        "rows": "whole number",
        "statuses": "mapping",
        "units": "mapping",
        "licence": "text",
        "notice": "text or nothing",
        "sources": "list",
        "remarks": "list",
    }
)
"""Every field and its form; none may be missing and there is no other."""

_FORMS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "text": lambda value: isinstance(value, str) and bool(value.strip()),
    "text or nothing": lambda value: isinstance(value, str),
    "whole number": lambda value: type(value) is int,
    "list": lambda value: isinstance(value, list),
    "mapping": lambda value: isinstance(value, dict),
}


def digest(raw: bytes) -> str:
    """SHA-256 of a file, as the sidecar writes it."""
    return sha256(raw).hexdigest()


def file_name(sha: str) -> str:
    """Name of the Parquet file with a digest."""
    return f"steps-{sha[:12]}.parquet"


def sidecar_of(table: StepTable, raw: bytes) -> dict[str, Any]:
    """The sidecar of a table whose rows are ``raw``."""
    return {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "gpu": table.gpu,
        "preset": table.preset,
        "identity": table.identity.to_dict(),
        "identity_sha256": table.identity.sha256,
        "file": file_name(digest(raw)),
        "sha256": digest(raw),
        "rows": len(table.records),
        "statuses": table.statuses(),
        "units": dict(_UNITS),
        "licence": table.licence,
        "notice": table.notice,
        "sources": [dict(source) for source in table.sources],
        "remarks": list(table.remarks),
    }


def check_sidecar(sidecar: Mapping[str, Any], *, where: str) -> None:
    """Refuse a sidecar that is incomplete, unknown or of another form.

    Raises:
        SchemaError: names the field, what it is, and what it must be.
    """
    missing = sorted(set(FIELDS) - set(sidecar))
    unknown = sorted(set(sidecar) - set(FIELDS))
    if missing or unknown:
        raise SchemaError(
            f"{where}: fields missing: {', '.join(missing) or 'none'}; not known: "
            f"{', '.join(unknown) or 'none'}. Write tables with aisim_v41.forwards.store."
        )
    for name, form in FIELDS.items():
        if not _FORMS[form](sidecar[name]):
            raise SchemaError(f"{where}: {name} must be a {form}, found {sidecar[name]!r:.80}")
    _same(where, "kind", sidecar["kind"], KIND, "this is the sidecar of something else")
    _same(where, "schema_version", sidecar["schema_version"], SCHEMA_VERSION,
          "convert the table, or use the release of aisim_v41 that wrote it")  # fmt: skip
    _same(where, "units", sidecar["units"], _UNITS, "convert the values")
    if not _DIGEST.fullmatch(sidecar["sha256"]):
        raise SchemaError(f"{where}: sha256 must be 64 hexadecimal digits")
    _same(where, "file", sidecar["file"], file_name(sidecar["sha256"]),
          "the file of the rows is named by its digest")  # fmt: skip


def table_from(
    sidecar: Mapping[str, Any], records: Sequence[StepRecord], *, where: str
) -> StepTable:
    """The table that a checked sidecar and its rows make.

    Raises:
        SchemaError: the identity is none, was changed, or the counts are not those of the rows.
    """
    try:
        identity = Identity.from_dict(sidecar["identity"])
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from None
    _same(where, "identity_sha256", sidecar["identity_sha256"], identity.sha256,
          "the identity was changed by hand; import the rows with the right one")  # fmt: skip
    try:
        table = StepTable(
            identity=identity,
            gpu=sidecar["gpu"],
            records=tuple(records),
            preset=sidecar["preset"],
            licence=sidecar["licence"],
            notice=sidecar["notice"],
            sources=tuple(sidecar["sources"]),
            remarks=tuple(sidecar["remarks"]),
        )
        table.plan_setting()
    except (InvalidInputError, SchemaError) as error:
        raise SchemaError(f"{where}: {error}") from None
    _same(where, "rows", sidecar["rows"], len(records), "the sidecar belongs to another table")
    _same(where, "statuses", sidecar["statuses"], table.statuses(), "count them again")
    return table


def _same(where: str, field: str, found: Any, wanted: Any, remedy: str) -> None:
    if type(found) is not type(wanted) or found != wanted:
        raise SchemaError(f"{where}: {field} is {found!r:.200}, must be {wanted!r:.200}: {remedy}")
