"""The text backbone as one series-parallel graph of tasks, in the order of the model.

A layer is an attention site and an expert site; each site reads the residual streams, runs its
sub-layer and expands the output back. Streams are expanded at the end of one site and read at the
start of the next, which is where fusion profiles reach across layers; an Engram module or a change
of rows (the replay cut) breaks that.

Dependencies that a series-parallel graph cannot express are dropped, never added, so that the
graph's critical path stays a lower bound: index scoring is not made to wait for the step's own new
keys, and Engram look-ups run beside everything (docs/assumptions.md, "Graph").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from aisim_v41.model.layers import CandidateRole, Layer
from aisim_v41.model.sharding import Placement
from aisim_v41.model.tensor import Tensor
from aisim_v41.ops import attention, compressor, ends, engram, exchange, experts, hyper, indexer
from aisim_v41.ops.collectives import (
    all_reduce_rows,
    combine_rows,
    dispatch_rows,
    gather_expert_rows,
)
from aisim_v41.ops.fusion import Fusion
from aisim_v41.ops.graph import Fed, Node, fed, par, seq
from aisim_v41.ops.operator import Operator, Task, place, reread
from aisim_v41.ops.rank import Rank
from aisim_v41.plan.columns import LayerClass
from aisim_v41.plan.counting import LedgerProgram
from aisim_v41.plan.counts import Count
from aisim_v41.plan.spans import Region

_Put = Callable[[Operator | None], Task | None]


@dataclass(frozen=True, slots=True)
class Step:
    """Part of the chain through the layers: a node and the layer it belongs to (-1: before).

    The number of layers stands for what comes after them; draft blocks follow that
    (`aisim_v41.plan.draft.block_layer`).
    """

    layer: int
    node: Node


@dataclass(frozen=True, slots=True, eq=False)
class Backbone:
    """The graph of a forward: a chain of steps, Engram work that may run beside it, and the draft
    pass that follows; and the rows that Engram work waits for, where they come from elsewhere."""

    chain: tuple[Step, ...]
    beside: tuple[Step, ...]
    draft: tuple[Step, ...] = ()
    fetches: tuple[Step, ...] = ()
    prefetch: str = "step"
    """From when rows are fetched (policy field ``engram_prefetch``)."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every part of the forward."""
        return (*self.chain, *self.beside, *self.draft, *self.fetches)

    @property
    def target(self) -> Node:
        """The forward of the model itself."""
        if self.fetches and self.prefetch != "none":
            return self._fed()
        first = [step.node for step in self.fetches]
        main = seq(*(step.node for step in self.chain))
        beside = seq(*(step.node for step in self.beside)) if self.beside else None
        return seq(*first, par(main, beside))

    def _fed(self) -> Fed:
        """The chain in segments, each of which starts where a module needs its rows.

        Rows fetched for the next step gate the end of this one.
        """
        modules = [step.layer for step in self.fetches]
        segments = [*(seq(*(step.node for step in part)) for part in self.segments()), seq()]
        before: list[Node | None] = [None] * len(segments)
        for number, layer in enumerate(modules, 1):
            before[number] = seq(*(step.node for step in self.beside if step.layer == layer))
        late = self.prefetch == "previous"
        gates = [len(modules) + 1 if late else number + 1 for number in range(len(modules))]
        return fed(segments, before, [step.node for step in self.fetches], gates)

    def segments(self) -> tuple[tuple[Step, ...], ...]:
        """The chain cut where modules need rows from elsewhere."""
        starts = [
            next(place for place, step in enumerate(self.chain) if step.layer >= module.layer)
            for module in self.fetches
        ]
        return tuple(self.chain[a:b] for a, b in pairwise([0, *starts, len(self.chain)]))

    @property
    def drafting(self) -> Node | None:
        """The draft pass; None where steps do not speculate."""
        return seq(*(step.node for step in self.draft)) if self.draft else None

    @property
    def graph(self) -> Node:
        """The whole graph."""
        return whole(self.target, self.drafting)


def whole(target: Node, drafting: Node | None) -> Node:
    """A forward from its parts, one after the other."""
    return target if drafting is None else seq(target, drafting)


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Placed tasks of one layer, made once for all layers that look alike."""

    statistics: Mapping[str, Task]
    read: Mapping[str, tuple[Task, ...]]
    """Collapse, norm and conversion of each site."""
    attention: Node
    attention_out: Task | None
    experts: Node
    experts_out: Task | None
    expand: Mapping[str, Task]
    needed: Mapping[str, frozenset[str]]
    """Tensors of each site's reading that more than the next kernel reads."""


