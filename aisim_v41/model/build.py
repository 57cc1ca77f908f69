"""From a checked config to the `Model` that every later layer builds on."""

from __future__ import annotations

from aisim_v41.model.config import ConfigFile, QuantizationConfig, TextConfig, VisionConfig
from aisim_v41.model.description import (
    Attention,
    Draft,
    Engram,
    Experts,
    HyperConnections,
    Indexer,
    Model,
    StoredFormats,
    Vision,
)
from aisim_v41.model.formats import BF16, FP32, Format
from aisim_v41.model.layers import layer_roles

UE8M0_BITS = 8
"""A power-of-two scale, one byte (``scale_fmt`` ue8m0)."""
MX_GROUP = 32
"""Consecutive values that share a scale in the OCP microscaling formats; the Engram table uses
the same group (headers of ``engram.embed``: 8 scales for 256 values)."""


def build_model(
    config: ConfigFile, *, name: str, revision: str, unknown_keys: tuple[str, ...]
) -> Model:
    """The model of a config whose fields already agree (`check_agreement`)."""
    text = config.text_config
    layers = layer_roles(
        ratios=tuple(text.compress_ratios[: text.num_hidden_layers]),
        kv_sources=tuple(text.kv_source_layer_ids),
        index_sources=tuple(text.index_source_layer_ids),
        candidate_source=text.candidate_source_layer_id,
        engram_layers=tuple(text.engram_layer_ids),
    )
    return Model(
        name=name,
        revision=revision,
        hidden=text.hidden_size,
        vocab=text.vocab_size,
        max_context=text.max_position_embeddings,
        layers=layers,
        attention=Attention(
            heads=text.num_attention_heads,
            head_dim=text.head_dim,
            rope_dim=text.qk_rope_head_dim,
            q_rank=text.q_lora_rank,
            o_rank=text.o_lora_rank,
            o_groups=text.o_groups,
            window=text.sliding_window,
        ),
        indexer=_indexer(text),
        experts=Experts(
            routed=text.n_routed_experts,
            top_k=text.num_experts_per_tok,
            shared=text.n_shared_experts,
            width=text.moe_intermediate_size,
        ),
        hyper=HyperConnections(streams=text.hc_mult, sinkhorn_iterations=text.hc_sinkhorn_iters),
        engram=_engram(text),
        draft=_draft(text),
        vision=None if config.vision_config is None else _vision(config.vision_config),
        formats=_formats(config.quantization_config),
        unknown_keys=tuple(sorted((*unknown_keys, *_idle_keys(text)))),
    )


def _formats(quantization: QuantizationConfig) -> StoredFormats:
    block_rows, block_columns = quantization.weight_block_size
    linear = Format(
        f"fp8_e4m3_{block_rows}x{block_columns}", 8, UE8M0_BITS, (block_rows, block_columns)
    )
    mxfp4 = Format(f"mxfp4_e2m1_1x{MX_GROUP}", 4, UE8M0_BITS, (1, MX_GROUP))
    table = Format(f"fp8_e4m3_1x{MX_GROUP}", 8, UE8M0_BITS, (1, MX_GROUP))
    experts = mxfp4 if quantization.expert_dtype == "fp4" else linear
    return StoredFormats(linear=linear, experts=experts, table=table, plain=BF16, wide=FP32)


def _indexer(text: TextConfig) -> Indexer | None:
    heads, head_dim, top_k = text.index_n_heads, text.index_head_dim, text.index_topk
    if not text.index_source_layer_ids or heads is None or head_dim is None or top_k is None:
        return None
    blocks, block = text.candidate_topk_blocks, text.candidate_block_size
    return Indexer(
        heads=heads,
        head_dim=head_dim,
        top_k=top_k,
        candidate_blocks=blocks if blocks is not None else 0,
        candidate_block=block if block is not None else 1,
    )


def _engram(text: TextConfig) -> Engram | None:
    ngram, heads = text.engram_max_ngram_size, text.engram_n_heads
    head_dim, classes = text.engram_head_dim, text.engram_compressed_vocab_size
    if not text.engram_layer_ids:
        return None
    if ngram is None or heads is None or head_dim is None or classes is None:
        return None
    return Engram(
        layers=tuple(text.engram_layer_ids),
        rows=tuple(text.engram_num_embeddings),
        max_ngram=ngram,
        heads=heads,
        head_dim=head_dim,
        compressed_vocab=classes,
        primes_from=text.engram_vocab_size,
        pad_token=text.engram_pad_token_id,
    )


def _draft(text: TextConfig) -> Draft | None:
    positions, rank = text.dspark_block_size, text.dspark_markov_rank
    routed, top_k = text.dspark_n_routed_experts, text.dspark_num_experts_per_tok
    if not text.num_nextn_predict_layers:
        return None
    if positions is None or rank is None or routed is None or top_k is None:
        return None
    return Draft(
        blocks=text.num_nextn_predict_layers,
        positions=positions,
        taps=tuple(text.dspark_target_layer_ids),
        markov_rank=rank,
        experts=Experts(
            routed=routed,
            top_k=top_k,
            shared=text.n_shared_experts,
            width=text.moe_intermediate_size,
        ),
    )


def _vision(vision: VisionConfig) -> Vision:
    return Vision(
        layers=vision.num_hidden_layers,
        hidden=vision.hidden_size,
        heads=vision.num_attention_heads,
        intermediate=vision.intermediate_size,
        patch=vision.patch_size,
        downsample=vision.downsample_ratio,
        max_image_tokens=vision.max_image_tokens,
        min_pixels=vision.min_pixels,
    )


def _idle_keys(text: TextConfig) -> list[str]:
    """Keys that are set but describe a feature that the model does not have."""
    absent = {
        "dspark_": not text.num_nextn_predict_layers,
        "engram_": not text.engram_layer_ids,
        "index_": not text.index_source_layer_ids,
    }
    return [
        f"text_config.{name}"
        for name in sorted(text.model_fields_set)
        for prefix, idle in absent.items()
        if idle and name.startswith(prefix) and getattr(text, name) not in (None, [])
    ]
