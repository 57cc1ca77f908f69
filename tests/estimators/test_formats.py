"""What a number format by role does to bytes, arithmetic, evidence, memory and identity."""

from __future__ import annotations

from functools import cache

import pytest

import aisim_v41 as aisim
from aisim_v41.arithmetic import Arithmetic
from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.estimators.compiled import compiled_sol
from aisim_v41.estimators.op.compiled import compiled_op
from aisim_v41.forwards.execution import execution_of, setting_of
from aisim_v41.memory import capacity
from aisim_v41.model.precision import precision

MODEL = aisim.load_model("deepseek-v4.1-flash")
TP4 = aisim.Parallel(tp=4)
DECODE = [aisim.Request(new_tokens=1, prefix_tokens=8191, kind="decode", count=64)]
PREFILL = [aisim.Request(new_tokens=8192)]


@cache
def gpu(name: str = "b200"):
    return aisim.load_hardware(name)


def asked(formats: str = "", requests=DECODE, **fields):
    runtime = aisim.policy("sglang", formats=formats, **fields)
    return aisim.Plan(MODEL, requests, TP4, runtime)


def sol(formats: str = "", requests=DECODE, **fields):
    return aisim.estimate(asked(formats, requests, **fields), gpu(), method="sol")


def bytes_of(answer, operator: str, kind: str) -> float:
    return sum(row.bytes_by_kind[kind] for row in answer.rows if operator in row.operator)


def test_no_format_changes_nothing():
    assert asked().model is MODEL
    assert sol().latency_s == sol("").latency_s
    trained = aisim.policy("sglang", kv_layout="sglang_v41_fp8")
    by_layout = aisim.estimate(aisim.Plan(MODEL, DECODE, TP4, trained), gpu(), method="sol")
    assert sol("main_kv=fp8_e4m3+32").latency_s == by_layout.latency_s


def test_main_rows_in_fp8():
    """Decode at 8,192: 512 selected entries in each of 38 layers, 288 -> 528 B."""

    def main(answer):
        return bytes_of(answer, "sparse_attention", "kv_read") + bytes_of(
            answer, "sparse_attention", "kv_reread"
        )

    more = main(sol("main_kv=fp8_e4m3+32")) - main(sol())
    assert more == 64 * 38 * 512 * (528 - 288)


def test_expert_weights_in_fp8():
    """Elements of 8 instead of 4 bits, a scale byte per 32 either way: 33 / 17 of the bytes."""
    before, after = sol(), sol("expert_weights=mxfp8")
    ratio = bytes_of(after, "routed_experts", "weights") / bytes_of(
        before, "routed_experts", "weights"
    )
    assert ratio == pytest.approx(33 / 17, rel=1e-12)
    assert after.latency_s > before.latency_s


@pytest.mark.parametrize(
    ("formats", "expected"),
    [
        ("", Arithmetic.MXFP4_MXFP8),
        ("expert_weights=mxfp4", Arithmetic.MXFP4_MXFP8),
        ("expert_weights=fp8", Arithmetic.FP8),
        ("expert_activations=nvfp4", Arithmetic.FP4),
        ("expert_activations=bf16", Arithmetic.BF16),
        ("expert_weights=bf16,expert_activations=bf16", Arithmetic.BF16),
        ("expert_weights=fp8,expert_activations=fp8", Arithmetic.FP8),
    ],
)
def test_arithmetic_of_experts_follows_both_operands(formats: str, expected: Arithmetic):
    found = experts(formats, "b200").flops
    assert [Arithmetic(kind) for kind in found] == [expected]
    dequantised = compiled_sol(
        MODEL, gpu(), TP4, aisim.policy("sglang", formats=formats, expert_arithmetic="bf16")
    )
    assert list(task(dequantised, "routed_experts").flops) == [Arithmetic.BF16]


def task(compiled, name: str):
    return next(task for task in compiled.tasks if name in task.replaces)


def experts(formats: str, name: str):
    return task(
        compiled_sol(MODEL, gpu(name), TP4, aisim.policy("sglang", formats=formats)),
        "routed_experts",
    )


def test_a_gpu_without_the_class_widens():
    """H200 has no 4-bit products: FP4 runs at the FP8 rate (docs/assumptions.md, "Arithmetic")."""
    narrow, used = gpu("h200").peak(Arithmetic.FP4)
    assert used is Arithmetic.FP8
    assert narrow == gpu("h200").peak(Arithmetic.FP8)[0]
    plan = asked("expert_activations=nvfp4", PREFILL)
    assert aisim.estimate(plan, gpu("h200"), method="sol").latency_s > 0


