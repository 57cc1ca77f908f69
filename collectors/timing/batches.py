"""How calls are issued: one by one, or captured once and replayed as a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from collectors.errors import UnavailableError
from collectors.timing.clocks import Batch

Call = Callable[[], Any]
_WARM_UP = 3


def one_by_one(calls: Sequence[Call]) -> Batch:
    """Issue every call from the host."""

    def batch() -> None:
        for call in calls:
            call()

    return batch


def as_graph(calls: Sequence[Call], device: torch.device) -> Batch:
    """Capture all calls in one CUDA graph, which a batch replays.

    Raises:
        UnavailableError: there are no graphs here, or a call cannot be captured.
    """
    if device.type != "cuda":
        raise UnavailableError(f"graphs need a CUDA device, not {device}")
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for call in list(calls)[:_WARM_UP]:
            call()
    torch.cuda.current_stream(device).wait_stream(stream)
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    held: list[Any] = []
    try:
        with torch.cuda.graph(graph):
            held.extend(call() for call in calls)
    except RuntimeError as error:
        torch.cuda.synchronize(device)
        raise UnavailableError(f"cannot be captured in a graph ({error})") from None

    return _Replay(graph, held)


class _Replay:
    """A captured graph; its outputs are held, since they lie in the graph's own memory."""

    def __init__(self, graph: torch.cuda.CUDAGraph, held: list[Any]) -> None:
        self.graph, self.held = graph, held

    def __call__(self) -> None:
        self.graph.replay()
