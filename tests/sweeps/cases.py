"""Spaces that several tests share, and what it means that two frames are the same."""

from __future__ import annotations

from typing import Any

import pandas as pd

RAGGED: dict[str, Any] = {
    "hardware": ["gb300", "h200"],
    "parallel": {"tp": [1, 4]},
    "policy": {"name": "sglang", "decoder_replay": [True, False]},
    "method": ["sol", "op"],
    "requests": {
        "new_tokens": {"log": [1, 9000], "points": 23},
        "prefix_tokens": {"range": [0, 70000], "step": 7000},
        "count": [1, 3, 64],
    },
    "where": "new_tokens * count <= 65536",
}


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """Equal to the last bit."""
    pd.testing.assert_frame_equal(plain(one), plain(other), check_exact=True)


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Texts as objects, whatever dictionaries they came with."""
    texts = frame.select_dtypes("category").columns
    return frame.astype(dict.fromkeys(texts, object)).reset_index(drop=True)
