"""Claims of rows on ranks: the ledger vector of context parallelism.

Source of the figures: runtime-semantics §4.4 and the notes to the vectors of §10.
"""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.claims.context import Context, Formula
from aisim_v41.claims.prefill import PROMPT
from aisim_v41.claims.work import sglang
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.counts import Count
from aisim_v41.plan.request import Request

INTERLEAVED = Parallel(cp=4)
"""The mapping of the vector's note."""


def on_every_rank(count: Count, *, late: bool) -> Formula:
    """A count that is the same on each rank of a replayed prompt, in early or late layers."""

    def value(context: Context) -> int:
        counted = context.ledger(
            Request(new_tokens=PROMPT),
            policy=sglang(context, replay=True),
            parallel=INTERLEAVED,
        )
        layer = len(context.model.layers) - 1 if late else 0
        place = counted.program.position(count, counted.program.classes[layer])
        (found,) = {int(counts.totals[place]) for _, counts in counted.passes}
        return found

    return value


FORMULAS: Mapping[str, Formula] = {
    "led-8192-cp4": on_every_rank(Count.QUERY_ROWS, late=False),
    "led-8192-cp4-late": on_every_rank(Count.QUERY_ROWS, late=True),
    "led-8192-cp4-writes": on_every_rank(Count.STORED_ROWS, late=False),
    "led-8192-cp4-writes-late": on_every_rank(Count.STORED_ROWS, late=True),
}
