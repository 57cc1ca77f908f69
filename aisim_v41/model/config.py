"""The file edge of ``config.json``: types and ranges of every field of DeepSeek-V4.1.

Fields, meanings and units: docs/assumptions.md, "Config". What fields must agree on among
themselves is in `aisim_v41.model.config_agreement`, what happens to keys that are not listed here
in `aisim_v41.model.config_unknown`. No other module of the package imports pydantic for a config.

The bounds are far above any real model and low enough that no total overflows 64 bits.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from aisim_v41.errors import SchemaError
from aisim_v41.model.config_errors import describe
from aisim_v41.model.config_unknown import EARLIER_TYPES, refuse_earlier, sort_unknown_keys
from aisim_v41.reading import check_plain

MODEL_TYPE = "deepseek_v41"

MAX_LAYERS = 512
MAX_WIDTH = 1 << 16
MAX_HEADS = 1 << 12
MAX_HEAD_DIM = 1 << 13
MAX_RANK = 1 << 16
MAX_EXPERTS = 1 << 12
MAX_VOCAB = 1 << 24
MAX_CONTEXT = 1 << 26
MAX_TABLE_ROWS = 1 << 36
MAX_RATIO = 128
MAX_TOP_K = 1 << 20
MAX_DRAFT_BLOCKS = 64

LayerCount = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]
Heads = Annotated[int, Field(ge=1, le=MAX_HEADS)]
HeadDim = Annotated[int, Field(ge=1, le=MAX_HEAD_DIM)]
Rank = Annotated[int, Field(ge=1, le=MAX_RANK)]
LayerId = Annotated[int, Field(ge=0, lt=MAX_LAYERS)]
LayerIds = Annotated[list[LayerId], Field(max_length=MAX_LAYERS)]
TokenId = Annotated[int, Field(ge=0, lt=MAX_VOCAB)]
Positive = Annotated[float, Field(gt=0)]


def _only(expected: bool | int) -> AfterValidator:
    """One value is modelled; unlike a Literal, 0 does not pass for False nor True for 1."""

    def check(value: bool | int) -> bool | int:
        if value != expected:
            raise PydanticCustomError("literal_error", f"Input should be {expected}")
        return value

    return AfterValidator(check)


def _countable(positions: int) -> int:
    """Up to here `aisim_v41.plan.reach` counts exactly in float64."""
    if positions > MAX_CONTEXT:
        raise PydanticCustomError(
            "less_than_equal",
            f"Input should be at most {MAX_CONTEXT} (2**26), as counts are exact only up to there",
        )
    return positions


Context = Annotated[int, Field(ge=1), AfterValidator(_countable)]
AlwaysFalse = Annotated[bool, _only(False)]
AlwaysOne = Annotated[int, _only(1)]


class Section(BaseModel):
    """A mapping of the file: exact types, unlisted keys kept for `sort_unknown_keys`."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, allow_inf_nan=False)


class QuantizationConfig(Section):
    """How the checkpoint stores its matrices."""

    quant_method: Literal["fp8"]
    activation_scheme: Literal["dynamic"]
    weight_block_size: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_WIDTH)]], Field(min_length=2, max_length=2)
    ]
    """Rows and columns of the block that shares a scale."""
    scale_fmt: Literal["ue8m0"]
    expert_dtype: Literal["fp4", "fp8"]


