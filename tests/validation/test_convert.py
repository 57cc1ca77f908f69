"""Conversions worked by hand, one or more of every kind of case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import aisim_v41 as aisim
from aisim_v41.validation.bound import reported_tasks
from aisim_v41.validation.cases import Case
from aisim_v41.validation.conversion import Conversion, Part, Reason
from aisim_v41.validation.convert import convert

Converted = Callable[[str], Conversion]
Request = aisim.Request


def only_way(conversion: Conversion) -> tuple[Part, ...]:
    (claim,) = conversion.claims
    (way,) = claim.ways
    return way.parts


# --- steps ------------------------------------------------------------------------------------


def test_decode_step(converted: Converted) -> None:
    conversion = converted("gb300-eager-off-decode-b2-n1-p192")
    decode = Request(new_tokens=1, prefix_tokens=192, kind="decode", count=2)
    assert only_way(conversion) == (Part((decode,)),)
    assert conversion.measured_ms == 163.488913


def test_prefill_step_with_a_running_window(converted: Converted) -> None:
    (part,) = only_way(converted("gb300-eager-on-prefill-b2-n96-p512"))
    assert part.requests == (Request(new_tokens=96, prefix_tokens=512, count=2),)


def test_verify_step_has_the_draft_and_one_row(converted: Converted) -> None:
    (part,) = only_way(converted("rtxpro-step-8192-c4"))
    assert part.requests == (
        Request(new_tokens=6, prefix_tokens=12288, kind="verify", count=4),
    )  # fmt: skip


def test_the_end_of_an_interval_that_is_harder_to_stay_below(converted: Converted) -> None:
    assert converted("mi355-fix-sgl-off-step-c8").measured_ms == 7.36  # of [7.36, 8.035]


def test_stalled_steps_hold_one_request_for_certain(converted: Converted) -> None:
    (claim,) = converted("mi355-fix-sgl-off-step-c8").claims
    assert [way.parts[0].requests[0].count for way in claim.ways] == [8, 1]


def test_a_live_batch_that_is_not_stated(converted: Converted) -> None:
    (claim,) = converted("b200-dyn-2p1d-step-p50").claims
    assert {way.parts[0].requests[0].count for way in claim.ways} == {1}


def test_a_context_that_is_not_stated(converted: Converted) -> None:
    (claim,) = converted("gb10-res-step-c8").claims
    assert [way.parts[0].requests[0].prefix_tokens for way in claim.ways] == [1024, 0]


def test_rate_of_steps(converted: Converted) -> None:
    conversion = converted("gb10-reg-decode-ctx0-c2")
    # Two requests yield at most 4 tokens each a step: 8 / 61.3 s.
    assert conversion.measured_ms == pytest.approx(130.50571)
    assert only_way(conversion)[0].requests[0].count == 2


def test_hit_without_window_is_replayed(converted: Converted) -> None:
    (claim,) = converted("b200-prof-gpuwindow-n512-p64k").claims
    hit = Request(new_tokens=512, prefix_tokens=65536, window="missing")
    assert [way.parts for way in claim.ways] == [(Part((hit,)),)] * 2
    assert [way.decoder_replay for way in claim.ways] == [False, True]  # taken, and the other
    assert {way.policy.encoder_replay for way in claim.ways} == {"folded"}


# --- prompts ----------------------------------------------------------------------------------


def test_prompt_in_chunks(converted: Converted) -> None:
    parts = only_way(converted("gb10-tail-ttft-128k-tail-skipped"))
    assert len(parts) == 64
    assert parts[1].requests == (
        Request(new_tokens=2048, prefix_tokens=2048, prompt_tokens=131072),
    )  # fmt: skip
    assert parts[-1].requests[0].end == 131072


def test_last_chunk_may_be_short(converted: Converted) -> None:
    parts = only_way(converted("gb10-rhys-tp8-ttft-11592"))
    assert [part.requests[0].new_tokens for part in parts] == [8192, 3400]


def test_late_rows_of_early_chunks(converted: Converted) -> None:
    anchors = {
        name: converted(f"gb10-tail-ttft-128k-tail-{name}").claims[0].ways[0].policy.replay_anchor
        for name in ("skipped", "128rows", "1row")
    }
    # One row a chunk is no policy of ours; none is fewer.
    assert anchors == {"skipped": "prompt_end", "128rows": "step_end", "1row": "prompt_end"}


def test_cold_and_cached_prompts(converted: Converted) -> None:
    cached = only_way(converted("gb300-serve-off-core-prefix-reuse-B-ttft"))
    assert cached == (
        Part((Request(new_tokens=256, prefix_tokens=512, prompt_tokens=768, window="cached"),)),
    )  # fmt: skip
    cold = only_way(converted("gb300-serve-off-core-short-ttft"))
    assert cold == (Part((Request(new_tokens=32, prompt_tokens=32),)),)


def test_a_request_waits_for_its_own_forwards_only(converted: Converted) -> None:
    conversion = converted("b200-enc-replay-on")
    (part,) = only_way(conversion)
    assert part.requests[0].count == 1
    assert conversion.claims[0].ways[0].policy.encoder_replay == "separate"


def test_chunk_that_is_not_stated(converted: Converted) -> None:
    (claim,) = converted("gb10-tonyd-tp4-ttft-11592").claims
    assert {way.name: len(way.parts) for way in claim.ways} == {
        "chunk 8192, replay off": 2,
        "one step, replay off": 1,
    }


def test_open_replay_and_open_chunk(converted: Converted) -> None:
    (claim,) = converted("a800-thr-c4").claims[1:]
    assert [way.name for way in claim.ways] == ["as stated, replay off", "as stated, replay on"]
    (claim,) = converted("gb300-39336-sgl-pr-ttft-mean-c64").claims
    assert [way.name for way in claim.ways] == [
        "chunk 16384, replay off",
        "chunk 16384, replay on",
        "one step, replay off",
        "one step, replay on",
    ]


def test_rate_of_one_prompt(converted: Converted) -> None:
    conversion = converted("rtxpro-prefill-8192-c1")
    assert conversion.measured_ms == pytest.approx(1116.53264)  # 8192 / 7337 s
    assert len(conversion.claims[0].ways[0].parts) == 4


def test_short_prompts_share_a_step(converted: Converted) -> None:
    conversion = converted("rtxpro-prefill-512-c4")
    shared = Request(new_tokens=512, count=4)
    assert conversion.claims[0].ways[0].parts == (Part((shared,), 1 / 4),)
    assert conversion.measured_ms == pytest.approx(97.49224)  # 512 / 5251.7 s


def test_long_prompts_count_full_chunks(converted: Converted) -> None:
    # 200000 = 97 x 2048 + 1344; the rest may share a step with the next prompt.
    assert len(converted("rtxpro-prefill-200000-c4").claims[0].ways[0].parts) == 97
    assert len(converted("rtxpro-prefill-200000-c1").claims[0].ways[0].parts) == 98


# --- tokens -----------------------------------------------------------------------------------


def test_time_per_token_with_stated_acceptance(converted: Converted) -> None:
    conversion = converted("mi355-fix-sgl-k5-tpot-c1")
    assert conversion.measured_ms == pytest.approx(2.63740148 * 3.51)
    (part,) = only_way(conversion)
    assert part.requests == (Request(new_tokens=6, prefix_tokens=4096, kind="verify"),)


def test_time_per_token_with_unknown_acceptance(converted: Converted) -> None:
    conversion = converted("rtx4090-tpot-1024")
    assert conversion.measured_ms == pytest.approx(8.29875519 * 6)


def test_unknown_draft_is_taken_as_the_longest(converted: Converted) -> None:
    conversion = converted("b200-diskeng-tpot-c16")
    assert only_way(conversion)[0].requests[0].new_tokens == 8
    assert conversion.measured_ms == pytest.approx(8.45 * 8)  # lower end of [8.45, 8.6]


def test_a_time_per_token_never_counts_the_other_requests(converted: Converted) -> None:
    (part,) = only_way(converted("rtx5090-tpot-c32"))
    assert part.requests == (Request(new_tokens=1, prefix_tokens=1024, kind="decode"),)


def test_restated_times_agree_with_their_twins(cases: dict[str, Case]) -> None:
    """A TPOT case and the step case that restates it come to the same time of a step."""
    pairs = 0
    for case in cases.values():
        conversion = convert(case)
        twin = TWINS.get(case.name)
        if twin is not None and isinstance(conversion, Conversion):
            other = convert(replace(cases[twin], bounds=None))
            assert isinstance(other, Conversion)
            assert conversion.measured_ms == pytest.approx(other.measured_ms, rel=1e-3)
            pairs += 1
    assert pairs == len(TWINS)


TWINS = {
    f"mi355-fix-{run}-tpot-{load}": f"mi355-fix-{run}-step-{load}"
    for run, load in [
        ("sgl-off", "c8"), ("vllm-off", "c8"), ("sgl-k5", "c1"), ("vllm-k5", "c1"),
        ("vllm-k5", "c8"), ("vllm-k5", "c32"), ("sgl-off-opus", "c1"), ("sgl-off-sharegpt", "c8"),
    ]
} | {"b200-trace-tpot-c1": "b200-trace-step-c1"}  # fmt: skip


# --- throughput -------------------------------------------------------------------------------


def test_one_caller_pays_prompt_and_output(converted: Converted) -> None:
    conversion = converted("gb10-res-thr-c1")
    assert conversion.measured_ms == pytest.approx(3636.36364)  # 200 / 55 s
    prompt, decode = only_way(conversion)
    assert prompt == Part((Request(new_tokens=75, prompt_tokens=75),))
    assert decode.requests == (Request(new_tokens=6, prefix_tokens=75, kind="verify"),)
    assert decode.times == pytest.approx(199 / 6)


def test_many_callers_share_steps(converted: Converted) -> None:
    conversion = converted("mi355-fix-vllm-k5-thr-c32")
    decodes, prompts = conversion.claims
    (way,) = decodes.ways
    assert way.parts[0].requests[0].count == 32
    assert way.parts[0].times == pytest.approx(1023 / 3.51 / 32)
    # 8192-token chunks hold two prompts; without a chunk all 32 may run at once.
    assert [way.parts[0].requests[0].count for way in prompts.ways] == [2, 32]
    assert [way.parts[0].times for way in prompts.ways] == [1 / 2, 1 / 32]


def test_attention_groups_run_their_own_requests(converted: Converted) -> None:
    conversion = converted("a800-thr-c128")
    (way,) = conversion.claims[0].ways
    assert conversion.machine.parallel.tp == 8
    assert way.parts[0].requests[0].count == 64
    assert way.parts[0].times == pytest.approx(1023 / 6 / 128)


def test_rate_per_gpu_of_three_workers(converted: Converted) -> None:
    conversion = converted("b200-dyn-2p1d-throughput")
    assert conversion.measured_ms == pytest.approx(400 / (610.8 * 12) * 1e3)
    (claim,) = conversion.claims  # hits are not stated: prompts do not count
    assert claim.ways[0].parts[0].times == pytest.approx(399 / 4 / 160 / 3)
    assert claim.ways[0].parts[0].requests[0].prefix_tokens == 0  # lengths are means


def test_total_tokens_count_the_prompt(converted: Converted) -> None:
    conversion = converted("b200-diskeng-totalthr-c16")
    assert conversion.measured_ms == pytest.approx((8192 + 1024) / 14168 * 1e3)


# --- kernels and reasons -------------------------------------------------------------------------


def test_kernel_groups(converted: Converted) -> None:
    each = converted("mi355-idx-split-indexer_score-l2_8_14_each").group
    assert each is not None
    assert (each.layers, each.each) == ((2, 8, 14), True)
    assert converted("b200-prof-ekern-p64k-sum").group is None
    moe, fused = converted("gb10-moe-layer-rows6").group, converted("mi355-moe-layer-rows1").group
    assert moe is not None
    assert fused is not None
    assert fused.operators - moe.operators == {"shared_expert"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gb10-tp4-weights", Reason.NOT_A_TIME),
        ("gb300-station-kv-tokens", Reason.NOT_A_TIME),
        ("gb300-lmsys-replay-gain", Reason.RATIO),
        ("gb300-lmsys-prefill-on", Reason.NOT_MEASURED),
        ("ascend-ttft-8192", Reason.NO_HARDWARE_FILE),
        ("b200-ax-vllm-tp4-sep-c1", Reason.NO_TRACE),
        ("b200-trace-ttft-c1", Reason.NO_TRACE),
        ("gb200-dyn-agg-ttft-p50", Reason.NO_LENGTHS),
        ("b200-prof-ekern-p64k-other", Reason.KERNELS_NOT_NAMED),
        ("b200-prof-ekern-p64k-sampling_draft", Reason.KERNELS_NOT_NAMED),
        ("b200-prof-ekern-p64k-norm_rope_quant", Reason.NOTHING_CERTAIN),
    ],
)
def test_why_a_case_has_no_bound(cases: dict[str, Case], name: str, reason: Reason) -> None:
    assert convert(cases[name]) is reason


def test_steps_are_read_with_speculation_where_the_time_holds_the_draft(
    converted: Converted,
) -> None:
    """What a time holds is stated apart from what ran: a group of the target's kernels has none."""
    for name, tokens in (
        ("gb300-39674-pr-step-c1", 5),
        ("gb10-res-step-c8", 5),
        ("gb10-res-step-c8-draft_graph", 5),
        ("gb10-res-step-c8-target_graph", None),
        ("b200-prof-ekern-p64k-moe", None),
        ("mi355-fix-sgl-off-opus-step-c1", None),
    ):
        for claim in converted(name).claims:
            for way in claim.ways:
                for chosen in (way.policy, way.preset):
                    assert (chosen.speculation == "dspark") == (tokens is not None), name
                    assert chosen.draft_tokens == (tokens or 5), name


