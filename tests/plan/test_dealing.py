"""Which rank runs which requests: dealt evenly, or as the requests say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.dealing import RowSplit, check_ranks, deal, requests_of_ranks, shares
from aisim_v41.plan.request import Request

GROUPS = st.lists(
    st.tuples(st.integers(0, 40), st.none() | st.integers(0, 5)), min_size=0, max_size=8
)


def groups(*parts: tuple[int, int | None]) -> list[Request]:
    return [Request(new_tokens=1, kind="decode", count=n, rank=rank) for n, rank in parts]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # ten requests on four ranks: two each, one more on the first two
        ([(10, None)], [[3], [3], [2], [2]]),
        # the second group goes on where the first left off
        ([(5, None), (3, None)], [[2, 0], [1, 1], [1, 1], [1, 1]]),
        # a named rank holds its requests; the others fill up beside it
        ([(2, None), (3, 1)], [[1, 0], [0, 3], [1, 0], [0, 0]]),
        ([(7, 3)], [[0], [0], [0], [7]]),
    ],
)
def test_worked_deals(parts: list[tuple[int, int | None]], expected: list[list[int]]):
    assert deal(pack(groups(*parts)), 4).astype(int).tolist() == expected


@settings(max_examples=150, deadline=None)
@given(GROUPS, st.integers(6, 9))
def test_every_request_is_on_one_rank(parts: list[tuple[int, int | None]], ranks: int):
    requests = groups(*parts)
    dealt = deal(pack(requests), ranks)
    assert dealt.sum(axis=0).tolist() == [n for n, _ in parts]
    free = [place for place, (_, rank) in enumerate(parts) if rank is None]
    for place in free:
        assert dealt[:, place].max() - dealt[:, place].min() <= 1
    if len(free) == len(parts):
        held = dealt.sum(axis=1)
        assert held.max() - held.min() <= 1
    listed = requests_of_ranks(requests, pack(requests), ranks)
    for rank, own in enumerate(listed):
        held = {place: one.count for place, one in zip(own.places, own.requests, strict=True)}
        assert [held.get(p, 0) for p in range(len(parts))] == dealt[rank].astype(int).tolist()


@settings(max_examples=100, deadline=None)
@given(GROUPS, st.integers(6, 9))
def test_ranks_that_do_the_same_stand_together(parts: list[tuple[int, int | None]], ranks: int):
    columns = pack(groups(*parts))
    found = shares(columns, ranks, one_step=True)
    assert sum(float(share.ranks) for share in found) == ranks
    together = sum(share.requests.count * share.ranks for share in found)
    assert np.asarray(together).tolist() == [n for n, _ in parts]


@given(st.integers(0, 100), st.none() | st.integers(0, 5), st.integers(6, 9))
def test_a_row_of_a_sweep_is_dealt_as_a_step_of_its_own(count: int, rank: int | None, ranks: int):
    """The fullest and the emptiest rank of both, and how many requests they hold together."""
    columns = pack(groups((count, rank)))
    alone = shares(columns, ranks, one_step=True)
    row = shares(columns, ranks, one_step=False)
    held = [s.requests.count[0] for s in row]
    assert [max(held), min(held)] == held
    assert max(held) == max(s.requests.count[0] for s in alone)
    assert min(held) == min(s.requests.count[0] for s in alone)
    assert sum(s.requests.count[0] * s.ranks[0] for s in row) == count
    assert sum(s.ranks[0] for s in row) == ranks


def test_what_a_mapping_divides():
    assert RowSplit.of(Parallel(tp=8)) is None
    assert RowSplit.of(Parallel(dp=4)) == RowSplit(4, "requests")
    assert RowSplit.of(Parallel(cp=4)) == RowSplit(4, "rows")


def test_a_rank_that_is_not_there():
    check_ranks(pack(groups((1, 3))), 4)
    with pytest.raises(InvalidInputError, match=r"Request.rank = 4: there are 4 .* raise dp"):
        check_ranks(pack(groups((1, 4))), 4)


@pytest.mark.parametrize("rank", [-1, 4096, True, 1.0, "0"])
def test_ranks_are_whole_numbers(rank: object):
    with pytest.raises(InvalidInputError, match=r"Request.rank = .*None or a whole number"):
        Request(new_tokens=1, rank=rank)  # type: ignore[arg-type]
