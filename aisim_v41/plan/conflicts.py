"""The table of choices that exclude each other, and which engine refuses them.

Source: runtime-semantics §1.3-§1.5, §2.1-§2.3, §6.1, §7 and the deployment questions, sections C
and E; of speculation vllm-project/vllm adaptive_verification.py @057929c3, InferenceX's recipe for
MI355X, and SGLang's test_dspark_server_args (`_handle_dspark`). What requests may not ask for:
`aisim_v41.plan.compatibility`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import Placement
from aisim_v41.plan.policy import RuntimePolicy

DATA_CENTRE_BLACKWELL = ("sm100", "sm103")
FP8_INDEX_KEYS = ("vllm_fp8_index_fp8", "vllm_packed")
"""Layouts of vLLM whose index keys are FP8."""


def _any_gpu(architecture: str) -> bool:
    return True


def _rocm(architecture: str) -> bool:
    return architecture.startswith("gfx")


def _rocm_before_gfx950(architecture: str) -> bool:
    return _rocm(architecture) and architecture != "gfx950"


def _not_data_centre_blackwell(architecture: str) -> bool:
    return architecture not in DATA_CENTRE_BLACKWELL


def _ragged(policy: RuntimePolicy) -> bool:
    """Whether requests of a verify step may verify unlike numbers of drafts."""
    return policy.speculation != "off" and policy.verify_lengths == "ragged"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two choices that do not go together."""

    engines: tuple[str, ...]
    """Presets that refuse it; empty: refused whatever the engine."""
    first: str
    second: str
    reason: str
    applies: Callable[[RuntimePolicy, Parallel], bool]
    gpus: Callable[[str], bool] = _any_gpu
    """Architectures on which it holds."""
    where: str = ""
    """Those GPUs in words."""


