"""Which rank of a mapping runs which requests of a step.

Under attention data parallelism every request belongs to one rank. A rank named by the request has
it; the others are dealt so that ranks hold as many requests as each other, or one more, the first
ranks first. Ranks that hold the same requests do the same, and are counted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.reach import Floats
from aisim_v41.plan.request import Request
from aisim_v41.plan.spans import RequestColumns


@dataclass(frozen=True, slots=True)
class RowSplit:
    """How the rows of a step are divided over ranks that share their experts.

    Attributes:
        ranks: how many there are.
        by: whole "requests" (attention data parallelism), or "rows", one after another to the next
            rank (context parallelism).
    """

    ranks: int
    by: Literal["requests", "rows"]

    @classmethod
    def of(cls, parallel: Parallel) -> RowSplit | None:
        """The split of a mapping; None where every rank runs every row.

        Example:
            >>> RowSplit.of(Parallel(tp=2, dp=4))
            RowSplit(ranks=4, by='requests')
        """
        if parallel.dp > 1:
            return cls(parallel.dp, "requests")
        return cls(parallel.cp, "rows") if parallel.cp > 1 else None


def decode_mapping(parallel: Parallel) -> Parallel:
    """The mapping of steps without a prefill: context-parallel ranks then divide heads.

    Example:
        >>> decode_mapping(Parallel(cp=4)).tp
        4
    """
    return replace(parallel, tp=parallel.tp * parallel.cp, cp=1)


@dataclass(frozen=True, slots=True)
class Share:
    """What some ranks of a step do alike.

    Attributes:
        requests: the requests of one of them.
        ranks: how many they are: a number for one step, or one for each step [steps].
    """

    requests: RequestColumns
    ranks: Floats


def deal(requests: RequestColumns, ranks: int) -> Floats:
    """Requests of every group on every rank [ranks, groups].

    Args:
        requests: groups of one step.
        ranks: ranks that hold requests of their own.
    """
    count, named = requests.count, np.flatnonzero(requests.rank)
    if not len(named):
        # Those that are left over go on where the last ones ended.
        before = np.cumsum(count) - count
        each, left = np.divmod(count, ranks)
        return each + (np.mod(np.arange(ranks)[:, None] - before, ranks) < left)
    dealt = np.zeros((ranks, len(count)))
    dealt[requests.rank[named].astype(np.intp) - 1, named] = count[named]
    held = dealt.sum(axis=1)
    for group in np.flatnonzero(requests.rank == 0):
        each, left = divmod(count[group], ranks)
        dealt[:, group] = each
        dealt[np.argsort(held, kind="stable")[: int(left)], group] += 1.0
        held += dealt[:, group]
    return dealt


def shares(requests: RequestColumns, ranks: int, *, one_step: bool) -> tuple[Share, ...]:
    """What the ranks of a step do, those that do the same together.

    Args:
        requests: of one step, or one step a column.
        ranks: ranks that hold requests of their own.
        one_step: as for `aisim_v41.plan.counting.LedgerProgram.count`.
    """
    if one_step:
        alike: dict[bytes, list[Floats]] = {}
        for held in deal(requests, ranks):
            alike.setdefault(held.tobytes(), []).append(held)
        return tuple(
            Share(replace(requests, count=held[0]), np.asarray(float(len(held))))
            for held in alike.values()
        )
    count, named = requests.count, requests.rank > 0
    left = np.mod(count, ranks)
    fuller = np.where(named, 1.0, left)
    most = np.where(named, count, np.ceil(count / ranks))
    least = np.where(named, 0.0, np.floor(count / ranks))
    return (
        Share(replace(requests, count=most), fuller),
        Share(replace(requests, count=least), ranks - fuller),
    )


@dataclass(frozen=True, slots=True)
class RankRequests:
    """The requests of one rank.

    Attributes:
        requests: with as many alike as the rank holds.
        places: where each stands among the requests of the plan.
    """

    requests: tuple[Request, ...]
    places: tuple[int, ...]


def requests_of_ranks(
    requests: Sequence[Request], columns: RequestColumns, ranks: int
) -> tuple[RankRequests, ...]:
    """The requests of every rank, as requests.

    Args:
        requests: of the step.
        columns: the same as columns.
        ranks: ranks that hold requests of their own.
    """
    found = []
    for held in deal(columns, ranks).tolist():
        places = tuple(place for place, count in enumerate(held) if count)
        own = tuple(replace(requests[p], count=int(held[p]), packed=b"") for p in places)
        found.append(RankRequests(own, places))
    return tuple(found)


def check_ranks(requests: RequestColumns, ranks: int) -> None:
    """Refuse requests on ranks that a mapping does not have.

    Raises:
        InvalidInputError: naming the rank and those that there are.
    """
    highest = int(requests.rank.max(initial=0.0))
    if highest > ranks:
        raise InvalidInputError(
            f"Request.rank = {highest - 1}: there are {ranks} attention-data-parallel ranks, "
            "numbered from 0; raise dp, or leave the rank out"
        )
