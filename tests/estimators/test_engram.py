"""Engram rows from hosts and disks: bytes by hand, waiting replayed, laws, refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.fetches import moved_bytes, waits

import aisim_v41 as aisim
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.estimators.deliveries import deliveries
from aisim_v41.estimators.engram import break_even, engram
from aisim_v41.estimators.engram_sources import host_rate
from aisim_v41.estimators.fpm.terms import FAMILIES, FamilyTerms
from aisim_v41.estimators.op.builds import compiled_build
from aisim_v41.plan.engram_hash import engram_hash
from aisim_v41.plan.engram_rows import count_rows
from aisim_v41.plan.engram_text import RequestText, chunks
from aisim_v41.plan.ledger import ledger

MODEL = aisim.load_model("deepseek-v4.1-flash")
GB300, B200 = aisim.load_hardware("gb300"), aisim.load_hardware("b200")
ROW = 264
WITH_DISK = replace(B200, disk_bytes_per_s=6e9)


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


RATES = [1e7, 1e9, 64e9]
"""From a slow disk to a fast link [B/s]."""


# --- bytes ---------------------------------------------------------------------------------------


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
    assert report.estimate.resource_s["host_link"] == pytest.approx(2 * rank_rows * ROW / 64e9)
    assert (report.collective_s == 0) == (residency == "host_shared")


@pytest.mark.parametrize("residency", ["hbm", "host_sharded", "host_shared", "disk"])
@pytest.mark.parametrize(("tp", "tokens"), [(1, 5), (2, 16), (4, 64)])
@pytest.mark.parametrize(("every", "hits"), [(1, 0), (2, 0), (4, 2)])
def test_bytes_are_those_of_rows_counted_one_by_one(residency, tp, tokens, every, hits):
    changes = {"engram_distinct_share": 1 / every, "engram_hit_share": 1 / hits if hits else 0.0}
    report = engram(plan(decode(tokens), residency, tp, **changes), WITH_DISK, "sol")
    link, disk = moved_bytes(tokens, residency, tp, every, hits)
    for module in report.modules:
        assert tp * module.link_bytes == pytest.approx(link)
        assert tp * module.disk_bytes == pytest.approx(disk)


def test_a_row_on_disk_is_two_pages():
    """Values and scales lie apart; the link then carries the row itself."""
    report = engram(plan(residency="disk"), WITH_DISK, "sol")
    module = report.modules[0]
    assert module.disk_bytes == 384 * 2 * 4096
    assert module.transfer_s == pytest.approx(384 * 8192 / 6e9)
    assert module.link_bytes == 384 * ROW
    slow = replace(WITH_DISK, disk_reads_per_s=100_000)
    assert engram(plan(residency="disk"), slow, "sol").modules[0].transfer_s == pytest.approx(
        768e-5
    )
    cached = engram(plan(residency="disk", engram_hit_share=1.0), B200, "sol")
    assert cached.disk_bytes == 0
    assert cached.modules[0].link_bytes == module.link_bytes


def test_cached_rows_are_read_from_gpu_memory():
    """Of 1,536 rows a quarter in the cache: they move from the link to HBM."""

    def moved(**changes):
        rows = aisim.estimate(plan(**changes), B200, "sol").rows
        table = sum(row.bytes_by_kind.get("table_read", 0.0) for row in rows)
        fetches = [row for row in rows if row.operator == "engram_fetch"]
        assert all((row.launches, row.bound) == (0, "host_link") for row in fetches)
        return table, sum(row.bytes_by_kind["host_read"] for row in fetches)

    assert moved(engram_hit_share=0.25) == (2 * 384 * ROW, 2 * 1152 * ROW)
    assert moved(engram_hit_share=1.0) == (2 * 1536 * ROW, 0)
    assert moved(residency="hbm") == (2 * 1536 * ROW / 4, 0)


def test_a_text_s_rows_are_the_bytes_of_its_step():
    """Distinct rows of a text, counted by its hash, are what a shared host copy sends."""
    hashing = engram_hash(MODEL)
    counted = count_rows(hashing, chunks([RequestText(token_ids=[5, 6, 7, 8, 9] * 40)], 200))
    step = plan([aisim.Request(new_tokens=200)], engram_distinct_share=counted.distinct_share)
    report = engram(step, B200, "sol")
    assert report.link_bytes == pytest.approx(sum(m.distinct for m in counted.modules) * ROW)
    assert 0 < counted.distinct_share < 0.1


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
    for method, rate, source in (("sol", 225e9, "theoretical"), ("op", 170e9, "default")):
        report = engram(plan(), GB300, method)
        assert report.rate.bytes_per_s == rate
        assert report.modules[0].transfer_s == pytest.approx(1536 * ROW / rate)
        rows = [row for row in report.estimate.rows if row.operator == "engram_fetch"]
        assert {row.source for row in rows} == {source}


@pytest.mark.parametrize("residency", ["host_sharded", "host_shared"])
def test_ranks_with_rows_of_their_own(residency):
    """40 and 10 decodes on two groups of four: the fuller fetches for its own rows, from a table of
    its group, or an eighth of the rows of all from one over both."""
    requests = [
        aisim.Request(new_tokens=1, prefix_tokens=4096, kind="decode", count=count, rank=rank)
        for rank, count in enumerate((40, 10))
    ]
    parallel = aisim.Parallel(tp=4, dp=2)
    for table, rows in (("tensor", 40 * 24 / 4), ("all", None)):
        policy = aisim.policy("vllm", engram_residency=residency, engram_table=table)
        report = engram(aisim.Plan(MODEL, requests, parallel=parallel, policy=policy), B200, "sol")
        for module in report.modules:
            assert module.tokens == 40
            assert module.link_bytes == pytest.approx(module.fetched * ROW)
            if residency == "host_shared":
                assert module.own == 40 * 24
            elif rows is not None:
                assert module.own == rows
            else:  # 50 rows, filled up to what the exchange takes
                assert 50 * 24 / 8 <= module.own <= 80 * 24 / 8


# --- waiting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sol", "op"])
@given(rate=st.sampled_from(RATES), count=st.integers(1, 512), prompt=st.booleans())
@settings(max_examples=10, deadline=None)
def test_waits_are_those_of_a_replay(method, rate, count, prompt):
    requests = [aisim.Request(new_tokens=8 * count)] if prompt else decode(count)
    report = engram(plan(requests), slow_link(rate), method)
    (forward,) = report.estimate.breakdown.forwards
    found = deliveries(forward)
    expected = waits(
        [module.transfer_s for module in report.modules],
        [one.reached_s for one in found],
        [one.follows_s for one in found],
    )
    assert [one.waits_s for one in found] == pytest.approx(expected, abs=1e-12, rel=1e-9)
    # A bound also holds what parts need of one resource together, a prompt what its host needs.
    if method == "op" and not forward.host_s:
        assert report.exposed_s == pytest.approx(sum(expected), abs=1e-9, rel=1e-6)
    assert report.exposed_s <= sum(expected) + 1e-9


@given(
    count=st.integers(1, 300), step=st.integers(0, len(RATES) - 2),
    prefetch=st.sampled_from(("step", "none")), method=st.sampled_from(("sol", "op")),
)  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_laws(count, step, prefetch, method):
    asked = plan(decode(count), engram_prefetch=prefetch)
    report = engram(asked, slow_link(RATES[step]), method)
    faster = engram(asked, slow_link(RATES[step + 1]), method)
    near = 1 + 1e-9
    assert 0 <= report.exposed_s <= report.transfer_s * near
    assert faster.step_s <= report.step_s * near
    assert report.step_s == pytest.approx(report.without_s + report.exposed_s)
    assert report.step_s <= (report.without_s + report.transfer_s) * near
    assert report.step_s >= report.transfer_s / near
    if prefetch == "none":
        assert report.exposed_s == pytest.approx(report.transfer_s)
    timeline = report.estimate.timeline()
    assert timeline.end_ms.max() == pytest.approx(report.estimate.latency_ms)
    assert sum(report.estimate.path.values()) == pytest.approx(report.step_s)


@pytest.mark.parametrize("method", ["sol", "op"])
@pytest.mark.parametrize("prefetch", ["step", "none", "previous"])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_one_step_and_a_sweep_and_the_estimate_agree(method, prefetch, engine):
    asked = plan([aisim.Request(new_tokens=3000)], engine=engine, engram_prefetch=prefetch)
    gpu = slow_link(1e9)
    step = aisim.compile(MODEL, gpu, parallel=asked.parallel, policy=asked.policy, method=method)
    told = aisim.estimate(asked, gpu, method).latency_s
    assert step(asked.requests) == pytest.approx(told, rel=1e-12)
    frame = step.sweep(pd.DataFrame({"new_tokens": [1, 3000, 8192]}))
    assert frame.latency_ms[1] == pytest.approx(told * 1e3, rel=1e-9)
    assert np.all(np.diff(frame.latency_ms) > 0)


@pytest.mark.parametrize("prefetch", ["step", "none"])
@pytest.mark.parametrize("prompt", [False, True])
def test_families_of_a_forward_add_up_to_its_time(prefetch, prompt):
    """What FPM corrects: waiting for rows shortens or lengthens all families alike."""
    asked = plan([aisim.Request(new_tokens=2000)] if prompt else decode(), engram_prefetch=prefetch)
    build = compiled_build(MODEL, slow_link(1e8), asked.parallel, asked.policy)
    counts = ledger(asked).passes[0][1].totals
    terms = FamilyTerms(build)
    alone = terms(counts, prompt).device_s[0, : len(FAMILIES)].sum()
    told = float(build.at(counts, prefills=prompt).device_seconds(counts))
    assert alone == pytest.approx(told)
    many = terms(np.stack([counts, counts], 1), np.array([prompt, prompt]))
    assert many.device_s[:, : len(FAMILIES)].sum(1) == pytest.approx([told, told])
    assert "engram host link" in many.names


def test_rows_fetched_a_step_ahead_make_a_step_the_longer_of_layers_and_link():
    """8,192 tokens x 48 rows x 264 B over 1 GB/s are 103.8 ms; the layers' bound is 34 ms."""
    prompt = [aisim.Request(new_tokens=8192)]
    ahead = engram(plan(prompt, engram_prefetch="previous"), slow_link(1e9), "sol")
    assert ahead.transfer_s == pytest.approx(8192 * 48 * ROW / 1e9)
    assert ahead.step_s == pytest.approx(ahead.transfer_s)
    fast = engram(plan(prompt, engram_prefetch="previous"), B200, "sol")
    assert fast.step_s == pytest.approx(fast.without_s)
    assert fast.exposed_s == 0 < fast.transfer_s


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
            & timeline.operator.isin(["engram_lookup", "all_reduce_engram", "engram_project"])
        ]
        follows = (beside.end_ms - beside.start_ms).sum()
        assert module.window_s * 1e3 == pytest.approx(gate.start_ms - follows)


