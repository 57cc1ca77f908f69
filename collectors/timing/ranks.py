"""Processes that run a case together, and what they tell each other.

Started with ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT`` as `torch.distributed`
defines them; without them a process is alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch

from collectors.errors import UnavailableError

WAIT = timedelta(minutes=5)
"""How long a rank waits for the others."""


@dataclass(frozen=True)
class Ranks:
    """A process among those that run a case.

    Attributes:
        rank, size: which, of how many.
        device: that it runs on.
        library: of the collectives: ``nccl`` on GPUs, ``gloo`` on CPUs.
    """

    rank: int
    size: int
    device: torch.device
    library: str

    @staticmethod
    def of_environment(device: str) -> Ranks:
        """The process as its environment says, joined to the others.

        Raises:
            UnavailableError: fewer GPUs than ranks, or no such device here.
        """
        rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        if device == "cuda":
            if not torch.cuda.is_available():
                raise UnavailableError("no CUDA device is here; use --device cpu")
            if torch.cuda.device_count() < size:
                raise UnavailableError(f"{size} ranks need as many GPUs; here are "
                                       f"{torch.cuda.device_count()}")  # fmt: skip
            torch.cuda.set_device(rank)
            here, library = torch.device("cuda", rank), "nccl"
        else:
            here, library = torch.device("cpu"), "gloo"
        if size > 1:
            torch.distributed.init_process_group(library, rank=rank, world_size=size, timeout=WAIT)
        return Ranks(rank, size, here, library)

    def slowest(self, samples: Sequence[float]) -> list[float]:
        """Of every sample the slowest rank's; waits for all of them."""
        if self.size == 1:
            return list(samples)
        shared = torch.tensor(list(samples), dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
        return [float(one) for one in shared.tolist()]

    def any(self, wrong: bool) -> bool:
        """Whether it is so on any rank."""
        return self.slowest([1.0 if wrong else 0.0])[0] > 0

    def close(self) -> None:
        """Leave the others."""
        if self.size > 1:
            torch.distributed.destroy_process_group()
