"""V4.1's eager modules: exact rows, lines between them, and the source's own composition."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_v41.errors import MissingProfileError, OutOfRangeError
from aisim_v41.evidence.modules import (
    EagerRows,
    ModuleStep,
    load_eager_rows,
    module_of,
    module_sum,
    rest_sum,
    total_seconds,
)
from aisim_v41.forwards.store import find_tables
from aisim_v41.model.load import load_model
from aisim_v41.tables import load_table

REST = Path(__file__).resolve().parents[1] / "data/gb300_rest_of_model.csv"
MODEL = load_model("deepseek-v4.1-flash")
ELEMENTWISE_MS, ELEMENTWISE_MS_PER_TOKEN = 0.65, 0.0003
"""Embedding, norms, activation and head of the source's composition: formulas of its own."""


def rows(replay: str = "off", gpu: str = "gb300", tp: int = 4) -> EagerRows:
    return load_eager_rows(gpu, tensor_parallel=tp, decoder_replay=replay)  # type: ignore[arg-type]


def decode(batch: int, past: int) -> ModuleStep:
    return ModuleStep("decode", batch, 1, past)


# --- rows and lines ---------------------------------------------------------------------------


def test_every_row_comes_back_exactly():
    frame = load_table("gb300", "v41_modules").to_frame()
    frame = frame[frame["flag"] == ""]
    seen = 0
    for row in frame.itertuples():
        table = rows(row.decoder_replay)
        if row.phase == "any":
            found = table.rest(row.operator, row.tokens)
        else:
            step = ModuleStep(row.phase, row.batch, row.new_tokens_per_request, row.prefix_tokens)
            late = row.prefill_rows == "bounded"
            found = table.attention(row.operator, step, bounded=late)
        assert found == pytest.approx(row.latency_us * 1e-6, rel=1e-12)
        seen += 1
    assert seen > 1700


@given(new=st.integers(128, 512))
def test_between_rows_of_a_prefill_time_is_linear_in_new_tokens(new: int):
    sizes = [128, 129, 256, 512]
    at = [rows().attention("reuse_r2", ModuleStep("prefill", 1, n, 512)) for n in sizes]
    found = rows().attention("reuse_r2", ModuleStep("prefill", 1, new, 512))
    assert found == pytest.approx(float(np.interp(new, sizes, at)), rel=1e-12)


@given(past=st.integers(1024, 1536))
def test_between_rows_of_a_decode_time_is_linear_in_kv(past: int):
    low, high = (rows().attention("full_r1", decode(2, kv)) for kv in (1024, 1536))
    by_hand = low + (high - low) * (past - 1024) / 512
    assert rows().attention("full_r1", decode(2, past)) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (decode(1, 2049), "2 to 2048"),
        (decode(1, 1), "2 to 2048"),
        (decode(4, 512), "nothing"),
        (ModuleStep("prefill", 1, 513, 0), "1 to 512"),
        (ModuleStep("prefill", 1, 48, 1024), "measured (batch, prefix): 1@0"),
        (ModuleStep("prefill", 3, 48, 0), "2@1536"),
    ],
)
def test_nothing_is_carried_beyond_the_rows(step: ModuleStep, words: str):
    with pytest.raises(OutOfRangeError) as caught:
        module_sum(rows(), MODEL, step)
    assert words in str(caught.value)
    assert "gb300" in str(caught.value)


def test_another_identity_is_refused():
    with pytest.raises(MissingProfileError, match=r"2 ranks.*measured: 4 ranks, replay off"):
        load_eager_rows("gb300", tensor_parallel=2, decoder_replay="off")
    with pytest.raises(MissingProfileError):
        load_eager_rows("mi355x", tensor_parallel=4, decoder_replay="off")


