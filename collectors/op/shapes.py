"""Which operators a model has on one GPU, with the sizes that do not vary from step to step.

Read from ``config.json`` alone; a test holds the list against the library's own operators.
Source of every size: model-facts §2, §4; cuts: model-facts §9.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.case import Case
from collectors.errors import InputError

CONFIG = Path(__file__).resolve().parents[1] / "data" / "config.json"
"""The published config, as the library has it."""
LAYOUTS = {"sglang": "bytes288", "vllm": "bytes288", "trtllm": "bytes288", "portable": "bytes288"}
"""Rows of the main cache by engine."""
WINDOW_LAYOUTS = {"bytes288": "bytes528"}
WO_A = {"sglang": "bf16", "vllm": "fp8_block32", "trtllm": "fp8_block32", "portable": "bf16"}
"""Format of the output's first product as engines run it (runtime-semantics §5.4)."""
ROWS, KEYS, POSITIONS, MESSAGE = "rows", "keys_per_row", "positions_per_row", "message_bytes"


@dataclass(frozen=True)
class Line:
    """Cases that differ only in sizes that vary from step to step.

    Attributes:
        base: operator, options and fixed sizes.
        axes: sizes that vary.
        calls: of a decode step, on average over the model's layers.
        prefill: whether long prompts run it with all their rows.
    """

    base: Case
    axes: tuple[str, ...]
    calls: float
    prefill: bool = True

    @property
    def name(self) -> str:
        """What tells this line from others."""
        return self.base.text


def read_config(path: Path | None = None) -> dict[str, Any]:
    """The language part of a config.

    Raises:
        InputError: not a config of this model's kind; names the field.
    """
    path = path or CONFIG
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a config.json ({error})") from None
    config = whole.get("text_config", whole) if isinstance(whole, dict) else None
    if not isinstance(config, dict):
        raise InputError(f"{path}: not a config.json: no object")
    for name in _WHOLE:
        value = config.get(name)
        if type(value) is not int or not 0 < value < 1 << 31:
            raise InputError(f"{path}: {name} is {value!r:.60}, must be a whole number above 0")
    for name in _LISTS:
        if not isinstance(config.get(name), list):
            raise InputError(f"{path}: {name} is {config.get(name)!r:.60}, must be a list")
    return config


_WHOLE = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim", "q_lora_rank",
    "o_lora_rank", "o_groups", "moe_intermediate_size", "n_routed_experts",
    "num_experts_per_tok", "vocab_size", "index_n_heads", "index_head_dim", "index_topk",
    "hc_mult", "sliding_window", "candidate_topk_blocks", "candidate_block_size",
    "engram_n_heads", "engram_head_dim", "engram_max_ngram_size",
)  # fmt: skip
_LISTS = ("kv_source_layer_ids", "index_source_layer_ids", "engram_layer_ids", "compress_ratios")


def lines_of(
    config: Mapping[str, Any],
    *,
    engine: str = "sglang",
    tp: int = 1,
    ep: int = 1,
    loads: tuple[str, ...] = ("uniform",),
) -> list[Line]:
    """Every operator that a GPU runs under a mapping.

    Args:
        config: from `read_config`.
        engine: whose formats and kernels; one of `LAYOUTS`.
        tp, ep: ranks that share attention, and the experts.
        loads: how rows choose experts.

    Raises:
        InputError: an engine that is not known, or ranks that do not divide the model.
    """
    if engine not in LAYOUTS:
        raise InputError(f"--engine {engine!r:.40}: one of {', '.join(LAYOUTS)}")
    for name, ranks, divided in (
        ("tp", tp, ("num_attention_heads", "o_groups", "vocab_size")),
        ("ep", ep, ("n_routed_experts",)),
    ):
        for field in divided:
            if type(ranks) is not int or ranks < 1 or config[field] % ranks:
                raise InputError(f"--{name} {ranks!r:.40}: must divide {field} = {config[field]}")
    return [*_products(config, engine, tp), *_attention(config, engine, tp),
            *_experts(config, tp, ep, loads), *_passes(config, tp), *_streams(config),
            *_engram(config, tp), *_messages(tp), *_host()]  # fmt: skip


