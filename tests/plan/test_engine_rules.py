"""What an engine refuses beside its table of conflicts, and what `policy("custom")` makes of it."""

from __future__ import annotations

import pytest
from oracle.draw import published_config

from aisim_v41 import estimate, ledger, load_hardware
from aisim_v41.errors import AisimError, InvalidInputError, UnsupportedPlanError
from aisim_v41.forwards.execution import policy_execution
from aisim_v41.model.load import model_from_config
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.compatibility import check_disaggregated, check_policy, engine_warnings
from aisim_v41.plan.conflicts import CONFLICTS
from aisim_v41.plan.plan import Plan
from aisim_v41.plan.policy import RuntimePolicy, policy, preset_names
from aisim_v41.plan.request import Request
from tests.plan.test_compatibility import HIT, REFUSED, model, refused


def test_sglang_rebuilds_windows_in_steps_of_prefills_alone():
    """§2.1: the launch check rejects mixed chunk; vLLM mixes by default (§3)."""
    hit = Request(**HIT, window="missing")
    decode = Request(new_tokens=1, prefix_tokens=64, kind="decode")
    verify = Request(new_tokens=6, prefix_tokens=64, kind="verify")
    for mode in ("folded", "separate"):
        runtime = policy("sglang", encoder_replay=mode)
        for other in (decode, verify):
            message = refused(runtime, hit, other)
            for part in ("encoder replay", "mixed chunks", "exclude each other", runtime.revision):
                assert part in message
        assert Plan(model(), [hit, hit], policy=runtime)
        assert Plan(model(), [decode, verify], policy=runtime)
        assert Plan(model(), [hit, Request(new_tokens=1, kind="decode", count=0)], policy=runtime)
    assert Plan(model(), [hit, decode], policy=policy("vllm"))


def test_sglang_rebuilds_no_half_pair():
    """§2.1: the older form demands an even hit; §2.5: page 256 never gives an odd one."""
    odd = Request(new_tokens=64, prefix_tokens=8193, window="missing")
    raw = {"hit_page_tokens": 1}
    message = refused(policy("sglang", encoder_replay="separate", **raw), odd)
    for part in ("8193", "half a pair", "exclude each other", policy("sglang").revision):
        assert part in message
    for fine in (
        policy("sglang", encoder_replay="folded", **raw),
        policy("sglang", encoder_replay="separate"),
        policy("vllm", encoder_replay="separate", **raw),
    ):
        assert Plan(model(), [odd], policy=fine)


def test_sglang_trims_no_layer_that_pools():
    """§1.1: layers at and after the first trimmed one have a ratio of 0 or 1."""
    config = published_config()
    config["text_config"]["compress_ratios"][20:40] = [2] * 20
    pooled = model_from_config(config, name="pooled")
    for runtime in (policy("sglang"), policy("vllm", decoder_replay=True)):
        assert Plan(pooled, [Request(new_tokens=1)], policy=runtime)
    with pytest.raises(UnsupportedPlanError, match=r"late layers that pool.*\[21, 22") as caught:
        Plan(pooled, [Request(new_tokens=1)], policy=policy("sglang", decoder_replay=True))
    assert policy("sglang").revision in str(caught.value)


def test_prefill_and_decode_apart():
    """Deployment question 54, §2.1: SGLang refuses DSpark; in vLLM both roles draft or neither."""

    def apart(first: RuntimePolicy, second: RuntimePolicy) -> str:
        with pytest.raises(UnsupportedPlanError) as caught:
            check_disaggregated(first, second)
        return str(caught.value)

    sglang, vllm = policy("sglang"), policy("vllm")
    drafts = {"speculation": "dspark"}
    check_disaggregated(sglang, sglang)
    check_disaggregated(vllm, vllm)
    check_disaggregated(policy("vllm", **drafts), policy("vllm", **drafts))
    for roles in ((sglang, policy("sglang", **drafts)), (policy("sglang", **drafts), sglang)):
        assert sglang.revision in apart(*roles)
        assert "DSpark" in apart(*roles)
    assert "both roles must draft" in apart(vllm, policy("vllm", **drafts))
    replaying = policy("sglang", encoder_replay="folded")
    assert "encoder replay" in apart(replaying, sglang)
    assert "one layout" in apart(sglang, vllm)
    loose = policy("custom", base="sglang", speculation="dspark")
    check_disaggregated(loose, loose)
    assert "one layout" in apart(loose, policy("custom", base="vllm"))