def test_a_timeline_shows_rows_and_who_waits():
    timeline = aisim.estimate(plan(), slow_link(1e8), "sol").timeline()
    rows = timeline[timeline.operator == "engram_fetch"]
    assert list(rows.layer) == [1, 14]
    assert rows.start_ms.iloc[1] == rows.end_ms.iloc[0] == pytest.approx(1536 * ROW / 1e5)
    waiting = timeline[timeline.operator == "waiting host_link"]
    gates = timeline[timeline.operator == "engram_gate"]
    assert list(waiting.end_ms) == list(gates.start_ms)
    assert (gates.start_ms.to_numpy() > rows.end_ms.to_numpy()).all()


def test_tables_in_gpu_memory_wait_for_nothing():
    report = engram(plan(residency="hbm"), B200)
    assert report.step_s == report.without_s == report.estimate.latency_s
    assert report.rate is None
    assert report.estimate.resource_s["host_link"] == report.estimate.resource_s["disk"] == 0
    empty = engram(plan([]), B200)
    assert (empty.step_s, empty.transfer_s) == (0, 0)


def test_a_late_host_hides_rows_too():
    """Eager decode: kernels wait for their host, so a small transfer changes nothing."""
    eager = plan(decode(1), engine="vllm", decode_execution="eager")
    report = engram(eager, B200)
    assert report.estimate.host_s > report.estimate.kernels_s
    assert report.transfer_s > 0 == report.exposed_s


