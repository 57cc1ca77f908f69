"""From positions to counts: the ledger of one model under one policy, for all requests at once.

Every count that adds over requests is a linear form of a few *basis* values of the request: its
positions (`aisim_v41.plan.spans`), and how much is reached before some of them
(`aisim_v41.plan.reach`). So counting is: positions, one matrix product to the points where reach is
needed, the closed form, one matrix product to the counts. `LedgerProgram` holds those two matrices
and is built once per (model, policy); everything that follows is array operations whose number
does not depend on the number of requests or steps.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
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
)
from aisim_v41.plan.counts import Count
from aisim_v41.plan.draft import ADDITIVE, DERIVED, REGIONS, DraftCounts, speculates
from aisim_v41.plan.expert_load import load_of
from aisim_v41.plan.images import image_rows
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.reach import UNLIMITED, Floats, Reach, subtract_newest_block, twice_phi
from aisim_v41.plan.spans import PREFILL, VERIFY, Region, RequestColumns, SpanRules

Position = tuple[tuple[int, int], ...]
"""A position as a sum of table rows with factors, for example END - FLOOR."""

ROW_SPAN = {
    Region.FULL: (spans.START, spans.END),
    Region.BOUNDARY: (spans.HEAD_START, spans.END),
    Region.LATE: (spans.LATE_START, spans.END),
}
WINDOW_FLOOR = {
    Region.FULL: spans.FLOOR,
    Region.BOUNDARY: spans.FLOOR,
    Region.LATE: spans.LATE_FLOOR,
}
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
    """

    positions: Floats
    per_request: Floats
    totals: Floats


@dataclass(slots=True)
class _Basis:
    """Values that counts are linear forms of, collected while the counts are declared."""

    forms: list[tuple[Position, Reach, int]] = field(default_factory=list)

    def evaluation(self, position: Position, rule: Reach, place_in_group: int = 0) -> int:
        """Number of the evaluation of a rule at a position."""
        key = (position, rule, place_in_group)
        if key not in self.forms:
            self.forms.append(key)
        return self.forms.index(key)