class RopeScaling(BaseModel):
    """YaRN; it changes angles, never the amount of work."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    rope_type: Literal["yarn"]
    factor: Positive
    beta_fast: Positive
    beta_slow: Positive
    original_max_position_embeddings: Context


class TextConfig(Section):
    """The language model: backbone, Engram and DSpark."""

    model_type: Literal["deepseek_v41_text"]
    dtype: Literal["bfloat16"] | None = None
    vocab_size: Annotated[int, Field(ge=1, le=MAX_VOCAB)]
    hidden_size: Width
    num_hidden_layers: LayerCount
    max_position_embeddings: Context
    tie_word_embeddings: AlwaysFalse

    num_attention_heads: Heads
    num_key_value_heads: AlwaysOne
    head_dim: HeadDim
    qk_rope_head_dim: HeadDim
    q_lora_rank: Rank
    o_lora_rank: Rank
    o_groups: Heads
    attention_bias: AlwaysFalse = False
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    sliding_window: Annotated[int, Field(ge=1, le=MAX_TOP_K)]
    rope_theta: Positive
    compress_rope_theta: Positive | None = None
    rope_scaling: RopeScaling | None = None

    compress_ratios: Annotated[
        list[Annotated[int, Field(ge=0, le=MAX_RATIO)]],
        Field(min_length=1, max_length=MAX_LAYERS + MAX_DRAFT_BLOCKS),
    ]
    kv_source_layer_ids: LayerIds = []
    index_source_layer_ids: LayerIds = []
    index_n_heads: Heads | None = None
    index_head_dim: HeadDim | None = None
    index_topk: Annotated[int, Field(ge=1, le=MAX_TOP_K)] | None = None
    candidate_source_layer_id: LayerId | None = None
    candidate_topk_blocks: Annotated[int, Field(ge=1, le=MAX_TOP_K)] | None = None
    candidate_block_size: Annotated[int, Field(ge=1, le=1 << 12)] | None = None

    moe_intermediate_size: Width
    n_routed_experts: Annotated[int, Field(ge=1, le=MAX_EXPERTS)]
    n_shared_experts: Annotated[int, Field(ge=0, le=64)]
    num_experts_per_tok: Annotated[int, Field(ge=1, le=MAX_EXPERTS)]
    hidden_act: Literal["silu"]
    swiglu_limit: Positive | None = None
    scoring_func: Literal["sqrtsoftplus"]
    topk_method: Literal["noaux_tc"]
    norm_topk_prob: bool = True
    routed_scaling_factor: Positive | None = None
    gate_temp: Positive | None = None

    hc_mult: Annotated[int, Field(ge=1, le=64)]
    hc_sinkhorn_iters: Annotated[int, Field(ge=0, le=1 << 10)]
    hc_eps: Positive | None = None

    engram_layer_ids: LayerIds = []
    engram_num_embeddings: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_TABLE_ROWS)]], Field(max_length=MAX_LAYERS)
    ] = []
    engram_max_ngram_size: Annotated[int, Field(ge=2, le=16)] | None = None
    engram_n_heads: Annotated[int, Field(ge=1, le=256)] | None = None
    engram_head_dim: Annotated[int, Field(ge=1, le=1 << 12)] | None = None
    engram_compressed_vocab_size: Annotated[int, Field(ge=1, le=MAX_VOCAB)] | None = None
    engram_vocab_size: Annotated[int, Field(ge=1, le=MAX_TABLE_ROWS)] | None = None
    engram_pad_token_id: TokenId | None = None

    num_nextn_predict_layers: Annotated[int, Field(ge=0, le=MAX_DRAFT_BLOCKS)] = 0
    dspark_block_size: Annotated[int, Field(ge=1, le=256)] | None = None
    dspark_noise_token_id: TokenId | None = None
    dspark_target_layer_ids: LayerIds = []
    dspark_markov_rank: Rank | None = None
    dspark_n_routed_experts: Annotated[int, Field(ge=1, le=MAX_EXPERTS)] | None = None
    dspark_num_experts_per_tok: Annotated[int, Field(ge=1, le=MAX_EXPERTS)] | None = None

    rms_norm_eps: Annotated[float, Field(ge=0, lt=1)] | None = None
    initializer_range: Annotated[float, Field(ge=0)] | None = None
    use_cache: bool = True


class VisionConfig(Section):
    """Vision encoder and projector."""

    model_type: Literal["deepseek_v41_vision"]
    dtype: Literal["bfloat16"] | None = None
    num_hidden_layers: LayerCount
    hidden_size: Width
    num_attention_heads: Heads
    intermediate_size: Width
    patch_size: Annotated[int, Field(ge=1, le=256)]
    rope_theta: Positive
    downsample_ratio: Annotated[int, Field(ge=1, le=64)]
    max_image_tokens: Annotated[int, Field(ge=1, le=MAX_TOP_K)]
    min_pixels: Annotated[int, Field(ge=1, le=MAX_TABLE_ROWS)]
    max_wh_ratio: None = None


class ConfigFile(Section):
    """The whole file."""

    model_type: Literal["deepseek_v41"]
    architectures: list[str] = []
    dtype: Literal["bfloat16"]
    torch_dtype: Literal["bfloat16"] | None = None
    transformers_version: str | None = None
    bos_token_id: TokenId | None = None
    eos_token_id: TokenId | list[TokenId] | None = None
    pad_token_id: TokenId | None = None
    image_token_id: TokenId | None = None
    tie_word_embeddings: AlwaysFalse = False
    quantization_config: QuantizationConfig
    text_config: TextConfig
    vision_config: VisionConfig | None = None


def parse_config(raw: dict[str, Any], *, where: str) -> tuple[ConfigFile, tuple[str, ...]]:
    """Types, ranges and unknown keys of a config; not yet the agreement between fields.

    Args:
        raw: The file's content.
        where: Name of the file for messages.

    Returns:
        The typed content, and the dotted names of harmless keys that are not modelled.

    Raises:
        SchemaError: names field, value, and what would be right.
    """
    check_plain(raw, where=where)
    model_type = raw.get("model_type")
    if isinstance(model_type, str) and model_type in EARLIER_TYPES:
        refuse_earlier(model_type, where=where)
    unknown = sort_unknown_keys(raw, _known_keys(), where=where)
    try:
        config = ConfigFile.model_validate(raw)
    except ValidationError as error:
        raise SchemaError(f"{where}: {describe(error)}") from None
    return config, unknown


def _known_keys() -> dict[str, frozenset[str]]:
    sections: dict[str, type[BaseModel]] = {
        "": ConfigFile,
        "quantization_config": QuantizationConfig,
        "text_config": TextConfig,
        "text_config.rope_scaling": RopeScaling,
        "vision_config": VisionConfig,
    }
    return {path: frozenset(section.model_fields) for path, section in sections.items()}
