"""What one rank of a mapping works with: its share of the weights, heads and cache rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.model.cache_rows import CacheRows, cache_rows
from aisim_v41.model.description import Model
from aisim_v41.model.layers import Layer
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import TableRanks, local, padded
from aisim_v41.model.tensor import Tensor
from aisim_v41.model.tensors import draft_tensors, global_tensors, layer_tensors
from aisim_v41.plan.counts import Count
from aisim_v41.plan.expert_groups import Scatter
from aisim_v41.plan.policy import RuntimePolicy

BF16_BYTES = 2
FP32_BYTES = 4
FP8_BYTES = 1 + 1 / 32
"""One FP8 activation with its share of a scale byte per 32 (config ``activation_scheme``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One rank's view of the model, and the precision in which it computes."""

    model: Model
    parallel: Parallel
    policy: RuntimePolicy
    rows: CacheRows
    index_arithmetic: Arithmetic
    distinct_experts: Count = Count.REPLICA_EXPERTS_TOUCHED
    """Which count of distinct experts their weights follow."""

    @property
    def tp(self) -> int:
        """Tensor-parallel ranks."""
        return self.parallel.tp

    @property
    def exchanges(self) -> bool:
        """Rows are sent to the ranks of their experts and back."""
        return self.parallel.ep > 1 and self.policy.expert_exchange == "all_to_all"

    @property
    def held_experts(self) -> int:
        """Routed experts of a layer, copies counted, over all ranks."""
        return self.model.experts.routed + self.policy.sharding.redundant_experts

    @property
    def scatter(self) -> Scatter:
        """How rows spread over the ranks of their experts: those of a bound, or as expected."""
        bound = self.distinct_experts is Count.REPLICA_EXPERTS_TOUCHED
        fewest = bound and self.policy.expert_routing == "fewest"
        return Scatter(self.held_experts, self.model.experts.top_k, fewest)

    @property
    def rows_reaching(self) -> float:
        """Share of all rows that have an expert in one group of ranks [1]."""
        ep = self.parallel.ep
        return self.scatter.reached(ep) / ep if ep > 1 else 1.0

    @property
    def exchanging(self) -> int:
        """Ranks with rows of their own, which exchange them before the experts."""
        return self.parallel.dp * self.parallel.cp

    @property
    def vocabulary_ranks(self) -> int:
        """Ranks that divide the output head: context-parallel ones do as tensor-parallel ones."""
        return self.parallel.tp * self.parallel.cp

    @property
    def table_ranks(self) -> int:
        """Ranks over which the rows of an Engram table are divided."""
        over_all = self.policy.sharding.engram_table is TableRanks.ALL
        return self.parallel.expert_ranks if over_all else self.tp

    @property
    def expert_arithmetic(self) -> Arithmetic:
        """In which routed experts multiply."""
        return expert_arithmetic(self.model, self.policy)

    @property
    def expert_input_bytes(self) -> float:
        """Bytes [B] of one value that routed experts read."""
        given = self.model.formats.roles.expert_activations
        return FP8_BYTES if given is None else given.value_bytes

    @property
    def own_heads(self) -> int:
        """Query heads of this rank."""
        return self.model.attention.heads // self.tp

    @property
    def heads(self) -> int:
        """The same, padded as the attention kernel pads them."""
        multiple = self.policy.attention_head_multiple
        return -(-self.own_heads // multiple) * multiple

    def layer(self, layer: Layer) -> Mapping[str, Tensor]:
        """Local tensors of one layer by role."""
        return {
            role: local(tensor, self.parallel, self.policy.sharding)
            for role, tensor in layer_tensors(self.model, layer).items()
        }

    def draft(self) -> tuple[Mapping[str, Tensor], ...]:
        """Local tensors of every draft block by role."""
        return tuple(
            {
                role: local(tensor, self.parallel, self.policy.sharding)
                for role, tensor in block.items()
            }
            for block in draft_tensors(self.model)
        )

    def ends(self) -> Mapping[str, Tensor]:
        """Local tensors outside the layers by role."""
        return {
            role: local(tensor, self.parallel, self.policy.sharding)
            for role, tensor in global_tensors(self.model).items()
        }


def expert_arithmetic(model: Model, policy: RuntimePolicy) -> Arithmetic:
    """In which routed experts multiply: the policy's choice, or what their formats allow.

    Without formats of the policy's own that is ``expert_arithmetic``. With them it is the class of
    both operands, unless ``expert_arithmetic`` says that they are dequantised ("bf16").
    """
    roles = model.formats.roles
    if policy.expert_arithmetic == "bf16" or not (roles.expert_weights or roles.expert_activations):
        return Arithmetic(policy.expert_arithmetic)
    weights = model.formats.routed.element_bits
    inputs = 8 if roles.expert_activations is None else roles.expert_activations.bits
    if max(weights, inputs) > 8:
        return Arithmetic.BF16
    if weights == inputs:
        return Arithmetic.FP4 if weights == 4 else Arithmetic.FP8
    return Arithmetic.MXFP4_MXFP8


def rank_of(
    model: Model,
    parallel: Parallel,
    policy: RuntimePolicy,
    *,
    has_fp4: bool,
    distinct_experts: Count = Count.REPLICA_EXPERTS_TOUCHED,
) -> Rank:
    """The view of one rank (all are alike under tensor parallelism).

    Args:
        has_fp4: whether the GPU multiplies 4-bit operands; decides ``fp4_or_bf16`` scoring.
        distinct_experts: the count that weights of experts follow: a bound's or the expected one.
    """
    chosen = policy.index_arithmetic
    if chosen == "fp4_or_bf16":
        chosen = "fp4" if has_fp4 else "bf16"
    return Rank(
        model=padded(model, parallel, policy.sharding),
        parallel=parallel,
        policy=policy,
        rows=cache_rows(model, policy.kv_layout),
        index_arithmetic=Arithmetic(chosen),
        distinct_experts=distinct_experts,
    )
