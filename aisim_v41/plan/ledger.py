"""The ledger of a plan: which rows every layer computes, reads and writes, as exact integers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.description import Model
from aisim_v41.plan import spans
from aisim_v41.plan.columns import COUNTED, has_count
from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.counting import LedgerProgram, StepCounts
from aisim_v41.plan.counts import Count
from aisim_v41.plan.plan import ForwardPass, Plan, forward_passes
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.spans import Region

if TYPE_CHECKING:
    import pandas as pd

FRAME_COUNTS = (
    Count.QUERY_ROWS,
    Count.KV_ROWS,
    Count.WINDOW_PAIRS,
    Count.WINDOW_ROWS,
    Count.SELECTED_ENTRIES,
    Count.SCORED_POSITIONS,
    Count.ENTRIES_WRITTEN,
    Count.COMPRESSED_ROWS,
    Count.SELECTED_ROWS,
    Count.INDEX_KEYS,
)

PER_REQUEST = tuple(count for count in COUNTED if count is not Count.KV_ACTIVE)
"""Counts that one request has; activities and touched experts are those of a step."""


@lru_cache(maxsize=64)
def ledger_program(model: Model, policy: RuntimePolicy) -> LedgerProgram:
    """The counting program of a model under a policy, built once."""
    return LedgerProgram(model, policy)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Exact counts of a plan.

    Every number of a request group is that of all its ``count`` requests together, so that sums
    never depend on grouping.
    """

    plan: Plan
    program: LedgerProgram
    passes: tuple[tuple[ForwardPass, StepCounts], ...]

    def value(self, count: Count, layer: int, *, forward: int = -1, request: int) -> int:
        """One count of one layer and one request group (0 where the layer has no such work).

        Raises:
            InvalidInputError: the count belongs to a whole step (activities, experts touched).
        """
        return int(self._values(count, layer, self.passes[forward])[request])

    def total(self, count: Count, layer: int) -> int:
        """One count of one layer over all requests and forwards.

        Raises:
            InvalidInputError: the count belongs to a whole step (activities, experts touched).
        """
        return sum(sum(self._values(count, layer, one).tolist()) for one in self.passes)

    def _values(
        self, count: Count, layer: int, one: tuple[ForwardPass, StepCounts]
    ) -> npt.NDArray[np.int64]:
        """One count of one layer, of every request group of a forward [requests]."""
        if count not in PER_REQUEST:
            names = ", ".join(PER_REQUEST)
            raise InvalidInputError(f"{count} is that of a whole step; of a request: {names}")
        forward, counts = one
        copies = np.array([request.count * forward.times for request in forward.requests], np.int64)
        where = self.program.classes[layer]
        if not has_count(count, where):
            return np.zeros_like(copies)
        single = counts.per_request[self.program.position(count, where)]
        values: npt.NDArray[np.int64] = single.astype(np.int64) * copies
        return values

    @property
    def token_layers(self) -> int:
        """Σ over layers of rows that run the layer's queries and experts."""
        return sum(
            self.total(Count.QUERY_ROWS, index) for index in range(len(self.program.classes))
        )

    def to_frame(self) -> pd.DataFrame:
        """One row a layer and request group, in layer order within each forward.

        Columns: forward, layer, request, kind (of the layer), request_kind, count, ratio,
        kv_owner, selection_producer, first_row and end_row [positions], window_floor [position],
        and the counts of `FRAME_COUNTS`.
        """
        import pandas as pd

        frames = []
        for number, (forward, counts) in enumerate(self.passes):
            requests = forward.requests
            for layer, cls in zip(self.plan.model.layers, self.program.classes, strict=True):
                tail = cls.region is not Region.FULL
                late = cls.region is Region.LATE
                first = counts.positions[spans.HEAD_START if tail else spans.START]
                floor = _late_floor(counts) if late else counts.positions[spans.FLOOR]
                frames.append(
                    pd.DataFrame(
                        {
                            "forward": number,
                            "layer": layer.index,
                            "request": range(len(requests)),
                            "kind": str(layer.kind),
                            "request_kind": [request.kind for request in requests],
                            "count": [request.count * forward.times for request in requests],
                            "ratio": layer.ratio,
                            "kv_owner": pd.array([layer.kv_owner] * len(requests), "Int64"),
                            "selection_producer": pd.array(
                                [layer.selection_producer] * len(requests), "Int64"
                            ),
                            "first_row": first.astype(np.int64),
                            "end_row": counts.positions[spans.END].astype(np.int64),
                            "window_floor": floor.astype(np.int64),
                            **{
                                str(count): self._values(count, layer.index, (forward, counts))
                                for count in FRAME_COUNTS
                            },
                        }
                    )
                )
        return pd.concat(frames, ignore_index=True)

    def to_text(self) -> str:
        """The ledger in words that can be checked by hand: rows and writes of each request."""
        from aisim_v41.plan.ledger_text import describe

        return describe(self)


def _late_floor(counts: StepCounts) -> npt.NDArray[np.float64]:
    """Window floor of the rows that late layers run: of the tail, or of the rows before it where
    only those run (prompt log-probabilities) [requests]."""
    start, end, first = (
        counts.positions[place] for place in (spans.LATE_START, spans.END, spans.HEAD_START)
    )
    only_head = (start >= end) & (first < start)
    floors: npt.NDArray[np.float64] = np.where(
        only_head, counts.positions[spans.FLOOR], counts.positions[spans.LATE_FLOOR]
    )
    return floors


def ledger(plan: Plan) -> Ledger:
    """Count a plan.

    Example:
        >>> import aisim_v41 as aisim
        >>> model = aisim.load_model("deepseek-v4.1-flash")
        >>> plan = aisim.Plan(model, [aisim.Request(new_tokens=8192)],
        ...                   policy=aisim.policy("sglang", decoder_replay=True))
        >>> aisim.ledger(plan).token_layers
        174464

    Raises:
        InvalidInputError: not a plan.
    """
    if not isinstance(plan, Plan):
        raise InvalidInputError(f"plan = {plan!r}: must be a Plan, not {type(plan).__name__}")
    program = ledger_program(plan.model, plan.policy)
    passes = tuple(
        (forward, program.count(pack(forward.requests), one_step=True))
        for forward in forward_passes(plan.requests, plan.policy)
    )
    return Ledger(plan, program, passes)
