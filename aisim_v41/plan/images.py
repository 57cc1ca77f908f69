"""Which rows of a step belong to images: the first ones after what was computed before.

What is taken as true of them: docs/assumptions.md, "Images".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aisim_v41.plan import spans
from aisim_v41.plan.reach import Floats
from aisim_v41.plan.spans import Region, RequestColumns


def image_rows(requests: RequestColumns, table: Floats, regions: Sequence[Region | None]) -> Floats:
    """Image rows that each region runs [regions, requests].

    Args:
        requests: the columns.
        table: their positions, as `aisim_v41.plan.spans` gives them.
        regions: those whose rows are wanted.
    """
    last = table[spans.PREFIX] + requests.image_tokens
    starts = [spans.HEAD_START if region is Region.LATE else spans.START for region in regions]
    first = np.maximum(table[starts], table[spans.PREFIX])
    rows: Floats = np.maximum(last - first, 0.0)
    return rows
