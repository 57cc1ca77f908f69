"""What measures the time of a batch of calls: a clock of the host, events of the GPU, or CUPTI.

A clock takes a *batch*, a function that issues some calls, and gives the seconds that the device
was busy with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch

from collectors.errors import UnavailableError

Batch = Callable[[], None]


class Clock(Protocol):
    """Seconds of a batch; ``resolution_s`` is the step of the clock [s]."""

    resolution_s: float

    def seconds(self, batch: Batch) -> float:
        """Seconds that the device was busy with a batch; waits for its end."""


class HostClock:
    """`time.perf_counter` around a batch: for tests, and for CPUs."""

    resolution_s = time.get_clock_info("perf_counter").resolution

    def seconds(self, batch: Batch) -> float:
        """Seconds from the call of a batch to its return."""
        begin = time.perf_counter()
        batch()
        return time.perf_counter() - begin


HEAD_START_CYCLES = 200_000
"""About 0.1 ms: the GPU is busy until the batch is in its queue, so that no launch is in it."""


class EventClock:
    """Two events of the GPU around a batch."""

    resolution_s = 0.5e-6
    """CUDA runtime API, cudaEventElapsedTime: about half a microsecond."""

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise UnavailableError(f"events need a CUDA device, not {device}")
        self.device = device
        self.begin = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)

    def seconds(self, batch: Batch) -> float:
        """Seconds between the events."""
        stream = torch.cuda.current_stream(self.device)
        torch.cuda._sleep(HEAD_START_CYCLES)  # the host is ahead when the clock starts
        self.begin.record(stream)
        batch()
        self.end.record(stream)
        self.end.synchronize()
        return float(self.begin.elapsed_time(self.end)) * 1e-3
