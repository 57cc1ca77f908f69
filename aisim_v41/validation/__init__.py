"""Measured cases against the library's bounds: ``python -m aisim_v41.validation``."""

from __future__ import annotations

from aisim_v41.validation.cases import load_cases, load_ratios
from aisim_v41.validation.errors import ErrorReport, run_error_table
from aisim_v41.validation.floor import FloorReport, run_floor_check

__all__ = [
    "ErrorReport",
    "FloorReport",
    "load_cases",
    "load_ratios",
    "run_error_table",
    "run_floor_check",
]