def test_a_bound_with_a_transfer_is_a_bound():
    for rate in (1e7, 1e8, 1e9, 1e10):
        report = engram(plan(), slow_link(rate), "sol")
        likely = engram(plan(), slow_link(rate), "op")
        assert report.step_s >= 2 * 64 * 24 * ROW / rate
        assert report.step_s <= likely.step_s
        low, high = likely.estimate.band_s
        assert report.step_s <= low <= likely.step_s <= high


def test_separate_replays_fetch_for_themselves():
    """Each hit without window KV is a forward of its own, of the replayed rows."""
    hit = aisim.Request(new_tokens=256, prefix_tokens=4096, window="missing", count=3)
    asked = plan([hit], encoder_replay="separate")
    report = engram(asked, B200, "sol")
    assert [m.times for m in report.modules] == [3, 3, 1, 1]
    rows = sum(m.times * m.tokens for m in report.modules)
    assert rows == 2 * 3 * (128 + 256)


def test_drafts_follow_the_rows():
    """A draft pass looks nothing up: it comes after the target, however late that is."""
    verify = [aisim.Request(new_tokens=6, prefix_tokens=4096, kind="verify", count=8)]
    drafting = {"speculation": "dspark"}
    late = engram(plan(verify, **drafting), slow_link(1e8), "sol")
    plain = aisim.estimate(plan(verify, "hbm", **drafting), B200, "sol")
    assert late.estimate.parts["draft"] == pytest.approx(plain.parts["draft"])
    assert late.estimate.parts["target"] > plain.parts["target"]


