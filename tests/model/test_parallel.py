from __future__ import annotations

import pytest

from aisim_v41.errors import InvalidInputError
from aisim_v41.model.parallel import Parallel


def test_ranks_of_one_replica() -> None:
    parallel = Parallel(tp=2, dp=4, cp=2, ep=8)
    assert parallel.gpus == 16
    assert parallel.expert_ranks == 16
    assert parallel.expert_slices == 2


def test_without_expert_parallelism_every_rank_holds_a_slice_of_every_expert() -> None:
    assert Parallel(tp=4).expert_slices == 4
    assert Parallel(tp=4, ep=4).expert_slices == 1


@pytest.mark.parametrize("value", [0, -1, 4097, 1.0, True, "2", None])
def test_refuses_what_is_not_a_rank_count(value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"Parallel\.tp"):
        Parallel(tp=value)  # type: ignore[arg-type]
