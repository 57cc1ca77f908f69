"""Clocks, power, temperature and throttling of a GPU, read through NVML and never set.

The library of the driver is called directly (NVML API reference, "Device Queries"), so that no
package is needed. Where it is not here, the reason stands in the place of the readings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_OK = 0
_SM, _MEMORY = 1, 2
_CORE_TEMPERATURE = 0
THROTTLES = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "software_power_cap",
    0x8: "hardware_slowdown",
    0x10: "sync_boost",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "hardware_power_brake",
    0x100: "display_clocks",
}
"""Bits of nvmlDeviceGetCurrentClocksThrottleReasons (nvml.h, nvmlClocksThrottleReasons)."""
SLOWING = frozenset(
    ("software_power_cap", "hardware_slowdown", "software_thermal", "hardware_thermal",
     "hardware_power_brake")
)  # fmt: skip
"""Reasons that make a timing slower than the GPU is."""


def readings(place: int | str | None, library: Any = None) -> dict[str, Any]:
    """What NVML says of a GPU now.

    Args:
        place: bus of the GPU as NVML writes it, or its number; None where there is none.
        library: instead of the driver's, for tests.

    Returns:
        ``sm_mhz``, ``memory_mhz``, ``power_w``, ``power_limit_w``, ``temperature_c``,
        ``energy_j``, ``throttle`` (names of the reasons), each where the GPU tells it; or
        ``absent``: why nothing is known.
    """
    if place is None:
        return {"absent": "no GPU"}
    found = library if library is not None else _driver()
    if isinstance(found, str):
        return {"absent": found}
    handle = ctypes.c_void_p()
    if isinstance(place, str):
        status = found.nvmlDeviceGetHandleByPciBusId_v2(place.encode(), ctypes.byref(handle))
    else:
        status = found.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(place), ctypes.byref(handle))
    if status != _OK:
        return {"absent": f"NVML knows no GPU {place}"}
    said: dict[str, Any] = {
        "sm_mhz": _whole(found.nvmlDeviceGetClockInfo, handle, ctypes.c_int(_SM)),
        "memory_mhz": _whole(found.nvmlDeviceGetClockInfo, handle, ctypes.c_int(_MEMORY)),
        "power_w": _scaled(_whole(found.nvmlDeviceGetPowerUsage, handle)),
        "power_limit_w": _scaled(_whole(found.nvmlDeviceGetEnforcedPowerLimit, handle)),
        "temperature_c": _whole(
            found.nvmlDeviceGetTemperature, handle, ctypes.c_int(_CORE_TEMPERATURE)
        ),
        "energy_j": _scaled(
            _whole(found.nvmlDeviceGetTotalEnergyConsumption, handle, width=ctypes.c_ulonglong)
        ),
    }
    bits = _whole(found.nvmlDeviceGetCurrentClocksThrottleReasons, handle, width=ctypes.c_ulonglong)
    if bits is not None:
        said["throttle"] = [name for bit, name in THROTTLES.items() if bits & bit]
    return {name: value for name, value in said.items() if value is not None}


def driver_version(library: Any = None) -> str | None:
    """Version of the driver; None where NVML is not here."""
    found = library if library is not None else _driver()
    if isinstance(found, str):
        return None
    text = ctypes.create_string_buffer(96)
    if found.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text))) != _OK:
        return None
    return text.value.decode("ascii", "replace")


@lru_cache(maxsize=1)
def _driver() -> Any:
    """The driver's library, or why there is none."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return f"{LIBRARY} is not here"
    status = library.nvmlInit_v2()
    return library if status == _OK else f"NVML cannot start (status {status})"


def _whole(
    ask: Callable[..., int], handle: ctypes.c_void_p, *more: Any, width: Any = ctypes.c_uint
) -> int | None:
    value = width()
    return int(value.value) if ask(handle, *more, ctypes.byref(value)) == _OK else None


def _scaled(value: int | None) -> float | None:
    """Milliwatts and millijoules to watts and joules."""
    return None if value is None else value / 1000
