"""What the timings were taken on: GPU, driver, software. No name of a person, host or path."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from typing import TYPE_CHECKING, Any

from collectors.nvml import driver_version

if TYPE_CHECKING:
    import torch

PACKAGES = (
    "torch", "triton", "sglang", "sgl-kernel", "vllm", "deep-gemm", "flash-mla",
    "flashinfer-python", "tensorrt-llm", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "cupti-python",
)  # fmt: skip
"""Packages whose kernels may be timed, or which time."""
IMAGE_VARIABLE = "AISIM_V41_IMAGE"
"""Environment variable in which a user gives the digest of the container image."""
_CPUINFO = "/proc/cpuinfo"
_CPU_L2 = "/sys/devices/system/cpu/cpu0/cache/index2/size"
_UNITS = {"K": 1 << 10, "M": 1 << 20}
KNOWN = ("gb300", "gb200", "b300", "b200", "h200", "h100", "h20", "a100", "mi355x", "mi300x")
"""Names of GPUs as in ``hardware/``, the longer one first where one begins like another."""


def identity(device: torch.device) -> dict[str, Any]:
    """What a run shares: everything that must agree before two timings may be compared.

    Args:
        device: that runs the cases.

    Returns:
        ``gpu`` (slug), ``device`` (name and sizes), ``driver``, ``cuda``, ``packages`` (name to
        version), ``python``, ``platform``, ``image``.
    """
    import torch

    cuda = device.type == "cuda"
    return {
        "gpu": gpu_slug(torch.cuda.get_device_name(device) if cuda else "cpu"),
        "device": _gpu(device) if cuda else _cpu(),
        "driver": (driver_version() or "not known") if cuda else "none",
        "cuda": str(torch.version.cuda or torch.version.hip or "none"),
        "packages": _packages(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}".lower(),
        "image": os.environ.get(IMAGE_VARIABLE, "not stated"),
    }


def gpu_slug(name: str) -> str:
    """Short name of a GPU, as in ``hardware/``.

    >>> gpu_slug("NVIDIA GB300"), gpu_slug("NVIDIA H200 NVL"), gpu_slug("cpu")
    ('gb300', 'h200', 'cpu')
    >>> gpu_slug("NVIDIA RTX PRO 6000 Blackwell")
    'rtx-pro-6000-blackwell'
    """
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    words = words.removeprefix("nvidia-").removeprefix("amd-").removeprefix("instinct-")
    for known in KNOWN:
        if known in words.split("-"):
            return known
    return words[:64] or "unknown"


def l2_bytes(device: torch.device) -> int:
    """Size of the second-level cache, which a cold timing must leave behind [B]; 0: not known."""
    import torch

    if device.type != "cuda":
        return _cpu_l2_bytes()
    return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))


def nvml_place(device: torch.device) -> int | str | None:
    """Where NVML finds a device: its bus, since torch may number GPUs otherwise; None: a CPU."""
    import torch

    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    said = torch.cuda.get_device_properties(index)
    bus = [getattr(said, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if any(part is None for part in bus):
        return index
    return "{:08X}:{:02X}:{:02X}.0".format(*bus)


def _gpu(device: torch.device) -> dict[str, Any]:
    import torch

    said = torch.cuda.get_device_properties(device)
    return {
        "name": said.name,
        "count": torch.cuda.device_count(),
        "compute_capability": f"{said.major}.{said.minor}",
        "memory_bytes": int(said.total_memory),
        "multiprocessors": int(said.multi_processor_count),
        "l2_bytes": l2_bytes(device),
    }


def _cpu() -> dict[str, Any]:
    return {
        "name": _cpu_model(),
        "count": 1,
        "compute_capability": "none",
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "multiprocessors": os.cpu_count() or 1,
        "l2_bytes": _cpu_l2_bytes(),
    }


def _cpu_model() -> str:
    try:
        with open(_CPUINFO, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                name, _, value = line.partition(":")
                if name.strip() in ("model name", "CPU part"):
                    return value.strip()[:96]
    except OSError:
        pass
    return platform.processor()[:96] or "not known"


def _cpu_l2_bytes() -> int:
    try:
        with open(_CPU_L2, encoding="ascii") as stream:
            size = stream.read().strip()
        return int(size[:-1]) * _UNITS[size[-1]] if size[-1] in _UNITS else int(size)
    except (OSError, ValueError, IndexError):
        return 0


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
