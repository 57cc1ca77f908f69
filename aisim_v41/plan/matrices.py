"""Counts of requests as linear forms of their positions and of how much is reached before those.

`Matrices` declares every count that adds over requests, once, and holds the two matrices that
evaluate all of them at once: from positions to the points where reach is needed, and from there to
counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aisim_v41.model.description import Model
from aisim_v41.plan import spans
from aisim_v41.plan.columns import Column
from aisim_v41.plan.counts import Count
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.reach import UNLIMITED, Floats, Reach, subtract_newest_block, twice_phi
from aisim_v41.plan.spans import Region

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


class Span(NamedTuple):
    """A sum of reach over the queries that complete more than ``low`` and at most ``high``
    positions."""

    high: Position
    low: Position
    rule: Reach


@dataclass(slots=True)
class Declaration:
    """One count: factors of positions, sums of reach over spans, and reaches of single queries."""

    linear: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    sums: list[Span] = field(default_factory=list)
    lasts: list[tuple[Position, Reach, float]] = field(default_factory=list)

    def add(self, row: int, factor: float = 1.0) -> None:
        """A position."""
        self.linear[row] += factor

    def last(self, position: Position, rule: Reach, factor: float = 1.0) -> None:
        """What the query that completes a position reaches."""
        self.lasts.append((position, rule, factor))


@dataclass(slots=True)
class Basis:
    """Evaluations of rules at positions that counts are linear forms of."""

    forms: list[tuple[Position, Reach, int]] = field(default_factory=list)

    def evaluation(self, position: Position, rule: Reach, place_in_group: int = 0) -> int:
        """Number of the evaluation of a rule at a position."""
        key = (position, rule, place_in_group)
        if key not in self.forms:
            self.forms.append(key)
        return self.forms.index(key)


class Matrices:
    """Counts that add over requests, of one model under one policy.

    Args:
        model: the model.
        policy: the runtime policy.
        columns: what is counted.
    """

    def __init__(self, model: Model, policy: RuntimePolicy, columns: Sequence[Column]) -> None:
        self.model, self.policy, self.columns = model, policy, tuple(columns)
        self.declared = tuple(self._declare(column) for column in self.columns)
        self._build()

    def evaluate(self, basis: Floats, longest: float) -> Floats:
        """Counts of each request [columns, requests].

        Args:
            basis: [`basis_rows`, requests], of which the first `spans.PLACES` hold positions.
            longest: longest context of all requests [tokens].
        """
        visible = self._to_points @ basis[: spans.PLACES]
        grouped = visible[self._grouped]
        np.floor(grouped, out=grouped)
        if self.policy.prompt_logprobs == "two_floors":
            # An empty tail may lie before its own floor; nothing is reached there.
            np.maximum(visible, 0.0, out=visible)
        total, last = basis[self._totals], basis[self.lasts]
        twice_phi(visible, self._caps, self._twice_caps, total=total, last=last)
        for places, rule in self._pools:
            if longest <= rule.cap:
                continue
            subtract_newest_block(visible[places], rule, total=total[places], last=last[places])
        found: Floats = self._to_counts @ basis
        return found

    # --- declaring ----------------------------------------------------------------------------

    def _declare(self, column: Column) -> Declaration:
        """What a column counts."""
        one = Declaration()
        region = column.region or Region.FULL
        first, end = ROW_SPAN[region]
        floor = WINDOW_FLOOR[region]
        two_floors = region is Region.LATE and self.policy.prompt_logprobs == "two_floors"
        window = self.model.attention.window
        every = Reach(column.ratio, UNLIMITED)
        older = (((first, 1), (floor, -1)), Reach(1, window - 1))
        match column.quantity:
            case Count.LOGIT_ROWS:
                one.add(spans.LOGIT_ROWS)
            case Count.QUERY_ROWS | Count.INDEX_ROWS:
                one.add(end)
                one.add(spans.HEAD_START if two_floors else first, -1.0)
            case Count.WINDOW_PAIRS:
                rule = Reach(1, window)
                one.sums.append(Span(((end, 1), (floor, -1)), ((first, 1), (floor, -1)), rule))
                if two_floors:
                    one.sums.append(Span(((first, 1), (spans.HEAD_START, -1)), (), rule))
            case Count.SELECTED_ENTRIES | Count.SCORED_POSITIONS:
                selecting = column.quantity is Count.SELECTED_ENTRIES
                rule = self.selection_rule(column) if selecting else self.scoring_rule(column)
                low = spans.HEAD_START if two_floors else first
                one.sums.append(Span(((end, 1),), ((low, 1),), rule))
            case Count.WINDOW_ROWS:
                one.add(end)
                one.add(spans.HEAD_START if two_floors else first, -1.0)
                one.last(*older)
            case Count.WINDOW_ROWS_CACHED:
                one.last(*older)
                self._subtract_cut(one, first)
            case Count.SELECTED_ROWS:
                one.last(((end, 1),), self.selection_rule(column))
            case Count.INDEX_KEYS:
                one.last(((end, 1),), self.scoring_rule(column))
            case Count.SELECTED_ROWS_CACHED:
                # The first query reaches at least top_k - 1 of the older entries, or all of them;
                # each row between the prefix and it can have replaced one.
                rule = self.selection_rule(column)
                one.last(((spans.PREFIX, 1),), rule._replace(cap=rule.cap - 1))
                self._subtract_cut(one, first)
            case Count.INDEX_KEYS_CACHED:
                # The last query scores all it reaches, of which the step's own entries are new.
                one.last(((end, 1),), self.scoring_rule(column))
                one.last(((end, 1),), every, -1.0)
                one.last(((spans.PREFIX, 1),), every)
            case Count.IMAGE_ROWS:
                pass  # see `aisim_v41.plan.images`
            case Count.COMPRESSED_ROWS:
                replayed = self.policy.replayed_rows_compress
                one.add(end)
                one.add(spans.START if replayed else spans.PREFIX, -1.0)
            case Count.ENTRIES_WRITTEN:
                one.last(((end, 1),), every)
                one.last(((spans.PREFIX, 1),), every, -1.0)
            case _:
                raise AssertionError(column)
        return one

    @staticmethod
    def _subtract_cut(one: Declaration, first: int) -> None:
        """Rows of this step that lie before the first query of a region."""
        if first is not spans.START:
            one.add(first, -1.0)
            one.add(spans.START)

    def selection_rule(self, column: Column) -> Reach:
        """Entries that attention reaches."""
        assert self.model.indexer is not None
        return Reach(column.ratio, self.model.indexer.top_k)

    def scoring_rule(self, column: Column) -> Reach:
        """Keys that an indexer scores."""
        indexer = self.model.indexer
        if column.pooled and indexer is not None:
            return Reach(column.ratio, indexer.candidate_positions, indexer.candidate_block)
        return Reach(column.ratio, UNLIMITED)

    # --- building -----------------------------------------------------------------------------

    def _build(self) -> None:
        """The two matrices, and where the reach evaluations lie between them."""
        basis = Basis()
        factors = [self._factors(one, basis) for one in self.declared]
        end: Position = ((spans.END, 1),)
        visible = {
            ratio: basis.evaluation(end, Reach(ratio, UNLIMITED))
            for ratio in sorted({column.ratio for column in self.columns if column.ratio})
        }
        scored = {
            column: basis.evaluation(end, self.scoring_rule(column))
            for column in self.columns
            if column.quantity is Count.SCORED_POSITIONS
        }
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
            (as_slice(np.array([i for i, f in enumerate(forms) if f[1] == rule], np.intp)), rule)
            for rule in sorted({rule for _, rule, _ in forms if rule.block > 1})
        ]
        self._totals = slice(spans.PLACES, spans.PLACES + count)
        self.lasts = slice(spans.PLACES + count, spans.PLACES + 2 * count)
        """Rows of the basis that hold what single queries reach."""
        self.basis_rows = spans.PLACES + 2 * count
        """Positions, sums of reach and single reaches."""
        self.visible = {ratio: place_of[e] for ratio, e in visible.items()}
        """Of each ratio, the row of `lasts` with the entries that the last query sees."""
        self.scored = {column: place_of[e] for column, e in scored.items()}
        """Of each scoring column, the row of `lasts` with what the last query scores."""
        self._to_counts = np.zeros((len(self.columns), self.basis_rows))
        for place, (linear, totals, lasts) in enumerate(factors):
            row = self._to_counts[place]
            for basis_row, weight in linear.items():
                row[basis_row] += weight
            for evaluation, weight in totals.items():  # twice_phi is twice the sum
                row[self._totals.start + place_of[evaluation]] += weight / 2
            for evaluation, weight in lasts.items():
                row[self.lasts.start + place_of[evaluation]] += weight

    @staticmethod
    def _factors(one: Declaration, basis: Basis) -> _Factors:
        """A count as factors of positions, of sums of reach, and of single reaches.

        The sum over a span is a difference of sums from the first position on, one for each place
        in a group of ``ratio`` (`aisim_v41.plan.reach`).
        """
        totals: dict[int, float] = defaultdict(float)
        lasts: dict[int, float] = defaultdict(float)
        for high, low, rule in one.sums:
            for offset in range(rule.ratio):
                totals[basis.evaluation(high, rule, offset)] += 1.0
                totals[basis.evaluation(low, rule, offset)] -= 1.0
        for position, rule, factor in one.lasts:
            lasts[basis.evaluation(position, rule)] += factor
        return one.linear, totals, lasts


_Factors = tuple[dict[int, float], dict[int, float], dict[int, float]]


def as_slice(places: npt.NDArray[np.intp]) -> slice:
    """Neighbouring places as a slice, which is read and written in place."""
    first, last = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    if last - first != len(places):
        raise AssertionError(f"columns {places} are not side by side")
    return slice(first, last)
