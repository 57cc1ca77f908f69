"""Claims on memory."""
from __future__ import annotations
from collections.abc import Callable, Mapping
from aisim_v41.claims.context import Context
from aisim_v41.claims.verdict import Value
Formula = Callable[[Context], Value]
FORMULAS: Mapping[str, Formula] = {}
