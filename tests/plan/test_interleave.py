"""Context parallelism: the rows of every rank against an oracle that deals them one by one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.draw import REAL, any_policy, any_requests, shrunken_model
from oracle.experts import expert_draws, experts_touched
from oracle.interleave import count_rank_layer, rows_of_ranks
from oracle.rows import forwards
from oracle.walk import LIMITS

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.compatibility import pack
from aisim_v41.plan.counting import LedgerProgram
from aisim_v41.plan.counts import Count
from aisim_v41.plan.dealing import RowSplit
from aisim_v41.plan.interleave import Progressions
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import policy
from aisim_v41.plan.reach import Reach
from aisim_v41.plan.request import Request

RULES = st.builds(
    lambda ratio, blocks, block: Reach(ratio, blocks * block, block),
    st.integers(1, 3), st.integers(1, 9), st.sampled_from((1, 2, 3, 8)),
)  # fmt: skip


@cache
def real_model():
    return load_model(REAL)


def prefills(random: Random, runtime, *, small: bool) -> list[Request]:
    """Prefill groups of few copies, as context parallelism takes them."""
    return [
        replace(request, count=min(request.count, 11), prompt_logprobs=False, image_tokens=0,
                packed=b"")
        for request in any_requests(random, runtime, small=small)
        if request.kind == "prefill"
    ]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(RULES, st.integers(1, 40), st.integers(0, 30), st.integers(1, 9))
def test_a_progression_is_the_sum_of_its_terms(rule: Reach, first: int, number: int, stride: int):
    def reached(position: int) -> int:
        visible = position // rule.ratio
        return visible if visible <= rule.cap else rule.cap - (-visible) % rule.block

    terms = [reached(first + place * stride) for place in range(number)]
    sums = Progressions([rule], stride)
    found = sums.sums(np.array([[float(first)]]), np.array([[float(number)]]))[0]
    assert found.tolist() == [float(sum(terms))]


@pytest.mark.parametrize("seed", range(120))
def test_shrunken_models(seed: int):
    random = Random(seed)
    model = shrunken_model(random)
    runtime = any_policy(random, small=True)
    check(random, model, runtime, small=True)


@pytest.mark.parametrize("seed", range(6))
def test_published_model(seed: int):
    random = Random(seed)
    check(random, real_model(), any_policy(random, small=False), small=False)


def check(random: Random, model, runtime, *, small: bool) -> None:
    if runtime.encoder_replay == "separate":
        runtime = runtime.with_overrides(encoder_replay="folded")
    ranks = random.randint(2, min(8, model.attention.window))
    requests = prefills(random, runtime, small=small)
    found = ledger(Plan(model, requests, parallel=Parallel(cp=ranks), policy=runtime))
    (forward,) = forwards(model, runtime, requests)
    dealt = rows_of_ranks(forward, ranks)
    program = found.program
    assert [one.rank for one, _ in found.passes] == list(range(ranks))
    for index, layer in enumerate(model.layers):
        where = program.classes[index]
        oracle = [count_rank_layer(model, runtime, layer, forward, mine) for mine in dealt]
        for rank, ((_, counts), expected) in enumerate(zip(found.passes, oracle, strict=True)):
            for name, value in expected.items():
                got = counts.totals[program.position(Count(name), where)]
                close = got <= value if name in LIMITS else got == value
                assert close, f"{name}, layer {index}, rank {rank}: {got}, oracle {value}"
        rows = [one["query_rows"] for one in oracle]
        draws = sum(
            expert_draws(runtime, sequence, len(own_rows(program, forward, index, sequence)))[0]
            * sequence.count
            for sequence in forward.sequences
        )
        seen = found.passes[0][1].totals
        assert seen[program.position(Count.REPLICA_ROWS, where)] == ranks * max(rows)
        assert seen[program.position(Count.REPLICA_ACTIVE, where)] == float(any(rows))
        touched = model.experts.top_k * any(rows)
        if runtime.expert_routing != "fewest":
            touched = experts_touched(model, runtime, draws)
        place = program.position(Count.REPLICA_EXPERTS_TOUCHED, where)
        assert seen[place] == pytest.approx(touched, rel=1e-9, abs=1e-9)


def own_rows(program, forward, index: int, sequence):
    """Rows of one request that run a layer's queries, on any rank."""
    early = program.classes[index].region == "full"
    return sequence.queries if early else sequence.late_queries


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_row_of_a_sweep_is_a_step_of_its_own(ranks: int):
    """Columns at once give what each gives alone, to the last bit."""
    runtime = policy("sglang", decoder_replay=True)
    program = LedgerProgram(real_model(), runtime, RowSplit(ranks, "rows"))
    requests = [
        Request(new_tokens=new, prefix_tokens=prefix, count=count)
        for new, prefix, count in (
            (8192, 0, 1), (7, 100, 5), (1, 0, 1), (129, 8191, 3), (0, 5, 2), (5000, 0, 0),
            (3, 3, 100),
        )
    ]  # fmt: skip
    together = program.of_ranks(pack(requests), one_step=False)
    for place, request in enumerate(requests):
        alone = program.of_ranks(pack([request]), one_step=True)
        for rank in range(ranks):
            got, expected = together[rank].counts.totals[:, place], alone[rank].counts.totals
            assert got.tolist() == pytest.approx(expected.tolist(), rel=1e-12)


