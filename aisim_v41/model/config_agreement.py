"""What the fields of one config must agree on among themselves.

Each check is one function and one sentence; together they make the inputs of `layer_roles` and
of the inventory consistent, so that nothing behind the file edge has to check again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from math import ceil

from aisim_v41.errors import SchemaError
from aisim_v41.model.config import ConfigFile, TextConfig, VisionConfig


def check_agreement(config: ConfigFile, *, where: str) -> None:
    """Raise a `SchemaError` that names the first pair of fields that contradict each other."""
    text, vision = config.text_config, config.vision_config
    problems = chain(
        _widths(text, config.quantization_config.expert_dtype),
        _ratios(text),
        _sources(text),
        _owners(text),
        _indexer(text),
        _candidates(text),
        _experts(text),
        _engram(text),
        _draft(text),
        _token_ids(config),
        () if vision is None else _vision(vision),
    )
    problem = next(problems, None)
    if problem is not None:
        raise SchemaError(f"{where}: {problem}")


def _widths(text: TextConfig, expert_dtype: str) -> Iterator[str]:
    if text.num_attention_heads % text.o_groups:
        yield (
            f"text_config.o_groups = {text.o_groups} must divide "
            f"num_attention_heads = {text.num_attention_heads}"
        )
    if text.qk_rope_head_dim > text.head_dim or text.qk_rope_head_dim % 2:
        yield (
            f"text_config.qk_rope_head_dim = {text.qk_rope_head_dim} must be even and at most "
            f"head_dim = {text.head_dim}: the rotated dimensions are part of the head"
        )
    if expert_dtype == "fp4":
        for name in ("hidden_size", "moe_intermediate_size"):
            if getattr(text, name) % 2:
                yield (
                    f"text_config.{name} = {getattr(text, name)} must be even, because "
                    f"expert_dtype = 'fp4' packs two values in a byte"
                )


def _ratios(text: TextConfig) -> Iterator[str]:
    layers, blocks = text.num_hidden_layers, text.num_nextn_predict_layers
    if len(text.compress_ratios) != layers + blocks:
        yield (
            f"text_config.compress_ratios has {len(text.compress_ratios)} entries; it must have "
            f"one per layer and draft block, num_hidden_layers + num_nextn_predict_layers = "
            f"{layers} + {blocks} = {layers + blocks}"
        )
    for index, ratio in enumerate(text.compress_ratios[layers:], start=layers):
        if ratio:
            yield (
                f"text_config.compress_ratios[{index}] = {ratio} belongs to a draft block; "
                f"draft blocks have window attention only, so it must be 0"
            )


def _ascending(values: Sequence[int]) -> bool:
    return all(low < high for low, high in pairwise(values))


def _sources(text: TextConfig) -> Iterator[str]:
    layers = text.num_hidden_layers
    for name in (
        "kv_source_layer_ids",
        "index_source_layer_ids",
        "engram_layer_ids",
        "dspark_target_layer_ids",
    ):
        ids: list[int] = getattr(text, name)
        if not _ascending(ids):
            yield f"text_config.{name} = {_short(ids)} must ascend without repetition"
        if ids and ids[-1] >= layers:
            yield (
                f"text_config.{name} names layer {ids[-1]}; with num_hidden_layers = {layers} "
                f"the last one is {layers - 1}"
            )
    strangers = sorted(set(text.kv_source_layer_ids) - set(text.index_source_layer_ids))
    if strangers:
        yield (
            f"text_config.kv_source_layer_ids {_short(strangers)} must be in "
            f"index_source_layer_ids too: a layer that makes index keys also scores them"
        )
    for name in ("index_source_layer_ids", "kv_source_layer_ids"):
        for layer in getattr(text, name):
            if text.compress_ratios[layer] == 0:
                yield (
                    f"text_config.{name} names layer {layer}, whose compress_ratios entry is 0: "
                    f"a window-only layer has no global entries"
                )


def _owners(text: TextConfig) -> Iterator[str]:
    owner: int | None = None
    sources = set(text.kv_source_layer_ids)
    for layer, ratio in enumerate(text.compress_ratios[: text.num_hidden_layers]):
        if layer in sources:
            owner = layer
        if ratio == 0:
            continue
        if owner is None:
            yield (
                f"text_config.compress_ratios[{layer}] = {ratio} needs a layer in "
                f"kv_source_layer_ids at or before it; there is none "
                f"({_short(text.kv_source_layer_ids)})"
            )
        elif text.compress_ratios[owner] != ratio:
            yield (
                f"text_config.compress_ratios[{layer}] = {ratio} differs from "
                f"{text.compress_ratios[owner]} of layer {owner}, the last entry of "
                f"kv_source_layer_ids before it, whose entries it reads"
            )


def _indexer(text: TextConfig) -> Iterator[str]:
    if not text.index_source_layer_ids:
        return
    for name in ("index_n_heads", "index_head_dim", "index_topk"):
        if getattr(text, name) is None:
            yield f"text_config.{name} is missing, but index_source_layer_ids is not empty"


def _candidates(text: TextConfig) -> Iterator[str]:
    names = ("candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size")
    missing = [name for name in names if getattr(text, name) is None]
    if missing and len(missing) < len(names):
        yield f"text_config.{missing[0]} is missing; give all of {', '.join(names)}, or none"
    source, blocks, block = (getattr(text, name) for name in names)
    if source is None or blocks is None or block is None:
        return
    if source not in text.kv_source_layer_ids:
        yield (
            f"text_config.candidate_source_layer_id = {source} must be one of "
            f"kv_source_layer_ids = {_short(text.kv_source_layer_ids)}: the pool is made of the "
            f"scores of that layer's own keys"
        )
    # The newest block may hold a single position; the pool must still fill the selection.
    fewest = (blocks - 1) * block + 1
    if text.index_topk is not None and fewest < text.index_topk:
        yield (
            f"text_config.candidate_topk_blocks x candidate_block_size = {blocks} x {block} "
            f"can hold as few as {fewest} positions, less than index_topk = {text.index_topk}"
        )


def _experts(text: TextConfig) -> Iterator[str]:
    if text.num_experts_per_tok > text.n_routed_experts:
        yield (
            f"text_config.num_experts_per_tok = {text.num_experts_per_tok} is more than "
            f"n_routed_experts = {text.n_routed_experts}"
        )


def _engram(text: TextConfig) -> Iterator[str]:
    layers, tables = text.engram_layer_ids, text.engram_num_embeddings
    if len(layers) != len(tables):
        yield (
            f"text_config.engram_num_embeddings has {len(tables)} entries and engram_layer_ids "
            f"{len(layers)}; each module has one table"
        )
    if not layers:
        return
    for name in (
        "engram_max_ngram_size",
        "engram_n_heads",
        "engram_head_dim",
        "engram_compressed_vocab_size",
    ):
        if getattr(text, name) is None:
            yield f"text_config.{name} is missing, but engram_layer_ids is not empty"
    classes = text.engram_compressed_vocab_size
    if classes is not None and classes > text.vocab_size:
        yield (
            f"text_config.engram_compressed_vocab_size = {classes} is more than "
            f"vocab_size = {text.vocab_size}"
        )


def _draft(text: TextConfig) -> Iterator[str]:
    blocks = text.num_nextn_predict_layers
    if not blocks:
        return
    for name in (
        "dspark_block_size",
        "dspark_markov_rank",
        "dspark_n_routed_experts",
        "dspark_num_experts_per_tok",
    ):
        if getattr(text, name) is None:
            yield f"text_config.{name} is missing, but num_nextn_predict_layers = {blocks}"
    if not text.dspark_target_layer_ids:
        yield (
            f"text_config.dspark_target_layer_ids is empty, but "
            f"num_nextn_predict_layers = {blocks}: the drafter reads the inputs of those layers"
        )
    chosen, routed = text.dspark_num_experts_per_tok, text.dspark_n_routed_experts
    if chosen is not None and routed is not None and chosen > routed:
        yield (
            f"text_config.dspark_num_experts_per_tok = {chosen} is more than "
            f"dspark_n_routed_experts = {routed}"
        )


def _token_ids(config: ConfigFile) -> Iterator[str]:
    vocab = config.text_config.vocab_size
    eos = config.eos_token_id
    ids = [
        ("bos_token_id", config.bos_token_id),
        ("pad_token_id", config.pad_token_id),
        ("image_token_id", config.image_token_id),
        ("text_config.engram_pad_token_id", config.text_config.engram_pad_token_id),
        ("text_config.dspark_noise_token_id", config.text_config.dspark_noise_token_id),
        *(("eos_token_id", value) for value in (eos if isinstance(eos, list) else [eos])),
    ]
    for name, value in ids:
        if value is not None and value >= vocab:
            yield f"{name} = {value} is outside the vocabulary, vocab_size = {vocab}"


def _vision(vision: VisionConfig) -> Iterator[str]:
    if vision.hidden_size % vision.num_attention_heads:
        yield (
            f"vision_config.num_attention_heads = {vision.num_attention_heads} must divide "
            f"hidden_size = {vision.hidden_size}"
        )
    cell = vision.patch_size * vision.downsample_ratio
    cells = ceil(vision.min_pixels**0.5 / cell) ** 2
    if cells > vision.max_image_tokens:
        yield (
            f"vision_config.min_pixels = {vision.min_pixels} needs at least {cells} cells of "
            f"{cell} x {cell} pixels, more than max_image_tokens = {vision.max_image_tokens}"
        )


def _short(values: Sequence[int]) -> str:
    most = 8
    text = ", ".join(str(value) for value in values[:most])
    return f"[{text}, ... {len(values)} in all]" if len(values) > most else f"[{text}]"
