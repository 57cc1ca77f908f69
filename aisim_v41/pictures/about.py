"""What a picture says about itself: model, GPU, mapping, policy, step, method, band."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import TYPE_CHECKING

from aisim_v41.estimators.result import Estimate
from aisim_v41.plan.words import plan_text

if TYPE_CHECKING:
    import pandas as pd

METHODS = {
    "sol": "speed of light: a lower bound, peaks only",
    "op": "op: measured and calibrated kernels",
    "fpm": "fpm: measured whole forwards",
}
ABOUT = "about"
"""Key of ``attrs`` under which a frame of the library says what it is of."""


def band_text(estimate: Estimate) -> str:
    """The time with its band."""
    low, high = estimate.band_ms
    if not isfinite(high):
        return f"at least {estimate.latency_ms:,.3f} ms"
    return f"{estimate.latency_ms:,.3f} ms, 90 % band {low:,.3f} to {high:,.3f} ms"


def estimate_text(estimate: Estimate) -> str:
    """Everything that an estimate rests on, in one sentence."""
    method = METHODS.get(estimate.method, estimate.method)
    return f"{plan_text(estimate.plan, estimate.hardware.name)}. {method}; {band_text(estimate)}."


SETTING = (
    "model", "hardware", "gpus", "tp", "ep", "dp", "cp", "pp", "policy", "method", "kind",
    "new_tokens", "prefix_tokens", "prompt_tokens", "count",
)  # fmt: skip
"""Columns of sweeps that say what a point is of."""
UNREMARKABLE = {"ep": 1, "dp": 1, "cp": 1, "pp": 1}


def constants_text(frame: pd.DataFrame, but: Iterable[str] = ()) -> str:
    """Columns of a sweep that have one value, and it."""
    told = []
    for name in (name for name in SETTING if name in frame.columns and name not in set(but)):
        values = frame[name].dropna().unique().tolist()
        if len(values) == 1 and values[0] != UNREMARKABLE.get(name):
            shown = f"{values[0]:,}" if isinstance(values[0], int) else str(values[0])
            told.append(f"{name.replace('_', ' ')} {shown}")
    return ", ".join(told)


def frame_text(frame: pd.DataFrame, about: str = "") -> str:
    """What a frame is of, in the given words or in its own."""
    return about or str(frame.attrs.get(ABOUT, ""))
