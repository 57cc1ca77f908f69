"""Replay policies in time: what is cut, and steps that take several forwards."""

from __future__ import annotations

import pytest

from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request, chunked
from estimators.cases import POLICIES, estimated, step

SEPARATE = POLICIES["separate encoder replay"]


def calls(found, name: str) -> int:
    return sum(row.calls for row in found.rows if row.operator == name)


def test_each_lost_window_takes_a_forward_of_its_own():
    """runtime-semantics §2.1, the older form: 128 rows at 8,064 for each hit, then the step."""
    hits = Request(new_tokens=64, prefix_tokens=8192, window="missing", count=3)
    other = Request(new_tokens=1, prefix_tokens=400, kind="decode")
    found = estimated([hits, other], SEPARATE)
    replay = step(SEPARATE)([Request(new_tokens=0, prefix_tokens=8192, window="missing")])
    main = step(SEPARATE)(
        [Request(new_tokens=64, prefix_tokens=8192, count=3, window_start=8064), other]
    )
    assert replay > 0
    assert found.latency_s == pytest.approx(3 * replay + main, rel=1e-12)
    assert found.latency_s == step(SEPARATE)([hits, other])
    assert calls(found, "sparse_attention") == 40 * 4
    assert sum(found.path.values()) == pytest.approx(found.latency_s, rel=1e-9)


def test_a_replay_forward_costs_what_its_rows_cost():
    """As many rows at the same place, without entries, and one row of logits fewer or more."""
    replay = step(SEPARATE)([Request(new_tokens=0, prefix_tokens=8192, window="missing")])
    prefill = step(SEPARATE)([Request(new_tokens=128, prefix_tokens=8064, window_start=8064)])
    assert replay == pytest.approx(prefill, rel=0.02)


def test_the_timeline_of_several_forwards():
    """Each distinct forward once; repeated ones push the next one back."""
    hits = Request(new_tokens=64, prefix_tokens=8192, window="missing", count=3)
    found = estimated([hits], SEPARATE)
    timeline = found.timeline()
    assert sorted(set(timeline.forward)) == [0, 1]
    replay = 1000 * step(SEPARATE)([Request(new_tokens=0, prefix_tokens=8192, window="missing")])
    second = timeline[timeline.forward == 1]
    assert second.start_ms.min() == pytest.approx(3 * replay, rel=1e-9)
    assert timeline.end_ms.max() == pytest.approx(found.latency_ms, rel=1e-9)


def test_requests_in_any_container():
    """A stream of requests is read once, whatever the policy does with it."""
    hits = [Request(new_tokens=64, prefix_tokens=8192, window="missing")]
    for name in ("separate encoder replay", "paper"):
        compiled = step(POLICIES[name])
        assert compiled(iter(hits)) == compiled(tuple(hits)) == compiled(hits) > 0


def test_separate_and_folded_replay_agree_where_there_is_nothing_to_replay():
    folded = policy("sglang", encoder_replay="folded")
    for request in (Request(new_tokens=500), Request(new_tokens=9, prefix_tokens=800)):
        assert step(folded)([request]) == step(SEPARATE)([request])


def test_replay_cuts_the_time_of_a_long_prompt():
    """At 8,192 tokens 53.2 % of all token-layers are left; the 19 late layers still read most of
    their experts for 128 rows."""
    on, off = (policy("sglang", decoder_replay=value) for value in (True, False))
    for tp in (1, 4):
        cut, whole = (step(p, tp=tp)([Request(new_tokens=8192)]) for p in (on, off))
        assert 0.532 * whole < cut < 0.8 * whole


def test_replay_never_changes_a_decode_step():
    """All 40 layers run all rows. Where hyper-connections are fused across layers, the graph of a
    replaying policy has one such kernel less, at the cut: 0.003 % of a step."""
    request = Request(new_tokens=1, prefix_tokens=5000, kind="decode", count=9)
    for name in ("sglang", "vllm", "trtllm"):
        fused = policy(name).fusion != "elementary"
        on, off = (policy(name, decoder_replay=value) for value in (True, False))
        with_cut, without = step(on)([request]), step(off)([request])
        assert without * (1 - 1e-12) <= with_cut
        assert with_cut == pytest.approx(without, rel=1e-4 if fused else 1e-12)


def test_an_early_chunk_without_late_rows_reads_no_late_weights():
    """TensorRT-LLM, 32,768 tokens in four chunks: the first three stop after layer 20."""
    runtime = POLICIES["trtllm, replay"]
    *early, last = (estimated([r], runtime) for r in chunked(32_768, chunk_tokens=8192))
    for found in early:
        assert max(layer for row in found.rows for layer in row.layers) == 20
        assert "output_head" not in {row.operator for row in found.rows}
    assert max(layer for row in last.rows for layer in row.layers) == 40

    def weights(found) -> float:
        return sum(row.bytes_by_kind.get("weights", 0.0) for row in found.rows)

    # Experts of popularity 1, E n / (n + 63): 381 of 384 in 21 layers against these and 257 in 19
    # with 128 rows: 21 x 381 / (21 x 381 + 19 x 257) = 0.621, less the head.
    assert 0.61 < weights(early[0]) / weights(last) < 0.62


@pytest.mark.parametrize("name", ["sglang", "vllm", "paper"])
def test_chunks_cost_at_least_the_whole(name: str):
    """Weights are read once a chunk; without a cut the rest is the same work."""
    runtime = policy(name, decoder_replay=False)
    compiled = step(runtime)
    whole = compiled([Request(new_tokens=16_384)])
    parts = sum(compiled([part]) for part in chunked(16_384, chunk_tokens=2048))
    assert parts > whole * (1 - 1e-12)


def launch_floor(requests: list[Request], **changed: object):
    found = estimated(requests, policy("sglang", **changed))
    launches = sum(row.launches for row in found.rows)
    return found.bounds, launches, found.hardware


def test_launch_floor_of_an_eager_step():
    """The host launches one kernel after another: the longer of the two."""
    bounds, launches, gpu = launch_floor([Request(new_tokens=16)])
    assert bounds.launch_s == pytest.approx(launches * gpu.eager_launch_s, rel=1e-12)
    assert bounds.launch_s > bounds.graph_s
    long, _, _ = launch_floor([Request(new_tokens=100_000)])
    assert long.launch_s == long.graph_s


def test_launch_floor_of_a_graph():
    """A gap between kernels, on top of the kernels."""
    bounds, launches, gpu = launch_floor([Request(new_tokens=1, prefix_tokens=9, kind="decode")])
    gaps = launches * gpu.graph_node_gap_s
    assert bounds.launch_s == pytest.approx(bounds.graph_s + gaps, rel=1e-12)
    graph, launches, _ = launch_floor([Request(new_tokens=16)], prefill_execution="full_graph")
    gaps = launches * gpu.graph_node_gap_s
    assert graph.launch_s == pytest.approx(graph.graph_s + gaps, rel=1e-12)


def test_a_step_that_prefills_at_all_runs_as_a_prefill():
    decode = Request(new_tokens=1, prefix_tokens=9, kind="decode")
    bounds, launches, gpu = launch_floor([decode, Request(new_tokens=16)])
    assert bounds.launch_s == pytest.approx(launches * gpu.eager_launch_s, rel=1e-12)
