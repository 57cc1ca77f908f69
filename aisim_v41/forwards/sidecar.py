"""The sidecar of a table of forwards: identity, sources, and which Parquet file holds the rows.

It is the commit record: a table is what its sidecar names, whatever else lies in the folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from aisim_v41.errors import InvalidInputError, SchemaError
from aisim_v41.forwards.columns import ADDED, COLUMNS, Column
from aisim_v41.forwards.identity import Identity
from aisim_v41.forwards.parquet import columns_of
from aisim_v41.forwards.records import StepRecord
from aisim_v41.forwards.table import StepTable
from aisim_v41.tables.sidecar import agree, check_fields, digest

KIND: Final = "forward_table"
SCHEMA_VERSION: Final = 1

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
        "units": _units(columns_of(table.records)),
        "licence": table.licence,
        "notice": table.notice,
        "sources": [dict(source) for source in table.sources],
        "remarks": list(table.remarks),
    }


def _units(columns: Sequence[Column]) -> dict[str, str]:
    return {column.name: column.unit for column in columns}


def check_sidecar(sidecar: Mapping[str, Any], *, where: str) -> None:
    """Refuse a sidecar that is incomplete, unknown or of another form.

    Raises:
        SchemaError: names the field, what it is, and what it must be.
    """
    check_fields(sidecar, FIELDS, kind=KIND, version=SCHEMA_VERSION, where=where,
                 written_by="aisim_v41.forwards.store")  # fmt: skip
    added = [column for column in ADDED if column.name in sidecar["units"]]
    agree(where, "units", sidecar["units"], _units([*COLUMNS, *added]), "convert the values")
    agree(where, "file", sidecar["file"], file_name(sidecar["sha256"]),
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
    agree(where, "identity_sha256", sidecar["identity_sha256"], identity.sha256,
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
    agree(where, "units", sidecar["units"], _units(columns_of(table.records)),
          "the sidecar belongs to another table")  # fmt: skip
    agree(where, "rows", sidecar["rows"], len(records), "the sidecar belongs to another table")
    agree(where, "statuses", sidecar["statuses"], table.statuses(), "count them again")
    return table
