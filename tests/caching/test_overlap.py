"""Transfers beside layers: laws, and the longest way through layers and link."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aisim_v41 as aisim
from aisim_v41.caching.overlap import (
    end_behind_loads,
    end_of_sends,
    layer_times,
    slowest_rate,
)
from aisim_v41.caching.ways import Way, described, way_to

MODEL = aisim.load_model("deepseek-v4.1-flash")
GB300 = aisim.load_hardware("gb300")

seconds = st.integers(0, 50).map(float)
amounts = st.integers(0, 40).map(float)
layers = st.lists(seconds, min_size=1, max_size=8)
loads = st.dictionaries(st.integers(0, 7), amounts, max_size=8)


@given(layers, loads, st.integers(0, 5))
def test_loading_is_the_longest_way(times: list[float], moved: dict[int, float], start: int):
    """Some layer is the last to wait: the link up to it, and all layers from it on."""
    chain = tuple(enumerate(times))
    found = end_behind_loads(chain, moved, bytes_per_s=2.0, start_s=start)
    begin = start if any(moved.values()) else 0
    ways = [sum(times)]
    for layer in range(len(times)):
        if layer in moved:
            link = begin + sum(moved[other] for other in moved if other <= layer) / 2
            ways.append(link + sum(times[layer:]))
    assert found == pytest.approx(max(ways))


@given(layers, loads, st.integers(0, 5), st.integers(0, 300).map(float))
def test_the_slowest_rate_is_the_inverse(
    times: list[float], moved: dict[int, float], start: int, deadline: float
):
    """At that rate the last layer ends at the deadline or before, slower it does not."""
    chain = tuple(enumerate(times))
    waited = {layer: amount for layer, amount in moved.items() if layer < len(times)}
    rate = slowest_rate(chain, waited, deadline_s=deadline, start_s=start)
    if rate is None:
        assert end_behind_loads(chain, waited, bytes_per_s=1e12, start_s=start) > deadline - 1e-6
    elif rate == 0:
        assert not any(waited.values())
        assert sum(times) <= deadline
    else:
        at = end_behind_loads(chain, waited, bytes_per_s=rate, start_s=start)
        assert at == pytest.approx(deadline) or at < deadline
        slower = end_behind_loads(chain, waited, bytes_per_s=rate * 0.99, start_s=start)
        assert slower > deadline


@given(st.lists(st.tuples(seconds, amounts), max_size=8))
def test_sending_is_the_longest_way(ready: list[tuple[float, float]]):
    """Some piece is the last that the link waits for: its time, and all pieces from it on."""
    found = end_of_sends(ready, bytes_per_s=2.0)
    real = sorted(piece for piece in ready if piece[1])
    ways = [when + sum(b for _, b in real[place:]) / 2 for place, (when, _) in enumerate(real)]
    assert found == pytest.approx(max(ways, default=0.0))
    total = sum(amount for _, amount in ready)
    latest = max((when for when, amount in ready if amount), default=0.0)
    assert total / 2 - 1e-9 <= found <= latest + total / 2 + 1e-9


def test_a_layer_that_runs_twice_waits_once():
    """A replay in a forward of its own: state that is there stays there."""
    chain = ((0, 1.0), (1, 1.0), (0, 1.0), (1, 1.0))
    assert end_behind_loads(chain, {0: 2.0, 1: 2.0}, bytes_per_s=1.0) == 4.0 + 1.0 + 1.0 + 1.0


def test_a_link_is_set_up_once():
    assert end_of_sends([(0.0, 4.0), (9.0, 4.0)], bytes_per_s=2.0, start_s=3.0) == 9.0 + 2.0
    assert end_of_sends([(0.0, 4.0)], bytes_per_s=2.0, start_s=3.0) == 5.0
    assert end_of_sends([(5.0, 0.0)], bytes_per_s=2.0, start_s=3.0) == 0.0


@pytest.mark.parametrize("method", ["sol", "op"])
@pytest.mark.parametrize("replay", ["folded", "separate"])
def test_layers_add_up_to_the_step(method: str, replay: str):
    policy = aisim.policy("custom", base="sglang", encoder_replay=replay, speculation="dspark")
    requests = [
        aisim.Request(new_tokens=300, prefix_tokens=8192, window="missing"),
        aisim.Request(new_tokens=1, prefix_tokens=500, kind="decode"),
    ]
    plan = aisim.Plan(MODEL, requests, aisim.Parallel(tp=4), policy)
    found = aisim.estimate(plan, GB300, method)
    times = layer_times(found)
    assert sum(s for _, s in times) == pytest.approx(found.latency_s, rel=1e-9)
    assert {layer for layer, _ in times} >= set(range(40))
    assert all(s >= 0 for _, s in times)


def test_ways_of_a_gpu():
    assert way_to(GB300, "host").bytes_per_s == 170e9
    assert way_to(GB300, "host", likely=False).bytes_per_s == 225e9
    assert way_to(GB300, "network").bytes_per_s == 100e9
    assert way_to(GB300, "peer").bytes_per_s == 900e9
    assert way_to(GB300, "disk", bytes_per_s=14e9).limit == "disk"
    fast = way_to(GB300, "disk", bytes_per_s=400e9, start_s=1e-4)
    assert (fast.bytes_per_s, fast.limit) == (170e9, "host link, achieved")
    assert described(fast) == "disk: 170 GB/s a copy after 0.0001 s (host link, achieved)"
    assert way_to(GB300, "network", bytes_per_s=12.5e9).seconds(25e9) == 2.0
    assert Way(name="w", bytes_per_s=1.0, start_s=5.0).seconds(0) == 0.0
    assert Way(name="w", bytes_per_s=8.0).shared_by(4).bytes_per_s == 2.0


def test_ways_that_are_not_known():
    with pytest.raises(aisim.UnsupportedPlanError, match="--gb-per-s"):
        way_to(GB300, "disk")
    with pytest.raises(aisim.UnsupportedPlanError, match="nic_gb_per_s"):
        way_to(aisim.load_hardware("rtx_4090"), "network")
    with pytest.raises(aisim.InvalidInputError, match="must be one of host"):
        way_to(GB300, "tape")
    for bad in (0.0, -1.0, float("nan"), float("inf"), True, "fast"):
        with pytest.raises(aisim.InvalidInputError, match="bytes_per_s"):
            Way(name="w", bytes_per_s=bad)
    with pytest.raises(aisim.InvalidInputError, match="start_s"):
        Way(name="w", bytes_per_s=1.0, start_s=-1.0)
