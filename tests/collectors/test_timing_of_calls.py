"""Timing: statistics by hand, rotation, reruns, answers, NVML and identities; ranks that wait."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collectors.errors import InputError, UnavailableError
from collectors.machine import gpu_slug, identity
from collectors.nvml import readings
from collectors.op.prepared import Agreement, Prepared
from collectors.timing import measure as timing
from collectors.timing.answer import difference
from collectors.timing.record import TimingOptions
from collectors.timing.rotation import MAX_COPIES, TIMES_L2, rotation
from collectors.timing.summary import summed_up

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[2]


def test_a_summary_by_hand():
    found = summed_up([10.0, 30.0, 20.0, 50.0, 40.0])
    assert (found.n, found.median, found.p10, found.p90, found.least) == (5, 30, 14, 46, 10)
    assert found.spread == pytest.approx(32 / 30)
    assert summed_up([4.0]).spread == 0.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_summaries_are_in_order(samples: list[float]):
    found = summed_up(samples)
    assert found.least <= found.p10 <= found.median <= found.p90 <= max(samples)


@pytest.mark.parametrize("samples", [[], [float("nan")], [-1.0], [float("inf")]])
def test_what_is_no_time_is_refused(samples: list[float]):
    with pytest.raises(InputError):
        summed_up(samples)


@given(st.floats(1, 1e10), st.floats(1e3, 1e9), st.floats(0, 1e12), st.integers(1, 1024))
def test_a_cold_timing_never_finds_its_inputs(one: float, l2: float, free: float, calls: int):
    turn = rotation(one, l2, free, calls)
    assert 1 <= turn.copies <= MAX_COPIES
    # either so much is walked through, or each sample finds a cache that was written over
    assert turn.flush or turn.copies * one >= TIMES_L2 * l2 * 0.999


class Steps:
    """A clock that says what it is told, one time after the other."""

    resolution_s = 1e-7

    def __init__(self, *seconds: float) -> None:
        self.seconds_left, self.batches = list(seconds), 0

    def seconds(self, batch: Any) -> float:
        batch()
        self.batches += 1
        return self.seconds_left.pop(0) if len(self.seconds_left) > 1 else self.seconds_left[0]


def timed(monkeypatch: pytest.MonkeyPatch, clock: Steps, **options: Any):
    calls: list[int] = []
    prepared = Prepared(make=lambda _: (len(calls),), run=lambda place: calls.append(place),
                        reference=lambda _: None)  # fmt: skip
    monkeypatch.setattr(timing, "_way", lambda *_: timing._Way("cpu", "eager", clock))
    monkeypatch.setattr(timing, "l2_bytes", lambda _: 1000)
    found = timing.measure(
        prepared, CPU, TimingOptions(samples=5, **options), input_bytes=1e6,
        generator=torch.Generator(), first=(0,),
    )  # fmt: skip
    return found, calls


def test_long_calls_are_timed_one_by_one(monkeypatch: pytest.MonkeyPatch):
    found, _ = timed(monkeypatch, Steps(1e-3))
    assert found.median_us == pytest.approx(1000.0)
    assert (found.calls_per_sample, found.samples, found.reran) == (1, 5, False)


def test_short_calls_are_timed_together(monkeypatch: pytest.MonkeyPatch):
    found, _ = timed(monkeypatch, Steps(2e-6, 2.1e-4))
    assert found.calls_per_sample in (100, 101)  # two copies, or a hundred
    assert found.median_us == pytest.approx(210 / found.calls_per_sample)
    assert found.resolution_us == pytest.approx(0.1 / found.calls_per_sample)


def test_a_wide_spread_is_taken_again_once_and_marked(monkeypatch: pytest.MonkeyPatch):
    wild = [1e-3, 1e-3, 1e-3, 2e-3, 3e-3, 1e-3, 2e-3]
    calm, _ = timed(monkeypatch, Steps(*wild, 1e-3))
    assert (calm.reran, calm.noisy, calm.median_us) == (True, False, pytest.approx(1000.0))
    still, _ = timed(monkeypatch, Steps(*wild, *wild[2:], 1e-3))
    assert (still.reran, still.noisy) == (True, True)


def test_seconds_bound_the_samples(monkeypatch: pytest.MonkeyPatch):
    found, _ = timed(monkeypatch, Steps(0.5), seconds=0.1)
    assert found.samples == 5  # never fewer


def test_inputs_rotate_in_turn(monkeypatch: pytest.MonkeyPatch):
    made: list[int] = []
    seen: list[int] = []

    def make(_: Any) -> tuple[int]:
        made.append(len(made) + 1)
        return (made[-1],)

    monkeypatch.setattr(timing, "_way", lambda *_: timing._Way("cpu", "eager", Steps(1e-4)))
    monkeypatch.setattr(timing, "l2_bytes", lambda _: 1000)
    prepared = Prepared(make=make, run=seen.append, reference=lambda _: None)
    found = timing.measure(prepared, CPU, TimingOptions(samples=5), input_bytes=5000.0,
                           generator=torch.Generator(), first=(0,))  # fmt: skip
    assert (found.copies, found.flushed) == (1, False)
    found = timing.measure(prepared, CPU, TimingOptions(samples=5), input_bytes=3000.0,
                           generator=torch.Generator(), first=(0,))  # fmt: skip
    assert (found.copies, found.flushed) == (2, True)
    assert found.cache_state == "cold"
    warm = timing.measure(prepared, CPU, TimingOptions(samples=5, cache_state="warm"),
                          input_bytes=3000.0, generator=torch.Generator(), first=(0,))  # fmt: skip
    assert (warm.copies, warm.cache_state) == (1, "warm")


def test_a_timer_that_is_not_here_is_said():
    prepared = Prepared(make=lambda _: (), run=lambda: None, reference=lambda: None)
    for timer in ("cupti", "graph", "events"):
        with pytest.raises(UnavailableError, match=f"timer {timer} needs a GPU"):
            timing.measure(prepared, CPU, TimingOptions(timer=timer), input_bytes=1.0,
                           generator=torch.Generator(), first=())  # fmt: skip


def test_own_samples_say_how_they_were_taken():
    prepared = Prepared(make=lambda _: (), run=lambda: None, reference=lambda: None,
                        samples=lambda n: [2e-6] * n)  # fmt: skip
    found = timing.measure(prepared, CPU, TimingOptions(), input_bytes=1.0,
                           generator=torch.Generator(), first=())  # fmt: skip
    assert (found.timer, found.execution, found.cache_state) == ("cpu", "eager", "warm")
    assert found.median_us == pytest.approx(2.0)
    json.dumps(found.to_dict())


@pytest.mark.parametrize(
    "wrong", [{"timer": "sundial"}, {"samples": 1}, {"seconds": -1.0}, {"cache_state": "hot"},
              {"samples": True}, {"spread_bound": float("nan")}]
)  # fmt: skip
def test_options_are_checked(wrong: dict[str, Any]):
    with pytest.raises(InputError):
        TimingOptions(**wrong)
    with pytest.raises(InputError):
        TimingOptions.from_dict({"nothing": 1})


# --- answers -------------------------------------------------------------------------------------


def compared(ours: Any, theirs: Any, **how: Any) -> str:
    prepared = Prepared(make=lambda _: (), run=lambda: ours, reference=lambda: theirs, **how)
    return difference(prepared, ()).wrong


def test_answers_by_hand():
    right = torch.tensor([3.0, 4.0])
    off = torch.tensor([3.0, 4.05])  # 0.05 of a norm of 5
    assert compared(off, right, agreement=Agreement(relative=0.011)) == ""
    assert "0.01 from the reference" in compared(off, right, agreement=Agreement(relative=0.009))
    assert "not finite" in compared(torch.tensor([float("nan"), 4.0]), right)
    assert "shape" in compared(torch.zeros(3), right)
    assert "type" in compared(torch.tensor([3, 4]), right)
    assert "2 outputs" in compared((right, right), right)
    assert "1 of 2 elements" in compared(torch.tensor([1, 2]), torch.tensor([1, 3]))


def test_values_that_are_not_finite_are_wrong_whatever_compares_them():
    broken = torch.tensor([float("inf")])
    assert "not finite" in compared(broken, broken, compare=lambda *_: None)


def test_bytes_are_compared_as_bytes():
    codes = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    other = torch.tensor([1.0, 2.25]).to(torch.float8_e4m3fn)
    assert compared(codes, codes, agreement=Agreement(exact=True)) == ""
    assert "1 of 2" in compared(codes, other, agreement=Agreement(exact=True))


# --- the machine ---------------------------------------------------------------------------------


class FakeNvml:
    """A driver's library that knows one GPU."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        return self.status if index.value == 0 else 6

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus: bytes, handle: Any) -> int:
        return 0 if bus == b"00000000:1B:00.0" else 6

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: Any, out: Any) -> int:
        return self._put(out, 1980 if kind.value == 1 else 3201)

    def nvmlDeviceGetPowerUsage(self, handle: Any, out: Any) -> int:
        return self._put(out, 653_500)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, out: Any) -> int:
        return self._put(out, 700_000)

    def nvmlDeviceGetTemperature(self, handle: Any, kind: Any, out: Any) -> int:
        return self._put(out, 61)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, out: Any) -> int:
        return 3  # not supported

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, out: Any) -> int:
        return self._put(out, 0x4 | 0x40)

    @staticmethod
    def _put(out: Any, value: int) -> int:
        ctypes.cast(out, ctypes.POINTER(ctypes.c_uint))[0] = value
        return 0


