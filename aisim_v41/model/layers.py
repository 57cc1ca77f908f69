"""What each layer does: its kind, whose KV it reads, whose selection it follows.

Source: technical report arXiv 2609.19969 §2.3, §4.2.1; config fields ``compress_ratios``,
``kv_source_layer_ids``, ``index_source_layer_ids``, ``candidate_source_layer_id``,
``engram_layer_ids`` at revision fb2764a5 (docs/assumptions.md, "Layers").
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LayerKind(StrEnum):
    """How a layer finds the global entries that it attends to (CSA2, report §2.3.1)."""

    WINDOW_ONLY = "window_only"
    """Sliding window alone: ratio 0, no global KV."""
    FULL = "full"
    """Owns compressor, global KV and index keys; scores all of them and selects."""
    REINDEX = "reindex"
    """Scores the owner's index keys anew and selects; owns nothing."""
    REUSE = "reuse"
    """Attends to the owner's entries by the selection of an earlier layer."""


class CandidateRole(StrEnum):
    """Part of a layer in the hierarchical indexer (report §2.3.2)."""

    NONE = "none"
    SOURCE = "source"
    """Publishes the pool of candidate blocks."""
    USER = "user"
    """Scores inside that pool."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One backbone layer."""

    index: int
    kind: LayerKind
    ratio: int
    """Tokens per global entry; 0 where there is none."""
    kv_owner: int | None
    """Layer whose global KV and index keys this one reads."""
    selection_producer: int | None
    """Layer whose top-k list this one follows (itself for FULL and REINDEX)."""
    candidate_role: CandidateRole
    engram_module: int | None
    """Position in ``engram_layer_ids``, or None."""

    @property
    def owns_kv(self) -> bool:
        """Whether it compresses and publishes global entries."""
        return self.kind is LayerKind.FULL

    @property
    def runs_indexer(self) -> bool:
        """Whether it scores index keys and selects."""
        return self.kind in (LayerKind.FULL, LayerKind.REINDEX)


def layer_roles(
    *,
    ratios: tuple[int, ...],
    kv_sources: tuple[int, ...],
    index_sources: tuple[int, ...],
    candidate_source: int | None,
    engram_layers: tuple[int, ...],
) -> tuple[Layer, ...]:
    """Roles of all backbone layers.

    owner(l) is the last KV source at or before l, selection(l) the last index source at or
    before l, both only where the ratio is above 0 (docs/assumptions.md, "Layers"). The inputs
    must already be consistent; `aisim_v41.model.config` checks a file before this is called.
    """

    def last_at_or_before(sources: tuple[int, ...], index: int) -> int | None:
        return max((source for source in sources if source <= index), default=None)

    def role(index: int, ratio: int) -> Layer:
        if ratio == 0:
            kind, owner, producer = LayerKind.WINDOW_ONLY, None, None
        else:
            owner = last_at_or_before(kv_sources, index)
            producer = last_at_or_before(index_sources, index)
            if index in kv_sources:
                kind = LayerKind.FULL
            elif index in index_sources:
                kind = LayerKind.REINDEX
            else:
                kind = LayerKind.REUSE
        pool = CandidateRole.NONE
        if candidate_source is not None and index == candidate_source:
            pool = CandidateRole.SOURCE
        elif kind is LayerKind.REINDEX and owner == candidate_source:
            pool = CandidateRole.USER
        engram = engram_layers.index(index) if index in engram_layers else None
        return Layer(index, kind, ratio, owner, producer, pool, engram)

    return tuple(role(index, ratio) for index, ratio in enumerate(ratios))
