"""Resident weights of one rank as terms: groups, then what kernels and loaders add on top.

Group bytes come from the tensors (`aisim_v41.model.sharding`), nowhere else. Padding of expert
slices and the widening of ``wo_a`` are found by asking for the same rank without them, so that
each is a figure of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from aisim_v41.memory.terms import Kind, Place, Term
from aisim_v41.model.description import Model
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import ShardingRules, StoredAs, check_mapping, local, padded
from aisim_v41.model.tensor import Tensor, TensorGroup
from aisim_v41.model.tensors import all_tensors
from aisim_v41.plan.policy import RuntimePolicy

DRAFT_GROUPS = (TensorGroup.DRAFT, TensorGroup.DRAFT_EXPERTS, TensorGroup.DRAFT_HEADS)
_SOURCE = "tensors of the checkpoint, cut by runtime-semantics §4.1"
_CACHED = 256
"""Distinct (model, mapping, rules) kept; a report and its alternatives ask for about a dozen."""
_MODELS = 16
"""Models whose tensors are kept."""


@lru_cache(maxsize=_CACHED)
def group_bytes(
    model: Model, parallel: Parallel, rules: ShardingRules
) -> Mapping[TensorGroup, int]:
    """Bytes [B] of the fullest rank by group, as `weights_per_rank` counts them.

    Layers are alike, so each distinct tensor is cut once: a report needs a dozen of these sums.

    Raises:
        UnsupportedPlanError: the mapping does not divide the model, draft blocks aside.
    """
    check_mapping(model, parallel, rules, drafts=False)
    found: dict[TensorGroup, int] = {}
    for tensor, count in _distinct(padded(model, parallel, rules)):
        amount = count * local(tensor, parallel, rules).bytes
        found[tensor.group] = found.get(tensor.group, 0) + amount
    return MappingProxyType(found)


@lru_cache(maxsize=_MODELS)
def _distinct(model: Model) -> tuple[tuple[Tensor, int], ...]:
    """Every tensor of the checkpoint that differs in more than its name, and how often it is."""
    counts = Counter(replace(tensor, name=tensor.role) for tensor in all_tensors(model))
    return tuple(counts.items())


def left_out(policy: RuntimePolicy) -> frozenset[TensorGroup]:
    """Groups that the engine does not load."""
    groups: set[TensorGroup] = set()
    if policy.speculation == "off":
        groups.update(DRAFT_GROUPS)
    if not policy.vision_weights:
        groups.add(TensorGroup.VISION)
    return frozenset(groups)


def weight_terms(
    model: Model, parallel: Parallel, policy: RuntimePolicy, *, unified: bool = False
) -> tuple[Term, ...]:
    """Everything that stays loaded on one GPU.

    Args:
        model: From `load_model`.
        parallel: Ranks per dimension.
        policy: Sharding rules, residency of the tables, and what is loaded at all.
        unified: CPU and GPU share one memory, so that tables "on the host" are here too.
    """
    rules = policy.sharding
    check_mapping(model, parallel, rules, drafts=policy.speculation != "off")
    unpadded = replace(rules, expert_slice_multiple=1)
    plain = group_bytes(model, parallel, replace(unpadded, wo_a=StoredAs.CHECKPOINT))
    widened = group_bytes(model, parallel, unpadded)
    loaded = group_bytes(model, parallel, rules)
    skipped = left_out(policy)
    groups = [g for g in plain if g not in skipped and g is not TensorGroup.ENGRAM_TABLE]
    terms = [
        Term(
            name=group.value.replace("_", " "),
            kind=Kind.WEIGHTS,
            bytes=plain[group],
            formula=f"{_mapping(parallel)}: fullest rank",
            source=_SOURCE,
        )
        for group in groups
    ]
    widening = sum(widened[g] - plain[g] for g in groups)
    if widening:
        terms.append(
            Term(
                name="wo_a widened to BF16",
                kind=Kind.WEIGHTS,
                bytes=widening,
                formula="BF16 minus FP8 with scales, every block",
                source="model-facts §12.4; policy field wo_a",
            )
        )
    padding = sum(loaded[g] - widened[g] for g in groups)
    if padding:
        terms.append(_padding(model, parallel, rules, padding))
    tables = _tables(plain, parallel, policy, unified=unified)
    return (*terms, *tables)


def _tables(
    plain: Mapping[TensorGroup, int], parallel: Parallel, policy: RuntimePolicy, *, unified: bool
) -> tuple[Term, ...]:
    amount = plain.get(TensorGroup.ENGRAM_TABLE, 0)
    here = policy.engram_residency == "hbm" or (unified and policy.engram_residency != "disk")
    if not amount or not here:
        return ()
    ranks = "all ranks" if policy.sharding.engram_table == "all" else f"tp = {parallel.tp}"
    return (
        Term(
            name="Engram tables",
            kind=Kind.ENGRAM,
            bytes=amount,
            formula=f"rows / {ranks}, values and scales"
            + ("; CPU and GPU share this memory" if unified else ""),
            source="model-facts §4.6; policy field engram_residency",
            place=Place.GPU,
        ),
    )


def _padding(model: Model, parallel: Parallel, rules: ShardingRules, amount: int) -> Term:
    share = model.experts.width // parallel.expert_slices
    multiple = rules.expert_slice_multiple
    padded = -(-share // multiple) * multiple
    return Term(
        name="padding of expert slices",
        kind=Kind.WEIGHTS,
        bytes=amount,
        formula=f"{share} -> {padded} of {model.experts.width} values an expert",
        source="runtime-semantics §4.1; policy field expert_slice_multiple",
    )


def _mapping(parallel: Parallel) -> str:
    shown = [f"tp {parallel.tp}"]
    for name in ("ep", "dp", "cp"):
        if getattr(parallel, name) > 1:
            shown.append(f"{name} {getattr(parallel, name)}")
    return ", ".join(shown)
