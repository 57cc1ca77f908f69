"""One stored matrix of the checkpoint, as a record: shape, format, owner group, how it is cut.

Weight shapes and byte counts exist nowhere else in the library. The lists of tensors are in
`aisim_v41.model.tensors`, what one rank holds of them in `aisim_v41.model.sharding`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from aisim_v41.model.formats import Format


class TensorGroup(StrEnum):
    """Class of weights in the checkpoint inventory (docs/assumptions.md, "Weights")."""

    ATTENTION = "attention"
    """Projections and sinks of the backbone layers."""
    ROUTED_EXPERTS = "routed_experts"
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"
    HYPER_CONNECTIONS = "hyper_connections"
    INDEXER = "indexer"
    COMPRESSOR = "compressor"
    NORM = "norm"
    EMBEDDING = "embedding"
    HEAD = "head"
    ENGRAM_TABLE = "engram_table"
    ENGRAM_PROJECTION = "engram_projection"
    DRAFT_EXPERTS = "draft_experts"
    """Routed experts of the DSpark blocks."""
    DRAFT = "draft"
    """Everything else of the DSpark blocks that a backbone block has too."""
    DRAFT_HEADS = "draft_heads"
    """Tap projection, Markov and confidence heads, and their norms."""
    VISION = "vision"
    """Vision encoder, projector and the three image delimiters."""


BACKBONE_GROUPS = frozenset(
    {
        TensorGroup.ATTENTION,
        TensorGroup.ROUTED_EXPERTS,
        TensorGroup.SHARED_EXPERTS,
        TensorGroup.ROUTER,
        TensorGroup.HYPER_CONNECTIONS,
        TensorGroup.INDEXER,
        TensorGroup.COMPRESSOR,
        TensorGroup.NORM,
        TensorGroup.EMBEDDING,
        TensorGroup.HEAD,
    }
)
"""What the report counts as the language backbone (§2.1): no Engram, no draft, no vision."""


class Split(StrEnum):
    """Which dimension of a tensor is divided over ranks, and by which rule."""

    REPLICATED = "replicated"
    """A full copy on every rank."""
    OUTPUT_ROWS = "output_rows"
    """Rows over tensor-parallel ranks (by head or output group)."""
    INPUT_COLUMNS = "input_columns"
    """Columns over tensor-parallel ranks; the product needs an all-reduce."""
    EXPERT_ROWS = "expert_rows"
    """Routed expert whose rows are the expert width: sliced, or whole experts per rank."""
    EXPERT_COLUMNS = "expert_columns"
    """Routed expert whose columns are the expert width."""
    SHARED_EXPERT_ROWS = "shared_expert_rows"
    SHARED_EXPERT_COLUMNS = "shared_expert_columns"
    INDEXER_HEADS = "indexer_heads"
    """Rows by index head: replicated in the engines, split in the reference."""
    EMBEDDING = "embedding"
    """Vocabulary rows of the input embedding, which some mappings replicate."""
    VOCABULARY = "vocabulary"
    """Vocabulary rows of the output head."""
    TABLE_ROWS = "table_rows"
    """Rows of an Engram table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """``copies`` identical matrices of one format.

    A vector is [1, n], except that one scalar per head is [heads, 1], so that it is cut as the
    head's rows are.
    """

    name: str
    """Stored name without ``.weight``, for example ``layers.7.attn.wq_b``; an asterisk stands
    for the index where ``copies`` is above 1."""
    role: str
    """Name without the layer, for example ``attn.wq_b``; operators look tensors up by it."""
    group: TensorGroup
    rows: int
    """Outputs."""
    columns: int
    """Inputs."""
    format: Format
    split: Split
    copies: int = 1

    @property
    def parameters(self) -> int:
        """Values without scales; a byte that packs two 4-bit values counts as two."""
        return self.copies * self.rows * self.columns

    @property
    def element_bytes(self) -> int:
        """Bytes [B] of the values."""
        return self.copies * self.format.element_bytes(self.rows, self.columns)

    @property
    def scale_bytes(self) -> int:
        """Bytes [B] of the scales."""
        return self.copies * self.format.scale_bytes(self.rows, self.columns)

    @property
    def bytes(self) -> int:
        """Bytes [B] of values and scales."""
        return self.copies * self.format.bytes(self.rows, self.columns)

    @property
    def stored_tensors(self) -> int:
        """Entries in the checkpoint index: values, and scales where the format has them."""
        return self.copies * (2 if self.format.scale_bits else 1)


def bytes_by_group(tensors: Iterable[Tensor]) -> dict[TensorGroup, int]:
    """Bytes [B] of tensors summed by group."""
    total: dict[TensorGroup, int] = {}
    for tensor in tensors:
        total[tensor.group] = total.get(tensor.group, 0) + tensor.bytes
    return total
