"""Captured batch sizes: which graph a decode step replays, and the dummy rows that fill it.

An engine captures its decode graph at some batch sizes. A step between two of them is filled up
with dummy rows to the next; a step above the largest runs eagerly (runtime-semantics §5.2;
docs/assumptions.md, "Execution"). Graphs of ragged verify steps are captured at numbers of rows,
whosever they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.counting import LedgerProgram, RankCounts
from aisim_v41.plan.counts import Count
from aisim_v41.plan.expert_load import ExpertLoad
from aisim_v41.plan.reach import Floats
from aisim_v41.plan.request import Request
from aisim_v41.plan.sizes import captured_sizes
from aisim_v41.plan.spans import Region, RequestColumns

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]
Experts = tuple[Places, Places, ExpertLoad]
"""Places of expected experts and of activity of regions with one load, and that load."""

_DRAFTS = (Region.DRAFT, Region.DRAFT_CHAIN)
"""What a draft pass counts by requests; its context rows are those of the target."""


class CapturedSteps:
    """Fills decode and verify steps up to captured sizes.

    Args:
        program: of the model and policy; its policy names the sizes and what they count.
    """

    def __init__(self, program: LedgerProgram) -> None:
        policy = program.policy
        self.program = program
        self._decode = _array(policy.decode_graph_sizes)
        self._verify = _array(policy.verify_graph_sizes)
        split = program.split
        # Interleaved rows are those of prefills: decodes run on another mapping.
        self.every_size = (
            policy.decode_execution == "eager"
            or (self._decode is None and self._verify is None)
            or (split is not None and split.by == "rows")
        )
        self._of_requests = policy.graph_size_counts == "requests"
        ragged = policy.verify_lengths == "ragged" and policy.speculation != "off"
        self._rows = self._row_sizes() if ragged else None
        self._known: dict[int, Floats] = {}

    def filled(
        self, requests: RequestColumns, totals: Floats, *, one_step: bool
    ) -> tuple[Floats, Mask | None]:
        """Counts with the dummy rows of the graph that each step replays.

        A dummy is a request without a past, with as many rows as a real one. Its counts add;
        experts that it is expected to read are those of one more draw for all dummies of a step,
        which are alike.

        Args:
            requests: the step's requests, or one step a column.
            totals: their counts: [columns], or [columns, steps].
            one_step: as for `LedgerProgram.count`.

        Returns:
            The counts, and which steps are larger than every graph and run eagerly: None if none.
        """
        if self.every_size:
            return totals, None
        if self._rows is not None:
            return self._filled_rows(requests, totals, self._rows, one_step=one_step)
        rows = totals[self.program.tokens_place]
        every = totals[self.program.logits_place] >= rows
        present = requests.count * (requests.new > 0)
        if one_step:
            batch = float(present.sum())
            sizes = self._verify if rows > batch else self._decode
            if not (batch and every) or sizes is None:
                return totals, None
            each = np.array([rows / batch])
            extra, uncaptured = self._of_batch(batch, float(each[0]))
        else:
            extra, uncaptured = np.zeros(len(rows)), np.zeros(len(rows), np.bool_)
            each = rows / np.maximum(present, 1.0)
            for sizes, of_kind in ((self._decode, each <= 1), (self._verify, each > 1)):
                steps = np.flatnonzero(of_kind & every & (rows > 0))
                if sizes is not None and len(steps):
                    found = self._dummies(sizes, present[steps], each[steps])
                    extra[steps], uncaptured[steps] = found
        filled = self._with_dummies(totals, extra, each) if extra.any() else totals
        if not uncaptured.any():
            return filled, None
        return filled, uncaptured[0] if one_step else uncaptured

    def filled_ranks(
        self, ranks: Sequence[RankCounts], *, one_step: bool
    ) -> list[tuple[Floats, Mask | None]]:
        """`filled` for every rank of a split; a step that is too large on one runs eagerly on all.

        Args:
            ranks: as `LedgerProgram.of_ranks` counts them.
            one_step: as for `filled`.
        """
        found = [self.filled(one.requests, one.counts.totals, one_step=one_step) for one in ranks]
        replica = self.program.replica
        changed = (c is not one.counts.totals for (c, _), one in zip(found, ranks, strict=True))
        filled = [counts for counts, _ in found]
        if replica is not None and any(changed):
            filled = [counts.copy() for counts in filled]
            counted, numbers = [one.counts for one in ranks], [one.ranks for one in ranks]
            replica.exchange(counted, numbers, filled)
        eager = [mask for _, mask in found if mask is not None]
        uncaptured = np.logical_or.reduce(eager) if eager else None
        return [(counts, uncaptured) for counts in filled]

    @cached_property
    def _of_batch(self) -> Callable[[float, float], tuple[Floats, Mask]]:
        """`_dummies` of one step of so many requests and rows each, kept for the next."""

        @lru_cache(maxsize=4096)
        def known(batch: float, each: float) -> tuple[Floats, Mask]:
            sizes = self._verify if each > 1 else self._decode
            assert sizes is not None
            return self._dummies(sizes, np.array([batch]), np.array([each]))

        return known

    def _dummies(self, sizes: Floats, batch: Floats, each: Floats) -> tuple[Floats, Mask]:
        """Dummy requests of steps of so many requests and rows each [steps], and whether no graph
        is that large.

        A dummy has as many rows as a real request; sizes that count rows are rounded up to whole
        requests.
        """
        wanted = batch if self._of_requests else (batch - 1.0) * each + 1.0
        place = np.searchsorted(sizes, wanted)
        uncaptured = place >= len(sizes)
        size = sizes[np.minimum(place, len(sizes) - 1)]
        target = size if self._of_requests else np.ceil(size / each)
        return np.maximum(target - batch, 0.0) * ~uncaptured, uncaptured

    def _row_sizes(self) -> Floats | None:
        """Rows of the graphs of ragged verify steps: SGLang's are those of its uniform ones."""
        policy = self.program.policy
        if self._verify is None or not self._of_requests:
            return self._verify
        return self._verify * (1.0 + policy.draft_tokens)

    def _filled_rows(
        self, requests: RequestColumns, totals: Floats, sizes: Floats, *, one_step: bool
    ) -> tuple[Floats, Mask | None]:
        """`filled` for steps of any lengths: rows up to the next size, each a dummy of its own, and
        draft passes up to the next number of requests, where sizes count requests."""
        program = self.program
        columns = totals.reshape(len(totals), -1)
        rows = columns[program.tokens_place]
        present = requests.count * (requests.new > 0)
        batch = np.array([present.sum()]) if one_step else present
        runs = (columns[program.logits_place] >= rows) & (rows > 0)
        uncaptured = runs & (rows > sizes[-1])
        more = _up_to(sizes, rows) * runs
        drafted = np.zeros_like(more)
        if self._of_requests and self._verify is not None:
            drafted = _up_to(self._verify, batch) * (runs & ~uncaptured)
        filled = totals
        if more.any() or drafted.any():
            columns = columns.copy()
            row, draft = self._apart
            columns[: program.additive] += np.multiply.outer(row, more)
            columns[: program.additive] += np.multiply.outer(draft, drafted)
            target, *others = self._experts
            _draw_once_more(columns, target, more > 0)
            for experts in others:
                _draw_once_more(columns, experts, drafted > 0)
            filled = columns.reshape(totals.shape)
        if not uncaptured.any():
            return filled, None
        return filled, uncaptured[0] if one_step else uncaptured

    def _with_dummies(self, totals: Floats, dummies: Floats, each: Floats) -> Floats:
        """Counts with so many dummy requests of so many rows each [steps]."""
        program = self.program
        filled = totals.copy()
        columns = filled.reshape(len(totals), -1)
        for rows in set(np.ceil(each[dummies > 0]).tolist()):
            added = dummies * (np.ceil(each) == rows)
            columns[: program.additive] += np.multiply.outer(self._dummy(int(rows)), added)
        for experts in self._experts:
            _draw_once_more(columns, experts, dummies > 0)
        return filled

    @cached_property
    def _apart(self) -> tuple[Floats, Floats]:
        """Counts of a dummy row of the target, and of a dummy request of the draft pass."""
        program, dummy = self.program, self._dummy(1)
        drafts = np.array([c.region in _DRAFTS for c in program.columns[: program.additive]])
        return dummy * ~drafts, dummy * drafts

    def _dummy(self, rows: int) -> Floats:
        """Counts of one dummy request that add [additive columns]."""
        if rows not in self._known:
            one = Request(new_tokens=rows, prefix_tokens=0, kind="verify" if rows > 1 else "decode")
            counted = self.program.count(pack([one]), one_step=True)
            self._known[rows] = counted.totals[: self.program.additive]
        return self._known[rows]

    @cached_property
    def _experts(self) -> list[Experts]:
        """Of the target, then of the draft pass if there is one."""
        draft = self.program.draft
        columns = self.program.expert_columns(Count.EXPERTS_EXPECTED)
        places = np.array([column[:2] for column in columns], np.intp).reshape(-1, 2).T
        if draft is None:
            return [(places[0], places[1], self.program.load)]
        return [
            (places[0, :-1], places[1, :-1], self.program.load),
            (places[0, -1:], places[1, -1:], draft.load),
        ]


def _up_to(sizes: Floats, wanted: Floats) -> Floats:
    """What is missing to the next size; nothing above the largest."""
    place = np.minimum(np.searchsorted(sizes, wanted), len(sizes) - 1)
    return np.maximum(sizes[place] - wanted, 0.0)


def _draw_once_more(columns: Floats, experts: Experts, drawn: Mask) -> None:
    """Experts that dummies of steps are expected to read, added in place."""
    places, active, load = experts
    expected = columns[places]
    columns[places] = np.where(drawn & (columns[active] > 0), load.one_more(expected), expected)


def _array(text: str) -> Floats | None:
    sizes = captured_sizes(text)
    return None if sizes is None else np.array(sizes, np.float64)
