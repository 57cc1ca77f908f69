"""The sidecar of a table: what it is, where it came from, and the digest that ties the two.

A JSON file beside the Parquet file. Everything in it is checked against the schema and against the
rows, so that a sidecar cannot describe another table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from aisim_v41.errors import SchemaError
from aisim_v41.reading import read_mapping
from aisim_v41.tables.columns import Columns
from aisim_v41.tables.schema import CAVEATS, FLAGS, SCHEMA_VERSION, Family

KIND = "operator_table"
SUFFIX = ".json"
SOURCE_FIELDS = ("id", "package", "version", "path", "date", "rows", "note")
TIMING_FIELDS = ("method", "statistic", "environment")
_DIGEST = re.compile(r"[0-9a-f]{64}")

FIELDS: Mapping[str, str] = {
    "kind": "text",
    "schema_version": "whole number",
    "gpu": "text",
    "family": "text",
    "sha256": "text",
    "rows": "whole number",
    "licence": "text",
    "notice": "text",
    "sources": "list",
    "timing": "mapping",
    "identity": "list",
    "axes": "mapping",
    "units": "mapping",
    "flags": "mapping",
    "caveats": "mapping",
    "dropped": "list",
    "changed": "list",
    "remarks": "list",
}
"""Every field and its form; none may be missing and there is no other."""

FORMS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str) and bool(value.strip()),
    "text or nothing": lambda value: isinstance(value, str),
    "whole number": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "mapping": lambda value: isinstance(value, dict),
}
"""Forms that a field of a sidecar may have."""


def digest(raw: bytes) -> str:
    """SHA-256 of a file, as the sidecar writes it."""
    return sha256(raw).hexdigest()


def read_sidecar(path: Path, *, gpu: str, family: Family) -> dict[str, Any]:
    """A sidecar whose fields are complete and whose names, units and axes are the schema's.

    Raises:
        MissingProfileError: there is no such file.
        SchemaError: a field is missing, unknown, of another form, or contradicts the schema, the
            folder (GPU) or the file name (family).
    """
    sidecar = read_mapping(path)
    check_sidecar(sidecar, gpu=gpu, family=family, where=str(path))
    return sidecar


def check_sidecar(sidecar: Mapping[str, Any], *, gpu: str, family: Family, where: str) -> None:
    """The checks of `read_sidecar` that need no file."""
    check_fields(sidecar, FIELDS, kind=KIND, version=SCHEMA_VERSION, where=where,
                 written_by="aisim_v41.tables.write_table")  # fmt: skip
    agree(where, "gpu", sidecar["gpu"], gpu, "a table lies in the folder of its GPU")
    agree(where, "family", sidecar["family"], family.name, "a file has the name of its family")
    if sidecar["rows"] < 1:
        raise SchemaError(f"{where}: rows is {sidecar['rows']}; a table has at least one")
    _check_schema_echo(sidecar, family, where)
    _check_entries(sidecar["sources"], SOURCE_FIELDS, f"{where}: sources", whole=("rows",))
    _check_entries([sidecar["timing"]], TIMING_FIELDS, f"{where}: timing")
    _check_entries(sidecar["dropped"], ("source", "rows", "reason"), f"{where}: dropped",
                   whole=("rows",))  # fmt: skip
    _check_entries(sidecar["changed"], ("column", "change"), f"{where}: changed")
    if not sidecar["sources"]:
        raise SchemaError(f"{where}: sources is empty; name where the numbers are from")
    if not all(FORMS["text"](remark) for remark in sidecar["remarks"]):
        raise SchemaError(f"{where}: remarks must be a list of text")
    for field, known in (("flags", FLAGS), ("caveats", CAVEATS)):
        for code, entry in sidecar[field].items():
            _check_entries([entry], ("rows", "meaning"), f"{where}: {field}.{code}",
                           whole=("rows",))  # fmt: skip
            agree(where, f"{field}.{code}.meaning", entry["meaning"], known.get(code),
                  "meanings are those of aisim_v41/tables/schema.py")  # fmt: skip


def check_fields(
    sidecar: Mapping[str, Any],
    fields: Mapping[str, str],
    *,
    kind: str,
    version: int,
    where: str,
    written_by: str,
) -> None:
    """The checks that every sidecar of a table needs: complete, of its forms, kind and version.

    Args:
        sidecar: as it was read.
        fields: every field and its form, one of `FORMS`.
        kind, version: what it must say of itself.
        where: the file, for messages.
        written_by: what writes such sidecars.

    Raises:
        SchemaError: names the field, what it is, and what it must be.
    """
    missing = sorted(set(fields) - set(sidecar))
    unknown = sorted(set(sidecar) - set(fields))
    if missing or unknown:
        raise SchemaError(
            f"{where}: fields missing: {', '.join(missing) or 'none'}; not known: "
            f"{', '.join(unknown) or 'none'}. Write them with {written_by}."
        )
    for field, form in fields.items():
        if not FORMS[form](sidecar[field]):
            raise SchemaError(f"{where}: {field} must be a {form}, found {sidecar[field]!r:.80}")
    agree(where, "kind", sidecar["kind"], kind, "this is the sidecar of something else")
    agree(where, "schema_version", sidecar["schema_version"], version,
                 "convert the table, or use the release of aisim_v41 that wrote it")  # fmt: skip
    if not _DIGEST.fullmatch(sidecar["sha256"]):
        raise SchemaError(f"{where}: sha256 must be 64 hexadecimal digits")


def check_against_rows(sidecar: Mapping[str, Any], columns: Columns, *, where: str) -> None:
    """Refuse a sidecar whose counts are not those of the rows.

    Raises:
        SchemaError: rows, sources, flags, caveats or operators differ.
    """
    rows = len(columns["latency_us"].data)
    agree(where, "rows", sidecar["rows"], rows, "the sidecar belongs to another table")
    counts = {entry["id"]: entry["rows"] for entry in sidecar["sources"]}
    if len(counts) != len(sidecar["sources"]):
        raise SchemaError(f"{where}: sources: an id occurs twice")
    agree(where, "rows of each source", counts, _counted(columns, "source"), "count them again")
    for field, column in (("flags", "flag"), ("caveats", "caveat")):
        said = {code: entry["rows"] for code, entry in sidecar[field].items()}
        found = {code: n for code, n in _counted(columns, column).items() if code}
        agree(where, f"rows of each of {field}", said, found, "count them again")
    operators = sorted(columns["operator"].words or ())
    agree(where, "operators in axes", sorted(sidecar["axes"]), operators, "name those of the rows")


def schema_echo(family: Family, operators: tuple[str, ...]) -> dict[str, Any]:
    """Fields of the sidecar that repeat the schema, for readers without this library."""
    return {
        "identity": list(family.identity_names),
        "axes": {name: list(family.operators[name]) for name in sorted(operators)},
        "units": {column.name: column.unit for column in family.columns},
    }


def counts_of(columns: Columns, column: str, meanings: Mapping[str, str]) -> dict[str, Any]:
    """Rows and meaning of each flag or caveat in use."""
    found = _counted(columns, column)
    return {
        code: {"rows": found[code], "meaning": meanings[code]} for code in sorted(found) if code
    }


def _counted(columns: Columns, column: str) -> dict[str, int]:
    values = columns[column]
    words = values.words or ()
    counts = np.bincount(values.data, minlength=len(words))
    return {word: int(count) for word, count in zip(words, counts, strict=True) if count}


def _check_schema_echo(sidecar: Mapping[str, Any], family: Family, where: str) -> None:
    wanted = schema_echo(family, ())
    agree(where, "identity", sidecar["identity"], wanted["identity"], "list the schema's columns")
    if sidecar["units"] != wanted["units"]:
        said = sidecar["units"]
        for column, unit in wanted["units"].items():
            agree(where, f"units.{column}", said.get(column), unit, "convert the values")
        extra = ", ".join(sorted(set(said) - set(wanted["units"])))
        raise SchemaError(f"{where}: units of columns that there are not: {extra}")
    for operator, axes in sidecar["axes"].items():
        known = family.operators.get(operator)
        agree(where, f"axes.{operator}", axes, list(known) if known else None,
              "axes are those of aisim_v41/tables/schema.py")  # fmt: skip


def _check_entries(
    entries: list[Any], wanted: tuple[str, ...], where: str, whole: tuple[str, ...] = ()
) -> None:
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != set(wanted):
            raise SchemaError(
                f"{where}: an entry must have {', '.join(wanted)}; found {entry!r:.120}"
            )
        for field in wanted:
            form = "whole number" if field in whole else "text"
            if not FORMS[form](entry[field]) or (field in whole and entry[field] < 0):
                raise SchemaError(f"{where}: {field} must be a {form}, found {entry[field]!r:.80}")


def agree(where: str, field: str, found: Any, wanted: Any, remedy: str) -> None:
    """Refuse a value that is not the wanted one.

    Raises:
        SchemaError: names the field, both values, and what to do.
    """
    if type(found) is not type(wanted) or found != wanted:
        raise SchemaError(f"{where}: {field} is {found!r:.200}, must be {wanted!r:.200}: {remedy}")
