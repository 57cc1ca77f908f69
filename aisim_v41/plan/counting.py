"""From positions to counts: the ledger of one model under one policy, for all requests at once.

`LedgerProgram` is built once per (model, policy). It knows which layers execute alike and which
closed forms (`aisim_v41.plan.reach`) their counts need; evaluating it is a handful of array
operations whatever the number of requests or steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from aisim_v41.model.description import Model
from aisim_v41.model.layers import CandidateRole, Layer, LayerKind
from aisim_v41.plan.counts import Count
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.reach import UNLIMITED, Counts, ReachRules, reach_before
from aisim_v41.plan.spans import PREFILL, Region, RequestColumns, SpanRules, Spans

Floats = npt.NDArray[np.float64]


class LayerClass(NamedTuple):
    """Backbone layers whose counts are the same."""

    kind: LayerKind
    ratio: int
    region: Region
    pooled: bool
    """Scores only the candidate pool."""


class Column(NamedTuple):
    """One row of the count matrix: a count, and the part of a layer class that it depends on."""

    count: Count
    region: Region | None = None
    ratio: int = 0
    pooled: bool = False


# Which parts of a layer class each count depends on: (region, ratio, pooled).
_REGION_ONLY: Final = {
    Count.QUERY_ROWS, Count.WINDOW_PAIRS, Count.WINDOW_ROWS, Count.WINDOW_ROWS_CACHED,
    Count.EXPERTS_TOUCHED, Count.ACTIVE,
}  # fmt: skip
_REGION_AND_RATIO: Final = {
    Count.SELECTED_ENTRIES, Count.SELECTED_ROWS, Count.SELECTED_ROWS_CACHED, Count.INDEX_ROWS,
}  # fmt: skip
_SCORING: Final = {Count.SCORED_POSITIONS, Count.INDEX_KEYS, Count.INDEX_KEYS_CACHED}
_SAME_ROWS: Final = {Count.QUERY_ROWS, Count.EXPERTS_TOUCHED, Count.ACTIVE}
"""Counts that BOUNDARY shares with LATE: both run the tail."""


def column_of(count: Count, where: LayerClass | None) -> Column:
    """The column that ``count`` means in a layer class (None: outside the layers)."""
    if count in (Count.LOGIT_ROWS, Count.HEAD_ACTIVE):
        return Column(count)
    if count is Count.TOKENS:
        return Column(Count.QUERY_ROWS, Region.FULL)
    if where is None:
        raise ValueError(f"{count} has no meaning outside a layer")
    if count is Count.KV_ROWS:
        region = Region.FULL if where.region is Region.BOUNDARY else where.region
        return Column(Count.QUERY_ROWS, region)
    if count is Count.KV_ACTIVE:
        region = Region.FULL if where.region is Region.BOUNDARY else where.region
        return Column(Count.ACTIVE, region)
    if count in _REGION_ONLY:
        region = where.region
        if region is Region.BOUNDARY and count in _SAME_ROWS:
            region = Region.LATE
        return Column(count, region)
    if count in _REGION_AND_RATIO:
        return Column(count, where.region, where.ratio)
    if count in _SCORING:
        return Column(count, where.region, where.ratio, where.pooled)
    return Column(count, None, where.ratio)


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Counts of one step or of many.

    ``per_request`` is int64 [integer columns, requests], one request each whatever its ``count``;
    ``totals`` is float64 [all columns] for one step or [all columns, steps].
    """

    spans: Spans
    per_request: Counts
    totals: Floats


