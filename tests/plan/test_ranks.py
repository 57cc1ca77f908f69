"""Attention data parallelism: every rank counts its own requests, its experts those of all."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import pytest
from oracle.draw import REAL, any_policy, any_requests, shrunken_model
from oracle.experts import expert_draws, experts_touched
from oracle.rows import forwards
from oracle.walk import count_forward

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.captured import CapturedSteps
from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.counting import LedgerProgram
from aisim_v41.plan.counts import Count
from aisim_v41.plan.dealing import RowSplit
from aisim_v41.plan.ledger import Ledger, ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request

RANKS = 3


@cache
def real_model():
    return load_model(REAL)


def decode(context: int, **fields) -> Request:
    return Request(new_tokens=1, kind="decode", prefix_tokens=context, **fields)


def step(requests: list[Request], ranks: int = 4, **fields) -> Ledger:
    runtime = policy("custom", base="sglang", **fields)
    return ledger(Plan(real_model(), requests, parallel=Parallel(dp=ranks), policy=runtime))


def of_ranks(found: Ledger, count: Count, layer: int) -> list[float]:
    place = found.program.position(count, found.program.classes[layer])
    return [float(counts.totals[place]) for _, counts in found.passes]


@pytest.mark.parametrize("seed", range(150))
def test_against_the_oracle(seed: int):
    """Own columns are those of the rank's requests alone; rows, activity and experts of the replica
    are those of all, the experts by their draws."""
    random = Random(seed)
    model = shrunken_model(random)
    runtime = any_policy(random, small=True).with_overrides(
        exchange_padding=random.choice(("sum", "max"))
    )
    if runtime.encoder_replay == "separate":
        runtime = runtime.with_overrides(encoder_replay="folded")
    requests = [
        replace(request, rank=random.choice((None, *range(RANKS))), image_tokens=0, packed=b"")
        for request in any_requests(random, runtime, small=True)
    ]
    plan = Plan(model, requests, parallel=Parallel(dp=RANKS), policy=runtime)
    found = ledger(plan)
    assert sum(r.count for f, _ in found.passes for r in f.requests) == sum(
        request.count for request in requests
    )
    alone = LedgerProgram(model, runtime)
    counted = []
    for forward, counts in found.passes:
        plain = alone.count(pack(forward.requests), one_step=True)
        assert counts.totals[: len(plain.totals)].tolist() == plain.totals.tolist()
        (one,) = forwards(model, runtime, forward.requests)
        counted.append((one, count_forward(model, runtime, one)))
    for index in range(len(model.layers)):
        rows, bound, expected = [], 0.0, 0.0
        for one, layers in counted:
            each = [(c["query_rows"], s) for c, s in zip(layers[index], one.sequences, strict=True)]
            rows.append(sum(n * s.count for n, s in each))
            draws = [(expert_draws(runtime, s, n), s.count) for n, s in each]
            bound += sum(d[0] * count for d, count in draws)
            expected += sum(d[1] * count for d, count in draws)
        seen = RANKS * max(rows) if runtime.exchange_padding == "max" else sum(rows)
        touched = model.experts.top_k * (bound > 0)
        if runtime.expert_routing != "fewest":
            touched = experts_touched(model, runtime, bound)
        for count, value in (
            (Count.REPLICA_ROWS, seen),
            (Count.REPLICA_ACTIVE, float(any(rows))),
            (Count.REPLICA_EXPERTS_TOUCHED, touched),
            (Count.REPLICA_EXPERTS_EXPECTED, experts_touched(model, runtime, expected)),
        ):
            got = of_ranks(found, count, index)
            assert got == pytest.approx([value] * RANKS, rel=1e-9, abs=1e-9), (seed, count)


def test_ten_decodes_on_four_ranks():
    """Three, three, two and two; the experts see ten rows, or four times three."""
    requests = [decode(5000, count=10)]
    found = step(requests)
    assert of_ranks(found, Count.QUERY_ROWS, 0) == [3, 3, 2, 2]
    assert of_ranks(found, Count.REPLICA_ROWS, 0) == [10] * 4
    # 384 (1 - (1 + 10 c)^-1) with c = (1 - 6/384)^-1 - 1 = 6/378
    assert of_ranks(found, Count.REPLICA_EXPERTS_TOUCHED, 0) == pytest.approx(
        [384 * (1 - 1 / (1 + 10 * 6 / 378))] * 4
    )
    padded = step(requests, exchange_padding="max")
    assert of_ranks(padded, Count.REPLICA_ROWS, 0) == [12] * 4
    assert of_ranks(padded, Count.REPLICA_EXPERTS_TOUCHED, 0) == pytest.approx(
        of_ranks(found, Count.REPLICA_EXPERTS_TOUCHED, 0)
    )


def test_dummy_rows_of_graphs_are_exchanged_too():
    """Graphs of 1, 2, 4, 8 requests: three decodes run as four. Twelve rows meet; the dummies of a
    step are alike, so that they choose once more."""
    runtime = policy("sglang", expert_popularity=0.0)
    program = LedgerProgram(real_model(), runtime, RowSplit(4, "requests"))
    counted = program.of_ranks(pack([decode(5000, count=10)]), one_step=True)
    filled = CapturedSteps(program).filled_ranks(counted, one_step=True)
    where = program.classes[0]
    rows = program.position(Count.QUERY_ROWS, where)
    seen = program.position(Count.REPLICA_ROWS, where)
    expected = program.position(Count.REPLICA_EXPERTS_EXPECTED, where)
    touched = program.position(Count.REPLICA_EXPERTS_TOUCHED, where)
    assert sorted(counts[rows] for counts, _ in filled) == [2, 4]
    for counts, eager in filled:
        assert eager is None
        assert counts[seen] == 12
        assert counts[touched] == pytest.approx(384 * (1 - (1 - 6 / 384) ** 10))
        assert counts[expected] == pytest.approx(384 * (1 - (1 - 6 / 384) ** 11))
    assert all(one.counts.totals[seen] == 10 for one in counted)


def test_late_rows_differ_by_rank():
    """runtime-semantics §10, DP check: every rank passes the exchange, also an idle one."""
    found = step(
        [Request(new_tokens=8192, rank=0), Request(new_tokens=64, rank=1)],
        decoder_replay=True,
    )
    assert of_ranks(found, Count.QUERY_ROWS, 0) == [8192, 64, 0, 0]
    assert of_ranks(found, Count.QUERY_ROWS, 21) == [128, 64, 0, 0]
    assert of_ranks(found, Count.REPLICA_ROWS, 21) == [192] * 4
    assert of_ranks(found, Count.REPLICA_ACTIVE, 21) == [1] * 4
    assert of_ranks(found, Count.ACTIVE, 21) == [1, 1, 0, 0]
    frame = found.to_frame()
    assert frame[frame.layer == 21].query_rows.tolist() == [128, 64]
    assert frame[frame.layer == 21]["rank"].tolist() == [0, 1]
    assert frame[frame.layer == 21].request.tolist() == [0, 1]
    assert "rank 1" in found.to_text()


def test_sums_over_ranks_are_those_of_one_gpu():
    requests = [Request(new_tokens=700, count=5), decode(3000, count=9)]
    alone = ledger(Plan(real_model(), requests, policy=policy("sglang")))
    found = step(requests)
    for count in (Count.QUERY_ROWS, Count.WINDOW_PAIRS, Count.SELECTED_ENTRIES):
        assert found.total(count, 5) == alone.total(count, 5)
    assert found.token_layers == alone.token_layers


@pytest.mark.parametrize("speculation", ["off", "dspark"])
def test_a_row_of_a_sweep_is_a_step_of_its_own(speculation: str):
    runtime = policy("sglang", speculation=speculation)
    program = LedgerProgram(real_model(), runtime, RowSplit(4, "requests"))
    requests = [
        Request(new_tokens=6, kind="verify", prefix_tokens=900, count=10),
        Request(new_tokens=500, count=2),
        Request(new_tokens=500, count=3, rank=2),
        decode(70, count=0),
        decode(70, count=8),
    ]
    together = program.of_ranks(pack(requests), one_step=False)
    for place, request in enumerate(requests):
        alone = program.of_ranks(pack([request]), one_step=True)
        expected = {tuple(one.counts.totals.tolist()) for one in alone}
        got = {tuple(one.counts.totals[:, place].tolist()) for one in together if one.ranks[place]}
        for one, other in zip(sorted(got), sorted(expected), strict=True):
            assert one == pytest.approx(other, rel=1e-12)


def test_engines_refuse_replay_with_data_parallelism():
    with pytest.raises(UnsupportedPlanError, match=r"decoder replay and attention data .*37ae292e"):
        Plan(
            real_model(), [decode(5)], parallel=Parallel(dp=2),
            policy=policy("sglang", decoder_replay=True),
        )  # fmt: skip
    with pytest.raises(UnsupportedPlanError, match="'separate' with dp = 2"):
        Plan(
            real_model(), [decode(5)], parallel=Parallel(dp=2),
            policy=policy("custom", encoder_replay="separate"),
        )  # fmt: skip
