"""Cached rows: their formats, their bytes, and the rows that make up an engine's layout.

Source: runtime-semantics §6.1, model-facts §5; the library builds the same bytes from its formats
(`aisim_v41.model.cache_rows`), and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LATENT = 512
"""Values of a latent: key and value of every head."""
ROTATED = 64
"""Of these, the last ones that rotate; of an index key too."""
KEY = 128
"""Values of an index key."""
WINDOW = 128
"""Newest rows that every query attends to."""
SELECTED = 512
"""Entries that a query selects at most."""
INDEX_HEADS = 32

BF16_BYTES = 2
FP32_BYTES = 4
INT32_BYTES = 4
INT64_BYTES = 8

ROW_BYTES: Mapping[str, int] = MappingProxyType(
    {"nvfp4": 288, "mxfp8": 528, "packed": 584, "fp8": 512, "bf16": 1024, "none": 0}
)
"""Bytes [B] of a row of 512 values by format: values, then scales. ``packed`` is DeepSeek-V4's:
448 values of 8 bits, 64 in BF16, 7 scales, 1 of padding."""
KEY_BYTES: Mapping[str, int] = MappingProxyType({"fp4": 68, "fp8": 132})
"""Bytes [B] of an index key: with a scale byte per 32, or one FP32 scale."""
QUERY_BYTES: Mapping[str, int] = MappingProxyType({"fp4": 68, "fp8": 128})
"""Bytes [B] of one head's index query; the scale of an 8-bit one is in the head's weight."""

MAIN: Mapping[str, str] = MappingProxyType(
    {"bytes288": "nvfp4", "bytes528": "mxfp8", "bytes584": "packed", "bytes512": "fp8",
     "bytes1024": "bf16"}
)  # fmt: skip
"""Format of main rows, by the bytes that one takes."""
WINDOW_BESIDE: Mapping[str, str] = MappingProxyType({**MAIN, "bytes288": "mxfp8"})
"""Format of window rows in the layout with such main rows."""
WINDOW_ROWS: tuple[str, ...] = tuple(name for name in MAIN if name != "bytes288")