class LedgerProgram:
    """Counts of one model under one policy.

    Args:
        model: the model.
        policy: the runtime policy.
    """

    def __init__(self, model: Model, policy: RuntimePolicy) -> None:
        self.model, self.policy = model, policy
        self.rules = SpanRules.of(model, policy)
        self.classes = tuple(self._class_of(layer) for layer in model.layers)
        self._index: dict[Column, int] = {}
        self._build()

    def _class_of(self, layer: Layer) -> LayerClass:
        boundary = self.model.boundary
        region = Region.FULL
        if self.policy.decoder_replay and boundary is not None:
            if layer.index > boundary:
                region = Region.LATE
            elif layer.index == boundary and self.policy.boundary_layer == "kv_only":
                region = Region.BOUNDARY
        pooled = (
            layer.candidate_role is CandidateRole.USER
            and self.policy.reindex_scoring == "candidates"
        )
        return LayerClass(layer.kind, layer.ratio, region, pooled)

    # --- building -------------------------------------------------------------------------

    def _build(self) -> None:
        """Lay out the columns, the reach evaluations and the index arrays between them."""
        classes = sorted(set(self.classes))
        regions = [r for r in Region if r is Region.FULL or any(c.region is r for c in classes)]
        self.trimmed = Region.LATE in regions or Region.BOUNDARY in regions
        row_regions = [Region.FULL, Region.LATE] if self.trimmed else [Region.FULL]
        points = _points(regions, two_floors=self.policy.prompt_logprobs == "two_floors")
        self._point_functions = [function for _, function in points.values()]
        place = {name: position for position, name in enumerate(points)}

        evaluations: dict[tuple[int, tuple[int, int, int]], int] = {}

        def evaluation(point: str, rule: tuple[int, int, int]) -> int:
            return evaluations.setdefault((place[point], rule), len(evaluations))

        def add(columns: Iterable[Column]) -> slice:
            first = len(self._index)
            for column in columns:
                self._index[column] = len(self._index)
            return slice(first, len(self._index))

        def bounds(region: Region) -> tuple[str, str]:
            return ("start", "end") if region is Region.FULL else ("late_start", "end")

        # 1. Rows, and logit rows.
        self._row_columns = [Column(Count.QUERY_ROWS, region) for region in row_regions]
        self._rows = add(self._row_columns)
        self._logits = add([Column(Count.LOGIT_ROWS)])
        row_of = {
            region: self._index[
                column_of(Count.QUERY_ROWS, LayerClass(LayerKind.FULL, 1, region, False))
            ]
            for region in regions
        }

        # 2. Pairs: differences of cumulative reach.
        window_rule = (1, self.model.attention.window, 1)
        uppers: list[int] = []
        lowers: list[int] = []
        heads: list[tuple[int, int, int]] = []
        pair_columns: list[Column] = []

        def add_pairs(column: Column, rule: tuple[int, int, int], low: str, high: str) -> None:
            if column in pair_columns:
                return
            if column.region is Region.LATE and "head_start" in place:
                head_low, head_high = (
                    ("zero", "head_window") if column.count is Count.WINDOW_PAIRS
                    else ("head_start", "late_start")
                )  # fmt: skip
                position = len(pair_columns)
                heads.append((position, evaluation(head_high, rule), evaluation(head_low, rule)))
            pair_columns.append(column)
            uppers.append(evaluation(high, rule))
            lowers.append(evaluation(low, rule))

        for region in regions:
            low, high = _window_points(region)
            add_pairs(Column(Count.WINDOW_PAIRS, region), window_rule, low, high)
        for cls in classes:
            if cls.ratio == 0:
                continue
            low, high = bounds(cls.region)
            selected = column_of(Count.SELECTED_ENTRIES, cls)
            add_pairs(selected, self._selection_rule(cls), low, high)
            if cls.kind in (LayerKind.FULL, LayerKind.REINDEX):
                scored = column_of(Count.SCORED_POSITIONS, cls)
                add_pairs(scored, self._scoring_rule(cls), low, high)
        self._pairs = add(pair_columns)
        self._upper, self._lower = np.array(uppers), np.array(lowers)
        self._heads = heads
        self._scored = [
            (self._index[c], self._index[Column(Count.QUERY_ROWS, _row_region(c.region))],
             evaluation("end", self._scoring_rule_of(c)))
            for c in pair_columns if c.count is Count.SCORED_POSITIONS
        ]  # fmt: skip

        # 3. Distinct rows: what the last query alone reaches, where the region has rows at all.
        reach_columns: list[Column] = []
        reach_evaluations: list[int] = []
        for cls in classes:
            if cls.ratio == 0:
                continue
            wanted = [(Count.SELECTED_ROWS, self._selection_rule(cls))]
            if cls.kind in (LayerKind.FULL, LayerKind.REINDEX):
                wanted.append((Count.INDEX_KEYS, self._scoring_rule(cls)))
            for count, rule in wanted:
                column = column_of(count, cls)
                if column not in reach_columns:
                    reach_columns.append(column)
                    reach_evaluations.append(evaluation("end", rule))
        self._reached = add(reach_columns)
        self._reached_from = np.array(reach_evaluations, dtype=np.intp)
        self._reached_rows = np.array(
            [row_of[c.region] for c in reach_columns if c.region], np.intp
        )

        # 4. Entries written by owners, rows through their compressors.
        ratios = sorted({c.ratio for c in classes if c.kind is LayerKind.FULL})
        self._written = add(Column(Count.ENTRIES_WRITTEN, None, ratio) for ratio in ratios)
        every = {ratio: (ratio, UNLIMITED, 1) for ratio in ratios}
        self._all_at_end = np.array([evaluation("end", every[r]) for r in ratios], np.intp)
        self._all_at_prefix = np.array([evaluation("prefix", every[r]) for r in ratios], np.intp)
        self._compressed = add([Column(Count.COMPRESSED_ROWS, None, ratio) for ratio in ratios])

        # 5. What must have been written before the step.
        cached_columns = [
            c._replace(count=_CACHED[c.count]) for c in reach_columns if c.count in _CACHED
        ]
        self._cached = add(cached_columns)
        ratio_place = {ratio: position for position, ratio in enumerate(ratios)}
        self._cached_ratio = np.array([ratio_place[c.ratio] for c in cached_columns], np.intp)
        self._cached_selects = np.array(
            [[c.count is Count.SELECTED_ROWS_CACHED] for c in cached_columns], dtype=bool
        ).reshape(-1, 1)
        self._cached_late = np.array(
            [[c.region is not Region.FULL] for c in cached_columns], dtype=np.int64
        ).reshape(-1, 1)

        # 6. Window rows.
        self._window_regions = [(region, row_of[region]) for region in regions]
        self._window_all = add(Column(Count.WINDOW_ROWS, region) for region in regions)
        self._window_cached = add(Column(Count.WINDOW_ROWS_CACHED, region) for region in regions)

        # 7. Index rows, kept apart only where scoring can be skipped.
        self._index_rows = add(
            column_of(Count.INDEX_ROWS, cls)
            for cls in classes
            if cls.kind in (LayerKind.FULL, LayerKind.REINDEX)
            and column_of(Count.INDEX_ROWS, cls) not in self._index
        )
        self._index_row_sources = np.array(
            [row_of[c.region] for c in self._columns_of(self._index_rows) if c.region], np.intp
        )
        self.integer_columns = len(self._index)

        # 8. Derived per step: experts and activity.
        self._experts = add(Column(Count.EXPERTS_TOUCHED, region) for region in row_regions)
        self._active = add(Column(Count.ACTIVE, region) for region in row_regions)
        self._head_active = add([Column(Count.HEAD_ACTIVE)])

        ordered = sorted(evaluations, key=evaluations.__getitem__)
        self._evaluation_points = np.array([point for point, _ in ordered], np.intp)
        self._evaluation_rules = ReachRules.of([rule for _, rule in ordered])

    def _columns_of(self, where: slice) -> list[Column]:
        return list(self._index)[where]

    def _selection_rule(self, cls: LayerClass) -> tuple[int, int, int]:
        assert self.model.indexer is not None  # noqa: S101 - a ratio needs an indexer
        return (cls.ratio, self.model.indexer.top_k, 1)

    def _scoring_rule(self, cls: LayerClass) -> tuple[int, int, int]:
        return self._scoring_rule_of(
            Column(Count.SCORED_POSITIONS, cls.region, cls.ratio, cls.pooled)
        )

    def _scoring_rule_of(self, column: Column) -> tuple[int, int, int]:
        indexer = self.model.indexer
        if column.pooled and indexer is not None:
            return (column.ratio, indexer.candidate_positions, indexer.candidate_block)
        return (column.ratio, UNLIMITED, 1)

    # --- reading the layout -----------------------------------------------------------------

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns in order; the first ``integer_columns`` are exact integers."""
        return tuple(self._index)

    def position(self, count: Count, layer_class: LayerClass | None) -> int:
        """Row of the count matrix that holds ``count`` of a layer class.

        Raises:
            ValueError: the count has no meaning there.
        """
        return self._index[column_of(count, layer_class)]

    # --- evaluating -------------------------------------------------------------------------

    def count(self, requests: RequestColumns, *, one_step: bool) -> StepCounts:
        """Count every column.

        Args:
            requests: int64 columns of equal width.
            one_step: the requests form one step; otherwise each is a step of its own.
        """
        spans = self.rules.spans(requests, one_step=one_step)
        width = len(requests.new)
        out = np.empty((self.integer_columns, width), dtype=np.int64)
        points = np.empty((len(self._point_functions), width), dtype=np.int64)
        for row, function in enumerate(self._point_functions):
            points[row] = function(spans)
        total, last = reach_before(points[self._evaluation_points], self._evaluation_rules)

        out[0] = spans.end - spans.start
        if self.trimmed:
            out[1] = spans.end - spans.head_start
        out[self._logits] = spans.logit_rows
        np.subtract(total[self._upper], total[self._lower], out=out[self._pairs])
        for position, upper, lower in self._heads:
            out[self._pairs][position] += total[upper] - total[lower]
        if self.policy.score_shape == "rectangle":
            for column, rows, evaluation in self._scored:
                out[column] = out[rows] * last[evaluation]
        present = out[self._reached_rows] > 0
        np.multiply(last[self._reached_from], present, out=out[self._reached])
        self._count_written(out, spans, last)
        self._count_windows(out, spans)
        out[self._index_rows] = out[self._index_row_sources]
        if self.policy.index_shortcut != "never":
            self._skip_scoring(out, requests, last, one_step=one_step)

        totals = np.empty(
            len(self._index) if one_step else (len(self._index), width), dtype=np.float64
        )
        if one_step:
            totals[: self.integer_columns] = out @ requests.count
        else:
            np.multiply(out, requests.count, out=totals[: self.integer_columns])
        self._derive(totals)
        return StepCounts(spans, out, totals)

    def _count_written(self, out: Counts, spans: Spans, last: Counts) -> None:
        """Entries written, compressor rows, and entries that were there before the step."""
        before = last[self._all_at_prefix]
        np.subtract(last[self._all_at_end], before, out=out[self._written])
        first = spans.start if self.policy.replayed_rows_compress else spans.prefix
        out[self._compressed] = spans.end - first
        # The first query of a region selects or scores at least this many older entries: it
        # reaches g of them, and at most (first row - prefix + 1) are new.
        assert self.model.indexer is not None or self._cached_ratio.size == 0  # noqa: S101
        if not self._cached_ratio.size:
            return
        assert self.model.indexer is not None  # noqa: S101
        top_k = self.model.indexer.top_k
        old = before[self._cached_ratio]
        skipped = np.maximum(spans.late_start - spans.prefix, 0) * self._cached_late
        must_select = np.maximum(np.minimum(old, top_k - 1) - skipped, 0)
        reached = out[self._reached]
        must_scan = np.maximum(reached - out[self._written][self._cached_ratio], 0)
        present = reached > 0
        np.multiply(
            np.where(self._cached_selects, must_select, must_scan), present, out=out[self._cached]
        )

    def _count_windows(self, out: Counts, spans: Spans) -> None:
        """Distinct window rows, and those written before the step."""
        reach_back = self.model.attention.window - 1
        for place, (region, rows) in enumerate(self._window_regions):
            if region is Region.FULL:
                first, floor = spans.start, spans.floor
            elif region is Region.BOUNDARY:
                first, floor = spans.late_start, spans.floor
            else:
                first, floor = spans.late_start, spans.late_floor
            older = np.minimum(first - floor, reach_back)
            present = out[rows] > 0
            out[self._window_all.start + place] = (out[rows] + older) * present
            oldest = first - older
            cached = np.maximum(np.minimum(first, spans.start) - oldest, 0)
            out[self._window_cached.start + place] = cached * present

    def _skip_scoring(
        self, out: Counts, requests: RequestColumns, last: Counts, *, one_step: bool
    ) -> None:
        """Zero the index work of steps in which every entry would be selected anyway."""
        assert self.model.indexer is not None  # noqa: S101
        ratios = [column.ratio for column in self._columns_of(self._written)]
        prefill = (requests.kind == PREFILL) & (requests.count > 0)
        for place, ratio in enumerate(ratios):
            visible = last[self._all_at_end[place]]
            if one_step:
                needed = bool((visible > self.model.indexer.top_k).any())
                needed |= self.policy.index_shortcut == "decode" and bool(prefill.any())
                factor: Counts | int = int(needed)
            else:
                flags = visible > self.model.indexer.top_k
                if self.policy.index_shortcut == "decode":
                    flags = flags | prefill
                factor = flags.astype(np.int64)
            for column, row in self._index.items():
                if column.ratio == ratio and column.count in _SKIPPABLE:
                    out[row] *= factor

    def _derive(self, totals: Floats) -> None:
        """Experts touched and activity of each region, from the step's total rows."""
        experts = self.model.experts
        rows = totals[self._rows]
        if self.policy.expert_routing == "fewest":
            touched = np.minimum(rows, 1.0) * experts.top_k
        else:
            # Expected distinct experts of independent uniform draws: E (1 - (1 - k/E)^rows).
            miss = (
                np.log1p(-experts.top_k / experts.routed)
                if experts.top_k < experts.routed
                else -np.inf
            )
            with np.errstate(invalid="ignore"):
                touched = np.where(rows > 0, -experts.routed * np.expm1(rows * miss), 0.0)
        totals[self._experts] = touched
        totals[self._active] = rows > 0
        totals[self._head_active] = totals[self._logits] > 0


