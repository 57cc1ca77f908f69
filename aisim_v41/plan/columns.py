"""Which counts there are for one model under one policy, and which layers share them.

Most layers execute alike, so a count needs one column for each part of a layer class that it
depends on, not one for each layer.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from aisim_v41.model.description import Model
from aisim_v41.model.layers import CandidateRole, Layer, LayerKind
from aisim_v41.plan.counts import Count
from aisim_v41.plan.dealing import RowSplit
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.spans import Region


class LayerClass(NamedTuple):
    """Backbone layers whose counts are the same."""

    kind: LayerKind
    ratio: int
    region: Region
    pooled: bool
    """Scores only the candidate pool."""
    exchanged: bool = False
    """Ranks exchange rows before its experts, which see those of others too."""
    interleaved: bool = False
    """Rows of one request lie on different ranks, each of which stores the KV of all."""

    @property
    def scores(self) -> bool:
        """Runs an indexer."""
        return self.kind in (LayerKind.FULL, LayerKind.REINDEX)

    @property
    def owns(self) -> bool:
        """Owns global KV."""
        return self.kind is LayerKind.FULL


class Column(NamedTuple):
    """One row of the count matrix: a count, and the part of a layer class that it depends on."""

    quantity: Count
    region: Region | None = None
    ratio: int = 0
    pooled: bool = False

    def __str__(self) -> str:
        parts = [str(self.quantity)]
        parts += [str(self.region)] if self.region else []
        parts += [f"ratio{self.ratio}"] if self.ratio else []
        return " ".join([*parts, "pool"] if self.pooled else parts)


BY_REGION: Final = frozenset(
    {Count.QUERY_ROWS, Count.WINDOW_PAIRS, Count.WINDOW_ROWS, Count.WINDOW_ROWS_CACHED,
     Count.EXPERTS_TOUCHED, Count.EXPERTS_EXPECTED, Count.ACTIVE}
)  # fmt: skip
BY_REGION_AND_RATIO: Final = frozenset(
    {
        Count.SELECTED_ENTRIES,
        Count.SELECTED_ROWS,
        Count.SELECTED_ROWS_CACHED,
        Count.INDEX_ROWS,
        Count.INDEX_ACTIVE,
    }
)
SCORING: Final = frozenset({Count.SCORED_POSITIONS, Count.INDEX_KEYS, Count.INDEX_KEYS_CACHED})
OWNED: Final = frozenset({Count.COMPRESSED_ROWS, Count.ENTRIES_WRITTEN, Count.COMPRESS_ACTIVE})
ENDS: Final = frozenset({Count.LOGIT_ROWS, Count.HEAD_ACTIVE})
DISTINCT_EXPERTS: Final = (Count.EXPERTS_TOUCHED, Count.EXPERTS_EXPECTED)
OF_REPLICA: Final = {
    Count.REPLICA_ROWS: Count.QUERY_ROWS,
    Count.REPLICA_EXPERTS_TOUCHED: Count.EXPERTS_TOUCHED,
    Count.REPLICA_EXPERTS_EXPECTED: Count.EXPERTS_EXPECTED,
    Count.REPLICA_ACTIVE: Count.ACTIVE,
}
"""Counts over all ranks that exchange rows, and those of the rank itself: the same where none
does."""
OF_KV_ROWS: Final = {
    Count.KV_ROWS: Count.QUERY_ROWS,
    Count.KV_ACTIVE: Count.ACTIVE,
    Count.IMAGE_ROWS: Count.IMAGE_ROWS,
}
"""Counts of rows whose KV is projected, and the columns that hold them."""
STORED: Final = {Count.STORED_ROWS: Count.KV_ROWS, Count.STORED_ACTIVE: Count.KV_ACTIVE}
"""Counts of the rows whose KV a rank stores, and of those that it projects: the same where no rows
of a request lie on other ranks."""
_STORED_IN: Final = {
    Count.STORED_ROWS: Count.STORED_ROWS,
    Count.STORED_ACTIVE: Count.REPLICA_ACTIVE,
}
TAIL_ROWS: Final = frozenset({Count.QUERY_ROWS, *DISTINCT_EXPERTS, Count.ACTIVE})
"""Counts that BOUNDARY shares with LATE: both query with the tail."""


def layer_classes(
    model: Model, policy: RuntimePolicy, split: RowSplit | None = None
) -> tuple[LayerClass, ...]:
    """The class of every layer: its kind, ratio, and what policy and mapping make of it."""
    boundary = model.boundary
    classes = (_layer_class(layer, boundary, policy) for layer in model.layers)
    return tuple(on_ranks(one, split) for one in classes)


def on_ranks(where: LayerClass, split: RowSplit | None) -> LayerClass:
    """A class whose rows are divided over ranks; as it is without a split."""
    if split is None:
        return where
    return where._replace(exchanged=True, interleaved=split.by == "rows")


def _layer_class(layer: Layer, boundary: int | None, policy: RuntimePolicy) -> LayerClass:
    region = Region.FULL
    if policy.decoder_replay and boundary is not None:
        if layer.index > boundary:
            region = Region.LATE
        elif layer.index == boundary and policy.boundary_layer == "kv_only":
            region = Region.BOUNDARY
    user = layer.candidate_role is CandidateRole.USER
    return LayerClass(
        layer.kind, layer.ratio, region, user and policy.reindex_scoring == "candidates"
    )


def has_count(count: Count, where: LayerClass) -> bool:
    """Whether a layer class does work of this kind."""
    if count in OWNED:
        return where.owns
    if count in SCORING or count in (Count.INDEX_ROWS, Count.INDEX_ACTIVE):
        return where.scores
    return where.ratio > 0 or count not in BY_REGION_AND_RATIO


@cache
def column_of(count: Count, where: LayerClass | None) -> Column:
    """The column that ``count`` means in a layer class (None: outside the layers).

    Raises:
        ValueError: the count has no meaning there.
    """
    if count in ENDS:
        return Column(count)
    if count is Count.TOKENS:
        return Column(Count.QUERY_ROWS, Region.FULL)
    if where is None or not has_count(count, where):
        raise ValueError(f"{count} has no meaning in {where}")
    if count in OF_REPLICA:
        own = column_of(OF_REPLICA[count], where)
        return own._replace(quantity=count) if where.exchanged else own
    if count in STORED:
        own = column_of(STORED[count], where)
        if where.interleaved:
            return own._replace(quantity=_STORED_IN[count])
        return own
    if count in OF_KV_ROWS:
        # The boundary layer writes KV for every row, whatever it queries.
        region = Region.FULL if where.region is Region.BOUNDARY else where.region
        return Column(OF_KV_ROWS[count], region)
    if count in BY_REGION:
        tail = where.region is Region.BOUNDARY and count in TAIL_ROWS
        return Column(count, Region.LATE if tail else where.region)
    if count in BY_REGION_AND_RATIO:
        return Column(count, where.region, where.ratio)
    if count in SCORING:
        return Column(count, where.region, where.ratio, where.pooled)
    return Column(count, None, where.ratio)


BOUNDS: Final = frozenset(
    {Count.WINDOW_ROWS_CACHED, Count.SELECTED_ROWS_CACHED, Count.INDEX_KEYS_CACHED}
)
"""Counts that are lower bounds: negative means none."""

ACTIVITY: Final = {
    Count.ACTIVE: Count.QUERY_ROWS,
    Count.HEAD_ACTIVE: Count.LOGIT_ROWS,
    Count.INDEX_ACTIVE: Count.INDEX_ROWS,
    Count.COMPRESS_ACTIVE: Count.COMPRESSED_ROWS,
}
"""0/1 counts, and the rows that make them 1."""

COUNTED: Final = tuple(
    count
    for count in Count
    if count not in ACTIVITY
    and count not in DISTINCT_EXPERTS
    and count not in OF_REPLICA
    and count not in STORED
)
"""Counts that add over requests; the rest are derived from a step's totals."""