CONFLICTS: tuple[Conflict, ...] = (
    Conflict(
        ("sglang",), "decoder replay", "a prefill graph",
        "the late layers change their row count; use prefill_execution='eager'",
        lambda p, m: p.decoder_replay and p.prefill_execution != "eager",
    ),
    Conflict(
        ("vllm",), "decoder replay", "a full prefill graph",
        "FULL graphs never trim; use prefill_execution='eager' or turn replay off",
        lambda p, m: p.decoder_replay and p.prefill_execution == "full_graph",
    ),
    Conflict(
        ("sglang",), "decoder replay", "attention data parallelism",
        "row counts differ by rank; use dp=1",
        lambda p, m: p.decoder_replay and m.dp > 1,
    ),
    Conflict(
        (), "pipeline parallelism", "this model",
        "later stages need the input ids (Engram) and the shared KV of earlier ones; use pp=1",
        lambda p, m: m.pp > 1,
    ),
    Conflict(
        ("sglang",), "encoder replay", "attention data parallelism",
        "window rings are per request and rank; use dp=1",
        lambda p, m: p.encoder_replay != "off" and m.dp > 1,
    ),
    Conflict(
        ("sglang",), "encoder replay", "context parallelism", "use cp=1",
        lambda p, m: p.encoder_replay != "off" and m.cp > 1,
    ),
    Conflict(
        ("vllm",), "encoder replay", "prefill context parallelism", "use cp=1",
        lambda p, m: p.encoder_replay != "off" and m.cp > 1,
    ),
    Conflict(
        ("sglang",), "encoder replay", "chunks below 128 tokens",
        "a replayed window must fit one chunk; raise chunk_tokens",
        lambda p, m: p.encoder_replay != "off" and p.chunk_tokens < p.encoder_replay_rows,
    ),
    Conflict(
        ("sglang",), "encoder replay", "all prefill graphs", "use prefill_execution='eager'",
        lambda p, m: p.encoder_replay != "off" and p.prefill_execution != "eager",
    ),
    Conflict(
        (), "expert_exchange 'all_to_all'", "experts cut into slices",
        "rows are sent to the one rank that holds an expert; use ep = tp x dp x cp, or "
        "expert_exchange='gather'",
        lambda p, m: p.expert_exchange == "all_to_all" and m.expert_slices > 1,
    ),
    Conflict(
        (), "expert_exchange 'all_to_all'", "a shared expert split over tensor-parallel ranks",
        "each has other rows; use shared_expert='replicated'",
        lambda p, m: p.expert_exchange == "all_to_all"
        and m.tp * m.cp > 1  # ranks of context parallelism decode as tensor-parallel ones
        and p.sharding.shared_expert is Placement.SPLIT,
    ),
    Conflict(
        (), "replay_anchor 'prompt_end'", "replay_exact",
        "an exact halo is anchored at the step's end in every engine that has one",
        lambda p, m: p.decoder_replay and p.replay_exact and p.replay_anchor == "prompt_end",
    ),
    Conflict(
        (), "replay_floor 'prompt_window'", "replay_anchor 'step_end'",
        "a floor at the prompt's end needs a tail at the prompt's end",
        lambda p, m: p.decoder_replay
        and p.replay_floor == "prompt_window"
        and p.replay_anchor == "step_end",
    ),
    Conflict(
        ("sglang",), "decoder replay", "the TRT-LLM attention backend",
        "its kernels take no window floor; use kv_layout='sglang_v41' or 'sglang_v4'",
        lambda p, m: p.decoder_replay and p.kv_layout == "trtllm_plain",
    ),
    Conflict(
        ("sglang",), "decoder replay", "a unified KV layout", "use kv_blocks='own'",
        lambda p, m: p.decoder_replay and p.kv_blocks == "shared",
    ),
    Conflict(
        ("sglang",), "encoder replay", "unified KV memory",
        "window KV lives in rings of its own; use kv_blocks='own'",
        lambda p, m: p.encoder_replay != "off" and p.kv_blocks == "shared",
    ),
    Conflict(
        ("sglang",), "encoder replay", "this GPU",
        "the engine has it for CUDA and gfx950; use encoder_replay='off'",
        lambda p, m: p.encoder_replay != "off",
        gpus=_rocm_before_gfx950, where="ROCm before gfx950",
    ),
    Conflict(
        ("sglang",), "prefill context parallelism", "this GPU",
        "the ROCm path refuses this model; use cp=1",
        lambda p, m: m.cp > 1,
        gpus=_rocm, where="ROCm",
    ),
    Conflict(
        ("vllm",), "ragged verify lengths (adaptive verification)", "eager decode steps",
        "step costs are profiled from captured graphs; use decode_execution='full_graph', or "
        "verify_lengths='uniform'",
        lambda p, m: _ragged(p) and p.decode_execution == "eager",
    ),
    Conflict(
        ("vllm",), "ragged verify lengths (adaptive verification)", "this GPU",
        "its index backend takes no lengths that are decided on the GPU; use "
        "verify_lengths='uniform'",
        lambda p, m: _ragged(p),
        gpus=_rocm, where="ROCm",
    ),
    Conflict(
        ("sglang",), "ragged verify lengths (compact)",
        "attention data parallelism with expert_exchange 'all_to_all'",
        "lengths must be static there; use verify_lengths='uniform', or expert_exchange='gather'",
        lambda p, m: _ragged(p) and m.dp > 1 and p.expert_exchange == "all_to_all",
    ),
    Conflict(
        ("vllm",), "reindex_scoring 'candidates' (indexer_sparse_logits)", "FP8 index keys",
        "that kernel needs MXFP4 keys; use reindex_scoring='dense', or kv_layout='vllm_fp8' or "
        "'vllm_packed_index_fp4'",
        lambda p, m: p.reindex_scoring == "candidates" and p.kv_layout in FP8_INDEX_KEYS,
    ),
    Conflict(
        ("vllm",), "kv_layout 'vllm_nvfp4'", "this GPU",
        "nvfp4_ds_mla needs SM100 and its mega attention kernel; use "
        "kv_layout='vllm_packed_index_fp4'",
        lambda p, m: p.kv_layout == "vllm_nvfp4",
        gpus=_not_data_centre_blackwell, where="anything but SM100 and SM103",
    ),
)  # fmt: skip