_CACHED: Final = {
    Count.SELECTED_ROWS: Count.SELECTED_ROWS_CACHED,
    Count.INDEX_KEYS: Count.INDEX_KEYS_CACHED,
}
_SKIPPABLE: Final = {
    Count.INDEX_ROWS, Count.SCORED_POSITIONS, Count.INDEX_KEYS, Count.INDEX_KEYS_CACHED,
}  # fmt: skip

_Point = tuple[str, Callable[[Spans], Counts]]


def _points(regions: list[Region], *, two_floors: bool) -> dict[str, _Point]:
    """Positions at which cumulative reach is needed, by name."""
    named: list[_Point] = [
        ("end", lambda s: s.end),
        ("prefix", lambda s: s.prefix),
        ("start", lambda s: s.start),
        ("full_window_end", lambda s: s.end - s.floor),
        ("full_window_start", lambda s: s.start - s.floor),
    ]
    if Region.LATE in regions or Region.BOUNDARY in regions:
        named.append(("late_start", lambda s: s.late_start))
    if Region.BOUNDARY in regions:
        named.append(("boundary_window_start", lambda s: s.late_start - s.floor))
    if Region.LATE in regions:
        named += [
            ("late_window_end", lambda s: s.end - s.late_floor),
            ("late_window_start", lambda s: s.late_start - s.late_floor),
        ]
        if two_floors:
            named += [
                ("head_start", lambda s: s.head_start),
                ("head_window", lambda s: s.late_start - s.head_start),
                ("zero", lambda s: np.zeros_like(s.end)),
            ]
    return {name: (name, function) for name, function in named}


def _window_points(region: Region) -> tuple[str, str]:
    return {
        Region.FULL: ("full_window_start", "full_window_end"),
        Region.BOUNDARY: ("boundary_window_start", "full_window_end"),
        Region.LATE: ("late_window_start", "late_window_end"),
    }[region]


def _row_region(region: Region | None) -> Region:
    return Region.FULL if region is Region.FULL else Region.LATE