@dataclass(slots=True)
class GraphBuilder:
    """Nodes of layers and of what is around them, tasks of layers that look alike made once."""

    rank: Rank
    program: LedgerProgram
    fusion: Fusion
    parts: dict[tuple[object, ...], _Parts] = field(default_factory=dict)
    steps: dict[tuple[int, ...], tuple[Node, ...]] = field(default_factory=dict)

    def build(self) -> Backbone:
        """The target: embedding, layers, head."""
        model = self.rank.model
        outside = self.rank.ends()
        first = self.place_all(
            self.program.classes[0],
            ends.embedding(self.rank, outside),
            ends.all_reduce_embedding(self.rank),
            ends.stream_copy(self.rank),
        )
        chain = [Step(-1, node) for node in self.fusion.chain(*first)]
        beside: list[Step] = []
        fetches: list[Step] = []
        pending: tuple[Task, ...] = ()  # all-reduce and expansion that the next site may absorb
        for layer in model.layers:
            cls = self.program.classes[layer.index]
            if layer.engram_module is not None:
                chain += [Step(layer.index - 1, n) for n in self._chain(pending)]
                pending = ()
                off_path, gate = self._engram(layer, cls)
                fetched = engram.engram_fetch(self.rank, self.rank.layer(layer))
                fetches += [Step(layer.index, task) for task in self.place_all(cls, fetched)]
                beside += [Step(layer.index, node) for node in off_path]
                chain.append(Step(layer.index, gate))
            nodes, left = self.layer(layer, cls, pending, self.rank.layer)
            of_before = _leading(nodes, pending)
            chain += [Step(layer.index - 1, node) for node in nodes[:of_before]]
            chain += [Step(layer.index, node) for node in nodes[of_before:]]
            pending = left
        last = len(model.layers) - 1
        chain += [Step(last, node) for node in self._chain(pending)]
        final = self.place_all(
            None,
            ends.head_collapse(self.rank),
            ends.final_norm(self.rank, outside),
            ends.output_head(outside),
            ends.gather_logits(self.rank),
        )
        chain += [Step(last + 1, node) for node in self.fusion.chain(*final)]
        return Backbone(
            tuple(chain), tuple(beside), (), tuple(fetches), self.rank.policy.engram_prefetch
        )

    def layer(
        self,
        layer: Layer,
        cls: LayerClass,
        pending: tuple[Task, ...],
        weights_of: Callable[[Layer], Mapping[str, Tensor]],
    ) -> tuple[tuple[Node, ...], tuple[Task, ...]]:
        """Nodes of a layer, and what it leaves to the next site.

        Args:
            layer: what it is.
            cls: its counts.
            pending: what the layer before left.
            weights_of: local tensors by role.
        """
        parts = self._parts_of(layer, cls, weights_of)
        key = (id(parts), *(id(task) for task in pending))
        after = _existing(parts.experts_out, parts.expand["ffn"])
        if key not in self.steps:
            between = _existing(parts.attention_out, parts.expand["attn"])
            self.steps[key] = (
                *self._site(pending, parts, "attn", parts.attention),
                *self._site(between, parts, "ffn", parts.experts),
            )
        return self.steps[key], after

    def _site(
        self, pending: tuple[Task, ...], parts: _Parts, site: str, body: Node
    ) -> tuple[Node, ...]:
        """Expansion of the site before, reading of the streams, and the sub-layer.

        Where the profile makes the coefficients in the same pass, they come first; otherwise they
        run beside the sub-layer, since only its expansion needs them.
        """
        statistics, read = parts.statistics[site], parts.read[site]
        needed = parts.needed[site]
        same_rows = statistics.rows == read[0].rows
        if same_rows and self.fusion.together("mhc_statistics", "mhc_collapse"):
            return (*self.fusion.chain(*pending, statistics, *read, needed=needed), body)
        kernels = self.fusion.chain(*pending, *read, needed=needed)
        # The coefficients need the expanded streams, whichever kernel writes them.
        expanded = [
            place for place, kernel in enumerate(kernels) if "mhc_expand" in kernel.replaces
        ]
        split = expanded[-1] + 1 if expanded else 0
        return (*kernels[:split], par(statistics, seq(*kernels[split:], body)))

    def _chain(self, tasks: tuple[Task, ...]) -> list[Task]:
        return self.fusion.chain(*tasks)

    def _parts_of(
        self, layer: Layer, cls: LayerClass, weights_of: Callable[[Layer], Mapping[str, Tensor]]
    ) -> _Parts:
        key = (cls, layer.candidate_role is CandidateRole.SOURCE)
        if key not in self.parts:
            self.parts[key] = self._make_parts(layer, cls, weights_of(layer))
        return self.parts[key]

    def _make_parts(self, layer: Layer, cls: LayerClass, weights: Mapping[str, Tensor]) -> _Parts:
        rank = self.rank

        def put(operator: Operator | None) -> Task | None:
            return None if operator is None else place(operator, cls)

        def must(operator: Operator) -> Task:
            return place(operator, cls)

        rows = {"attn": Count.KV_ROWS, "ffn": Count.QUERY_ROWS}
        mixture, experts_out = self._experts(weights, put)
        return _Parts(
            statistics={s: must(hyper.statistics(rank, weights, s)) for s in hyper.SITES},
            read={
                s: (
                    must(hyper.collapse(rank, rows[s])),
                    must(hyper.site_norm(rank, weights, s, rows[s])),
                    must(hyper.site_quantise(rank, rows[s])),
                )
                for s in hyper.SITES
            },
            attention=self._attention(layer, weights, put, kept=cls.region is not Region.DRAFT),
            attention_out=put(all_reduce_rows(rank, "attention")),
            experts=mixture,
            experts_out=experts_out,
            expand={s: must(hyper.expand(rank)) for s in hyper.SITES},
            # The router, the compressor and the index weights read the rows before conversion.
            needed={
                "attn": frozenset({"normed"} if layer.runs_indexer else ()),
                "ffn": frozenset({"normed"}),
            },
        )

    def _experts(self, weights: Mapping[str, Tensor], put: _Put) -> tuple[Node, Task | None]:
        """The mixture of experts, and the collective that ends it where one follows."""
        rank = self.rank
        router = self.fusion.sequence(
            put(experts.router_gate(rank, weights)), put(experts.router_select(rank, weights))
        )
        routed = put(experts.routed_experts(rank, weights))
        shared = put(experts.shared_expert(rank, weights))
        if rank.exchanges:
            sent = seq(router, put(dispatch_rows(rank)), routed, put(combine_rows(rank)))
            return par(sent, shared), put(gather_expert_rows(rank))
        all_reduce = put(all_reduce_rows(rank, "experts"))
        mixed = seq(
            put(exchange.gather_rows(rank)), router, routed, put(exchange.return_rows(rank))
        )
        # A whole shared expert is added after the sum, beside it (runtime-semantics §4.1).
        if rank.policy.sharding.shared_expert is Placement.REPLICATED:
            return par(seq(mixed, all_reduce), shared), None
        return par(mixed, shared), all_reduce

    def _attention(
        self, layer: Layer, weights: Mapping[str, Tensor], put: _Put, *, kept: bool
    ) -> Node:
        rank, chain = self.rank, self.fusion.sequence
        q_down = chain(put(attention.query_down(weights)), put(attention.query_norm(rank, weights)))
        q_up = chain(put(attention.query_up(weights)), put(attention.query_rotate(rank)))
        latent, store = attention.kv_down(weights), attention.kv_store(rank, weights, kept=kept)
        if not kept:  # the context rows of the same block have run through these weights
            latent, store = reread(latent), reread(store)
        gathered = put(exchange.gather_latents(rank))
        kv = seq(put(latent), gathered, put(store)) if gathered else chain(put(latent), put(store))
        queries: Node = seq(q_down, q_up)
        head_weights = new_entries = None
        if layer.runs_indexer:
            select = seq(
                chain(put(indexer.index_query(weights)), put(indexer.index_query_rotate(weights))),
                chain(
                    put(indexer.index_score(rank, weights, layer.kind)),
                    put(indexer.all_reduce_scores(rank)),
                    put(indexer.index_select(rank)),
                    put(indexer.candidate_pool(rank, layer.candidate_role)),
                ),
            )
            queries = seq(q_down, par(q_up, select))
            head_weights = put(indexer.index_weights(weights))
        if layer.owns_kv:
            stored = chain(
                put(compressor.compress_pool(rank, weights)), put(compressor.main_store(rank))
            )
            key = chain(
                put(compressor.index_key(weights)), put(compressor.index_key_store(rank, weights))
            )
            new_entries = seq(
                put(exchange.gather_inputs(rank)),
                put(compressor.compress_project(weights)),
                stored,
                key,
            )
        return seq(
            par(queries, kv, head_weights, new_entries),
            put(attention.sparse_attention(rank, weights, layer.kind, kept=kept)),
            chain(
                put(attention.inverse_rotate(rank, weights)),
                put(attention.output_down(rank, weights)),
            ),
            put(attention.output_up(weights)),
        )

    def _engram(self, layer: Layer, cls: LayerClass) -> tuple[list[Task], Task]:
        """Work that depends on token ids alone, and the gate that waits for the streams."""
        weights = self.rank.layer(layer)
        beside = self.place_all(
            cls,
            engram.engram_lookup(self.rank, weights),
            engram.all_reduce_engram(self.rank),
            engram.engram_project(weights),
        )
        return self.fusion.chain(*beside), place(engram.engram_gate(self.rank, weights), cls)

    @staticmethod
    def place_all(cls: LayerClass | None, *operators: Operator | None) -> list[Task]:
        """Operators in one layer class, those that there are."""
        return [place(operator, cls) for operator in operators if operator is not None]


def _leading(nodes: tuple[Node, ...], pending: tuple[Task, ...]) -> int:
    """How many of the first nodes do nothing but what the layer before left."""
    names = {name for task in pending for name in task.replaces}
    for count, node in enumerate(nodes):
        if not (isinstance(node, Task) and names.issuperset(node.replaces)):
            return count
    return len(nodes)


def _existing(*tasks: Task | None) -> tuple[Task, ...]:
    return tuple(task for task in tasks if task is not None)


def backbone(rank: Rank, program: LedgerProgram, fusion: Fusion | None = None) -> Backbone:
    """The graph of one forward of one rank.

    Args:
        rank: what a rank holds and how it computes.
        program: the ledger whose columns the tasks refer to.
        fusion: kernels; those of the policy's profile if not given.
    """
    return GraphBuilder(rank, program, fusion or Fusion(rank.policy.fusion)).build()
