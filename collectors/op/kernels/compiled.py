"""Whether triton kernels can run: compiled on a GPU, or in triton's interpreter."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from collectors.errors import UnavailableError

if TYPE_CHECKING:
    import torch

INTERPRET = "TRITON_INTERPRET"
"""Triton reads it when a kernel is defined."""


def interpreted() -> bool:
    """Whether kernels that are defined now will be interpreted."""
    return os.environ.get(INTERPRET) == "1"


def need_triton(device: torch.device) -> None:
    """Refuse triton kernels where they cannot run.

    Raises:
        UnavailableError: no triton, or no GPU and no interpreter.
    """
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise UnavailableError(f"triton kernels: triton is not installed ({error})") from None
    if device.type != "cuda" and not interpreted():
        raise UnavailableError(
            f"triton kernels run on a GPU, not on {device.type}; {INTERPRET}=1 interprets them"
        )
