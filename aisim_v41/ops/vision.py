"""Vision encoder and projector: work of one run over a batch of images.

Patches of all images are rows of one batch; attention pairs patches of the same image only. Image
sizes are no columns of the ledger, so counts here are whole numbers of one batch, not forms.
Everything computes in BF16 (model-facts §7). Source of the operators: the same; cut over ranks and
captured runs: docs/assumptions.md, "Vision".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.errors import InvalidInputError, UnsupportedPlanError
from aisim_v41.model.description import Model, Vision
from aisim_v41.model.tensor import Tensor
from aisim_v41.model.tensors_vision import vision_tensors
from aisim_v41.model.vision import ImageGrid
from aisim_v41.ops.operator import Collective, Family, Traffic
from aisim_v41.ops.rank import BF16_BYTES
from aisim_v41.units import FLOP_PER_MAC


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOperator:
    """One kernel of a run on one rank; all numbers are of one call.

    Attributes:
        name: unique in a run.
        family: kind of work.
        calls: how often it runs: once, or in every block. Each is a launch.
        rows: patches or cells that it works on.
        flops: multiply-accumulate work [FLOP].
        traffic: bytes by kind [B].
        product: outputs and inputs of a dense product; None for other work.
        pairs: query-key pairs of attention; 0 for other work.
        collective, payload, group: message [B] over so many ranks.
        source: where the formula comes from.
    """

    name: str
    family: Family
    calls: int
    rows: int
    flops: Mapping[Arithmetic, int]
    traffic: Mapping[Traffic, int]
    product: tuple[int, int] | None = None
    pairs: int = 0
    collective: Collective | None = None
    payload: int = 0
    group: int = 1
    source: str = ""


def encode_operators(
    model: Model, images: Sequence[ImageGrid], *, ranks: int = 1, captured_tokens: int = 0
) -> tuple[EncodeOperator, ...]:
    """Kernels of one run over a batch, in order; none for an empty batch.

    Args:
        model: with a vision encoder.
        images: of the run.
        ranks: over which heads, widths and messages are cut; 1: none.
        captured_tokens: tokens that the run's graph was captured for; rows beyond those of the
            images are one further sequence. 0: no more rows than there are.

    Raises:
        UnsupportedPlanError: no vision encoder, or ranks that do not divide it.
        InvalidInputError: the images do not fit the captured tokens.
    """
    vision = vision_of(model)
    if not divides(vision, model.hidden, ranks):
        raise UnsupportedPlanError(
            f"vision encoder of {model.name} over {ranks} ranks: {vision.heads} heads, an "
            f"intermediate width of {vision.intermediate} and a hidden width of {model.hidden} are "
            "divided; use ranks that divide all of them, or copies on every rank"
        )
    tokens = sum(image.tokens for image in images)
    if captured_tokens and tokens > captured_tokens:
        raise InvalidInputError(
            f"{tokens} image tokens in a graph of {captured_tokens}: they do not fit"
        )
    return tuple(_Run(model, vision, images, ranks, captured_tokens)) if images else ()


def vision_of(model: Model) -> Vision:
    """The vision encoder of a model.

    Raises:
        UnsupportedPlanError: it has none.
    """
    if model.vision is None:
        raise UnsupportedPlanError(
            f"encode images: {model.name} has no vision encoder; give a config with vision_config"
        )
    return model.vision


def divides(vision: Vision, hidden: int, ranks: int) -> bool:
    """Whether heads and widths can be cut over so many ranks."""
    return ranks >= 1 and not any(n % ranks for n in (vision.heads, vision.intermediate, hidden))


class _Run:
    """The operators of one run, as they come."""

    def __init__(
        self, model: Model, vision: Vision, images: Sequence[ImageGrid], ranks: int, captured: int
    ) -> None:
        self.model, self.vision, self.ranks = model, vision, ranks
        self.tensors = vision_tensors(model)
        self.patches = sum(image.patches for image in images)
        self.pairs = sum(image.patches**2 for image in images)
        self.cells = sum(image.cells for image in images)
        self.tokens = sum(image.tokens for image in images)
        if captured:
            joined = vision.downsample**2 * captured
            self.pairs += (joined - self.patches) ** 2
            self.patches, self.cells = joined, captured

    def __iter__(self) -> Iterator[EncodeOperator]:
        vision, hidden = self.vision, self.model.hidden
        width, blocks = vision.hidden, vision.layers
        row, own, cells = width * self.patches, width // self.ranks * self.patches, self.cells
        gated = vision.intermediate // self.ranks * self.patches
        yield self._product("vision.patch_embed.proj", self.patches, 1)
        yield self._elementwise("vision.blocks.norm1", row, row, blocks, ("vision.blocks.norm1",))
        yield self._product("vision.blocks.attn.wqkv", self.patches, blocks, cut_outputs=True)
        yield self._elementwise("vision.blocks.attn.rotation", 2 * own, 2 * own, blocks)
        yield EncodeOperator(
            name="vision.blocks.attn.core",
            family=Family.ATTENTION,
            calls=blocks,
            rows=self.patches,
            # scores and their sum of values, all heads together as wide as a row
            flops={Arithmetic.BF16: 2 * FLOP_PER_MAC * width // self.ranks * self.pairs},
            traffic=_traffic(3 * own, own),
            pairs=self.pairs,
            source="model-facts §7: full bidirectional attention within one image",
        )
        yield self._product("vision.blocks.attn.wo", self.patches, blocks, cut_inputs=True)
        yield from self._sum("vision.blocks.attn", row, blocks)
        yield self._elementwise("vision.blocks.attn.residual", 2 * row, row, blocks)
        yield self._elementwise("vision.blocks.norm2", row, row, blocks, ("vision.blocks.norm2",))
        yield self._product("vision.blocks.mlp.w1", self.patches, blocks, cut_outputs=True)
        yield self._elementwise("vision.blocks.mlp.gate", 2 * gated, gated, blocks)
        yield self._product("vision.blocks.mlp.w2", self.patches, blocks, cut_inputs=True)
        yield from self._sum("vision.blocks.mlp", row, blocks)
        yield self._elementwise("vision.blocks.mlp.residual", 2 * row, row, blocks)
        yield self._elementwise("vision.norm", row, row, 1, ("vision.norm",))
        yield self._elementwise("aligner.unshuffle", row, vision.downsample**2 * width * cells)
        yield self._product("aligner.w1", cells, 1, cut_outputs=True)
        inner = hidden // self.ranks * cells
        yield self._elementwise("aligner.gelu", inner, inner)
        yield self._product("aligner.w2", cells, 1, cut_inputs=True)
        yield from self._sum("aligner", hidden * cells, 1)
        yield self._elementwise(
            "image_span", hidden * cells, hidden * self.tokens, 1,
            ("image_start", "image_end", "image_newline"),
        )  # fmt: skip

    def _product(
        self, role: str, rows: int, calls: int, *, cut_outputs: bool = False,
        cut_inputs: bool = False,
    ) -> EncodeOperator:  # fmt: skip
        matrix = self.tensors[role]
        outputs = matrix.rows // self.ranks if cut_outputs else matrix.rows
        inputs = matrix.columns // self.ranks if cut_inputs else matrix.columns
        traffic = _traffic(inputs * rows, outputs * rows, (matrix,))
        traffic[Traffic.WEIGHTS] = (
            traffic[Traffic.WEIGHTS] * outputs * inputs // (matrix.rows * matrix.columns)
        )
        bias = self.tensors.get(f"{role}.bias")
        if bias is not None:
            own = bias.bytes // bias.copies
            traffic[Traffic.WEIGHTS] += own // self.ranks if cut_outputs else own
        return EncodeOperator(
            name=role,
            family=Family.PROJECTION,
            calls=calls,
            rows=rows,
            flops={Arithmetic.BF16: FLOP_PER_MAC * outputs * inputs * rows},
            traffic=traffic,
            product=(outputs, inputs),
            source="model-facts §7",
        )

    def _elementwise(
        self, name: str, read: int, written: int, calls: int = 1, weights: tuple[str, ...] = ()
    ) -> EncodeOperator:
        return EncodeOperator(
            name=name,
            family=Family.ELEMENTWISE,
            calls=calls,
            rows=self.patches if name.startswith("vision") else self.cells,
            flops={},
            traffic=_traffic(read, written, tuple(self.tensors[role] for role in weights)),
            source="model-facts §7",
        )

    def _sum(self, of: str, values: int, calls: int) -> Iterator[EncodeOperator]:
        """Sum of the ranks' partial results, where a product's inputs were cut."""
        if self.ranks > 1:
            yield EncodeOperator(
                name=f"{of}.all_reduce",
                family=Family.COLLECTIVE,
                calls=calls,
                rows=self.patches,
                flops={},
                traffic={},
                collective=Collective.ALL_REDUCE,
                payload=BF16_BYTES * values,
                group=self.ranks,
                source="one sum behind each product whose inputs are cut",
            )


def gather_embeddings(model: Model, cells: int, ranks: int) -> EncodeOperator:
    """Embeddings of images that other ranks encoded; every rank's part is as long as the longest.

    Args:
        model: whose hidden width a cell has.
        cells: of the rank with the most.
        ranks: that exchange.
    """
    return EncodeOperator(
        name="gather_embeddings",
        family=Family.COLLECTIVE,
        calls=1,
        rows=cells,
        flops={},
        traffic={},
        collective=Collective.ALL_GATHER,
        payload=BF16_BYTES * model.hidden * cells * ranks,
        group=ranks,
        source="vLLM deepseek_v4 vision.py @4c5eba3e: one padded all-gather",
    )


def _traffic(read: int, written: int, weights: Sequence[Tensor] = ()) -> dict[Traffic, int]:
    """Bytes of one call: each weight once, each value of an activation once."""
    return {
        Traffic.WEIGHTS: sum(tensor.bytes // tensor.copies for tensor in weights),
        Traffic.ACTIVATION_READ: BF16_BYTES * read,
        Traffic.ACTIVATION_WRITE: BF16_BYTES * written,
    }


def encode_flop(operators: Sequence[EncodeOperator]) -> int:
    """Work of all calls [FLOP]."""
    return sum(op.calls * sum(op.flops.values()) for op in operators)
