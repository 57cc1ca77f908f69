"""Colours: one for each operator family, kind of evidence, phase, method and kind of memory.

All stand out on white and on a dark page, and those of one table can be told apart by people who
see red, green or blue weakly; a test computes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NEUTRAL: Final = "#7D858F"
"""What has no colour of its own, and lines that only help to read."""
HOST: Final = "#608395"
"""Waiting for the host, or for anything else."""

FAMILIES: Final[Mapping[str, str]] = {
    "experts": "#C15800",
    "attention": "#2E61AE",
    "indexer": "#B8982F",
    "compressor": "#40AD8B",
    "projection": "#19CEFF",
    "hyper_connections": "#9E36F9",
    "engram": "#D862D4",
    "elementwise": "#9AC9AF",
    "ends": "#875455",
    "collective": "#C1C600",
    "waiting": HOST,
}
"""By `aisim_v41.ops.operator.Family`; "waiting" is time in which no operator decides."""
EVIDENCE: Final[Mapping[str, str]] = {
    "measured": "#4259BC",
    "interpolated": "#268CF7",
    "calibrated": "#41C4FF",
    "portable": "#A7A5A9",
    "sibling": "#A1D490",
    "default": "#D1A200",
    "extrapolated": "#C07347",
    "rescaled": "#B72C0E",
    "theoretical": "#7A585C",
    "host": HOST,
}
"""Best first: from blue, measured on this GPU, to red and brown, hardly known."""
PHASES: Final[Mapping[str, str]] = {
    "prefill": "#0072B2",
    "decode": "#D55E00",
    "verify": "#C1C600",
    "mixed": "#CC79A7",
}
METHODS: Final[Mapping[str, str]] = {"sol": "#9AC9AF", "op": "#2E61AE", "fpm": "#C15800"}
MEMORY: Final[Mapping[str, str]] = {
    "weights": FAMILIES["experts"],
    "engram": FAMILIES["engram"],
    "workspace": FAMILIES["indexer"],
    "reserve": NEUTRAL,
    "kv": FAMILIES["attention"],
}
"""By `aisim_v41.memory.terms.Kind`."""
OWNERS: Final = ("#2E61AE", "#D1A200", "#40AD8B", "#9E36F9", "#C15800", "#19CEFF", "#D862D4")
"""KV owners in their order, and any other things that only need to differ; then from the first."""


_BRIGHTNESS = (0.2126, 0.7152, 0.0722)
"""Shares of red, green and blue in the luminance of sRGB (WCAG 2.2)."""


def nth(place: int) -> str:
    """Colour of the thing at a place in a list."""
    return OWNERS[place % len(OWNERS)]


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on a colour."""
    channels = [int(colour[place : place + 2], 16) / 0xFF for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    bright = sum(share * c for share, c in zip(_BRIGHTNESS, linear, strict=True))
    # Equal contrast with both is where (L + .05)^2 = .05 x 1.05.
    return "#000000" if bright > 0.179 else "#ffffff"
