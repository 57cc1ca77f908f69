"""From positions to counts: the ledger of one model under one policy, for all requests at once.

Every count that adds over requests is a linear form of a few *basis* values of the request: its
positions (`aisim_v41.plan.spans`), and how much is reached before some of them
(`aisim_v41.plan.reach`). So counting is: positions, one matrix product to the points where reach is
needed, the closed form, one matrix product to the counts. `aisim_v41.plan.matrices` holds those two
matrices and is built once per (model, policy); everything that follows is array operations whose
number does not depend on the number of requests or steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aisim_v41.model.description import Model
from aisim_v41.plan import spans
from aisim_v41.plan.columns import (
    ACTIVITY,
    BOUNDS,
    COUNTED,
    DISTINCT_EXPERTS,
    Column,
    LayerClass,
    all_columns,
    column_of,
    layer_classes,
    on_ranks,
)
from aisim_v41.plan.counts import Count
from aisim_v41.plan.dealing import RowSplit, shares
from aisim_v41.plan.draft import ADDITIVE, BLOCK, DERIVED, REGIONS, DraftCounts, speculates
from aisim_v41.plan.expert_load import ExpertLoad, load_of
from aisim_v41.plan.images import image_rows
from aisim_v41.plan.interleave import Copies, Interleaved
from aisim_v41.plan.matrices import Matrices, as_slice
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.reach import Floats
from aisim_v41.plan.replica import Replica, replica_columns
from aisim_v41.plan.spans import PREFILL, VERIFY, Region, RequestColumns, SpanRules

DISTINCT = BOUNDS | {Count.WINDOW_ROWS, Count.SELECTED_ROWS, Count.INDEX_KEYS}
"""Counts of distinct rows, which are 0 where a request has no row in the region."""
SKIPPABLE = frozenset(
    {Count.INDEX_ROWS, Count.SCORED_POSITIONS, Count.INDEX_KEYS, Count.INDEX_KEYS_CACHED}
)


class StepCounts(NamedTuple):
    """Counts of one step or of many.

    Attributes:
        positions: [place, requests], see `aisim_v41.plan.spans`.
        per_request: [additive columns, requests], one request each whatever its ``count``; whole
            numbers, exact.
        totals: [all columns] for one step, [all columns, steps] otherwise.
        again: rows of verify steps that follow the first of their request [regions, ...].
    """

    positions: Floats
    per_request: Floats
    totals: Floats
    again: Floats | None = None


class RankCounts(NamedTuple):
    """Counts of ranks that do the same.

    Attributes:
        requests: of one of them.
        ranks: how many they are: a number, or [steps].
        counts: of one of them.
        copies: where rows are interleaved, whose copies the requests are.
    """

    requests: RequestColumns
    ranks: Floats
    counts: StepCounts
    copies: Copies | None = None


class LedgerProgram:
    """Counts of one model under one policy.

    Args:
        model: the model.
        policy: the runtime policy.
        split: how rows are divided over ranks; None: every rank runs all.
    """

    def __init__(self, model: Model, policy: RuntimePolicy, split: RowSplit | None = None) -> None:
        self.model, self.policy, self.split = model, policy, split
        self.rules = SpanRules.of(model, policy)
        self.classes = layer_classes(model, policy, split)
        self.draft_block = on_ranks(BLOCK, split)
        """Class of every draft block."""
        self.draft = DraftCounts(model, policy) if speculates(model, policy) else None
        added, derived = (ADDITIVE, DERIVED) if self.draft else ((), ())
        backbone = all_columns(self.classes)
        additive = [column for column in backbone if column.quantity in COUNTED]
        own = len(additive)
        plain = (*additive, *added, *backbone[own:], *derived)
        regions = [c.region for c in additive if c.quantity is Count.QUERY_ROWS]
        seen = [*regions, *([Region.DRAFT] if self.draft else [])]
        self.columns = plain if split is None else (*plain, *replica_columns(seen, split))
        self._index = {column: place for place, column in enumerate(self.columns)}
        self.additive = own + len(added)
        self._draft_added = slice(own, self.additive)
        self._draft_derived = slice(len(plain) - len(derived), len(plain))
        self.matrices = Matrices(model, policy, additive)
        self._scored = [
            (self._index[column], self._row_of(column.region), e)
            for column, e in self.matrices.scored.items()
        ]
        rows = self._places({Count.QUERY_ROWS})
        self._row_slice = as_slice(rows)
        touched, expected = (self._of_regions(count, regions) for count in DISTINCT_EXPERTS)
        self._expert_places = as_slice(np.concatenate((touched, expected)))
        self._region_active = self._of_regions(Count.ACTIVE, regions)
        self._regions = regions
        self._image_rows = as_slice(self._of_regions(Count.IMAGE_ROWS, regions))
        # Rows of every kind stand before all else, their activity last, in the same order.
        self._row_places = as_slice(self._places(set(ACTIVITY.values())))
        self._active_places = as_slice(self._places(set(ACTIVITY)))
        entering = Count.STORED_ROWS if split and split.by == "rows" else Count.QUERY_ROWS
        self.tokens_place = self._index[Column(entering, Region.FULL)]
        """Column of the rows that enter the model."""
        self.logits_place = self._index[Column(Count.LOGIT_ROWS)]
        """Column of the rows that reach the output head."""
        self.load = load_of(model, policy)
        self._clipped = as_slice(self._places(BOUNDS))
        self._distinct = self._places(DISTINCT)
        self._distinct_rows = np.array(
            [self._row_of(self.columns[place].region) for place in self._distinct], np.intp
        )
        self.replica = Replica(self, split, self._index, len(plain), seen) if split else None
        """What the ranks of a split see together."""

    def position(self, count: Count, where: LayerClass | None) -> int:
        """Row of the count matrix that holds ``count`` of a layer class.

        Raises:
            ValueError: the count has no meaning there.
        """
        return self._index[column_of(count, where)]

    def expert_columns(self, count: Count = Count.EXPERTS_TOUCHED) -> list[tuple[int, int, int]]:
        """Of each region: places of distinct experts and of activity, and experts of one row.

        Args:
            count: distinct experts of a bound, or expected ones.
        """
        places = self._places({count}).tolist()
        found = [
            (place, active, self.model.experts.top_k)
            for place, active in zip(places, self._region_active.tolist(), strict=True)
        ]
        if self.draft is not None:
            distinct, active_draft = (
                self._index[Column(one, Region.DRAFT)] for one in (count, Count.ACTIVE)
            )
            found.append((distinct, active_draft, self.draft.experts.top_k))
        return found

    # --- evaluating -------------------------------------------------------------------------

    def count(self, requests: RequestColumns, *, one_step: bool) -> StepCounts:
        """Count every column.

        Args:
            requests: columns of equal width.
            one_step: the requests form one step; otherwise each is a step of its own.
        """
        table, per_request, last = self.located(requests, one_step=one_step)
        return self.counted(requests, table, per_request, last, one_step=one_step)

    def of_ranks(self, requests: RequestColumns, *, one_step: bool) -> list[RankCounts]:
        """Counts of the ranks of a split, with what they see together.

        Args and errors: as for `count`.
        """
        split, replica = self.split, self.replica
        assert split is not None
        assert replica is not None
        if split.by == "requests":
            found = [
                RankCounts(one.requests, one.ranks, self.count(one.requests, one_step=one_step))
                for one in shares(requests, split.ranks, one_step=one_step)
            ]
        else:
            one_rank = np.asarray(1.0)
            found = [
                RankCounts(own, one_rank, counts, copies)
                for own, counts, copies in self.interleaved.of_ranks(requests, one_step=one_step)
            ]
        replica.exchange([one.counts for one in found], [one.ranks for one in found])
        return found

    @cached_property
    def interleaved(self) -> Interleaved:
        """Counts of every n-th row."""
        assert self.split is not None
        return Interleaved(self, self.split.ranks)

    def located(self, requests: RequestColumns, *, one_step: bool) -> tuple[Floats, Floats, Floats]:
        """Positions [place, requests], counts of each request, and what its last queries reach.

        Args: as for `count`.
        """
        basis = np.empty((self.matrices.basis_rows, len(requests.new)))
        table = basis[: spans.PLACES]
        self.rules.positions(requests, table, one_step=one_step)
        per_request = self.matrices.evaluate(basis, requests.longest)
        return table, per_request, basis[self.matrices.lasts]

    def counted(
        self,
        requests: RequestColumns,
        table: Floats,
        per_request: Floats,
        last: Floats,
        *,
        one_step: bool,
    ) -> StepCounts:
        """Every column from what `located` gives; ``per_request`` is completed in place."""
        width = len(requests.new)
        self._bound_below(per_request)
        if self.policy.score_shape == "rectangle":
            self._score_rectangles(per_request, last)
        if self.policy.index_shortcut != "never":
            self._skip_scoring(per_request, requests, table, last, one_step=one_step)
        if requests.pictured:
            per_request[self._image_rows] = image_rows(requests, table, self._regions)
        if self.draft is not None:
            drafted = self.draft.of_requests(requests, table)
            per_request = np.concatenate((per_request, drafted))
        shape = (len(self.columns),) if one_step else (len(self.columns), width)
        totals = np.empty(shape)
        if one_step:
            np.matmul(per_request, requests.count, out=totals[: self.additive])
        else:
            np.multiply(per_request, requests.count, out=totals[: self.additive])
        again = None
        if self.policy.expert_routing != "independent" and requests.verifies:
            again = self._rows_again(per_request, requests, one_step=one_step)
        self._finish(totals, again, pictured=requests.pictured)
        return StepCounts(table, per_request, totals, again)

    def together(self, counted: Sequence[StepCounts], ranks: Sequence[Floats]) -> Floats:
        """Counts of one step that holds the requests of several: of so many ranks of each kind.

        Args:
            counted: counts of ranks, of one step or of many.
            ranks: how many ranks have those counts: numbers, or [steps].
        """
        totals = np.zeros_like(counted[0].totals)
        again: Floats | None = None
        for one, number in zip(counted, ranks, strict=True):
            totals[: self.additive] += one.totals[: self.additive] * number
            if one.again is not None:
                again = one.again * number + (0.0 if again is None else again)
        self._finish(totals, again, pictured=bool(totals[self._image_rows].any()))
        return totals

    def load_in(self, region: Region | None) -> ExpertLoad:
        """How experts of a region are chosen."""
        if region is Region.DRAFT and self.draft is not None:
            return self.draft.load
        return self.load

    def _finish(self, totals: Floats, again: Floats | None, *, pictured: bool) -> None:
        """What follows from the counts that add."""
        self._derive(totals, again, totals[self._image_rows] if pictured else None)
        if self.draft is not None:
            totals[self._draft_derived] = self.draft.of_step(totals[self._draft_added])

    def _bound_below(self, per_request: Floats) -> None:
        """Lower bounds are never negative, and regions without rows read nothing."""
        clipped = per_request[self._clipped]
        np.maximum(clipped, 0.0, out=clipped)
        if not per_request[self._row_slice].all():
            present = per_request[self._distinct_rows] > 0.0
            per_request[self._distinct] *= present

    def _score_rectangles(self, per_request: Floats, last: Floats) -> None:
        """Every row scores what the last one can see."""
        for place, rows, evaluation in self._scored:
            per_request[place] = per_request[rows] * last[evaluation]

    def _skip_scoring(
        self,
        per_request: Floats,
        requests: RequestColumns,
        table: Floats,
        last: Floats,
        *,
        one_step: bool,
    ) -> None:
        """No index work in steps in which every entry would be selected anyway."""
        if self.model.indexer is None:
            return
        live = (requests.count > 0) & (table[spans.END] > table[spans.START])
        prefill = (requests.kind == PREFILL) & live
        for ratio, evaluation in self.matrices.visible.items():
            needed = (last[evaluation] > self.model.indexer.top_k) & live
            if self.policy.index_shortcut == "decode":
                needed |= prefill
            factor = float(needed.any()) if one_step else needed
            for column, place in self._index.items():
                if column.ratio == ratio and column.quantity in SKIPPABLE:
                    per_request[place] *= factor

    def _rows_again(
        self, per_request: Floats, requests: RequestColumns, *, one_step: bool
    ) -> Floats:
        """Rows of verify steps that follow the first row of their request [regions, ...]."""
        again = np.maximum(per_request[self._row_slice] - 1.0, 0.0)
        again *= (requests.kind == VERIFY) * requests.count
        return again.sum(axis=1) if one_step else again

    def _derive(self, totals: Floats, again: Floats | None, images: Floats | None) -> None:
        """Activity of each region, and distinct experts: those of a bound, those expected.

        Verify rows that draw again, and image rows, are None where there are none [regions, ...].
        """
        active = totals[self._active_places]
        np.minimum(totals[self._row_places], 1.0, out=active)
        rows, distinct = totals[self._row_slice], totals[self._expert_places]
        regions = len(rows)
        if images is not None:
            rows = rows - images
        bound, expected = distinct[:regions], distinct[regions:]
        if again is None:
            expected[:] = self.load.touched(rows)
            bound[:] = expected
        else:
            # Rows of one verifying request draw once for a bound, in part anew as expected.
            np.subtract(rows, again, out=bound)
            np.multiply(again, 1.0 - self.policy.expert_locality, out=expected)
            expected += bound
            distinct[:] = self.load.touched(distinct)
        if images is not None:
            drawn = self.load.touched(images)
            bound[:] = self.load.together(bound, drawn)
            expected[:] = self.load.together(expected, drawn)
        if self.policy.expert_routing == "fewest":
            np.multiply(active[:regions], self.model.experts.top_k, out=bound)

    def _places(self, counts: frozenset[Count] | set[Count]) -> npt.NDArray[np.intp]:
        """Positions of the backbone's columns of some counts."""
        own = (i for i, c in enumerate(self.columns) if c.region not in REGIONS)
        return np.array([i for i in own if self.columns[i].quantity in counts], np.intp)

    def _of_regions(self, count: Count, regions: Sequence[Region | None]) -> npt.NDArray[np.intp]:
        return np.array([self._index[Column(count, region)] for region in regions], np.intp)

    def _row_of(self, region: Region | None) -> int:
        """Column of the query rows of a region."""
        return self._index[Column(Count.QUERY_ROWS, _rows_of(region))]


def _rows_of(region: Region | None) -> Region:
    """The region whose rows another one queries with."""
    return Region.LATE if region in (Region.BOUNDARY, Region.LATE) else Region.FULL
