"""Accept lengths that others published for this model, as acceptance.

A published length is one mean over all positions. `PublishedLength.acceptance` takes acceptance to
be the same at each, which it need not be (docs/assumptions.md, "Acceptance").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from aisim_v41.speculation.acceptance import Acceptance


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLength:
    """A published accept length.

    Args:
        accept_length: mean tokens a step, the target's own included [tokens].
        drafts: drafted tokens of its steps [tokens].
        source: where it is published, and of what.
    """

    accept_length: float
    drafts: int
    source: str

    def acceptance(self) -> Acceptance:
        """The constant conditional acceptance that gives it.

        Example:
            >>> round(PUBLISHED["gsm8k"].acceptance().by_position[0], 4)
            0.6807
        """
        return Acceptance.of_accept_length(self.accept_length, self.drafts)


PUBLISHED: Final[Mapping[str, PublishedLength]] = MappingProxyType(
    {
        "gsm8k": PublishedLength(
            accept_length=2.82,
            drafts=5,
            source="vllm-project/vllm issue 56797: GSM8K, 16x H20, block verification",
        ),
        "benchmark": PublishedLength(
            accept_length=3.51,
            drafts=5,
            source="golden acceptance length of SemiAnalysisAI/InferenceX: SPEED-Bench coding, "
            "thinking on, vLLM with block verification on B300 (golden_al_distribution/README.md); "
            "benchmarks simulate it. Of random token ids on 4 x MI355X too, with 3.77 and 4.25 at "
            "other loads: kkHuang-amd/claude-skills dsv41/VLLM_COMPARE.md",
        ),
        "mixed": PublishedLength(
            accept_length=3.57,
            drafts=5,
            source="mixed content, from a summary of public measurements whose own source is not "
            "kept; five drafts a step are assumed, as many as the drafter has positions",
        ),
    }
)
"""By name."""
