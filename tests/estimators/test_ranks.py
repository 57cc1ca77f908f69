"""Steps whose ranks hold different rows: the slowest decides, and every form agrees."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41 import Parallel, Plan, Request
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.compiled import CompiledSol, compiled_sol

ROW = 5120 * 2
"""Bytes of a hidden row."""


@cache
def model():
    return aisim.load_model("deepseek-v4.1-flash")


@cache
def gpu(name: str = "gb300"):
    return aisim.load_hardware(name)


def sol(parallel: Parallel, **fields) -> CompiledSol:
    return compiled_sol(model(), gpu(), parallel, aisim.policy("sglang", **fields))


def decode(context: int, **fields) -> Request:
    return Request(new_tokens=1, kind="decode", prefix_tokens=context, **fields)


STEPS = {
    "decodes dealt": (Parallel(dp=4), {}, [decode(5000, count=10)]),
    "a prompt on one rank": (Parallel(dp=4), {}, [Request(new_tokens=8192)]),
    "filled up": (Parallel(dp=4), {"exchange_padding": "max"}, [Request(new_tokens=300, count=3)]),
    "drafting on pairs": (
        Parallel(tp=2, dp=2),
        {"speculation": "dspark"},
        [Request(new_tokens=6, kind="verify", prefix_tokens=5000, count=11)],
    ),
    "interleaved": (Parallel(cp=4), {"decoder_replay": True}, [Request(new_tokens=8192)]),
    "interleaved copies": (Parallel(cp=8), {}, [Request(new_tokens=77, count=5)]),
    "heads divided": (Parallel(cp=4), {}, [decode(5000, count=10)]),
    "no request": (Parallel(dp=2), {}, [decode(5, count=0)]),
}


@pytest.mark.parametrize("method", ["sol", "op"])
@pytest.mark.parametrize("name", STEPS)
def test_a_plan_a_step_and_a_row_agree(name: str, method: str):
    parallel, fields, requests = STEPS[name]
    runtime = aisim.policy("sglang", **fields)
    answer = aisim.estimate(Plan(model(), requests, parallel, runtime), gpu(), method)
    step = aisim.compile(model(), gpu(), parallel=parallel, policy=runtime, method=method)
    assert step(requests) == pytest.approx(answer.latency_s, rel=1e-12)
    (request,) = requests
    names = ("new_tokens", "prefix_tokens", "kind", "count")
    frame = pd.DataFrame([{name: getattr(request, name) for name in names}] * 3)
    swept = step.sweep(frame).latency_ms
    assert swept.tolist() == pytest.approx([answer.latency_ms] * 3, rel=1e-12)
    assert sum(answer.path.values()) == pytest.approx(answer.latency_s, rel=1e-9)
    assert answer.band_s[0] <= answer.latency_s <= answer.band_s[1]
    bounds = answer.bounds
    assert bounds.resource_s <= bounds.graph_s * (1 + 1e-12)
    assert bounds.graph_s <= answer.latency_s * (1 + 1e-12)
    assert (answer.rank is None) == (name == "heads divided")
    assert answer.to_dict().get("rank") == answer.rank


def test_prompts_of_one_row_fill_no_decode_graph():
    """Every row reaches the head, as in a decode step; interleaved rows are those of prompts."""
    runtime = aisim.policy("sglang")
    step = aisim.compile(model(), gpu(), parallel=Parallel(cp=4), policy=runtime, method="op")
    frame = pd.DataFrame({"new_tokens": [1], "count": [5], "prefix_tokens": [127]})
    single = step([Request(new_tokens=1, count=5, prefix_tokens=127)])
    assert step.sweep(frame).latency_ms[0] / 1e3 == pytest.approx(single, rel=1e-12)
    assert single <= step([Request(new_tokens=1, count=8, prefix_tokens=127)])


def test_prefill_and_decode_rows_of_one_sweep_under_context_parallelism():
    step = sol(Parallel(cp=4))
    frame = pd.DataFrame({"new_tokens": [100, 1, 700], "kind": ["prefill", "decode", "prefill"],
                          "prefix_tokens": [0, 900, 5]})  # fmt: skip
    alone = [
        step([Request(new_tokens=100)]),
        step([decode(900)]),
        step([Request(new_tokens=700, prefix_tokens=5)]),
    ]
    assert (step.sweep(frame).latency_ms / 1e3).tolist() == pytest.approx(alone, rel=1e-12)
    assert alone[1] == sol(Parallel(tp=4))([decode(900)])


def test_messages_of_an_exchange_by_hand():
    """Ten rows gathered, ten sums scattered, in each of 40 layers; nothing else is sent."""
    plan = Plan(model(), [decode(5000, count=10)], Parallel(dp=4), aisim.policy("sglang"))
    rows = {row.operator: row for row in aisim.estimate(plan, gpu(), "sol").rows}
    for name in ("gather_rows", "return_rows"):
        found = [row for row in aisim.estimate(plan, gpu(), "sol").rows if row.operator == name]
        assert sum(row.message_bytes for row in found) == 40 * 10 * ROW
        assert sum(row.calls for row in found) == 40
    assert not {"all_reduce_attention", "all_reduce_experts", "gather_latents"} & set(rows)
    filled = aisim.policy("sglang", exchange_padding="max")
    plan = replace(plan, policy=filled)
    found = [r for r in aisim.estimate(plan, gpu(), "sol").rows if r.operator == "gather_rows"]
    assert sum(row.message_bytes for row in found) == 40 * 12 * ROW


def test_messages_of_interleaved_rows_by_hand():
    """8,192 rows at cp 4 under replay: latents of all rows in 21 layers and of 128 in 19, inputs of
    four compressors."""
    policy = aisim.policy("sglang", decoder_replay=True)
    plan = Plan(model(), [Request(new_tokens=8192)], Parallel(cp=4), policy)
    sent: dict[str, float] = {}
    for row in aisim.estimate(plan, gpu(), "sol").rows:
        sent[row.operator] = sent.get(row.operator, 0.0) + row.message_bytes
    token_layers = 21 * 8192 + 19 * 128
    assert sent["gather_latents"] == token_layers * 1024
    assert sent["gather_inputs"] == 4 * 8192 * ROW
    assert sent["gather_rows"] == sent["return_rows"] == token_layers * ROW
    assert sent["gather_logits"] == 129_280 * 2


CONTEXTS = st.integers(1, 200_000)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(CONTEXTS, st.integers(0, 3)), min_size=1, max_size=6), CONTEXTS,
       st.integers(0, 3))  # fmt: skip
def test_laws(held: list[tuple[int, int]], more: int, rank: int):
    """Which rank is which does not matter, and a further request never makes a step shorter."""
    step = sol(Parallel(dp=4))
    requests = [decode(context, rank=place) for context, place in held]
    turned = [decode(context, rank=(place + 1) % 4) for context, place in held]
    seconds = step(requests)
    assert step(turned) == pytest.approx(seconds, rel=1e-12)
    assert step([*requests, decode(more, rank=rank)]) >= seconds * (1 - 1e-12)
    # The slowest of all takes no less than the fullest rank's requests alone on the same ranks.
    alone = max(step([r for r in requests if r.rank == own]) for own in range(4))
    assert seconds >= alone * (1 - 1e-12)


def test_dealing_evenly_is_fastest():
    """Twelve alike on four ranks, against all of them on one."""
    step = sol(Parallel(dp=4))
    spread = step([decode(50_000, count=12)])
    assert step([decode(50_000, count=3, rank=rank) for rank in range(4)]) == pytest.approx(spread)
    assert step([decode(50_000, count=12, rank=1)]) > spread


def test_more_is_exchanged():
    requests = [Request(new_tokens=500), Request(new_tokens=2000)]
    plain = sol(Parallel(dp=2))(requests)
    assert sol(Parallel(dp=2), exchange_padding="max")(requests) > plain
    unscattered = CompiledSol(
        model(), replace(gpu(), in_network_reduction=False), Parallel(dp=2),
        aisim.policy("sglang", exchange_return="all_reduce"),
    )  # fmt: skip
    assert unscattered(requests) > plain


def test_tables_over_all_ranks():
    """Rows of an Engram table over all of four ranks are asked for by all."""
    policy = aisim.policy("custom", base="sglang", engram_table="all", engram_residency="hbm")
    plan = Plan(model(), [decode(900, count=8)], Parallel(dp=4), policy)
    rows = [r for r in aisim.estimate(plan, gpu(), "sol").rows if r.operator == "engram_lookup"]
    read = sum(row.bytes_by_kind["table_read"] for row in rows)
    assert read == pytest.approx(2 * 8 * 24 * 264 / 4)
    reduced = [r for r in aisim.estimate(plan, gpu(), "sol").rows
               if r.operator == "all_reduce_engram"]  # fmt: skip
    assert sum(row.message_bytes for row in reduced) == 2 * 8 * 12_288


def test_memory_is_that_of_the_fullest_rank():
    held = [decode(100_000, count=5, rank=2), decode(100_000, rank=0)]
    policy = aisim.policy("sglang", engram_residency="host_shared")
    together = aisim.estimate(Plan(model(), held, Parallel(dp=4), policy), gpu(), "sol").memory
    alone = replace(held[0], rank=None, packed=b"")
    full = aisim.estimate(Plan(model(), [alone], Parallel(tp=1), policy), gpu(), "sol").memory
    assert together.kv_bytes == full.kv_bytes


def test_ranks_and_domains_that_there_are_not():
    step = sol(Parallel(dp=2))
    with pytest.raises(InvalidInputError, match=r"Request.rank = 2: there are 2"):
        step([decode(5, rank=2)])
    with pytest.raises(InvalidInputError, match=r"Request.rank = 2: there are 2"):
        step.sweep(pd.DataFrame({"new_tokens": [1], "rank": [2]}))
    with pytest.raises(UnsupportedPlanError, match=r"prompt log-probabilities with context"):
        sol(Parallel(cp=2)).sweep(pd.DataFrame({"new_tokens": [9], "prompt_logprobs": [True]}))
    small = replace(gpu(), link_domain_gpus=2)
    with pytest.raises(UnsupportedPlanError, match=r"cp = 4 on gb300: .* one link domain"):
        CompiledSol(model(), small, Parallel(cp=4), aisim.policy("sglang"))


def test_the_band_holds_ranks_that_meet_in_every_layer():
    """A prompt on one rank beside long decodes on another: in some layers the other is slower."""
    mixed = [Request(new_tokens=3000, rank=0), decode(900_000, count=60, rank=1)]
    policy = aisim.policy("custom", prefill_execution="full_graph")
    plan = Plan(model(), mixed, Parallel(dp=2), policy)
    answer = aisim.estimate(plan, gpu(), "op")
    most = [Request(new_tokens=3000), decode(900_000, count=60)]
    both = aisim.estimate(Plan(model(), most, Parallel(tp=1), policy), gpu(), "op")
    assert answer.band_s[1] > answer.latency_s
    assert answer.latency_s < both.latency_s
    apart = [replace(request, rank=0, packed=b"") for request in mixed]
    together = aisim.estimate(replace(plan, requests=apart), gpu(), "op")
    assert together.latency_s > answer.latency_s


def test_a_method_of_one_rank_says_so():
    """Measured forwards stand for ranks that do the same; others are refused, not left open."""
    from aisim_v41.estimators.fpm.tables import load_fpm

    fpm = load_fpm("gb300", identity="sglang-tp4-replay_off")
    for asked in (lambda: fpm.priced_ranks([], one_step=True), lambda: fpm.on(fpm.parallel)):
        with pytest.raises(UnsupportedPlanError, match=r"'fpm' with tp = 4: .*use dp=1 and cp=1"):
            asked()
