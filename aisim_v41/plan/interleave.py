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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.plan import spans
from aisim_v41.plan.columns import Column
from aisim_v41.plan.counts import Count
from aisim_v41.plan.matrices import ROW_SPAN, Position, Span
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


class Progressions:
    """Sums of rules over arithmetic progressions of one stride, those of all rules at once.

    Args:
        rules: one a sum.
        stride: distance of two values.
    """

    def __init__(self, rules: Sequence[Reach], stride: int) -> None:
        def column(values: Iterable[int]) -> Floats:
            return np.array([*values], float).reshape(len(rules), 1)

        whole = [math.lcm(stride, rule.ratio * rule.block) for rule in rules]
        self._stride = stride
        self._parts = column(one // stride for one in whole)
        self._rise = column(one // rule.ratio for one, rule in zip(whole, rules, strict=True))
        self._ratio = column(rule.ratio for rule in rules)
        self._cap = column(rule.cap for rule in rules)
        self._block = column(rule.block for rule in rules)
        self._most_parts = max((one // stride for one in whole), default=0)

    def sums(self, first: Floats, number: Floats) -> Floats:
        """Σ g(floor(t / ratio)) over ``number`` values t = first, first + stride, ...

        Args:
            first: whole numbers of at least 1, where there is any [rules, requests].
            number: how many values [rules, requests].

        >>> one = Progressions([Reach(1, 5)], stride=2)
        >>> one.sums(np.array([[3.0]]), np.array([[4.0]]))  # 3 + 5 + 5 + 5
        array([[18.]])
        """
        total = np.zeros_like(first)
        for part in range(self._most_parts):
            terms = np.ceil((number - part) / self._parts)
            if part:
                terms *= part < self._parts
            reached = np.floor((first + part * self._stride) / self._ratio)
            below = np.floor((self._cap - reached) / self._rise) + 1.0
            np.minimum(np.maximum(below, 0.0, out=below), terms, out=below)
            total += below * (reached + self._rise * (below - 1.0) / 2.0)
            total += (terms - below) * (self._cap - np.mod(-reached, self._block))
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
        self._declare(OF_EVERY_ROW | (KEYS if rectangle else frozenset()))

    def _declare(self, of_every_row: frozenset[Count]) -> None:
        """Which columns are counted how, and the spans of those that add over queries."""
        matrices = self.program.matrices
        places: dict[str, list[int]] = {"every": [], "rows": [], "window": [], "selected": []}
        spanned: list[tuple[int, Span]] = []
        for place, (column, one) in enumerate(
            zip(matrices.columns, matrices.declared, strict=True)
        ):
            if column.quantity in of_every_row:
                places["every"].append(place)
            elif column.quantity in ROWS:
                places["rows"].append(place)
            elif column.quantity is Count.WINDOW_ROWS_CACHED:
                places["window"].append(place)
            elif column.quantity is Count.SELECTED_ROWS_CACHED:
                places["selected"].append(place)
            else:  # without rows before a tail, which steps of interleaved rows do not have
                spanned += [(place, span) for span in one.sums if span.low]
        self._every, self._rows, self._window, self._selected = (
            np.array(found, np.intp) for found in places.values()
        )
        columns = matrices.columns
        self._first_rows = np.array([_first_row(columns[p]) for p in self._rows], np.intp)
        selected = [columns[place] for place in self._selected]
        self._first_selected = np.array([_first_row(column) for column in selected], np.intp)
        self._ratios = np.array([[float(column.ratio)] for column in selected]).reshape(-1, 1)
        caps = [[matrices.selection_rule(column).cap - 1.0] for column in selected]
        self._older_caps = np.array(caps).reshape(-1, 1)
        self._low = np.array([_factors(span.low) for _, span in spanned]).reshape(-1, spans.PLACES)
        high = [_factors(span.high) for _, span in spanned]
        self._shift = np.array(high).reshape(-1, spans.PLACES)
        self._shift[:, spans.END] -= 1.0
        self._summed = np.array(sorted({place for place, _ in spanned}), np.intp)
        owners = [[float(place == p) for p, _ in spanned] for place in self._summed]
        self._owners = np.array(owners).reshape(len(self._summed), len(spanned))
        self._progressions = Progressions([span.rule for _, span in spanned], self.ranks)

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
        wide = [self._own_of_ranks(table, every, copies, requests.longest) for copies in groups]
        chosen = [requests.chosen(copies.places, copies.number) for copies in groups]
        for rank in range(self.ranks):
            found: list[StepCounts] = []
            for copies, part, owned in zip(groups, chosen, wide, strict=True):
                places, width = copies.places, len(copies.places)
                own = owned[:, rank * width : (rank + 1) * width]
                counted = table[:, places], own, last[:, places]
                found.append(program.counted(part, *counted, one_step=one_step))
            first = found[0]
            if len(found) > 1:
                alone = [np.asarray(1.0)] * len(found)
                first = first._replace(totals=program.together(found, alone))
            yield chosen[0], first, groups[0]

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

    def _own_of_ranks(self, table: Floats, every: Floats, copies: Copies, longest: float) -> Floats:
        """`_own` of all ranks side by side [additive columns, ranks x copies]."""
        places = np.tile(copies.places, self.ranks)
        rank = (np.arange(self.ranks)[:, None] - copies.start).ravel()
        return self._own(table[:, places], every[:, places], rank, longest)

    def _own(self, table: Floats, every: Floats, rank: Floats, longest: float) -> Floats:
        """Counts of a rank's own rows of each request [additive columns, requests].

        Args:
            table: positions of all rows.
            every: counts of all rows.
            rank: the rank, counted from that of the first row of each request [requests].
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
        prefix = table[spans.PREFIX]
        own[spans.PREFIX] = np.minimum(prefix, own[spans.END])
        found = matrices.evaluate(basis, longest)
        found[self._every] = every[self._every]
        found[self._rows] = number(first_from(table[self._first_rows]))
        found[self._window] -= own[spans.START] - start
        # As for all rows, from the first own query that sees every older entry.
        seeing = first_from(np.maximum(table[self._first_selected], prefix))
        reached = np.minimum(np.floor(prefix / self._ratios), self._older_caps)
        found[self._selected] = (reached - (seeing - prefix)) * (seeing < end)
        # Queries from the first own one of a span on; one at a position completes one more.
        shift = self._shift @ table
        first = first_from(self._low @ table - shift)
        sums = self._progressions.sums(first + shift + 1.0, number(first))
        found[self._summed] = self._owners @ sums
        return found


def _first_row(column: Column) -> int:
    return ROW_SPAN[column.region or Region.FULL][0]


def _factors(position: Position) -> list[float]:
    """A position as factors of the rows of the table."""
    factors = [0.0] * spans.PLACES
    for row, factor in position:
        factors[row] += factor
    return factors
