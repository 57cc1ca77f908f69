"""A model whose tables are so short that n-grams collide, and texts for it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from aisim_v41.model.load import load_model
from aisim_v41.plan.engram_text import RequestText

from .engram import primes_from

MODEL = load_model("deepseek-v4.1-flash")
SMALL = replace(
    MODEL,
    vocab=30,
    engram=replace(
        MODEL.engram,
        rows=(sum(primes_from(11, 6)), sum(primes_from(11, 12)[6:])),
        heads=2,
        compressed_vocab=20,
        primes_from=11,
    ),
)
CLASSES = [item * 7 % 20 for item in range(30)]
"""Some ids share a class."""


@st.composite
def texts(draw):
    """A text with images, of which a part is computed."""
    ids = draw(st.lists(st.integers(0, 29), min_size=1, max_size=14))
    edges = draw(st.lists(st.integers(0, len(ids)), max_size=4).map(sorted))
    start = draw(st.integers(0, len(ids)))
    return RequestText(
        token_ids=ids,
        images=tuple(zip(edges[::2], edges[1::2], strict=False)),
        start=start,
        stop=draw(st.integers(start, len(ids))),
    )
