"""The graph of a whole forward: the target, and the draft pass behind it where steps speculate.

The target samples first, then the draft pass runs: engines capture it as a graph of its own, since
its first row is the token that was just sampled (docs/assumptions.md, "Speculation"). Its tasks
have the names of the backbone's with ``draft_`` before them, so that reports tell the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aisim_v41.model.description import Draft
from aisim_v41.model.layers import CandidateRole, Layer, LayerKind
from aisim_v41.model.tensor import Tensor
from aisim_v41.ops import attention, draft, ends
from aisim_v41.ops.backbone import Backbone, GraphBuilder, Step, backbone
from aisim_v41.ops.fusion import Fusion
from aisim_v41.ops.graph import Node, par, seq
from aisim_v41.ops.operator import Task, place
from aisim_v41.ops.rank import Rank
from aisim_v41.plan.counting import LedgerProgram
from aisim_v41.plan.counts import Count
from aisim_v41.plan.draft import BLOCK, CHAIN, CONTEXT, block_layer, speculates

PREFIX = "draft_"
"""Before the name of every task of the draft pass."""
ROWS = (Count.QUERY_ROWS, Count.ACTIVE)
"""Rows and activity of the drafter's ends; the target has counts of their own for its ends."""


def whole_forward(rank: Rank, program: LedgerProgram, fusion: Fusion | None = None) -> Backbone:
    """The graph of one forward of one rank.

    Args:
        rank: what a rank holds and how it computes.
        program: the ledger whose columns the tasks refer to.
        fusion: kernels of the target and of the draft pass; those of the policy's profile if not
            given.
    """
    fusion = fusion or Fusion(rank.policy.fusion)
    target = backbone(rank, program, fusion)
    drafter = rank.model.draft
    if drafter is None or not speculates(rank.model, rank.policy):
        return target
    sampling = place(draft.sample_target(rank.ends()), None)
    return replace(
        target,
        chain=(*target.chain, Step(len(rank.model.layers), sampling)),
        draft=_DraftPass(rank, program, drafter, fusion).steps(),
    )


@dataclass(slots=True)
class _DraftPass:
    """Builds the draft pass."""

    rank: Rank
    program: LedgerProgram
    drafter: Draft
    fusion: Fusion
    renamed: dict[tuple[int, str], Node] = field(default_factory=dict)
    alive: list[Node] = field(default_factory=list)
    """Nodes known by their id, so that no other gets it."""

    def steps(self) -> tuple[Step, ...]:
        """Parts of the pass, in order."""
        fusion = self.fusion
        # A draft block is a layer of a model with other experts.
        own = replace(self.rank, model=replace(self.rank.model, experts=self.drafter.experts))
        builder = GraphBuilder(own, self.program, fusion)
        weights, outside = self.rank.draft(), self.rank.ends()
        first, last = weights[0], weights[-1]
        model = self.rank.model
        layers = [block_layer(model, block) for block in range(self.drafter.blocks)]
        place_all = builder.place_all

        taps = place_all(CONTEXT, draft.tap(self.rank)) * len(self.drafter.taps)
        context = (
            *taps,
            *place_all(CONTEXT, draft.main_projection(first), draft.main_norm(self.rank, first)),
        )
        found = [Step(layers[0], self._named(node)) for node in context]
        # All blocks have the same shapes, hence the same tasks.
        stored = fusion.chain(
            *place_all(CONTEXT, attention.kv_down(first), attention.kv_store(self.rank, first))
        )
        found += [Step(layer, self._named(node, "context_")) for layer in layers for node in stored]
        rows = place_all(
            BLOCK,
            ends.embedding(self.rank, outside, *ROWS),
            ends.all_reduce_embedding(self.rank, *ROWS),
            ends.stream_copy(self.rank, *ROWS),
        )
        found += [Step(layers[0], self._named(node)) for node in fusion.chain(*rows)]
        pending: tuple[Task, ...] = ()
        for number in layers:
            like = Layer(number, LayerKind.WINDOW_ONLY, 0, None, None, CandidateRole.NONE, None)
            nodes, pending = builder.layer(like, self.program.draft_block, pending, lambda _: first)
            found += [Step(number, self._named(node)) for node in nodes]
        ending: list[Node] = [*fusion.chain(*pending)]
        ending += fusion.chain(
            *place_all(
                BLOCK,
                ends.head_collapse(self.rank, Count.QUERY_ROWS),
                ends.final_norm(self.rank, last, *ROWS),
                draft.shared_head(outside),
            ),
            # The confidence head reads the collapsed rows too.
            needed=frozenset({"mixed"}),
        )
        ending.append(self._tokens(builder, outside, last))
        found += [Step(layers[-1], self._named(node)) for node in ending]
        return tuple(found)

    def _tokens(
        self, builder: GraphBuilder, outside: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> Node:
        """Positions one after another, each a product, a choice and its exchange; confidences
        need the embeddings alone."""
        position = builder.place_all(
            CHAIN,
            draft.markov_embedding(self.rank, weights),
            draft.all_reduce_markov(self.rank, weights),
            draft.markov_head(self.rank, weights),
            draft.sample_draft(outside),
            draft.gather_winners(self.rank),
        )
        (confidences,) = builder.place_all(BLOCK, draft.confidence(self.rank, weights))
        return par(seq(*position * self.rank.policy.draft_tokens), confidences)

    def _named(self, node: Node, part: str = "") -> Node:
        """The node with the names of the draft pass; what occurs again stays one node."""
        key = (id(node), part)
        if key not in self.renamed:
            self.alive.append(node)
            if isinstance(node, Task):
                self.renamed[key] = replace(node, name=f"{PREFIX}{part}{node.name}")
            else:
                members = tuple(self._named(member, part) for member in node.members)
                self.renamed[key] = replace(node, members=members)
        return self.renamed[key]
