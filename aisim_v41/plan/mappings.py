"""Mappings whose steps are modelled, and what a step may not hold on them.

Which engines refuse a mapping: `aisim_v41.plan.conflicts`. Whether it divides the model:
`aisim_v41.model.sharding.check_mapping`. Source: runtime-semantics §4.3, §4.4.
"""

from __future__ import annotations

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.dealing import RowSplit
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.spans import PREFILL, RequestColumns

MOST_INTERLEAVED = 8
"""Most context-parallel ranks (runtime-semantics §4.4)."""


def check_mapping_is_modelled(parallel: Parallel) -> None:
    """Refuse mappings whose step is not modelled.

    Raises:
        UnsupportedPlanError: a dimension other than tp is above 1.
    """
    if parallel.pp > 1:
        raise UnsupportedPlanError(
            f"Parallel.pp = {parallel.pp}: pipeline stages are not modelled, and no engine runs "
            "them for this model (deployment question 53); use pp=1"
        )
    for name in ("tp", "dp"):
        size = getattr(parallel, name)
        if parallel.cp > 1 and size > 1:
            raise UnsupportedPlanError(
                f"Parallel.cp = {parallel.cp} with {name} = {size}: rows are interleaved over "
                "context-parallel ranks with attention whole on each (runtime-semantics §4.4); use "
                f"{name}=1"
            )
    if parallel.cp > MOST_INTERLEAVED:
        raise UnsupportedPlanError(
            f"Parallel.cp = {parallel.cp}: rows are interleaved over at most {MOST_INTERLEAVED} "
            "ranks of one node (runtime-semantics §4.4)"
        )


def check_split(policy: RuntimePolicy, parallel: Parallel) -> None:
    """Refuse policies whose steps are not modelled where ranks hold different rows.

    Raises:
        UnsupportedPlanError: naming mapping and policy field.
    """
    split = RowSplit.of(parallel)
    if split is None:
        return
    where = f"dp = {parallel.dp}" if split.by == "requests" else f"cp = {parallel.cp}"
    if policy.encoder_replay == "separate":
        raise UnsupportedPlanError(
            f"encoder_replay = 'separate' with {where}: in which order ranks rebuild windows in "
            "forwards of their own is not modelled; use 'folded', or tensor parallelism alone"
        )
    if split.by == "rows" and policy.speculation != "off":
        raise UnsupportedPlanError(
            f"speculation = {policy.speculation!r} with {where}: which rank drafts from rows that "
            "are interleaved is not known of any engine; use speculation='off'"
        )


def check_prompts_of_interleaved(columns: RequestColumns) -> None:
    """Refuse what no request may ask for where rows are interleaved.

    Raises:
        UnsupportedPlanError: prompt log-probabilities, or images.
    """
    for asked, what in (
        (columns.prompt_logprobs, "prompt log-probabilities"),
        (columns.image_tokens, "images"),
    ):
        if asked.any():
            raise UnsupportedPlanError(
                f"{what} with context parallelism: rows of a prompt lie on different ranks, and "
                "which engine serves that is not known; use cp=1"
            )


def check_interleaved(columns: RequestColumns) -> None:
    """Refuse requests whose rows no engine interleaves.

    Raises:
        UnsupportedPlanError: prompt log-probabilities, or prefill beside decoding in one step.
    """
    check_prompts_of_interleaved(columns)
    prefills = columns.kind[(columns.count > 0) & (columns.new + columns.window > 0)] == PREFILL
    if prefills.any() and not prefills.all():
        raise UnsupportedPlanError(
            "a step of prefill and decode rows with context parallelism: the one interleaves rows, "
            "the other divides heads (runtime-semantics §4.4); give them as two steps, or use cp=1"
        )
