"""Figures of the fact sheet by hand, apart from the list: neither may drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aisim_v41.claims import Claim, Context
from aisim_v41.claims.registry import all_formulas
from aisim_v41.claims.verdict import exact, parse_value

EXACT: dict[str, Any] = {
    # §2, totals and closures
    "inv-total-tensors": 96_085,
    "inv-total-parameters": 763_205_315_794,
    "inv-total-bytes": 510_286_023_000,
    "inv-total-scale-bytes": 23_563_015_184,
    "inv-backbone-tensors": 93_406,
    "inv-backbone-parameters": 551_566_180_464,
    "inv-backbone-bytes": 298_309_535_168,
    "inv-routed-experts-bytes": 288_777_830_400,
    "inv-engram-table-bytes": 202_758_032_400,
    "inv-draft-parameters": 490_967_394,
    "inv-vision-parameters": 485_268_480,
    "inv-dtype-bf16": 1_976_441_856,
    "inv-dtype-f32": 42_307_282,
    "inv-dtype-f8-e4m3": 204_015_223_296,
    "inv-dtype-i8": 557_171_343_360,
    "inv-plain-layer-bytes": 7_389_500_888,
    "inv-layers-1-bytes": 108_924_651_160,
    "inv-layers-14-bytes": 108_943_620_648,
    "inv-mtp-2-bytes": 2_706_317_272,
    "par-expert-bytes": 18_800_640,
    "gitm-omission": 524_400,
    "act-decode": 15_815_934_064,
    "act-decode-no-head": 15_154_020_464,
    "act-decode-engram": 16_130_588_784,
    "act-prefill": 7_895_563_064,
    "act-prefill-full": 8_278_273_454,
    "dwb-total": 13_035_097_920,
    "dwb-wo-a-bf16": 1_340_866_560,
    # §5, KV
    "kv-01": 890,
    "kv-14": 1630,
    "kv-slope-v4-row-fp8-key": 1790,
    "kv-1m-trained": 933_232_640,
    "kv-1m-v4-row": 1_709_178_880,
    "kv-1m-entries": 2_621_440,
    "kv-1m-with-window": 892.5,
    "kv-128k-sequence": 216_662_016,
    "kv-read-main": 5_603_328,
    "kv-read-main-v4": 11_362_304,
    "kv-read-index-1m": 182_714_368,
    "kv-read-index-1m-dense": 463_470_592,
    # §6, raw FLOP
    "flop-raw-projections": 10_129_244_160,
    "flop-raw-routed": 16_986_931_200,
    "flop-raw-core": 3_221_225_472,
    "flop-raw-mhc": 98_304_000,
    "flop-raw-index-small": 2_949_120,
    # §7, parameters
    "vis-par-encoder": 411_842_560,
    "vis-par-projector": 73_410_560,
    # §11 and the issue
    "arch-kinds": (2, 4, 4, 30),
    "arch-layer-29": (20, 28),
    "arch-entries-1": 0,
    "led-8192": 327_680,
    "led-8192-replay": 174_464,
    "led-8192-saved": 46.7578125,
    "led-32768": 1_310_720,
    "led-32768-replay": 690_560,
    "led-32768-replay-4": 697_856,
    "led-32768-replay-16": 727_040,
    "eng-row-bytes": 6_336,
    "eng-token-bytes": 12_672,
    "kern-01-d": 20,
    "kern-03-d": 14,
    "kern-02-d": 10,
    "mem-index-scores-8k": 16,
    "mem-index-scores-16k": 32,
    "mem-mi300x-tp2": 0,
}

NEAR: dict[str, tuple[float, float]] = {
    # §6, weighted table: GFLOP at 4K and 2**20, growth
    "flop-fp8-bf16-4k": (21.567, 0.001),
    "flop-fp8-bf16-1m": (27.016, 0.001),
    "flop-fp8-bf16-growth": (0.253, 0.0006),
    "flop-fp8-bf16-growth-decimal": (0.241, 0.0006),
    "flop-fp4-fp8-growth": (0.341, 0.0006),
    "flop-dense-growth": (0.688, 0.0006),
    "flop-growth-all": (5.45, 0.005),
    "flop-growth-full": (5.35, 0.005),
    "flop-growth-reindex": (0.10, 0.005),
    # the issue
    "mem-weights-tp8": (49.6, 0.5),
    "mem-weights-tp4": (81.6, 0.5),
    "mem-weights-tp2": (145, 0.5),
    "mem-table-tp8": (11.80, 0.005),
    "mem-table-tp4": (23.60, 0.005),
    "mem-table-tp2": (47.21, 0.005),
    "mem-kv-gain": (0.36, 0.01),
}


@pytest.fixture(scope="module")
def context() -> Context:
    return Context.packaged()


@pytest.mark.parametrize(("name", "value"), EXACT.items())
def test_exact(context: Context, claims: Mapping[str, Claim], name: str, value: Any) -> None:
    ours = exact(all_formulas()[name](context))
    assert ours == exact(value)
    claim = claims[name]
    if claim.expected == "reproduced":
        assert claim.check == "equal"
        assert parse_value(claim.value) == exact(value)


@pytest.mark.parametrize(("name", "expected"), NEAR.items())
def test_near(context: Context, name: str, expected: tuple[float, float]) -> None:
    value, within = expected
    ours = all_formulas()[name](context)
    assert isinstance(ours, (int, float))
    assert abs(ours - value) <= within


def test_raw_flop_parts_make_the_sum(context: Context) -> None:
    """The list of terms is complete: what is not in it are the gate and the head's collapse."""
    formulas = all_formulas()

    def flop(name: str) -> float:
        value = formulas[f"flop-raw-{name}"](context)
        assert isinstance(value, (int, float))
        return value

    parts = ("projections", "routed", "shared", "core", "head", "engram", "router", "mhc",
             "index-query", "compressor")  # fmt: skip
    listed = sum(flop(part) for part in parts) + 1e9 * flop("score-4k")
    # head weights 8 x 2 x 163,840; at 4096 each of four owners makes a key of 2 x 65,536 FLOP
    small = 8 * 2 * 163_840 + 4 * 2 * 65_536
    gate, head_collapse = 2 * 2 * 3 * 4 * 5120, 2 * 4 * 5120
    assert 1e9 * flop("sum-4k") == pytest.approx(listed + small + gate + head_collapse, abs=1)
