"""Measured cases against the library's bounds: ``python -m aisim_v41.validation``."""

from __future__ import annotations

from aisim_v41.validation.floor import FloorReport, run_floor_check

__all__ = ["FloorReport", "run_floor_check"]