def test_the_vector_with_four_ranks():
    """runtime-semantics §10, note to vector 9: 8,192 rows at cp 4."""
    plan = Plan(
        real_model(),
        [Request(new_tokens=8192)],
        parallel=Parallel(cp=4),
        policy=policy("sglang", decoder_replay=True),
    )
    found = ledger(plan)
    for _, counts in found.passes:
        for layer, rows, written in ((0, 2048, 8192), (20, 2048, 8192), (21, 32, 128)):
            where = found.program.classes[layer]
            assert counts.totals[found.program.position(Count.QUERY_ROWS, where)] == rows
            assert counts.totals[found.program.position(Count.STORED_ROWS, where)] == written
    # Ranks together have the rows of one, in 21 layers and in 19; all store every entry.
    assert found.token_layers == 174_464
    assert found.total(Count.ENTRIES_WRITTEN, 2) == 4 * 4096
    frame = found.to_frame()
    assert set(frame["rank"]) == {0, 1, 2, 3}
    assert set(frame[frame.layer == 30].query_rows) == {32}


def test_what_is_not_interleaved():
    model, cp = real_model(), Parallel(cp=4)
    prefill = Request(new_tokens=100)
    decode = Request(new_tokens=1, kind="decode", prefix_tokens=100)
    with pytest.raises(UnsupportedPlanError, match="prefill and decode rows with context"):
        Plan(model, [prefill, decode], parallel=cp)
    with pytest.raises(UnsupportedPlanError, match="prompt log-probabilities with context"):
        Plan(model, [Request(new_tokens=5, prompt_logprobs=True)], parallel=cp)
    with pytest.raises(UnsupportedPlanError, match="images with context parallelism"):
        Plan(model, [Request(new_tokens=5, image_tokens=2)], parallel=cp)
    with pytest.raises(UnsupportedPlanError, match="'separate' with cp = 4"):
        Plan(model, [prefill], parallel=cp, policy=policy("custom", encoder_replay="separate"))
    with pytest.raises(UnsupportedPlanError, match="'dspark' with cp = 4"):
        Plan(model, [prefill], parallel=cp, policy=policy("sglang", speculation="dspark"))
    small = shrunken_model(Random(2))
    window = small.attention.window
    program = LedgerProgram(small, policy("paper"), RowSplit(window + 1, "rows"))
    with pytest.raises(UnsupportedPlanError, match=f"a window of {window} positions"):
        program.of_ranks(pack([prefill]), one_step=True)
