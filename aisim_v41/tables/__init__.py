"""Measured operators: tables of one schema, loaded without trust (docs/tables.md)."""

from aisim_v41.tables.load import available_tables, load_table, read_table
from aisim_v41.tables.schema import ANY, CAVEATS, FAMILIES, FLAGS, GPUS, NONE, SCHEMA_VERSION
from aisim_v41.tables.table import Identity, OperatorTable, Partition, Row
from aisim_v41.tables.write import write_table

__all__ = [
    "ANY",
    "CAVEATS",
    "FAMILIES",
    "FLAGS",
    "GPUS",
    "NONE",
    "SCHEMA_VERSION",
    "Identity",
    "OperatorTable",
    "Partition",
    "Row",
    "available_tables",
    "load_table",
    "read_table",
    "write_table",
]