# --- custom: nothing that only an engine refuses -------------------------------------------------


@pytest.mark.parametrize(("preset", "overrides", "mapping", "first", "second"), REFUSED)
def test_custom_allows_what_an_engine_refuses_and_says_so(
    preset: str, overrides: dict, mapping: dict, first: str, second: str
):
    runtime, ranks = policy("custom", base=preset, **overrides), Parallel(**mapping)
    asked = [c for c in CONFLICTS if not c.where and c.applies(runtime, ranks)]
    if any(not conflict.engines for conflict in asked):
        with pytest.raises(UnsupportedPlanError, match="exclude each other"):
            check_policy(runtime, ranks)
        return
    check_policy(runtime, ranks)
    for conflict in asked:
        for engine in conflict.engines:
            [warning] = [
                w
                for w in engine_warnings(runtime, ranks)
                if policy(engine).revision in w and conflict.second in w
            ]
            assert conflict.first in warning
            assert conflict.reason in warning


def test_a_custom_plan_carries_its_warnings_into_the_answer():
    runtime = policy("custom", base="sglang", encoder_replay="folded", chunk_tokens=64)
    hit = Request(**HIT, window="missing")
    decode = Request(new_tokens=1, prefix_tokens=64, kind="decode")
    plan = Plan(model(), [hit, decode], policy=runtime)
    said = estimate(plan, load_hardware("mi300x"), method="sol")
    text = "\n".join(said.warnings)
    for part in ("chunks below 128", "mixed chunks", "this GPU (gfx942)"):
        assert part in text
    assert text.count(policy("sglang").revision) >= 3
    assert said.to_dict()["policy_changed_fields"]["engine_rules"] == "warned"
    assert not engine_warnings(policy("sglang"), Parallel())


def test_vllm_has_no_encoder_replay_on_rocm():
    """§2.2: off there, so that windows are cached with the prefix; said beside the answer."""
    plan = Plan(model(), [Request(**HIT, window="missing")], policy=policy("vllm"))
    said = {gpu: estimate(plan, load_hardware(gpu), method="sol").warnings
            for gpu in ("mi355x", "b200")}  # fmt: skip
    assert any("no encoder replay on ROCm" in warning for warning in said["mi355x"])
    assert not any("ROCm" in warning for warning in said["b200"])


def test_custom_starts_from_any_preset():
    for name in preset_names():
        made = policy("custom", base=name)
        assert policy_execution(made) == policy_execution(policy(name))
        assert made.changed_fields() == {"engine_rules": "warned"}
    assert policy("custom").name == "paper"
    assert policy("custom", engine_rules="enforced") == policy("paper")
    with pytest.raises(InvalidInputError, match="only 'custom'"):
        policy("sglang", base="vllm")
    with pytest.raises(AisimError, match="no policy named 'other'"):
        policy("custom", base="other")
    for wrong in ("custom", "", 3):
        with pytest.raises(AisimError, match="no policy named"):
            policy("custom", base=wrong)


def test_tensorrt_llm_reuses_nothing_where_context_logits_are_wanted():
    """Runtime-semantics §1.5: such requests run every row of the late layers, and no hit."""
    replay = policy("trtllm", decoder_replay=True)
    wanted = {"prompt_logprobs": True}
    for window in ("missing", "cached", "snapshot"):
        with pytest.raises(UnsupportedPlanError, match=r"log-probabilities.*reuses nothing"):
            Plan(model(), [Request(**HIT, window=window, **wanted)], policy=replay)
    pictured = Request(**HIT, window="snapshot", image_tokens=1)
    with pytest.raises(UnsupportedPlanError, match=r"image rows and window='snapshot'"):
        Plan(model(), [pictured], policy=replay)
    cold = Request(new_tokens=8192, **wanted)
    assert ledger(Plan(model(), [cold], policy=replay)).token_layers == 40 * 8192
    later = Request(new_tokens=64, prefix_tokens=8192, **wanted)  # a chunk of the same prompt
    for request, runtime in (
        (later, replay),
        (Request(**HIT, window="missing", **wanted), policy("trtllm")),
    ):
        Plan(model(), [request], policy=runtime)
    free = policy("custom", base="trtllm", decoder_replay=True)
    warned = Plan(model(), [Request(**HIT, window="missing", **wanted)], policy=free).warnings
    assert any("reuses no hit" in line for line in warned)
