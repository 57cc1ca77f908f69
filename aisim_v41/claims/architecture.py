"""Claims on layers, heads and widths: what the model description and the ledger say.

Source of the figures: technical report arXiv 2609.19969 §2.1, §2.3, §4.2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aisim_v41.claims.context import SHORT_CONTEXT, Context, Formula, decode
from aisim_v41.claims.work import paper
from aisim_v41.model.layers import CandidateRole, Layer, LayerKind
from aisim_v41.plan.counts import Count

EXAMPLE_LAYER = 29
"""The layer that the fact sheet takes as its example: owner and producer differ."""


def _count(predicate: Callable[[Layer], bool]) -> Formula:
    """Backbone layers for which something holds."""
    return lambda context: sum(predicate(layer) for layer in context.model.layers)


def _of_kind(kind: LayerKind) -> Formula:
    return lambda context: context.model.count(kind)


def reuse_layers_by_group(context: Context) -> int:
    """Layers that run neither compressor nor indexer but have global KV."""
    return sum(layer.ratio > 0 and not layer.runs_indexer for layer in context.model.layers)


def max_attended_rows(context: Context) -> int:
    """Rows that one query of a Reuse layer attends to at full context, from the ledger."""
    counted = context.ledger(decode(context.max_context), policy=paper(context))
    reuse = next(x.index for x in context.model.layers if x.kind is LayerKind.REUSE)
    return counted.total(Count.WINDOW_PAIRS, reuse) + counted.total(Count.SELECTED_ENTRIES, reuse)


def index_sources_per_kv_source(context: Context) -> float:
    """Layers that select, over layers that store keys."""
    layers = context.model.layers
    return sum(x.runs_indexer for x in layers) / sum(x.owns_kv for x in layers)


def decoder_owners(context: Context) -> int:
    """KV owners among the layers that do not compress along the sequence."""
    return sum(layer.owns_kv and layer.ratio == 1 for layer in context.model.layers)


def first_proper_subset(context: Context) -> int:
    """Shortest context whose candidate pool leaves something out, searched in the ledger."""
    layers, policy = context.model.layers, paper(context)
    source = next(x.index for x in layers if x.candidate_role is CandidateRole.SOURCE)
    user = next(x.index for x in layers if x.candidate_role is CandidateRole.USER)

    def leaves_out(length: int) -> bool:
        counted = context.ledger(decode(length), policy=policy)
        scored = counted.total(Count.SCORED_POSITIONS, user)
        return scored < counted.total(Count.SCORED_POSITIONS, source)

    low, high = 1, context.max_context  # the pool is whole at low, not at high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if leaves_out(middle) else (middle, high)
    return high


def entries_after_one_token(context: Context) -> int:
    """Entries that the ratio-2 owners write for a prompt of one token."""
    counted = context.ledger(decode(1), policy=paper(context))
    owners = (x.index for x in context.model.kv_owners if x.ratio > 1)
    return sum(counted.total(Count.ENTRIES_WRITTEN, owner) for owner in owners)


def owner_and_selection(context: Context) -> tuple[int, int]:
    """Whose entries and whose selection layer 29 follows."""
    layer = context.model.layers[EXAMPLE_LAYER]
    owner, producer = layer.kv_owner, layer.selection_producer
    return (-1 if owner is None else owner, -1 if producer is None else producer)


def native_context(context: Context) -> int:
    """Context before YaRN extends it; the model description keeps only the extended one."""
    scaling = context.text.rope_scaling
    return context.max_context if scaling is None else scaling.original_max_position_embeddings


FORMULAS: Mapping[str, Formula] = {
    "arch-01": lambda c: len(c.model.layers),
    "arch-02": lambda c: c.boundary,
    "arch-03": lambda c: c.model.hidden,
    "arch-04": _of_kind(LayerKind.WINDOW_ONLY),
    "arch-05": _count(lambda layer: layer.ratio == 2),
    "arch-06": _count(lambda layer: layer.ratio == 1),
    "arch-07": _of_kind(LayerKind.FULL),
    "arch-08": _of_kind(LayerKind.REINDEX),
    "arch-09": reuse_layers_by_group,
    "arch-10": lambda c: c.indexer.heads,
    "arch-11": lambda c: c.indexer.head_dim,
    "arch-12": lambda c: c.indexer.top_k,
    "arch-13": lambda c: c.model.attention.heads,
    "arch-14": lambda c: c.model.attention.head_dim,
    "arch-15": lambda c: c.model.attention.q_rank,
    "arch-16": lambda c: c.model.attention.o_groups,
    "arch-17": lambda c: c.model.attention.o_rank,
    "arch-18": lambda c: c.window,
    "arch-19": lambda c: c.model.experts.routed,
    "arch-20": lambda c: c.model.experts.top_k,
    "arch-21": lambda c: c.model.experts.width,
    "arch-22": lambda c: c.model.hyper.streams,
    "arch-23": lambda c: c.model.hyper.sinkhorn_iterations,
    "arch-24": lambda c: c.indexer.candidate_positions,
    "arch-25": lambda c: c.max_context,
    "arch-26": max_attended_rows,
    "arch-27": index_sources_per_kv_source,
    "arch-28": decoder_owners,
    "arch-29": first_proper_subset,
    "arch-30": lambda c: c.config.model_type,
    "arch-kinds": lambda c: tuple(
        c.model.count(kind)
        for kind in (LayerKind.WINDOW_ONLY, LayerKind.FULL, LayerKind.REINDEX, LayerKind.REUSE)
    ),
    "arch-layer-29": owner_and_selection,
    "arch-entries-1": entries_after_one_token,
    "flop-01": lambda c: c.max_context / SHORT_CONTEXT,
    "train-05": native_context,
}
