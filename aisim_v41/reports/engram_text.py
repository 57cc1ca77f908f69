"""Rows that a text asks for, as text and plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aisim_v41.model.description import Model
from aisim_v41.plan.engram_hash import engram_hash
from aisim_v41.plan.engram_rows import CachedRows, EngramRows, cached_rows, count_rows, row_bytes
from aisim_v41.plan.engram_text import RequestText, chunks
from aisim_v41.reports.columns import columns

STEPS_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCount:
    """Rows of a text, and what a cache of them does.

    Attributes:
        rows: by step and module.
        cache: hits of a cache; None if none was asked for.
        mapped: ids were mapped to the tokenizer's classes.
    """

    rows: EngramRows
    cache: CachedRows | None
    mapped: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        cache = self.cache
        return {
            **self.rows.to_dict(),
            "mapped": self.mapped,
            "cache": None
            if cache is None
            else {
                "capacity": cache.capacity,
                "asked": cache.asked,
                "hits": cache.hits,
                "hit_share": cache.hit_share,
            },
        }

    def text(self) -> str:
        """A few lines and the first steps."""
        rows = self.rows
        shown = rows.modules[: STEPS_SHOWN * len({module.layer for module in rows.modules})]
        head = ["step", "layer", "tokens", "look-ups", "distinct", "share", "new", "collisions"]
        body = [
            [
                str(m.step), str(m.layer), f"{m.tokens:,}", f"{m.lookups:,}", f"{m.distinct:,}",
                f"{m.distinct_share:.3f}", f"{m.new:,}", f"{m.collisions:,}",
            ]
            for m in shown
        ]  # fmt: skip
        left = len(rows.modules) - len(shown)
        ids = "classes of the tokenizer" if self.mapped else "token ids as they are: upper limits"
        lines = [
            f"text: {rows.lookups:,} rows looked up ({ids})",
            f"{rows.distinct_share:.3f} of them distinct within a step, {rows.new_share:.3f} "
            "never asked for before",
            *columns(head, body, 0),
        ]
        if left:
            lines.append(f"and {left} more")
        if self.cache is not None:
            lines.append(
                f"a cache of {self.cache.capacity:,} rows has {self.cache.hit_share:.3f} of what "
                "steps ask of it"
            )
        return "\n".join([*lines, ""])


def count_text(
    model: Model,
    token_ids: Sequence[Sequence[int]],
    *,
    chunk_tokens: int,
    cache_bytes: int | None = None,
    classes: Sequence[int] | None = None,
) -> TextCount:
    """Rows of requests that run side by side, chunk by chunk.

    Args:
        model: with Engram modules.
        token_ids: of each request.
        chunk_tokens: positions of each in a step.
        cache_bytes: size of a cache of rows [B]; None: no cache.
        classes: as for `aisim_v41.plan.engram_hash.engram_hash`.

    Raises:
        InvalidInputError: ids, classes or sizes that cannot be.
    """
    hashing = engram_hash(model, classes=classes)
    steps = chunks([RequestText(token_ids=ids) for ids in token_ids], chunk_tokens)
    return TextCount(
        rows=count_rows(hashing, steps),
        cache=None
        if cache_bytes is None
        else cached_rows(hashing, steps, cache_bytes // row_bytes(model)),
        mapped=classes is not None,
    )