def all_columns(classes: tuple[LayerClass, ...]) -> tuple[Column, ...]:
    """Every column that some layer class needs, those that add over requests first."""
    additive: dict[Column, None] = {Column(Count.LOGIT_ROWS): None}
    derived: dict[Column, None] = {}
    for cls in sorted(set(classes)):
        for count in Count:
            if count not in (*ENDS, *OF_REPLICA, *STORED) and has_count(count, cls):
                column = column_of(count, cls)
                kind = additive if column.quantity in COUNTED else derived
                kind[column] = None
    for column in tuple(additive):
        if column.quantity is Count.QUERY_ROWS:
            additive[column._replace(quantity=Count.IMAGE_ROWS)] = None
            for distinct in DISTINCT_EXPERTS:
                derived[column._replace(quantity=distinct)] = None
        for activity, rows in ACTIVITY.items():
            if column.quantity is rows:
                derived[column._replace(quantity=activity)] = None
    return (*sorted(additive, key=_order), *sorted(derived, key=_order))


def _order(column: Column) -> tuple[bool, int, int, int]:
    """Columns of a kind side by side, regions in order: programs address them as slices."""
    place = _COUNTS.index(column.quantity)
    region = _REGIONS.index(column.region or Region.FULL)
    return (column.quantity in BOUNDS, place, region, column.ratio)


_PAIRED: Final = (*ACTIVITY.values(), *ACTIVITY)
_COUNTS: Final = (
    *ACTIVITY.values(),
    *(count for count in Count if count not in _PAIRED),
    *ACTIVITY,
)
_REGIONS: Final = tuple(Region)
