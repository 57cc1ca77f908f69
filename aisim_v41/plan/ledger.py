"""The ledger of a plan: which rows every layer computes, reads and writes, as exact integers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.description import Model
from aisim_v41.plan import draft, spans
from aisim_v41.plan.columns import COUNTED, LayerClass, has_count
from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.counting import LedgerProgram, StepCounts
from aisim_v41.plan.counts import Count
from aisim_v41.plan.dealing import RowSplit, requests_of_ranks
from aisim_v41.plan.plan import ForwardPass, Plan, forward_passes
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.reach import Floats
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
def ledger_program(
    model: Model, policy: RuntimePolicy, split: RowSplit | None = None
) -> LedgerProgram:
    """The counting program of a model under a policy and a split of rows, built once."""
    return LedgerProgram(model, policy, split)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Exact counts of a plan.

    Every number of a request group is that of all its ``count`` requests together, so that sums
    never depend on grouping.
    """

    plan: Plan
    program: LedgerProgram
    passes: tuple[tuple[ForwardPass, StepCounts], ...]

    @property
    def forwards(self) -> tuple[tuple[tuple[ForwardPass, StepCounts], ...], ...]:
        """Forwards of the step one after another, each with those of all ranks at once."""
        if self.program.split is not None:
            return (self.passes,)
        return tuple((one,) for one in self.passes)

    def value(self, count: Count, layer: int, *, forward: int = -1, request: int) -> int:
        """One count of one layer and one request group (0 where the layer has no such work).

        Raises:
            InvalidInputError: the count belongs to a whole step (activities, experts touched).
        """
        where = self.program.classes[layer]
        return int(self._values(count, where, self.passes[forward])[request])

    def total(self, count: Count, layer: int) -> int:
        """One count of one layer over all requests and forwards.

        Raises:
            InvalidInputError: the count belongs to a whole step (activities, experts touched).
        """
        where = self.program.classes[layer]
        return sum(sum(self._values(count, where, one).tolist()) for one in self.passes)

    def draft_total(self, count: Count, where: LayerClass = draft.BLOCK) -> int:
        """One count of a draft block over all requests and forwards; 0 without speculation.

        Args:
            count: what is counted.
            where: the drafted rows of a block, or `aisim_v41.plan.draft.CONTEXT` or ``CHAIN``.

        Raises:
            InvalidInputError: the count belongs to a whole step (activities, experts touched).
        """
        if self.program.draft is None:
            return 0
        return sum(sum(self._values(count, where, one).tolist()) for one in self.passes)

    def _values(
        self, count: Count, where: LayerClass, one: tuple[ForwardPass, StepCounts]
    ) -> npt.NDArray[np.int64]:
        """One count of one layer class, of every request group of a forward [requests]."""
        if count not in PER_REQUEST:
            names = ", ".join(PER_REQUEST)
            raise InvalidInputError(f"{count} is that of a whole step; of a request: {names}")
        forward, counts = one
        copies = np.array([request.count * forward.times for request in forward.requests], np.int64)
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
        """One row a layer and request group, in layer order within each forward; draft blocks
        (kind "draft", drafted rows from the end of the context on) come last.

        Where ranks run different rows, every rank has rows of its own and a column ``rank``.

        Columns: forward, layer, request, kind (of the layer), request_kind, count, ratio,
        kv_owner, selection_producer, first_row and end_row [positions], window_floor [position],
        and the counts of `FRAME_COUNTS`.
        """
        import pandas as pd

        frames = []
        for number, one in self._numbered():
            positions = one[1].positions
            for layer, cls in zip(self.plan.model.layers, self.program.classes, strict=True):
                tail = cls.region is not Region.FULL
                late = cls.region is Region.LATE
                owners = (layer.kv_owner, layer.selection_producer)
                span = (
                    positions[spans.HEAD_START if tail else spans.START],
                    positions[spans.END],
                    _late_floor(one[1]) if late else positions[spans.FLOOR],
                )
                values = {count: self._values(count, cls, one) for count in FRAME_COUNTS}
                identity = (number, layer.index, str(layer.kind), layer.ratio)
                frames.append(_frame(one[0], identity, owners, span, values))
            frames += self._draft_frames(number, one)
        return pd.concat(frames, ignore_index=True)

    def _numbered(self) -> Iterator[tuple[int, tuple[ForwardPass, StepCounts]]]:
        """Passes with the number of their forward."""
        for number, ranks in enumerate(self.forwards):
            for one in ranks:
                yield number, one

    def _draft_frames(self, number: int, one: tuple[ForwardPass, StepCounts]) -> list[pd.DataFrame]:
        """Rows of the draft blocks of one forward; none without speculation."""
        drafter = self.plan.model.draft
        if self.program.draft is None or drafter is None:
            return []
        values = {count: self._values(count, draft.BLOCK, one) for count in FRAME_COUNTS}
        values[Count.KV_ROWS] = self._values(Count.KV_ROWS, draft.CONTEXT, one)
        end, floor = one[1].positions[spans.END], one[1].positions[spans.FLOOR]
        rows = one[1].per_request[self.program.position(Count.QUERY_ROWS, draft.BLOCK)]
        span = (end, end + rows, np.maximum(floor, end - self.plan.model.attention.window))
        layers = [draft.block_layer(self.plan.model, block) for block in range(drafter.blocks)]
        identities = [(number, layer, "draft", 0) for layer in layers]
        return [_frame(one[0], identity, (None, None), span, values) for identity in identities]

    def to_text(self) -> str:
        """The ledger in words that can be checked by hand: rows and writes of each request."""
        from aisim_v41.plan.ledger_text import describe

        return describe(self)


