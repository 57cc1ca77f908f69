"""Transfer of Engram rows: bytes by hand, waiting replayed event by event, and laws."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.errors import InvalidInputError, MissingProfileError, UnsupportedPlanError
from aisim_v41.estimators.engram import break_even, engram
from aisim_v41.estimators.engram_sources import Disk, host_rate

MODEL = aisim.load_model("deepseek-v4.1-flash")
GB300, B200 = aisim.load_hardware("gb300"), aisim.load_hardware("b200")
ROW = 264
FAST_DISK = Disk(bytes_per_s=6e9)


def decode(count=64, context=4096):
    return [aisim.Request(new_tokens=1, prefix_tokens=context, kind="decode", count=count)]


def plan(requests=None, residency="host_shared", tp=4, engine="sglang", **changes):
    return aisim.Plan(
        MODEL,
        requests if requests is not None else decode(),
        parallel=aisim.Parallel(tp=tp),
        policy=aisim.policy(engine, engram_residency=residency, **changes),
    )


@cache
def slow_link(bytes_per_s):
    return replace(B200, host_link_bytes_per_s=bytes_per_s)


RATES = [1e6 * 8**power for power in range(6)]
"""From a slow disk to a fast link [B/s]."""


@pytest.mark.parametrize(
    ("residency", "rank_rows"), [("hbm", 0), ("host_sharded", 384), ("host_shared", 1536)]
)
def test_bytes_by_hand(residency, rank_rows):
    """64 tokens look up 1,536 rows a module; a rank of four owns a quarter of them."""
    report = engram(plan(residency=residency), B200, "sol")
    for module, layer in zip(report.modules, (1, 14), strict=True):
        assert (module.layer, module.tokens, module.lookups) == (layer, 64, 1536)
        assert module.link_bytes == rank_rows * ROW
        assert module.transfer_s == pytest.approx(rank_rows * ROW / 64e9)
        assert module.disk_bytes == 0
    assert report.link_bytes == 2 * rank_rows * ROW
    assert (report.collective_s == 0) == (residency == "host_shared")


def test_distinct_rows_and_hits_divide_the_bytes():
    whole = engram(plan(), B200)
    half = engram(plan(engram_distinct_share=0.5), B200, hit_share=0.75)
    assert half.link_bytes == whole.link_bytes / 8
    assert half.modules[0].own == 768
    assert half.modules[0].fetched == 192


def test_a_row_on_disk_is_two_pages():
    """Values and scales lie apart; the link then carries the row itself."""
    report = engram(plan(residency="disk"), B200, disk=FAST_DISK)
    module = report.modules[0]
    assert module.disk_bytes == 384 * 2 * 4096
    assert module.transfer_s == pytest.approx(384 * 8192 / 6e9)
    assert module.link_bytes == 384 * ROW
    slow = replace(FAST_DISK, reads_per_s=100_000)
    assert engram(plan(residency="disk"), B200, disk=slow).modules[0].transfer_s == 768 / 100_000
    packed = replace(FAST_DISK, pages_per_row=1)
    assert engram(plan(residency="disk"), B200, disk=packed).disk_bytes == report.disk_bytes / 2
    cached = engram(plan(residency="disk"), B200, disk=FAST_DISK, hit_share=1.0)
    assert cached.disk_bytes == 0
    assert cached.modules[0].link_bytes == module.link_bytes


def test_rates():
    """C2C: 225 GB/s at most, 170 with all GPUs (hardware.md); PCIe 5: 64; one memory: 273."""
    assert host_rate(GB300, likely=False).gb_per_s == 225
    assert host_rate(GB300, likely=True).gb_per_s == 170
    assert host_rate(B200, likely=True).gb_per_s == 64
    shared = host_rate(aisim.load_hardware("gb10"), likely=True)
    assert shared.gb_per_s == pytest.approx(273)
    assert shared.limit == "GPU memory"
    two_fast_gpus = replace(GB300, host_link_bytes_per_s=1e12)
    assert host_rate(two_fast_gpus, likely=False).gb_per_s == 256
    assert engram(plan(), GB300, "sol").rate.gb_per_s == 225
    assert engram(plan(), GB300, "op").rate.gb_per_s == 170


def replayed(report, rate):
    """Waiting, event by event: a link that serves one module after another, a chain that stops."""
    clock = {"link": 0.0, "late": 0.0}
    waits = []
    for module in report.modules:
        clock["link"] += module.link_bytes / rate
        arrives = module.window_s + clock["late"]
        wait = max(clock["link"] - arrives, 0.0)
        waits.append(wait)
        clock["late"] += wait
    return waits


@pytest.mark.parametrize("method", ["sol", "op"])
@given(rate=st.sampled_from(RATES), count=st.integers(1, 512), prompt=st.booleans())
@settings(max_examples=20, deadline=None)
def test_waits_are_those_of_a_replay(method, rate, count, prompt):
    requests = [aisim.Request(new_tokens=8 * count)] if prompt else decode(count)
    report = engram(plan(requests), slow_link(rate), method)
    assert [m.exposed_s for m in report.modules] == pytest.approx(
        replayed(report, rate), abs=1e-12, rel=1e-9
    )


@given(count=st.integers(1, 300), step=st.integers(0, len(RATES) - 2), none=st.booleans())
@settings(max_examples=20, deadline=None)
def test_laws(count, step, none):
    prefetch = "none" if none else "step"
    asked = plan(decode(count))
    report = engram(asked, slow_link(RATES[step]), prefetch=prefetch)
    faster = engram(asked, slow_link(RATES[step + 1]), prefetch=prefetch)
    alone = aisim.estimate(asked, B200).latency_s
    assert 0 <= report.exposed_s <= report.transfer_s * (1 + 1e-12)
    assert report.hidden_s >= -1e-15
    assert faster.step_s <= report.step_s * (1 + 1e-12)
    assert report.step_s == pytest.approx(alone + report.exposed_s)
    # Waiting never exceeds what a step of only look-ups would take.
    assert report.step_s <= alone + report.transfer_s * (1 + 1e-12)
    if none:
        assert report.exposed_s == pytest.approx(report.transfer_s)


def test_the_later_module_has_more_to_hide_behind():
    first, second = engram(plan(), GB300).modules
    assert 0 < first.window_s < second.window_s / 5


@pytest.mark.parametrize("method", ["sol", "op"])
def test_windows_are_the_start_of_the_gate(method):
    """Where look-ups run on a stream of their own, less what follows them there."""
    report = engram(plan(), GB300, method)
    timeline = report.estimate.timeline()
    apart = timeline[timeline.operator == "engram_gate"]
    for module, gate in zip(report.modules, apart.itertuples(), strict=True):
        beside = timeline[
            (timeline.layer == module.layer)
            & timeline.operator.isin(["all_reduce_engram", "engram_project"])
        ]
        follows = (beside.end_ms - beside.start_ms).sum()
        assert module.window_s * 1e3 == pytest.approx(gate.start_ms - follows)


def test_without_a_transfer_nothing_changes():
    report = engram(plan(residency="hbm"), B200)
    assert report.step_s == report.estimate.latency_s
    assert report.rate is None
    empty = engram(plan([]), B200)
    assert (empty.step_s, empty.transfer_s) == (0, 0)


def test_a_bound_with_a_transfer_is_a_bound():
    """The longest of: the bound, and each transfer with the layers behind its module."""
    for rate in (1e7, 1e8, 1e9, 1e10):
        report = engram(plan(), slow_link(rate), "sol")
        likely = engram(plan(), slow_link(rate), "op")
        least = 2 * 64 * 24 * ROW / rate
        assert report.step_s >= max(least, report.estimate.latency_s)
        assert report.step_s <= likely.step_s


def test_prefetch_follows_the_engine_and_the_ids():
    assert engram(plan(engine="vllm"), B200).prefetch == "none"
    assert engram(plan(), B200).prefetch == "step"
    prompt = plan([aisim.Request(new_tokens=1024)])
    slow = slow_link(2e9)
    waits = [engram(prompt, slow, prefetch=how).exposed_s for how in ("previous", "step", "none")]
    assert waits[0] == 0 < waits[1] < waits[2]
    with pytest.raises(UnsupportedPlanError, match="made by the step before"):
        engram(plan(), B200, prefetch="previous")


def test_separate_replays_fetch_for_themselves():
    """Each hit without window KV is a forward of its own, of the replayed rows."""
    hit = aisim.Request(new_tokens=256, prefix_tokens=4096, window="missing", count=3)
    asked = plan([hit], encoder_replay="separate")
    report = engram(asked, B200, "sol")
    assert [m.times for m in report.modules] == [3, 3, 1, 1]
    rows = sum(m.times * m.tokens for m in report.modules)
    assert rows == 2 * 3 * (128 + 256)


def test_break_even_is_where_waiting_starts():
    slow = slow_link(1e9)
    times = break_even(plan(decode(1)), slow)
    assert times is not None
    assert times > 1
    assert engram(plan(decode(times)), slow).exposed_s > 0
    assert engram(plan(decode(times - 1)), slow).exposed_s == 0
    assert break_even(plan(decode(1)), GB300) is None
    assert break_even(plan(decode(1), engine="vllm"), B200) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "fpm"}, "auto, sol, op"),
        ({"prefetch": "soon"}, "previous, step, none"),
        ({"hit_share": 1.5}, "from 0 to 1"),
        ({"hit_share": float("nan")}, "from 0 to 1"),
        ({"hit_share": "half"}, "must be a number"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        engram(plan(), B200, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bytes_per_s": 0}, "above 0"),
        ({"bytes_per_s": float("inf")}, "finite"),
        ({"bytes_per_s": "6"}, "must be a number"),
        ({"bytes_per_s": 1e9, "pages_per_row": 1.5}, "whole number"),
        ({"bytes_per_s": 1e9, "reads_per_s": -1}, "above 0"),
    ],
)
def test_disks_that_cannot_be(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        Disk(**arguments)


def test_missing_figures_and_modules_are_named():
    with pytest.raises(MissingProfileError, match="no figure for the link to its host"):
        engram(plan(), replace(B200, host_link_bytes_per_s=None))
    with pytest.raises(MissingProfileError, match="no hardware file has a disk"):
        engram(plan(residency="disk"), B200)
    layers = tuple(replace(layer, engram_module=None) for layer in MODEL.layers)
    without = replace(plan(), model=replace(MODEL, engram=None, layers=layers))
    with pytest.raises(UnsupportedPlanError, match="no Engram modules"):
        engram(without, B200)


def test_frame_and_plain_data():
    report = engram(plan(), B200)
    assert report.to_frame().to_dict(orient="records") == report.to_dict()["modules"]
    assert report.to_dict()["step_ms"] == pytest.approx(report.step_s * 1e3)
