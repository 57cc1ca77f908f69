"""Costs of the host, which take their own samples: seconds of one call or node."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from collectors.case import Case
from collectors.errors import UnavailableError
from collectors.op.prepared import Prepared
from collectors.timing.batches import as_graph
from collectors.timing.clocks import EventClock


def build_launch(case: Case, device: torch.device) -> Prepared:
    """Seconds that the host is busy with one call; it never waits for the device inside."""
    calls, kind = case.whole("calls"), case.options["call"]
    small = torch.zeros(32, device=device)
    parts = [small, small, small, small]
    one = torch.nn.Linear(32, 32, device=device)

    def framework() -> None:
        with torch.no_grad():
            one(small)

    def bare() -> None:
        torch._foreach_add_(parts, 1.0)

    def python() -> None:
        _walk(parts)

    call = {"framework": framework, "bare": bare, "python": python}[kind]

    def samples(number: int) -> list[float]:
        call()
        return [_busy(call, calls, device) for _ in range(number)]

    return _alone(samples, "torch")


def build_gap(case: Case, device: torch.device) -> Prepared:
    """Seconds that a node adds: the slope between a graph of all nodes and one of half of them.

    Raises:
        UnavailableError: there are no graphs here.
    """
    if device.type != "cuda":
        raise UnavailableError(f"graphs need a CUDA device, not {device}")
    nodes = case.whole("nodes")
    small = torch.zeros(1, device=device)
    short = as_graph([lambda: small.add_(1)] * (nodes // 2), device)
    long = as_graph([lambda: small.add_(1)] * nodes, device)
    clock = EventClock(device)

    def samples(number: int) -> list[float]:
        found = []
        for _ in range(number):
            apart = clock.seconds(long) - clock.seconds(short)
            found.append(max(apart, 0.0) / (nodes - nodes // 2))
        return found

    return _alone(samples, "torch", timer="graph", execution="graph")


def _busy(call: Callable[[], None], calls: int, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


def _walk(parts: list[torch.Tensor]) -> int:
    """Python code such as an engine's own: attributes, a loop, a small list."""
    return sum(part.shape[0] for part in parts if part.dim() == 1 and part.is_contiguous())


def _alone(
    samples: Callable[[int], list[float]],
    kernel_source: str,
    timer: str = "cpu",
    execution: str = "eager",
) -> Prepared:
    return Prepared(
        make=lambda _: (), run=lambda: None, reference=lambda: None, kernel_source=kernel_source,
        samples=samples, samples_timer=timer, samples_execution=execution,
    )  # fmt: skip
