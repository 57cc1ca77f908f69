"""What the experts of a rank see where ranks exchange rows before them: the rows of all.

Ranks of attention data parallelism or context parallelism gather their rows, and every rank runs
its part of the experts on all of them. Distinct experts, and whether a layer runs at all, are those
of one step that holds the requests of all ranks; its rows are their sum, or as many as the exchange
is filled up to (runtime-semantics §4.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from aisim_v41.plan.columns import OF_REPLICA, Column
from aisim_v41.plan.counts import Count
from aisim_v41.plan.dealing import RowSplit
from aisim_v41.plan.reach import Floats
from aisim_v41.plan.spans import Region

if TYPE_CHECKING:
    from aisim_v41.plan.counting import LedgerProgram, StepCounts

ORDER: Final = tuple(OF_REPLICA)


def replica_columns(regions: Sequence[Region | None], split: RowSplit) -> tuple[Column, ...]:
    """The columns of a replica, those of one count side by side."""
    counts = (*ORDER, Count.STORED_ROWS) if split.by == "rows" else ORDER
    return tuple(Column(count, region) for count in counts for region in regions)


class Replica:
    """Fills in what ranks see together.

    Args:
        program: counts of one rank.
        split: how rows are divided over ranks.
        places: place of every column of the program.
        first: place of the first column of `replica_columns`.
        regions: as given there.
    """

    def __init__(
        self,
        program: LedgerProgram,
        split: RowSplit,
        places: dict[Column, int],
        first: int,
        regions: Sequence[Region | None],
    ) -> None:
        self.program, self.split = program, split
        self.padded = split.by == "rows" or program.policy.exchange_padding == "max"
        width = len(regions)
        self._rows = slice(first, first + width)
        self._of_step = slice(first + width, first + len(ORDER) * width)
        self._stored = slice(self._of_step.stop, self._of_step.stop + width * (split.by == "rows"))
        own = [Column(OF_REPLICA[count], region) for count in ORDER for region in regions]
        found = np.array([places[column] for column in own], np.intp)
        self._own_rows, self._own_of_step = found[:width], found[width:]
        expected = ORDER.index(Count.REPLICA_EXPERTS_EXPECTED)
        self._expected = found[expected * width :][:width]
        self._seen_expected = slice(first + expected * width, first + (expected + 1) * width)
        self._loads = [program.load_in(region) for region in regions]

    def exchange(
        self,
        counted: Sequence[StepCounts],
        ranks: Sequence[Floats],
        filled: Sequence[Floats] | None = None,
    ) -> None:
        """Write the columns of the replica into the counts of its ranks.

        Args:
            counted: counts of ranks, of one step or of many.
            ranks: how many ranks have those counts: numbers, or [steps].
            filled: what to write into instead: counts with the dummy rows of captured graphs,
                which are exchanged too and draw once more, since they are alike.
        """
        program = self.program
        targets = [one.totals for one in counted] if filled is None else filled
        together = program.together(counted, ranks)
        rows = [target[self._own_rows] for target in targets]
        every = np.sum([own * number for own, number in zip(rows, ranks, strict=True)], axis=0)
        if self.padded:
            alive = [own * (number > 0) for own, number in zip(rows, ranks, strict=True)]
            seen = self.split.ranks * np.maximum.reduce(alive)
        else:
            seen = every
        expected = together[self._expected]
        if filled is not None:
            dummies = sum(
                (own - one.totals[self._own_rows]) * (number > 0)
                for own, one, number in zip(rows, counted, ranks, strict=True)
            )
            drawn = [load.one_more(e) for load, e in zip(self._loads, expected, strict=True)]
            expected = np.where(dummies > 0, drawn, expected)
        for target in targets:
            target[self._rows] = seen
            target[self._of_step] = together[self._own_of_step]
            target[self._seen_expected] = expected
            if self.split.by == "rows":
                target[self._stored] = every