def test_a_draft_graph_is_the_kernels_on_drafted_rows(converted: Converted) -> None:
    found = converted("gb10-res-step-c8-draft_graph")
    assert found.group is not None
    model = aisim.load_model("deepseek-v4.1-flash")
    assert isinstance(model, aisim.Model)
    way = found.claims[0].ways[0]
    step = aisim.compile(
        model, found.machine.packaged, parallel=found.machine.parallel, policy=way.preset,
        method="sol",
    )  # fmt: skip
    names = [task.name for task in reported_tasks(step, found.group)]
    assert names.count("draft_sparse_attention") == 3
    assert names.count("draft_markov_head") == 5
    assert not [n for n in names if "context" in n or n == "draft_main_proj" or "draft" not in n]


def test_what_is_unknown_is_a_reason_and_no_crash(cases: dict[str, Case]) -> None:
    case = cases["b200-prof-ekern-p64k-moe"]
    assert convert(replace(case, engine="new")) is Reason.UNKNOWN_ENGINE
    assert convert(replace(case, gpu="new")) is Reason.NO_HARDWARE_FILE
    assert convert(replace(case, quantity="kernel_ms:new")) is Reason.KERNELS_NOT_NAMED


def test_steps_of_a_conversion_are_plans(cases: dict[str, Case]) -> None:
    """Every way of every case can be planned and handed to `estimate`."""
    model = aisim.load_model("deepseek-v4.1-flash")
    assert isinstance(model, aisim.Model)
    for case in cases.values():
        conversion = convert(case)
        if isinstance(conversion, Conversion):
            for claim in conversion.claims:
                for way in claim.ways:
                    plans = way.plans(model, conversion.machine)
                    assert len(plans) == len(way.parts)