def test_layers_of_a_forward():
    found = module_sum(rows(), MODEL, decode(1, 512))
    assert {name: one.calls for name, one in found.items()} == {
        "swa": 2, "full_r2": 3, "reuse_r2": 15, "full_r1": 1, "reuse_r1": 15, "reindex_r1": 4,
        "shared_gate_up": 40, "shared_down": 40, "mhc": 40, "engram_layer_1": 1,
        "engram_layer_14": 1,
    }  # fmt: skip
    assert sum(one.calls for name, one in found.items() if "_r" in name) == 38
    assert module_of(MODEL.layers[0]) == "swa"


def test_late_layers_of_a_trimmed_prefill_keep_128_rows():
    found = module_sum(rows("on"), MODEL, ModuleStep("prefill", 1, 192, 512))
    assert {name: one.calls for name, one in found.items() if name.endswith("_late")} == {
        "reuse_r1_late": 15, "reindex_r1_late": 4,
    }  # fmt: skip
    kept = ModuleStep("prefill", 1, 128, 512 + 64)
    late = rows("on").attention("reuse_r1", kept, bounded=True)
    assert found["reuse_r1_late"].seconds == late


# --- the composition that the source publishes ------------------------------------------------


def test_the_rest_of_the_model_is_experts_routers_and_81_all_reduces():
    """Our tables explain the rest to .1 ms of 28 to 41; a regression on them gives the calls."""
    with REST.open(encoding="utf-8") as file:
        rest = list(csv.DictReader(file))
    tables = rows()
    known, measured, tokens = [], [], []
    for row in rest:
        batch, new = int(row["batch_size"]), int(row["total_new_tokens"])
        step = ModuleStep(row["phase"], batch, new // batch, 0)  # type: ignore[arg-type]
        parts = rest_sum(tables, MODEL, step)
        sums = {name: one.calls * one.seconds * 1e3 for name, one in parts.items()}
        left = float(row["rest_ms"]) - sum(sums.values()) + sums["head"]
        assert left == pytest.approx(ELEMENTWISE_MS + ELEMENTWISE_MS_PER_TOKEN * new, abs=0.015), (
            row
        )
        known.append([parts[n].seconds * 1e3 for n in ("routed_experts", "router_gate")])
        known[-1] += [parts["all_reduce"].seconds * 1e3, 1.0, new]
        measured.append(float(row["rest_ms"]))
        tokens.append(new)
    calls, *_ = np.linalg.lstsq(np.array(known), np.array(measured), rcond=None)
    assert calls[0] == pytest.approx(40, abs=0.1)
    assert calls[1] == pytest.approx(40, abs=0.5)
    assert calls[2] == pytest.approx(81, abs=0.5)


@pytest.mark.parametrize(
    ("replay", "phase", "published", "exact"),
    [
        ("off", "decode", 12.776, 0.05), ("off", "prefill", 5.352, 0.05),
        ("on", "decode", 7.104, 0.10),
    ],
)  # fmt: skip
def test_the_errors_that_the_source_publishes_of_its_own_sum(
    replay: str, phase: str, published: float, exact: float
):
    """Mean absolute error [%] of its composition over the forwards of its second run; ours of the
    same tables agrees to a twentieth of a percent."""
    tables, errors = rows(replay), []
    (forwards,) = (
        table.measured
        for table in find_tables("gb300")
        if table.identity.execution["decoder_replay"] is (replay == "on")
    )
    for record in forwards:
        (request,) = record.requests
        if request.kind != phase or record.run != "study38_run2":
            continue
        sizes = (request.count, request.new_tokens, request.prefix_tokens)
        step = ModuleStep(phase, *sizes)  # type: ignore[arg-type]
        rest = rest_sum(tables, MODEL, step)
        own_ms = ELEMENTWISE_MS + ELEMENTWISE_MS_PER_TOKEN * step.batch * step.new_tokens
        total = total_seconds(module_sum(tables, MODEL, step)) + total_seconds(rest)
        predicted_ms = (total - rest["head"].seconds) * 1e3 + own_ms
        errors.append(abs(predicted_ms / record.latency_ms - 1))
    assert len(errors) == (10 if phase == "decode" else 28)
    assert 100 * np.mean(errors) == pytest.approx(published, abs=exact)