@pytest.mark.parametrize(
    ("formats", "fields", "parts"),
    [
        ("index_key=fp8", {}, ("index_key=fp8_e4m3", "'fp4_or_bf16'", "'fp8' or 'bf16'")),
        ("index_key=bf16", {"index_arithmetic": "fp8"}, ("index_key=bf16", "'bf16'")),
        ("expert_weights=fp8,expert_activations=mxfp4", {}, ("narrower", "'bf16'")),
        ("wo_a=fp8", {}, ("wo_a=fp8_e4m3", "wo_a='checkpoint'")),
    ],
)
def test_operands_of_no_common_arithmetic(formats: str, fields: dict, parts: tuple):
    for ask in (
        lambda: asked(formats, **fields),
        lambda: aisim.compile(
            MODEL, gpu(), parallel=TP4, policy=aisim.policy("sglang", formats=formats, **fields),
            method="sol",
        ),
    ):  # fmt: skip
        with pytest.raises(UnsupportedPlanError) as caught:
            ask()
        assert [part for part in parts if part not in str(caught.value)] == []


def test_what_they_name_as_the_way_out_is_one():
    assert asked("index_key=fp8", index_arithmetic="fp8")
    assert asked("index_key=bf16", index_arithmetic="bf16")
    assert asked("expert_weights=fp8,expert_activations=mxfp4", expert_arithmetic="bf16")
    assert asked("wo_a=fp8", wo_a="checkpoint")


def test_memory_follows():
    def report(formats: str):
        return capacity(
            MODEL, gpu(), aisim.Parallel(tp=4), aisim.policy("sglang", formats=formats),
            max_length=65_536, requests=8,
        )  # fmt: skip

    plain, wide = report(""), report("main_kv=fp8_e4m3+32")
    assert wide.tokens < plain.tokens
    assert sol("main_kv=fp8_e4m3+32").memory.kv_bytes > sol().memory.kv_bytes
    lighter = report("engram_rows=nvfp4")
    assert lighter.tokens > plain.tokens


# --- OP: what was measured in another format is said to be rescaled ---------------------------


def rescaled(formats: str, **fields) -> set[str]:
    plan = asked(formats, PREFILL, **fields)
    build = compiled_op(plan.model, gpu(), TP4, plan.policy)
    return {
        part
        for kernels, one in zip(build.evidence, build.tasks, strict=True)
        for kernel in kernels
        if kernel.tag(64.0)[0] == "rescaled"
        for part in one.replaces
    }


@pytest.mark.parametrize(
    ("formats", "fields", "expected"),
    [
        ("", {}, set()),
        ("expert_weights=mxfp4", {}, set()),
        ("expert_weights=fp8", {}, {"routed_experts"}),
        ("main_kv=fp8_e4m3+32", {}, {"sparse_attention"}),
        ("index_key=fp8", {"index_arithmetic": "fp8"}, {"index_score"}),
        ("head=fp8", {}, set()),
        ("dense=bf16", {}, set()),
        ("draft=bf16", {}, set()),
        ("engram_rows=nvfp4", {}, {"engram_lookup"}),
    ],
)
def test_kernels_of_a_format_that_was_not_measured(formats: str, fields: dict, expected: set):
    found = rescaled(formats, **fields)
    assert expected <= found
    assert bool(expected) == bool(found)


def test_op_says_how_much_of_its_time_is_rescaled():
    plain = aisim.estimate(asked("", PREFILL), gpu(), method="op")
    other = aisim.estimate(asked("expert_weights=fp8", PREFILL), gpu(), method="op")
    assert "rescaled" not in plain.source_share
    assert 0.05 < other.source_share["rescaled"] < 1
    assert other.band_s[1] / other.latency_s > plain.band_s[1] / plain.latency_s


# --- identity -----------------------------------------------------------------------------------


def test_another_format_is_another_identity():
    plain = aisim.policy("sglang")
    other = aisim.policy("sglang", formats="head=fp8, main_kv=mxfp8")
    kept, changed = (execution_of(MODEL, gpu(), TP4, one) for one in (plain, other))
    assert "formats" not in kept
    assert changed == {**kept, "formats": "main_kv=fp8_e4m3+32,head=fp8_e4m3"}
    assert execution_of(asked("head=fp8").model, gpu(), TP4, plain) == kept
    assert setting_of(changed, "sglang") == (TP4, other)
    assert other.changed_fields() == {"formats": "main_kv=fp8_e4m3+32,head=fp8_e4m3"}


def test_the_short_name_is_the_format():
    assert asked("main_kv=mxfp8").policy == asked("main_kv=fp8_e4m3+32").policy
    assert str(precision("mxfp8")) == "fp8_e4m3+32"