def _products(config: Mapping[str, Any], engine: str, tp: int) -> Iterator[Line]:
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    heads, width, latent = (
        config["num_attention_heads"], config["head_dim"], config["q_lora_rank"],
    )  # fmt: skip
    groups, inner = config["o_groups"], config["moe_intermediate_size"]
    sources, indexers = len(config["kv_source_layer_ids"]), len(config["index_source_layer_ids"])
    index = config["index_n_heads"] * config["index_head_dim"]
    rows_of_engram = (config["engram_max_ngram_size"] - 1) * config["engram_n_heads"]
    fp8, bf16 = "fp8_block32", "bf16"
    ready = "quantised"
    yield _product(fp8, latent, hidden, layers, operand=ready)
    yield _product(fp8, heads * width // tp, latent, layers, operand=ready)
    yield _product(fp8, width, hidden, layers, operand=ready)
    yield _product(WO_A[engine], groups * config["o_lora_rank"] // tp, heads * width // groups,
                   layers, groups=groups // tp)  # fmt: skip
    for operand in ("bf16", ready):  # converted inside, or by the attention kernel of some builds
        yield _product(fp8, hidden, groups * config["o_lora_rank"] // tp, layers, operand=operand)
    yield _product(fp8, 2 * inner // tp, hidden, layers, operand=ready)
    yield _product(fp8, hidden, inner // tp, layers, operand=ready)
    yield _product(bf16, config["n_routed_experts"], hidden, layers)
    yield _product(bf16, 2 * width, hidden, sources)
    yield _product(fp8, index, latent, indexers, operand=ready)
    yield _product(bf16, config["index_n_heads"], hidden, indexers)
    yield _product(bf16, config["index_head_dim"], width, sources)
    yield _product(bf16, config["vocab_size"] // tp, hidden, 1, prefill=False)
    if config["engram_layer_ids"]:
        yield _product(fp8, (config["hc_mult"] + 1) * hidden,
                       rows_of_engram * config["engram_head_dim"],
                       len(config["engram_layer_ids"]))  # fmt: skip


def _product(
    dtype: str,
    outputs: int,
    inputs: int,
    calls: float,
    *,
    groups: int = 1,
    prefill: bool = True,
    operand: str = "bf16",
) -> Line:
    sizes = {"outputs": outputs, "inputs": inputs, **({"groups": groups} if groups > 1 else {})}
    return Line(Case("gemm", sizes, {"dtype": dtype, "operand": operand}), (ROWS,), calls, prefill)


def _attention(config: Mapping[str, Any], engine: str, tp: int) -> Iterator[Line]:
    layers = config["num_hidden_layers"]
    layout = LAYOUTS[engine]
    indexers = len(config["index_source_layer_ids"])
    sources = len(config["kv_source_layer_ids"])
    heads = {"heads": config["num_attention_heads"] // tp}
    yield Line(Case("sparse_attention", heads, {"layout": layout}), (ROWS, KEYS), layers)
    yield Line(Case("index_score", {}, {"form": "dense"}), (ROWS, POSITIONS), indexers)
    yield Line(Case("index_score", {}, {"form": "candidates"}), (ROWS, POSITIONS), indexers)
    yield Line(Case("index_select", {}, {}), (ROWS, POSITIONS), indexers)
    yield Line(Case("index_select_pool", {}, {}), (ROWS, POSITIONS), 1)
    yield Line(Case("kv_store", {}, {"layout": WINDOW_LAYOUTS.get(layout, layout)}), (ROWS,),
               layers)  # fmt: skip
    for ratio in sorted({r for r in config["compress_ratios"] if r}):
        yield Line(Case("compress_store", {"ratio": ratio}, {"layout": layout}), (ROWS,), sources)
        yield Line(Case("main_store", {"ratio": ratio}, {"layout": layout}), (ROWS,), sources)
        yield Line(Case("compress_pool", {"ratio": ratio}, {}), (ROWS,), sources)
    yield Line(Case("index_key_store", {}, {}), (ROWS,), sources)


def _experts(config: Mapping[str, Any], tp: int, ep: int, loads: tuple[str, ...]) -> Iterator[Line]:
    layers, routed = config["num_hidden_layers"], config["n_routed_experts"]
    slices = max(tp // ep, 1)
    sizes = {
        "hidden": config["hidden_size"], "expert_width": config["moe_intermediate_size"],
        "tensor_parallel": slices, "experts_routed": routed // ep,
        "experts_per_token": max(1, config["num_experts_per_tok"] // ep),
    }  # fmt: skip
    for load in loads:
        yield Line(Case("routed_experts", sizes, {"expert_load": load}), (ROWS,), layers)
    chosen = {"experts_routed": routed, "experts_per_token": config["num_experts_per_tok"]}
    yield Line(Case("router_select", chosen, {}), (ROWS,), layers)


def _passes(config: Mapping[str, Any], tp: int) -> Iterator[Line]:
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    heads = {"heads": config["num_attention_heads"] // tp, "inputs": config["head_dim"]}
    index = {"heads": config["index_n_heads"], "inputs": config["index_head_dim"]}
    for name, sizes, calls in (
        ("site_norm", {"inputs": hidden}, 2 * layers),
        ("site_quantise", {"inputs": hidden}, 2 * layers),
        ("final_norm", {"inputs": hidden}, 1),
        ("q_norm", {"inputs": config["q_lora_rank"]}, layers),
        ("q_rope", heads, layers),
        ("inverse_rope", heads, layers),
        ("index_query_rope", index, len(config["index_source_layer_ids"])),
        ("shared_expert", {"inputs": config["moe_intermediate_size"] // tp}, layers),
        ("expert_sum", {"inputs": hidden}, layers),
        ("stream_copy", {"inputs": hidden}, 1),
        ("small_kernel", {}, layers),
        ("embedding", {"inputs": hidden, "vocabulary": config["vocab_size"] // tp}, 1),
    ):
        yield Line(Case(name, sizes, {}), (ROWS,), calls)


def _streams(config: Mapping[str, Any]) -> Iterator[Line]:
    sites = 2 * config["num_hidden_layers"]
    sizes = {"hidden": config["hidden_size"]}
    forms = ("mhc_fused", "mhc_pre", "mhc_post", "mhc_statistics", "mhc_collapse",
             "mhc_post_collapse", "combine_norm", "post_combine_norm", "mega_mhc")  # fmt: skip
    for name in forms:  # builds have some of them, never all
        yield Line(Case(name, sizes, {}), (ROWS,), sites / len(forms))
    for name in ("head_collapse", "final_collapse_norm"):
        yield Line(Case(name, sizes, {}), (ROWS,), 1, prefill=False)


def _engram(config: Mapping[str, Any], tp: int) -> Iterator[Line]:
    modules = len(config["engram_layer_ids"])
    if not modules:
        return
    yield Line(Case("engram_hash", {}, {}), (ROWS,), modules)
    for locality in ("cold", "hot"):
        yield Line(Case("engram_lookup", {"ranks_of_table": tp}, {"row_locality": locality}),
                   (ROWS,), modules)  # fmt: skip
    yield Line(Case("engram_gate", {"hidden": config["hidden_size"]}, {}), (ROWS,), modules)


def _messages(tp: int) -> Iterator[Line]:
    if tp > 1:
        for name, calls in (("all_reduce", 80.0), ("all_gather", 1.0), ("reduce_scatter", 0.0),
                            ("all_to_all", 0.0)):  # fmt: skip
            yield Line(Case(name, {"ranks": tp}, {"library": "nccl"}), (MESSAGE,), calls)


def _host() -> Iterator[Line]:
    for call in ("framework", "bare", "python"):
        yield Line(Case("host_launch", {}, {"call": call}), (), 0.0)
    yield Line(Case("graph_gap", {}, {}), (), 0.0)