@pytest.mark.parametrize("place", [0, "00000000:1B:00.0"])
def test_what_a_gpu_says(place: int | str):
    assert readings(place, FakeNvml()) == {
        "sm_mhz": 1980, "memory_mhz": 3201, "power_w": 653.5, "power_limit_w": 700.0,
        "temperature_c": 61, "throttle": ["software_power_cap", "hardware_thermal"],
    }  # fmt: skip


def test_what_is_absent_is_said():
    assert readings(None) == {"absent": "no GPU"}
    assert readings(3, FakeNvml()) == {"absent": "NVML knows no GPU 3"}
    assert "absent" in readings(0)


def test_an_identity_names_no_person_host_or_path():
    said = json.dumps(identity(CPU))
    private = [socket.gethostname(), os.path.expanduser("~"), os.getcwd(), sys.prefix]
    assert not any(word in said for word in private if len(word) > 3)
    assert "uuid" not in said.lower()
    assert set(json.loads(said)) == {"gpu", "device", "driver", "cuda", "packages", "python",
                                     "platform", "image"}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "slug"),
    [("NVIDIA GB200", "gb200"), ("NVIDIA B300 SXM6 AC", "b300"), ("NVIDIA H100 80GB HBM3", "h100"),
     ("AMD Instinct MI355X", "mi355x"), ("", "unknown")],
)  # fmt: skip
def test_names_of_gpus(name: str, slug: str):
    assert gpu_slug(name) == slug


RANK = """
import os, sys, time
from collectors.timing.ranks import Ranks
ranks = Ranks.of_environment("cpu")
print(ranks.rank, ranks.slowest([1.0 + ranks.rank, 5.0 - ranks.rank]), ranks.any(ranks.rank == 1))
ranks.close()
"""


def test_the_slowest_rank_counts():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        subprocess.Popen([sys.executable, "-c", RANK], stdout=subprocess.PIPE, text=True, cwd=ROOT,
                         env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2",
                              "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
        for rank in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=60)[0].strip() for process in started]
    assert said == ["0 [2.0, 5.0] True", "1 [2.0, 5.0] True"]
