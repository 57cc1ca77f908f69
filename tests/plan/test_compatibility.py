"""Choices that exclude each other: every refusal names both sides and the engine's revision."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from oracle.draw import REAL, any_policy, any_requests

from aisim_v41.errors import (
    AisimError,
    InvalidInputError,
    OutOfRangeError,
    UnsupportedPlanError,
)
from aisim_v41.model.load import load_model
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.compatibility import check_policy
from aisim_v41.plan.conflicts import CONFLICTS
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.mappings import check_mapping_is_modelled
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy, preset_names
from aisim_v41.plan.request import Request


@cache
def model():
    return load_model(REAL)


def refused(runtime: RuntimePolicy, *requests: Request, parallel: Parallel | None = None) -> str:
    with pytest.raises(UnsupportedPlanError) as caught:
        Plan(model(), requests, parallel=parallel or Parallel(), policy=runtime)
    return str(caught.value)


# --- policy and mapping -----------------------------------------------------------------------

RAGGED = {"speculation": "dspark", "verify_lengths": "ragged"}
REFUSED = [
    # Prefill graphs (§1.4, §1.5).
    ("sglang", {"decoder_replay": True, "prefill_execution": "full_graph"}, {},
     "decoder replay", "prefill graph"),
    ("sglang", {"decoder_replay": True, "prefill_execution": "breakable_graph"}, {},
     "decoder replay", "prefill graph"),
    ("vllm", {"decoder_replay": True, "prefill_execution": "full_graph"}, {},
     "decoder replay", "prefill graph"),
    ("sglang", {"encoder_replay": "folded", "prefill_execution": "full_graph"}, {},
     "encoder replay", "prefill graphs"),
    ("sglang", {"encoder_replay": "separate", "prefill_execution": "breakable_graph"}, {},
     "encoder replay", "prefill graphs"),
    # Mappings (§1.4, §2.1, §2.2).
    ("sglang", {"decoder_replay": True}, {"dp": 2}, "decoder replay", "data parallelism"),
    ("sglang", {"encoder_replay": "folded"}, {"dp": 2}, "encoder replay", "data parallelism"),
    ("sglang", {"encoder_replay": "separate"}, {"cp": 2}, "encoder replay", "context parallelism"),
    ("vllm", {}, {"cp": 4}, "encoder replay", "prefill context parallelism"),
    # Chunks (§2.1).
    ("sglang", {"encoder_replay": "folded", "chunk_tokens": 127}, {}, "encoder replay", "chunks"),
    # Attention back ends, pools and kernels (§1.4, §2.1, §6.1, §7).
    ("sglang", {"decoder_replay": True, "kv_layout": "trtllm_plain"}, {},
     "decoder replay", "TRT-LLM attention"),
    ("sglang", {"decoder_replay": True, "kv_blocks": "shared"}, {}, "decoder replay", "unified KV"),
    ("sglang", {"encoder_replay": "folded", "kv_blocks": "shared"}, {},
     "encoder replay", "unified KV"),
    ("vllm", {"reindex_scoring": "candidates", "kv_layout": "vllm_packed"}, {},
     "indexer_sparse_logits", "FP8 index keys"),
    # Speculation.
    ("vllm", {**RAGGED, "decode_execution": "eager"}, {}, "adaptive verification", "eager"),
    ("sglang", {**RAGGED, "expert_exchange": "all_to_all", "shared_expert": "replicated"},
     {"tp": 1, "dp": 4, "ep": 4}, "compact", "all_to_all"),
    # Combinations that mean nothing.
    ("trtllm", {"decoder_replay": True, "replay_exact": True}, {}, "prompt_end", "replay_exact"),
    ("trtllm", {"decoder_replay": True, "replay_anchor": "step_end"}, {},
     "prompt_window", "step_end"),
    # Exchanges of rows (§4.1, §4.3).
    ("sglang", {"expert_exchange": "all_to_all", "shared_expert": "replicated"},
     {"tp": 4, "ep": 2}, "all_to_all", "slices"),
    ("vllm", {"expert_exchange": "all_to_all"}, {"tp": 4, "ep": 4}, "all_to_all", "shared expert"),
    *[(name, {}, {"pp": 2}, "pipeline parallelism", "this model") for name in preset_names()],
]  # fmt: skip


@pytest.mark.parametrize(("preset", "overrides", "mapping", "first", "second"), REFUSED)
def test_two_choices_exclude_each_other(
    preset: str, overrides: dict, mapping: dict, first: str, second: str
):
    runtime = policy(preset, **overrides)
    message = refused(runtime, Request(new_tokens=1), parallel=Parallel(**mapping))
    assert first in message
    assert second in message
    assert "exclude each other" in message
    assert runtime.revision in message


REFUSED_ON = [
    # CUDA or gfx950 (§2.1); prefill CP under HIP (§1.4); nvfp4_ds_mla (§6.1).
    ("sglang", {"encoder_replay": "folded"}, {}, "encoder replay", ("gfx942",),
     ("gfx950", "sm90", "sm100")),
    ("sglang", {}, {"cp": 2}, "context parallelism", ("gfx942", "gfx950"), ("sm90", "sm103")),
    ("vllm", RAGGED, {}, "adaptive verification", ("gfx942", "gfx950"), ("sm90", "sm100")),
    ("vllm", {"kv_layout": "vllm_nvfp4"}, {}, "vllm_nvfp4", ("sm90", "sm121", "gfx950"),
     ("sm100", "sm103")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("preset", "overrides", "mapping", "said", "refusing", "taking"), REFUSED_ON
)
def test_some_gpus_are_refused(
    preset: str, overrides: dict, mapping: dict, said: str, refusing: tuple, taking: tuple
):
    runtime, ranks = policy(preset, **overrides), Parallel(**mapping)
    for architecture in refusing:
        with pytest.raises(UnsupportedPlanError) as caught:
            check_policy(runtime, ranks, architecture)
        for part in (said, architecture, "exclude each other", runtime.revision):
            assert part in str(caught.value)
    for architecture in (*taking, None):
        check_policy(runtime, ranks, architecture)


@pytest.mark.parametrize("position", range(len(CONFLICTS)))
def test_no_conflict_goes_untested(position: int):
    conflict = CONFLICTS[position]
    every = [row[:3] for row in (*REFUSED, *REFUSED_ON)]
    cases = [
        preset
        for preset, overrides, mapping in every
        if conflict.applies(policy(preset, **overrides), Parallel(**mapping))
    ]
    assert set(conflict.engines) <= set(cases)
    assert cases


@pytest.mark.parametrize(
    ("preset", "overrides"),
    [
        ("vllm", {"decoder_replay": True, "prefill_execution": "breakable_graph"}),
        ("sglang", {"prefill_execution": "full_graph"}),
        ("vllm", {"prefill_execution": "full_graph"}),
        ("atom", {"decoder_replay": True, "prefill_execution": "full_graph"}),
        ("sglang", {"encoder_replay": "folded", "chunk_tokens": 128}),
        ("sglang", {"encoder_replay": "off", "chunk_tokens": 64}),
        ("trtllm", {"replay_exact": True}),
        ("vllm", {"decoder_replay": True, "replay_exact": True}),
        ("trtllm", {"decoder_replay": True, "replay_anchor": "step_end",
                    "replay_floor": "tail_start"}),
    ],
)  # fmt: skip
def test_what_an_engine_does_not_refuse(preset: str, overrides: dict):
    runtime = policy(preset, **overrides)
    assert Plan(model(), [Request(new_tokens=1)], policy=runtime).policy is runtime


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize("replay", [False, True])
def test_every_preset_runs_with_tensor_parallelism(preset: str, replay: bool):
    runtime = policy(preset, decoder_replay=replay)
    for tp in (1, 2, 4, 8):
        check_policy(runtime, Parallel(tp=tp))
        check_mapping_is_modelled(Parallel(tp=tp))


@pytest.mark.parametrize("name", ["tp", "dp"])
def test_a_mapping_without_a_step_model(name: str):
    message = refused(policy("paper"), parallel=Parallel(cp=2, **{name: 2}))
    assert f"Parallel.cp = 2 with {name} = 2" in message
    assert f"{name}=1" in message


# --- requests ---------------------------------------------------------------------------------

HIT = {"new_tokens": 64, "prefix_tokens": 8192}


@pytest.mark.parametrize("preset", ["sglang", "atom"])
def test_a_hit_without_window_needs_encoder_replay(preset: str):
    message = refused(policy(preset), Request(new_tokens=1), Request(**HIT, window="missing"))
    for part in ("requests[1]", "window='missing'", "encoder_replay='off'", "exclude each other"):
        assert part in message
    assert policy(preset).revision in message


@pytest.mark.parametrize("mode", ["off", "separate", "folded"])
def test_a_snapshot_needs_an_engine_that_has_one(mode: str):
    runtime = policy("vllm", encoder_replay=mode)
    message = refused(runtime, Request(**HIT, window="snapshot"))
    for part in ("requests[0]", "window='snapshot'", f"encoder_replay='{mode}'"):
        assert part in message
    assert runtime.revision in message


@pytest.mark.parametrize("preset", ["sglang", "paper"])
def test_prompt_logprobs_and_decoder_replay(preset: str):
    """Refused at run time by SGLang (§1.3); accepted without replay, or by an engine that can."""
    wanted = Request(new_tokens=64, prompt_logprobs=True)
    message = refused(policy(preset, decoder_replay=True), wanted)
    for part in ("requests[0]", "prompt log-probabilities", "decoder replay", "exclude each other"):
        assert part in message
    assert policy(preset).revision in message
    assert Plan(model(), [wanted], policy=policy(preset)).requests == (wanted,)
    assert Plan(model(), [wanted], policy=policy("vllm", decoder_replay=True)).warnings


def test_the_first_request_that_cannot_run_is_named():
    good, hit = Request(new_tokens=1), Request(**HIT, window="missing")
    assert "requests[2]" in refused(policy("sglang"), good, good, hit, hit)
    far = Request(new_tokens=1 << 21)
    with pytest.raises(OutOfRangeError, match=r"requests\[1\].*2097152.*1048576"):
        Plan(model(), [good, far, hit], policy=policy("sglang"))


def test_decode_and_verify_pass_rules_of_prefill():
    decode = Request(new_tokens=1, prefix_tokens=8192, kind="decode")
    verify = Request(new_tokens=6, prefix_tokens=8192, kind="verify")
    for preset in preset_names():
        assert Plan(model(), [decode, verify], policy=policy(preset, decoder_replay=True))


# --- the plan's own arguments -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"parallel": 4}, ("Plan.parallel = 4", "Parallel")),
        ({"parallel": None}, ("Plan.parallel = None", "Parallel")),
        ({"policy": "sglang"}, ("Plan.policy = 'sglang'", "RuntimePolicy")),
        ({"policy": {}}, ("Plan.policy = {}", "RuntimePolicy")),
        ({"requests": "prefill"}, ("Plan.requests", "list of Request")),
        ({"requests": b"prefill"}, ("Plan.requests", "list of Request")),
        ({"requests": 7}, ("Plan.requests", "list of Request")),
        ({"requests": None}, ("Plan.requests", "list of Request")),
        ({"requests": Request(new_tokens=1)}, ("Plan.requests", "list of Request")),
        ({"requests": [Request(new_tokens=1), 7]}, ("requests[1] = 7", "int")),
        ({"requests": [{"new_tokens": 1}]}, ("requests[0]", "must be a Request", "dict")),
        ({"requests": [None]}, ("requests[0] = None", "must be a Request")),
        ({"requests": [Request]}, ("requests[0]", "must be a Request", "type")),
    ],
    ids=repr,
)
def test_a_plan_names_the_argument_that_is_wrong(arguments: dict, parts: tuple[str, ...]):
    with pytest.raises(InvalidInputError) as caught:
        Plan(**{"model": model(), "requests": [], **arguments})
    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize("wrong", ["deepseek-v4.1-flash", None, 7, {}], ids=repr)
def test_a_plan_needs_a_model(wrong: object):
    with pytest.raises(AisimError, match="model"):
        Plan(wrong, [Request(new_tokens=1)])  # type: ignore[arg-type]


def test_an_earlier_generation_has_no_step():
    with pytest.raises(UnsupportedPlanError, match=r"deepseek-v4-flash"):
        Plan(load_model("deepseek-v4-flash"), [Request(new_tokens=1)])


def test_a_plan_takes_any_iterable_of_requests():
    listed = [Request(new_tokens=1), Request(new_tokens=2)]
    assert Plan(model(), iter(listed)).requests == tuple(listed)
    assert Plan(model(), []).requests == ()


# --- warnings ---------------------------------------------------------------------------------


def warned(runtime: RuntimePolicy, *requests: Request) -> str:
    return "\n".join(Plan(model(), requests, policy=runtime).warnings)


PREFILL = Request(new_tokens=64)
DECODE = Request(new_tokens=1, prefix_tokens=64, kind="decode")


def test_a_mixed_step_is_not_what_sglang_runs_by_default():
    runtime = policy("sglang")
    assert runtime.revision in warned(runtime, PREFILL, DECODE)
    assert "separate steps" in warned(runtime, PREFILL, DECODE)
    assert "separate steps" not in warned(runtime, PREFILL)
    assert "separate steps" not in warned(runtime, DECODE)
    assert "separate steps" not in warned(policy("vllm"), PREFILL, DECODE)
    nobody = Request(new_tokens=1, kind="decode", count=0)
    assert "separate steps" not in warned(runtime, PREFILL, nobody)


def test_a_cut_decode_row_is_a_hazard():
    """§1.3: derived, confirmed by no engine test; a mode of its own, with a warning."""
    runtime = policy("sglang", decoder_replay=True, decode_rows="as_extend")
    assert "hazard" in warned(runtime, PREFILL, DECODE)
    assert "hazard" not in warned(runtime, DECODE)


def test_independent_routing_is_said_to_be_an_assumption():
    independent = policy("paper", expert_routing="independent")
    assert "every row drew its own" in warned(independent, PREFILL)
    assert "every prompt row and decoding request drew" in warned(policy("paper"), PREFILL)
    assert "at random" not in warned(policy("paper", expert_routing="fewest"), PREFILL)


# --- anything at all --------------------------------------------------------------------------


@pytest.mark.parametrize("batch", range(5))
def test_any_policy_and_requests_make_a_ledger_or_a_typed_error(batch: int):
    """Policies and requests drawn without regard to each other."""
    random = Random(batch)
    made = refusals = 0
    for _ in range(60):
        runtime, asked_for = any_policy(random, small=False), any_policy(random, small=False)
        overrides = {
            "replay_anchor": random.choice(("step_end", "prompt_end")),
            "replay_floor": random.choice(("tail_start", "window_start", "prompt_window")),
            "prefill_execution": random.choice(("eager", "breakable_graph", "full_graph")),
            "chunk_tokens": random.choice((64, 8192)),
        }
        runtime = runtime.with_overrides(**overrides)
        requests = any_requests(random, asked_for, small=False)
        found = made_or_refused(runtime, requests)
        if isinstance(found, AisimError):
            refusals += 1
            assert runtime.revision in str(found)
        else:
            made += 1
            assert found >= 0
    assert made
    assert refusals


def made_or_refused(runtime: RuntimePolicy, requests: list[Request]) -> int | AisimError:
    try:
        return ledger(Plan(model(), requests, policy=runtime)).token_layers
    except AisimError as error:
        return error
