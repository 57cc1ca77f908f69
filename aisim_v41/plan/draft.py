"""What the DSpark drafter computes in one step: rows it drafts, and context it reads and writes.

A request that decodes or verifies is followed, in the same step, by the draft of its next tokens:
``draft_tokens`` rows through every draft block, without a mask among themselves, each row attending
to all of them and to the last window of context. The context is a ring of each block, filled from
the taps of every row that runs the tapped layers; of a prompt only the last window can stay. The
positions of the tokens follow one another in a Markov chain, a row a request at a time.

Source: model-facts §8, runtime-semantics §9; what is taken as true: docs/assumptions.md,
"Speculation".
"""

from __future__ import annotations

from typing import Final

import numpy as np

from aisim_v41.model.description import Experts, Model
from aisim_v41.model.layers import LayerKind
from aisim_v41.plan import spans
from aisim_v41.plan.columns import DISTINCT_EXPERTS, Column, LayerClass
from aisim_v41.plan.counts import Count
from aisim_v41.plan.expert_load import load_of
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.reach import Floats
from aisim_v41.plan.spans import PREFILL, Region, RequestColumns

BLOCK: Final = LayerClass(LayerKind.WINDOW_ONLY, 0, Region.DRAFT, pooled=False)
"""Class of every draft block: a window-only layer on the drafted rows."""
CONTEXT: Final = LayerClass(LayerKind.WINDOW_ONLY, 0, Region.DRAFT_CONTEXT, pooled=False)
"""The part of a draft block that runs on context rows: their window KV."""
CHAIN: Final = LayerClass(LayerKind.WINDOW_ONLY, 0, Region.DRAFT_CHAIN, pooled=False)
"""One position of the Markov chain."""

REGIONS: Final = (Region.DRAFT, Region.DRAFT_CONTEXT, Region.DRAFT_CHAIN)
ADDITIVE: Final = (
    *(Column(Count.QUERY_ROWS, region) for region in REGIONS),
    Column(Count.WINDOW_PAIRS, Region.DRAFT),
    Column(Count.WINDOW_ROWS, Region.DRAFT),
    Column(Count.WINDOW_ROWS_CACHED, Region.DRAFT),
)
"""Columns that add over requests, in the order of `DraftCounts.of_requests`."""
DERIVED: Final = (
    *(Column(Count.ACTIVE, region) for region in REGIONS),
    *(Column(count, Region.DRAFT) for count in DISTINCT_EXPERTS),
)
"""Columns of a whole step, in the order of `DraftCounts.of_step`."""


def speculates(model: Model, policy: RuntimePolicy) -> bool:
    """Whether steps hold a draft pass."""
    return policy.speculation == "dspark" and model.draft is not None


def experts_of(model: Model, region: Region | None) -> Experts:
    """The experts among which rows of a region choose."""
    return model.draft.experts if region is Region.DRAFT and model.draft else model.experts


def block_layer(model: Model, block: int) -> int:
    """Layer number of a draft block in reports: they follow the head, which follows the layers.

    Example:
        >>> from aisim_v41.model.load import load_model
        >>> block_layer(load_model("deepseek-v4.1-flash"), 0)
        41
    """
    return len(model.layers) + 1 + block


class DraftCounts:
    """Counts of the draft pass of one model under one policy.

    Args:
        model: one with a drafter.
        policy: one that drafts.
    """

    def __init__(self, model: Model, policy: RuntimePolicy) -> None:
        assert model.draft is not None
        self.experts = model.draft.experts
        self.routing = policy.expert_routing
        self.locality = policy.expert_locality
        self.load = load_of(model, policy).among(self.experts)
        self.drafted = float(policy.draft_tokens)
        self.window = float(model.attention.window)
        # Taps exist for rows that run every tapped layer: late ones, where a cut lies before one.
        after_cut = model.boundary is not None and max(model.draft.taps) > model.boundary
        self.tapped = spans.HEAD_START if after_cut else spans.START

    def of_requests(self, requests: RequestColumns, table: Floats) -> Floats:
        """Counts of one request each [additive columns, requests].

        Args:
            requests: columns of requests.
            table: their positions, see `aisim_v41.plan.spans`.
        """
        end, start = table[spans.END], table[spans.START]
        drafts = (requests.kind != PREFILL) & (end > start)
        context = np.minimum(end - table[self.tapped], self.window)
        ring = np.minimum(end - table[spans.FLOOR], self.window) * drafts
        rows = self.drafted * drafts
        cached = np.maximum(ring - context, 0.0)
        return np.stack((rows, context, drafts, rows * self.drafted + self.drafted * ring,
                         ring, cached))  # fmt: skip

    def of_step(self, added: Floats) -> Floats:
        """Activity and distinct experts of a step from its sums, [derived columns, ...].

        Args:
            added: additive columns of the step [additive columns, ...].
        """
        rows = added[: len(REGIONS)]
        active = np.minimum(rows, 1.0)
        return np.concatenate((active, self._experts(rows, active)))

    def _experts(self, rows: Floats, active: Floats) -> Floats:
        """Distinct experts of a draft block, of a bound and expected [2, ...].

        Rows of one request draw as those of a verify step do.
        """
        drafted, _, requests = rows
        if self.routing == "independent":
            touched = self.load.touched(drafted)
            return np.stack((touched, touched))
        expected = requests + (1.0 - self.locality) * (drafted - requests)
        found = self.load.touched(np.stack((requests, expected)))
        if self.routing == "fewest":
            found[0] = active[0] * self.experts.top_k
        return found
