"""Generations before V4.1, for comparison: KV bytes per token and parameters from shapes.

They have no step model. We do not have their official config files; each figure says where it
is from (``profiles/<name>/generation.yaml``; docs/assumptions.md, "Earlier generations").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.model.description import Experts, HyperConnections, Model
from aisim_v41.model.earlier_attention import EarlierAttention, Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What the model's own card or report says; None where it says nothing."""

    total_parameters: int | None
    active_parameters: int | None
    kv_bytes_per_token: int | None
    source: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierModel:
    """One earlier generation."""

    name: str
    source: str
    confidence: str
    """A: read in code or config. B: one primary source. C: inferred."""
    note: str
    hidden: int
    vocab: int
    layers: int
    dense_layers: int
    """Leading layers with one dense feed-forward block instead of experts."""
    dense_width: int
    attention: EarlierAttention
    experts: Experts | None
    hash_layers: int
    """Leading layers that route by a table over token ids instead of a selection bias."""
    hyper: HyperConnections | None
    published: Published

    @property
    def kv_bytes_per_token(self) -> Fraction:
        """Bytes [B/token] of KV that stay for as long as the sequence lives.

        Example:
            >>> from aisim_v41.model.load import load_model
            >>> float(load_model("deepseek-v4-flash").kv_bytes_per_token)
            3514.25
        """
        return self.attention.kv_bytes_per_token(self.layers)

    def parameters_by_part(self) -> dict[str, int]:
        """Parameters of the backbone with embedding and head, without draft layers and scales.

        Routing tables over token ids are integers and not counted.
        """
        total: dict[str, int] = {}
        for part, rows, columns, copies in self._weights():
            total[part] = total.get(part, 0) + rows * columns * copies
        return total

    @property
    def parameters(self) -> int:
        """Sum of `parameters_by_part`."""
        return sum(self.parameters_by_part().values())

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses: chosen experts only, head counted, embedding not."""
        parts = self.parameters_by_part()
        if self.experts is not None:
            routed, top_k = self.experts.routed, self.experts.top_k
            parts["routed experts"] = parts["routed experts"] * top_k // routed
        return sum(parts.values()) - parts["embedding"]

    def _weights(self) -> Iterator[Matrix]:
        hidden, layers = self.hidden, self.layers
        yield "embedding", self.vocab, hidden, 1
        yield "head", self.vocab, hidden, 1
        yield "norms", 1, hidden, 2 * layers + 1
        yield from self.attention.weights(hidden, layers)
        yield "dense", self.dense_width, hidden, 3 * self.dense_layers
        if self.experts is not None:
            experts, count = self.experts, layers - self.dense_layers
            yield "routed experts", experts.width, hidden, 3 * experts.routed * count
            yield "shared experts", experts.shared * experts.width, hidden, 3 * count
            yield "router", experts.routed, hidden, count
            yield "router", 1, experts.routed, count - self.hash_layers
        if self.hyper is not None:
            streams, width = self.hyper, self.hyper.streams * hidden
            yield "hyper-connections", streams.coefficients, width + 1, 2 * layers
            yield "hyper-connections", 1, streams.coefficient_kinds, 2 * layers
            yield "hyper-connections", streams.streams, width + 1, 1  # collapse before the head
            yield "hyper-connections", 1, 1, 1


def require_step_model(model: object) -> Model:
    """The model, if steps of it can be counted and priced.

    Raises:
        InvalidInputError: it is not a model at all.
        UnsupportedPlanError: it is an earlier generation.
    """
    if not isinstance(model, (Model, EarlierModel)):
        raise InvalidInputError(
            f"model = {model!r}: must come from load_model, not be a {type(model).__name__}"
        )
    if isinstance(model, EarlierModel):
        raise UnsupportedPlanError(
            f"{model.name} is packaged for comparison only (KV bytes per token, parameters); this "
            f"library models the forward pass of DeepSeek-V4.1. Use "
            f'load_model("deepseek-v4.1-flash") or a config.json with model_type deepseek_v41'
        )
    return model
