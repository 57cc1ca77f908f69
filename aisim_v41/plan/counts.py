"""Names of what a ledger counts, and linear forms over them.

An operator says how much work it does as ``coefficient x count`` sums; arithmetic on the names
below builds them::

    4 * HEADS * HEAD_DIM * (WINDOW_PAIRS + SELECTED_ENTRIES)

A name means "in the layer where the operator runs"; `aisim_v41.plan.counting` resolves it to a
column of the ledger. docs/nomenclature.md explains each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Number = int | float


@dataclass(frozen=True, slots=True)
class LinearForm:
    """Σ coefficient x count; supports +, and * with a number."""

    terms: Mapping[Count, Number] = field(default_factory=dict)

    def __add__(self, other: LinearForm | Count) -> LinearForm:
        merged = dict(self.terms)
        for count, coefficient in as_form(other).terms.items():
            merged[count] = merged.get(count, 0) + coefficient
        return LinearForm(merged)

    __radd__ = __add__

    def __mul__(self, factor: Number) -> LinearForm:
        return LinearForm({count: value * factor for count, value in self.terms.items()})

    __rmul__ = __mul__

    def __str__(self) -> str:
        return " + ".join(f"{value:g} x {count}" for count, value in self.terms.items()) or "0"


class Count(StrEnum):
    """What can be counted about one layer in one step, summed over requests."""

    QUERY_ROWS = "query_rows"
    """Rows that run the layer's queries, experts and residual streams."""
    KV_ROWS = "kv_rows"
    """Rows whose window KV (and, in an owner, global KV) the layer projects."""
    STORED_ROWS = "stored_rows"
    """Rows whose window KV a rank stores: those of every rank that shares their requests."""
    STORED_ACTIVE = "stored_active"
    """1 if it stores any."""
    WINDOW_PAIRS = "window_pairs"
    """Query-key pairs inside the sliding window."""
    WINDOW_ROWS = "window_rows"
    """Distinct window rows read, those written in this step included."""
    WINDOW_ROWS_CACHED = "window_rows_cached"
    """Of these, the ones written before this step."""
    SELECTED_ENTRIES = "selected_entries"
    """Query-entry pairs of the sparse attention over global KV."""
    SELECTED_ROWS = "selected_rows"
    """Distinct global entries read at least: what the last query selects."""
    SELECTED_ROWS_CACHED = "selected_rows_cached"
    """Entries written before this step that are read whatever is selected."""
    INDEX_ROWS = "index_rows"
    """Rows for which index queries are formed and scored."""
    SCORED_POSITIONS = "scored_positions"
    """Query-key pairs scored by the indexer."""
    INDEX_KEYS = "index_keys"
    """Distinct index keys read at least."""
    INDEX_KEYS_CACHED = "index_keys_cached"
    """Of these, the ones written before this step."""
    COMPRESSED_ROWS = "compressed_rows"
    """Rows that run the compressor of a KV owner."""
    ENTRIES_WRITTEN = "entries_written"
    """Global entries (main KV and index key) that a KV owner writes."""
    EXPERTS_TOUCHED = "experts_touched"
    """Distinct routed experts whose weights a bound reads."""
    EXPERTS_EXPECTED = "experts_expected"
    """Distinct routed experts expected to be read."""
    REPLICA_ROWS = "replica_rows"
    """Rows that the experts of the layer see: of every rank that exchanges rows before them, as
    many as the exchange is filled up to; `QUERY_ROWS` where none does."""
    REPLICA_EXPERTS_TOUCHED = "replica_experts_touched"
    """Distinct routed experts that a bound reads for those rows."""
    REPLICA_EXPERTS_EXPECTED = "replica_experts_expected"
    """Distinct routed experts expected to be read for those rows."""
    REPLICA_ACTIVE = "replica_active"
    """1 if any row runs the layer's experts on any of those ranks."""
    ACTIVE = "active"
    """1 if any row runs the layer's queries, else 0: its weights are read once."""
    KV_ACTIVE = "kv_active"
    """1 if any row runs the layer's KV projection."""
    INDEX_ACTIVE = "index_active"
    """1 if index queries are formed for any row."""
    COMPRESS_ACTIVE = "compress_active"
    """1 if any row runs the compressor."""
    TOKENS = "tokens"
    """Rows that enter the model."""
    IMAGE_ROWS = "image_rows"
    """Rows among `KV_ROWS` that belong to images: they look no Engram rows up, and are routed by a
    bias of their own."""
    LOGIT_ROWS = "logit_rows"
    """Rows that reach the output head."""
    HEAD_ACTIVE = "head_active"
    """1 if any row reaches the output head."""

    def __add__(self, other: LinearForm | Count) -> LinearForm:  # type: ignore[override]
        return as_form(self) + other

    def __mul__(self, factor: Number) -> LinearForm:  # type: ignore[override]
        return LinearForm({self: factor})

    __rmul__ = __mul__  # type: ignore[assignment]


def as_form(value: LinearForm | Count) -> LinearForm:
    """A count as a form with coefficient 1; a form as it is."""
    return value if isinstance(value, LinearForm) else LinearForm({value: 1})