def _frame(
    forward: ForwardPass,
    identity: tuple[int, int, str, int],
    owners: tuple[int | None, int | None],
    span: tuple[Floats, Floats, Floats],
    values: dict[Count, npt.NDArray[np.int64]],
) -> pd.DataFrame:
    """Rows of one layer in one forward.

    Args:
        forward: whose requests.
        identity: forward, layer, kind, ratio.
        owners: KV owner and selection producer.
        span: first row, end row and window floor of every request [requests].
        values: counts of every request [requests].
    """
    import pandas as pd

    requests = forward.requests
    number, layer, kind, ratio = identity
    owner, producer = (pd.array([one] * len(requests), "Int64") for one in owners)
    first, end, floor = (positions.astype(np.int64) for positions in span)
    return pd.DataFrame(
        {
            "forward": number,
            **({} if forward.rank is None else {"rank": forward.rank}),
            "layer": layer,
            "request": range(len(requests)) if forward.places is None else forward.places,
            "kind": kind,
            "request_kind": [request.kind for request in requests],
            "count": [request.count * forward.times for request in requests],
            "ratio": ratio,
            "kv_owner": owner,
            "selection_producer": producer,
            "first_row": first,
            "end_row": end,
            "window_floor": floor,
            **{str(count): value for count, value in values.items()},
        }
    )


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
    split = RowSplit.of(plan.running)
    program = ledger_program(plan.model, plan.policy, split)
    if split is not None:
        return Ledger(plan, program, tuple(_passes_of_ranks(plan, program, split)))
    passes = tuple(
        (forward, program.count(pack(forward.requests), one_step=True))
        for forward in forward_passes(plan.requests, plan.policy)
    )
    return Ledger(plan, program, passes)


def _passes_of_ranks(
    plan: Plan, program: LedgerProgram, split: RowSplit
) -> Iterator[tuple[ForwardPass, StepCounts]]:
    """The forward of every rank, with what the ranks see together."""
    columns = pack(plan.requests)
    if split.by == "rows":
        for rank, one in enumerate(program.of_ranks(columns, one_step=True)):
            assert one.copies is not None
            places, numbers = one.copies.places.tolist(), one.copies.number.tolist()
            own = tuple(
                replace(plan.requests[place], count=int(number), packed=b"")
                for place, number in zip(places, numbers, strict=True)
            )
            yield ForwardPass(own, 1, rank, tuple(places)), one.counts
        return
    held = requests_of_ranks(plan.requests, columns, split.ranks)
    counts = [program.count(pack(one.requests), one_step=True) for one in held]
    assert program.replica is not None
    program.replica.exchange(counts, [np.asarray(1.0)] * len(counts))
    for rank, (dealt, own_counts) in enumerate(zip(held, counts, strict=True)):
        yield ForwardPass(dealt.requests, 1, rank, dealt.places), own_counts
