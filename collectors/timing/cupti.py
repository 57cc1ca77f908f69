"""Kernels' own begin and end, by CUPTI's activity records: no event and no launch is inside.

Needs the package ``cupti-python`` and its CUDA; without them the graph's clock serves.
Source of the calls: CUPTI Python's documentation of its activity API.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from collectors.errors import UnavailableError
from collectors.timing.clocks import Batch


class CuptiClock:
    """From the begin of the first kernel of a batch to the end of the last one."""

    resolution_s = 1e-9

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise UnavailableError(f"CUPTI needs a CUDA device, not {device}")
        try:
            from cupti import cupti
        except ImportError as error:
            raise UnavailableError(f"the package cupti-python is not here ({error})") from None
        self.device, self.cupti = device, cupti
        self._spans: list[tuple[int, int]] = []
        try:
            cupti.activity_register_callbacks(self._buffer, self._completed)
            cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)
        except Exception as error:  # the package has an error type for each library
            raise UnavailableError(f"CUPTI cannot be used here ({error})") from None

    def _buffer(self) -> tuple[int, int]:
        return 8 << 20, 0

    def _completed(self, activities: list[Any]) -> None:
        for activity in activities:
            if activity.kind == self.cupti.ActivityKind.CONCURRENT_KERNEL:
                self._spans.append((activity.start, activity.end))

    def seconds(self, batch: Batch) -> float:
        """Seconds from the first kernel's begin to the last one's end."""
        torch.cuda.synchronize(self.device)
        self.cupti.activity_flush_all(1)
        self._spans.clear()
        batch()
        torch.cuda.synchronize(self.device)
        self.cupti.activity_flush_all(1)
        if not self._spans:
            raise UnavailableError("CUPTI gave no kernel: another profiler may hold it")
        return (max(end for _, end in self._spans) - min(begin for begin, _ in self._spans)) * 1e-9


@lru_cache(maxsize=8)
def cupti_clock(device: torch.device) -> CuptiClock:
    """The clock of a device; callbacks are registered once a process.

    Raises:
        UnavailableError: there is none here.
    """
    return CuptiClock(device)
