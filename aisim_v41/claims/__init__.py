"""Every published figure about the model that we know, recomputed, ours beside it.

The list is data (``profiles/deepseek-v4.1-flash/claims.csv``); one module a topic maps ids to
functions of a `Context`, which use the library's own layers and nothing else. `run_claims`
compares, and ``python -m aisim_v41.claims`` exits non-zero on a mismatch.
"""

from __future__ import annotations

from aisim_v41.claims.context import Context
from aisim_v41.claims.report import ClaimRow, ClaimsReport
from aisim_v41.claims.run import run_claims
from aisim_v41.claims.table import Claim, load_claims
from aisim_v41.claims.verdict import Verdict

__all__ = [
    "Claim",
    "ClaimRow",
    "ClaimsReport",
    "Context",
    "Verdict",
    "load_claims",
    "run_claims",
]