class LedgerProgram:
    """Counts of one model under one policy.

    Args:
        model: the model.
        policy: the runtime policy.
    """

    def __init__(self, model: Model, policy: RuntimePolicy) -> None:
        self.model, self.policy = model, policy
        self.rules = SpanRules.of(model, policy)
        self.classes = layer_classes(model, policy)
        self.draft = DraftCounts(model, policy) if speculates(model, policy) else None
        added, derived = (ADDITIVE, DERIVED) if self.draft else ((), ())
        backbone = all_columns(self.classes)
        additive = [column for column in backbone if column.quantity in COUNTED]
        own = len(additive)
        self.columns = (*additive, *added, *backbone[own:], *derived)
        self._index = {column: place for place, column in enumerate(self.columns)}
        self.additive = own + len(added)
        self._draft_added = slice(own, self.additive)
        self._draft_derived = slice(len(self.columns) - len(derived), len(self.columns))
        self._build(additive)
        rows = self._places({Count.QUERY_ROWS})
        self._row_slice = _as_slice(rows)
        regions = [self.columns[place].region for place in rows]
        touched, expected = (self._of_regions(count, regions) for count in DISTINCT_EXPERTS)
        self._expert_places = _as_slice(np.concatenate((touched, expected)))
        self._region_active = self._of_regions(Count.ACTIVE, regions)
        self._regions = regions
        self._image_rows = _as_slice(self._of_regions(Count.IMAGE_ROWS, regions))
        # Rows of every kind stand before all else, their activity last, in the same order.
        self._row_places = _as_slice(self._places(set(ACTIVITY.values())))
        self._active_places = _as_slice(self._places(set(ACTIVITY)))
        self.tokens_place = self._index[Column(Count.QUERY_ROWS, Region.FULL)]
        """Column of the rows that enter the model."""
        self.logits_place = self._index[Column(Count.LOGIT_ROWS)]
        """Column of the rows that reach the output head."""
        self.load = load_of(model, policy)
        self._clipped = _as_slice(self._places(BOUNDS))
        self._distinct = self._places(DISTINCT)
        self._distinct_rows = np.array(
            [self._row_of(self.columns[place].region) for place in self._distinct], np.intp
        )

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
        width = len(requests.new)
        basis = np.empty((self._basis_rows, width))
        table = basis[: spans.PLACES]
        self.rules.positions(requests, table, one_step=one_step)
        visible = self._to_points @ table
        grouped = visible[self._grouped]
        np.floor(grouped, out=grouped)
        if self.policy.prompt_logprobs == "two_floors":
            # An empty tail may lie before its own floor; nothing is reached there.
            np.maximum(visible, 0.0, out=visible)
        total, last = basis[self._totals], basis[self._lasts]
        twice_phi(visible, self._caps, self._twice_caps, total=total, last=last)
        for places, rule in self._pools:
            if requests.longest <= rule.cap:
                continue
            subtract_newest_block(visible[places], rule, total=total[places], last=last[places])
        per_request = self._to_counts @ basis
        self._bound_below(per_request)
        if self.policy.score_shape == "rectangle":
            self._score_rectangles(per_request, last)
        if self.policy.index_shortcut != "never":
            self._skip_scoring(per_request, requests, table, last, one_step=one_step)
        pictured = requests.pictured
        if pictured:
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
        self._derive(totals, again, totals[self._image_rows] if pictured else None)
        if self.draft is not None:
            totals[self._draft_derived] = self.draft.of_step(totals[self._draft_added])
        return StepCounts(table, per_request, totals)

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
        for ratio, evaluation in self._visible.items():
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

    # --- building -------------------------------------------------------------------------

    def _build(self, additive: list[Column]) -> None:
        """The two matrices, and where the reach evaluations lie between them."""
        basis = _Basis()
        declared = [self._declare(column, basis) for column in additive]
        self._visible = {
            ratio: basis.evaluation(((spans.END, 1),), Reach(ratio, UNLIMITED))
            for ratio in sorted({column.ratio for column in additive if column.ratio})
        }
        self._scored = [
            (self._index[c], self._row_of(c.region),
             basis.evaluation(((spans.END, 1),), self._scoring_rule(c)))
            for c in additive if c.quantity is Count.SCORED_POSITIONS
        ]  # fmt: skip
        # Ratio 1 first: those positions are the visible entries as they are. Pools side by side.
        order = sorted(
            range(len(basis.forms)),
            key=lambda i: (basis.forms[i][1].ratio > 1, basis.forms[i][1].block),
        )
        place_of = {evaluation: place for place, evaluation in enumerate(order)}
        forms = [basis.forms[evaluation] for evaluation in order]
        count = len(forms)
        first_grouped = sum(rule.ratio == 1 for _, rule, _ in forms)
        self._grouped = slice(first_grouped, count)
        self._to_points = np.zeros((count, spans.PLACES))
        for place, (position, rule, offset) in enumerate(forms):
            for row, factor in position:
                self._to_points[place, row] += factor / rule.ratio
            if rule.ratio > 1:
                # Floor of (n - offset) / ratio, half a unit inside so that rounding cannot matter.
                self._to_points[place, spans.ONE] += (0.5 - offset) / rule.ratio
        self._caps = np.array([[float(rule.cap)] for _, rule, _ in forms]).reshape(count, 1)
        self._twice_caps = 2.0 * self._caps
        self._pools = [
            (_as_slice(np.array([i for i, f in enumerate(forms) if f[1] == rule], np.intp)), rule)
            for rule in sorted({rule for _, rule, _ in forms if rule.block > 1})
        ]
        self._totals = slice(spans.PLACES, spans.PLACES + count)
        self._lasts = slice(spans.PLACES + count, spans.PLACES + 2 * count)
        self._basis_rows = spans.PLACES + 2 * count
        self._visible = {ratio: place_of[e] for ratio, e in self._visible.items()}
        self._scored = [(column, rows, place_of[e]) for column, rows, e in self._scored]
        self._to_counts = np.zeros((len(additive), self._basis_rows))
        for place, (linear, totals, lasts) in enumerate(declared):
            row = self._to_counts[place]
            for basis_row, weight in linear.items():
                row[basis_row] += weight
            for evaluation, weight in totals.items():  # twice_phi is twice the sum
                row[self._totals.start + place_of[evaluation]] += weight / 2
            for evaluation, weight in lasts.items():
                row[self._lasts.start + place_of[evaluation]] += weight

    def _declare(self, column: Column, basis: _Basis) -> _Declaration:
        """A column as factors of positions, of sums of reach, and of single reaches."""
        linear: dict[int, float] = defaultdict(float)
        totals: dict[int, float] = defaultdict(float)
        lasts: dict[int, float] = defaultdict(float)

        def add(target: dict[int, float], key: int, factor: float = 1.0) -> None:
            target[key] += factor

        def add_sum(high: Position, low: Position, rule: Reach) -> None:
            for offset in range(rule.ratio):
                add(totals, basis.evaluation(high, rule, offset), 1.0)
                add(totals, basis.evaluation(low, rule, offset), -1.0)

        region = column.region or Region.FULL
        first, end = ROW_SPAN[region]
        floor = WINDOW_FLOOR[region]
        two_floors = region is Region.LATE and self.policy.prompt_logprobs == "two_floors"
        window = self.model.attention.window
        older = (((first, 1), (floor, -1)), Reach(1, window - 1))
        match column.quantity:
            case Count.LOGIT_ROWS:
                add(linear, spans.LOGIT_ROWS)
            case Count.QUERY_ROWS | Count.INDEX_ROWS:
                add(linear, end)
                add(linear, spans.HEAD_START if two_floors else first, -1.0)
            case Count.WINDOW_PAIRS:
                rule = Reach(1, window)
                add_sum(((end, 1), (floor, -1)), ((first, 1), (floor, -1)), rule)
                if two_floors:
                    add_sum(((first, 1), (spans.HEAD_START, -1)), (), rule)
            case Count.SELECTED_ENTRIES | Count.SCORED_POSITIONS:
                selecting = column.quantity is Count.SELECTED_ENTRIES
                rule = self._selection_rule(column) if selecting else self._scoring_rule(column)
                low = spans.HEAD_START if two_floors else first
                add_sum(((end, 1),), ((low, 1),), rule)
            case Count.WINDOW_ROWS:
                add(linear, end)
                add(linear, spans.HEAD_START if two_floors else first, -1.0)
                add(lasts, basis.evaluation(*older))
            case Count.WINDOW_ROWS_CACHED:
                add(lasts, basis.evaluation(*older))
                self._subtract_cut(linear, first)
            case Count.SELECTED_ROWS:
                add(lasts, basis.evaluation(((end, 1),), self._selection_rule(column)))
            case Count.INDEX_KEYS:
                add(lasts, basis.evaluation(((end, 1),), self._scoring_rule(column)))
            case Count.SELECTED_ROWS_CACHED:
                # The first query reaches at least top_k - 1 of the older entries, or all of them;
                # each row between the prefix and it can have replaced one.
                rule = self._selection_rule(column)
                older_entries = rule._replace(cap=rule.cap - 1)
                add(lasts, basis.evaluation(((spans.PREFIX, 1),), older_entries))
                self._subtract_cut(linear, first)
            case Count.INDEX_KEYS_CACHED:
                # The last query scores all it reaches, of which the step's own entries are new.
                every = Reach(column.ratio, UNLIMITED)
                add(lasts, basis.evaluation(((end, 1),), self._scoring_rule(column)))
                add(lasts, basis.evaluation(((end, 1),), every), -1.0)
                add(lasts, basis.evaluation(((spans.PREFIX, 1),), every))
            case Count.IMAGE_ROWS:
                pass  # see `aisim_v41.plan.images`
            case Count.COMPRESSED_ROWS:
                replayed = self.policy.replayed_rows_compress
                add(linear, end)
                add(linear, spans.START if replayed else spans.PREFIX, -1.0)
            case Count.ENTRIES_WRITTEN:
                every = Reach(column.ratio, UNLIMITED)
                add(lasts, basis.evaluation(((end, 1),), every))
                add(lasts, basis.evaluation(((spans.PREFIX, 1),), every), -1.0)
            case _:
                raise AssertionError(column)
        return linear, totals, lasts

    @staticmethod
    def _subtract_cut(linear: dict[int, float], first: int) -> None:
        """Rows of this step that lie before the first query of a region."""
        if first is not spans.START:
            linear[first] -= 1.0
            linear[spans.START] += 1.0

    def _selection_rule(self, column: Column) -> Reach:
        assert self.model.indexer is not None
        return Reach(column.ratio, self.model.indexer.top_k)

    def _scoring_rule(self, column: Column) -> Reach:
        indexer = self.model.indexer
        if column.pooled and indexer is not None:
            return Reach(column.ratio, indexer.candidate_positions, indexer.candidate_block)
        return Reach(column.ratio, UNLIMITED)

    def _places(self, counts: frozenset[Count] | set[Count]) -> npt.NDArray[np.intp]:
        """Positions of the backbone's columns of some counts."""
        own = (i for i, c in enumerate(self.columns) if c.region not in REGIONS)
        return np.array([i for i in own if self.columns[i].quantity in counts], np.intp)

    def _of_regions(self, count: Count, regions: list[Region | None]) -> npt.NDArray[np.intp]:
        return np.array([self._index[Column(count, region)] for region in regions], np.intp)

    def _row_of(self, region: Region | None) -> int:
        """Column of the query rows of a region."""
        tail = region in (Region.BOUNDARY, Region.LATE)
        return self._index[Column(Count.QUERY_ROWS, Region.LATE if tail else Region.FULL)]


_Declaration = tuple[dict[int, float], dict[int, float], dict[int, float]]


def _as_slice(places: npt.NDArray[np.intp]) -> slice:
    """Neighbouring places as a slice, which is read and written in place."""
    first, last = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    if last - first != len(places):
        raise AssertionError(f"columns {places} are not side by side")
    return slice(first, last)