def test_break_even_is_where_waiting_starts():
    slow = slow_link(1e9)
    times = break_even(plan(decode(1)), slow, "sol")
    assert times is not None
    assert times > 1
    assert engram(plan(decode(times)), slow, "sol").exposed_s > 0
    assert engram(plan(decode(times - 1)), slow, "sol").exposed_s == 0
    assert break_even(plan(decode(1)), GB300, "op") is None
    assert break_even(plan(decode(1), engine="vllm"), B200) == 1


# --- refusals ------------------------------------------------------------------------------------


def test_prefetch_follows_the_engine_and_the_ids():
    assert engram(plan(engine="vllm"), B200).prefetch == "none"
    assert engram(plan(engine="trtllm"), B200).prefetch == "step"
    ahead = aisim.policy("sglang", engram_residency="host_shared", engram_prefetch="previous")
    step = aisim.compile(MODEL, B200, parallel=aisim.Parallel(tp=4), policy=ahead)
    for kind in ("decode", "verify"):
        request = aisim.Request(new_tokens=1, prefix_tokens=9, kind=kind)
        for ask in (lambda r: plan([r], engram_prefetch="previous"), lambda r: step([r])):
            with pytest.raises(UnsupportedPlanError, match="made by the step before"):
                ask(request)
    plan([aisim.Request(new_tokens=1, prefix_tokens=9, kind="decode")], "hbm",
         engram_prefetch="previous")  # fmt: skip


@pytest.mark.parametrize("method", ["sol", "op"])
@pytest.mark.parametrize(
    ("residency", "gpu", "key"),
    [
        ("host_shared", replace(B200, host_link_bytes_per_s=None), "links.host_link_gb_per_s"),
        ("disk", B200, "host.disk_gb_per_s"),
    ],
)
def test_missing_figures_are_named(method, residency, gpu, key):
    asked = plan(residency=residency)
    with pytest.raises(UnsupportedPlanError, match=re.escape(key)):
        aisim.estimate(asked, gpu, method)
    with pytest.raises(UnsupportedPlanError, match=re.escape(key)):
        aisim.compile(MODEL, gpu, parallel=asked.parallel, policy=asked.policy, method=method)


def test_models_without_modules():
    layers = tuple(replace(layer, engram_module=None) for layer in MODEL.layers)
    without = replace(plan(), model=replace(MODEL, engram=None, layers=layers))
    with pytest.raises(UnsupportedPlanError, match="no Engram modules"):
        engram(without, B200)
    assert aisim.estimate(without, B200).resource_s["host_link"] == 0


@pytest.mark.parametrize("method", ["fpm", "", None, 3])
def test_bad_methods(method):
    with pytest.raises(InvalidInputError, match="auto, sol, op"):
        engram(plan(), B200, method)


def test_frame_and_plain_data():
    report = engram(plan(), B200)
    assert report.to_frame().to_dict(orient="records") == report.to_dict()["modules"]
    assert report.to_dict()["step_ms"] == pytest.approx(report.step_s * 1e3)


@pytest.mark.parametrize("wrong", [None, "plan", 3])
def test_what_is_no_plan_is_refused(wrong: object):
    for ask in (engram, break_even):
        with pytest.raises(InvalidInputError, match="must be a Plan"):
            ask(wrong, aisim.load_hardware("gb300"))
