"""Counts of one rank of context parallelism, whose rows are every n-th of a step.

Row i of a step belongs to rank i mod n, whatever request it is of (runtime-semantics §4.4). So a
rank has an arithmetic progression of the rows of every request. What adds over rows is a sum over
that progression; what the last row reaches, and what is read at least, is that of its own first and
last row; entries and window rows are written by every rank for all rows.

A query that completes t positions reaches g(floor(t / ratio)), see `aisim_v41.plan.reach`. Over
t = a, a + n, ... it is cut into progressions of the least common multiple L of n and of
ratio x block: in each of them v = floor(t / ratio) rises by L / ratio a time, and the part of the
newest block that is missing is the same throughout. `tests/oracle/interleave.py` adds it up row by
row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.plan import spans
from aisim_v41.plan.columns import Column
from aisim_v41.plan.counts import Count
from aisim_v41.plan.matrices import ROW_SPAN, Declaration, Position
from aisim_v41.plan.reach import Floats, Reach
from aisim_v41.plan.spans import Region, RequestColumns

if TYPE_CHECKING:
    from aisim_v41.plan.counting import LedgerProgram, StepCounts

OF_EVERY_ROW: Final = frozenset({Count.LOGIT_ROWS, Count.COMPRESSED_ROWS, Count.ENTRIES_WRITTEN})
"""What every rank does for all rows."""
KEYS: Final = frozenset({Count.INDEX_KEYS, Count.INDEX_KEYS_CACHED})
ROWS: Final = frozenset({Count.QUERY_ROWS, Count.INDEX_ROWS})


_Of = Callable[[Floats], Floats]


class Copies(NamedTuple):
    """Requests of a step that start at the same rank.

    Attributes:
        places: whose copies they are [copies].
        number: how many [copies].
        start: rank of their first row [copies].
    """

    places: npt.NDArray[np.intp]
    number: Floats
    start: Floats


def progression_sum(first: Floats, number: Floats, stride: int, rule: Reach) -> Floats:
    """Σ g(floor(t / ratio)) over ``number`` values t = first, first + stride, ...

    Args:
        first: whole numbers of at least 1, where there is any [requests].
        number: how many values [requests].
        stride: distance of two values.
        rule: g.

    >>> progression_sum(np.array([3.0]), np.array([4.0]), 2, Reach(1, 5))  # 3 + 5 + 5 + 5
    array([18.])
    """
    whole = math.lcm(stride, rule.ratio * rule.block)
    parts, rise = whole // stride, whole // rule.ratio
    total = np.zeros_like(first)
    for part in range(parts):
        terms = np.ceil((number - part) / parts)
        reached = np.floor((first + part * stride) / rule.ratio)
        below = np.clip(np.floor((rule.cap - reached) / rise) + 1.0, 0.0, terms)
        total += below * reached + rise * below * (below - 1.0) / 2.0
        total += (terms - below) * (rule.cap - np.mod(-reached, rule.block))
    return total


class Interleaved:
    """Counts of the ranks of context parallelism.

    Args:
        program: the counts of all rows.
        ranks: how many ranks there are.

    Raises:
        UnsupportedPlanError: more ranks than a window has positions.
    """

    def __init__(self, program: LedgerProgram, ranks: int) -> None:
        window = program.model.attention.window
        if window < ranks:
            raise UnsupportedPlanError(
                f"cp = {ranks} with a window of {window} positions: the windows of a rank's rows "
                f"would leave rows out between them; use cp <= {window}"
            )
        self.program, self.ranks = program, ranks
        # In a rectangle every row scores what the last row of the step can see.
        rectangle = program.policy.score_shape == "rectangle"
        self._of_every_row = OF_EVERY_ROW | (KEYS if rectangle else frozenset())

    def of_ranks(
        self, requests: RequestColumns, *, one_step: bool
    ) -> Iterator[tuple[RequestColumns, StepCounts, Copies]]:
        """Requests, counts and copies of every rank; the first copies of a row of a sweep.

        Args:
            requests: of one step, or one step a column.
            one_step: as for `aisim_v41.plan.counting.LedgerProgram.count`.
        """
        program = self.program
        table, every, last = program.located(requests, one_step=one_step)
        rows = table[spans.END] - table[spans.START]
        groups = [*self._copies(requests, rows, one_step=one_step)]
        for rank in range(self.ranks):
            found: list[StepCounts] = []
            parts = []
            for copies in groups:
                places = copies.places
                own = self._own(
                    table[:, places], every[:, places], rank - copies.start, requests.longest
                )
                parts.append(requests.chosen(places, copies.number))
                counted = table[:, places], own, last[:, places]
                found.append(program.counted(parts[-1], *counted, one_step=one_step))
            first = found[0]
            if len(found) > 1:
                alone = [np.asarray(1.0)] * len(found)
                first = first._replace(totals=program.together(found, alone))
            yield parts[0], first, groups[0]

    def _copies(
        self, requests: RequestColumns, rows: Floats, *, one_step: bool
    ) -> Iterator[Copies]:
        """Requests by the rank of their first row: together for one step, else one after another.

        Copies of a request start a whole number of its rows further on, so that the ranks of their
        first rows repeat.
        """
        ranks, groups = self.ranks, np.arange(len(rows))
        before = np.zeros_like(rows)
        if one_step:
            before[1:] = np.cumsum(rows * requests.count)[:-1]
        period = ranks / np.gcd(rows.astype(np.int64), ranks)
        found = []
        for copy in range(ranks):
            count = np.ceil((requests.count - copy) / period) * (copy < period)
            start = np.mod(before + copy * rows, ranks)
            found.append(Copies(groups, np.maximum(count, 0.0), start))
        if not one_step:
            yield from found
            return
        places, count, start = (np.concatenate(part) for part in zip(*found, strict=True))
        there = count > 0
        order = np.argsort(places[there], kind="stable")
        yield Copies(places[there][order], count[there][order], start[there][order])

    def _own(self, table: Floats, every: Floats, rank: Floats, longest: float) -> Floats:
        """Counts of a rank's own rows of each request [additive columns, requests].

        Args:
            table: positions of all rows.
            every: counts of all rows.
            rank: the rank, counted from that of the first row of each request.
            longest: longest context of all requests [tokens].
        """
        matrices, stride = self.program.matrices, self.ranks
        start, end = table[spans.START], table[spans.END]

        def first_from(row: Floats) -> Floats:
            return np.asarray(row + np.mod(rank - (row - start), stride))

        def number(first: Floats) -> Floats:
            return np.asarray(np.maximum(np.ceil((end - first) / stride), 0.0))

        basis = np.empty((matrices.basis_rows, table.shape[1]))
        own = basis[: spans.PLACES]
        own[...] = table
        first = first_from(start)
        held = number(first)
        own[spans.END] = np.where(held > 0, first + stride * (held - 1.0) + 1.0, start)
        for place in (spans.START, spans.HEAD_START, spans.LATE_START):
            own[place] = np.minimum(first_from(table[place]), own[spans.END])
        own[spans.PREFIX] = np.minimum(table[spans.PREFIX], own[spans.END])
        found = matrices.evaluate(basis, longest)
        for place, (column, one) in enumerate(
            zip(matrices.columns, matrices.declared, strict=True)
        ):
            if column.quantity in self._of_every_row:
                found[place] = every[place]
            elif column.quantity in ROWS:
                found[place] = number(first_from(table[_first_row(column)]))
            elif column.quantity is Count.WINDOW_ROWS_CACHED:
                found[place] -= own[spans.START] - start
            elif column.quantity is Count.SELECTED_ROWS_CACHED:
                # As for all rows, from the first own query that sees every older entry.
                prefix = table[spans.PREFIX]
                seeing = first_from(np.maximum(table[_first_row(column)], prefix))
                reached = np.minimum(
                    np.floor(prefix / column.ratio), matrices.selection_rule(column).cap - 1.0
                )
                found[place] = (reached - (seeing - prefix)) * (seeing < end)
            elif one.sums:
                found[place] = self._sum(table, one, first_from, number)
        return found

    def _sum(self, table: Floats, one: Declaration, first_from: _Of, number: _Of) -> Floats:
        """A count that adds over queries, over those of the rank's own rows."""
        total = np.zeros(table.shape[1])
        for high, low, rule in one.sums:
            if not low:  # rows before a tail, which steps of interleaved rows do not have
                continue
            shift = _value(table, high) - table[spans.END]
            first = first_from(_value(table, low) - shift)
            # The query at a position completes one position more.
            total += progression_sum(first + shift + 1.0, number(first), self.ranks, rule)
        return total


def _first_row(column: Column) -> int:
    return ROW_SPAN[column.region or Region.FULL][0]


def _value(table: Floats, position: Position) -> Floats:
    found: Floats = sum((factor * table[row] for row, factor in position), np.zeros(1))
    return found
