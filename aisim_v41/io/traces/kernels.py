"""Kernels as a profiler recorded them, and the steps that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aisim_v41.errors import InvalidInputError, SchemaError

MAX_KERNELS = 20_000_000


class TracedKernel(NamedTuple):
    """One kernel on a GPU.

    Attributes:
        name: demangled, as the profiler has it.
        start_us, duration_us: on the GPU's clock [us].
        device, stream: where it ran.
        launch: what launched it: kernels of one replay of a graph share theirs; -1: not known.
    """

    name: str
    start_us: float
    duration_us: float
    device: int
    stream: int
    launch: int


class Range(NamedTuple):
    """A stretch of the GPU's time with a name, such as a step of the profiler."""

    name: str
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTrace:
    """Kernels of a file.

    Attributes:
        source: name of the file and its form.
        kernels: in the order of their start.
        ranges: named stretches, in the order of their start.
    """

    source: str
    kernels: tuple[TracedKernel, ...]
    ranges: tuple[Range, ...] = ()

    def steps(self, *, named: str | None = None, device: int = 0) -> list[list[TracedKernel]]:
        """Kernels of each step on one GPU.

        Args:
            named: part of the name of ranges that are steps. Without it, every replay of the graph
                with the most kernels is a step, or all is one where no launch repeats.
            device: the GPU.

        Raises:
            InvalidInputError: no range has that name, or the GPU ran nothing.
        """
        own = [kernel for kernel in self.kernels if kernel.device == device]
        if not own:
            devices = sorted({kernel.device for kernel in self.kernels})
            raise InvalidInputError(
                f"{self.source}: no kernel on GPU {device}; there are {devices}"
            )
        if named is not None:
            chosen = [one for one in self.ranges if named in one.name]
            if not chosen:
                known = ", ".join(dict.fromkeys(one.name for one in self.ranges[:8])) or "none"
                raise InvalidInputError(
                    f"{self.source}: no range named {named!r}; there are {known}"
                )
            found = [[k for k in own if r.start_us <= k.start_us < r.end_us] for r in chosen]
            return [step for step in found if step]
        launched: dict[int, list[TracedKernel]] = {}
        for kernel in own:
            if kernel.launch >= 0:
                launched.setdefault(kernel.launch, []).append(kernel)
        longest = max((len(group) for group in launched.values()), default=0)
        if longest < _GRAPH_KERNELS:
            return [own]
        return [group for group in launched.values() if len(group) == longest]


_GRAPH_KERNELS = 16
"""A launch of so many kernels is a graph."""


def checked_kernels(found: Sequence[TracedKernel], where: str) -> tuple[TracedKernel, ...]:
    """Kernels in order.

    Raises:
        SchemaError: there is none, or too many.
    """
    if not found:
        raise SchemaError(f"{where}: holds no kernel of a GPU; record with CUDA activities on")
    if len(found) > MAX_KERNELS:
        raise SchemaError(f"{where}: more than {MAX_KERNELS} kernels; record fewer steps")
    return tuple(sorted(found, key=lambda kernel: kernel.start_us))
