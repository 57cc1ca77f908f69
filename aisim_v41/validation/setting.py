"""How a case's engine, mapping and GPU become a policy, ranks and a hardware record.

Each choice that the source leaves open is made so that the bound stays a bound: the reading with
the least work that the engine can have. `lean_policy` is that reading; `preset_policy` is what
`aisim_v41.policy` gives a user for the same engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from aisim_v41 import resources
from aisim_v41.errors import MissingProfileError
from aisim_v41.hardware import FOLDER, SUFFIX, Hardware, load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.builds import UNNAMED, build
from aisim_v41.plan.policy import RuntimePolicy, policy
from aisim_v41.units import TB_PER_S
from aisim_v41.validation.cases import Case

ENGINES = {
    "sglang": "sglang",
    "vllm": "vllm",
    "vllm fork": "vllm",
    "vllm-backport": "vllm",
    "vllm-ascend": "vllm",
    "dynamo+vllm": "vllm",
    "atom": "atom",
    "aiter": "atom",
    "checkpoint": "paper",
}
"""Engine of a case -> preset of the policy it runs; aiter is the kernel library under ATOM."""

BUILDS = {
    "gb300-38976-base": "sglang-2026-09-11",
    "gb300-38976-pr": "sglang-2026-09-11-small",
    "gb300-39301": "sglang-2026-09-12",
    "gb300-39370": "sglang-2026-09-15",
    "gb300-39674-base": "sglang-2026-09-15",
    "gb300-39674-pr": "sglang-2026-09-15-native",
    "gb300-lmsys": "sglang-2026-09-10",
    "h200-lmsys": "sglang-2026-09-22-hopper",
    "b200-trace": "vllm-2026-09-20",
    "b200-prof": "vllm-2026-09-20",
}
"""Beginning of a case's name -> the build whose kernels its source ran: the pull request itself,
its base, or the newest one before the image (on Hopper the oldest known). Other cases are priced
as if none were named."""

LEAN: dict[str, Any] = {
    # Rows: the smallest of every engine's layouts (runtime-semantics §6.1). One layout, SGLang's
    # TRT-LLM backend, has 16 B less a window row and 224 B more a main row.
    "kv_layout": "trained",
    # Weights as the checkpoint has them: no slice padding, no widening at load.
    "expert_slice_multiple": 1,
    "wo_a": "checkpoint",
    "shared_expert": "split",
    "attention_head_multiple": 1,
    # A full copy of the embedding needs no all-reduce; only looked-up rows are read.
    "embedding": "replicated",
    # Scores: the fastest arithmetic, for what is visible, only where a choice is left.
    "index_arithmetic": "fp4",
    "reindex_scoring": "candidates",
    "score_shape": "triangle",
    "index_shortcut": "always",
    # Hits are used to the token that the source states; replayed rows skip the compressor.
    "hit_page_tokens": 1,
    "hit_min_tokens": 0,
    "replayed_rows_compress": False,
    # Under decoder replay: 128 rows are kept, and windows start with them.
    "replay_tail_rows": 128,
    "replay_floor": "tail_start",
    # Text may repeat, so that table rows may be cached; shares must be above 0.
    "engram_distinct_share": 1e-6,
}
"""Overrides of a preset that leave the least work any build of an engine can have."""

KV_ONLY_BOUNDARY = frozenset({"vllm"})
"""Presets whose engine has texts in which layer 20 queries with the tail alone; SGLang and ATOM
run it whole (runtime-semantics §1.5)."""

INDEXER_PLACEMENT = "replicated"
"""Every engine copies the indexer (runtime-semantics §4.1); the reference alone splits its heads,
and then sums scores over the ranks."""

ANCHORS = {"vllm fork": "prompt_end"}
"""Engine of a case -> where the tail of late layers ends, where its code says so and the case does
not. The fork for sm89 and sm120 runs late layers with the chunk that ends the prompt alone: chunks
before it keep their last 128 rows for it and plan no late row (`plan_ced_step` in
vllm/models/deepseek_v4_1/nvidia/ced.py of github.com/yhfgyyf/vllm-deepseek-v4-sm89, 86d35745)."""

RESIDENCY = {"hbm": "hbm", "host_sharded": "host_shared", "disk": "host_shared"}
"""Engram of a case -> residency of the floor. On the host or a disk, rows may be shared (their sum
over ranks is then not needed), and in caches of any kind: `LEAN` leaves no transfer to speak of."""


LONGEST_DRAFT = 7
"""Drafted tokens a step where a source does not say: the most that any source states (the
checkpoint drafts 5 positions, ``dspark_block_size``)."""
DRAFT_GRAPH = "kernel_ms:draft_graph"
"""A group of kernels that is the draft pass itself."""

SOLD_WITH = {"b200": 8.0 * TB_PER_S, "b300": 8.0 * TB_PER_S, "rtx_pro_6000": 1.792 * TB_PER_S}
"""Memory rate [B/s] that a data sheet of some card of the name prints, above the packaged figure
(the notes of the hardware files): a floor must hold on any of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a bound needs to know of the machine and its mapping.

    Attributes:
        hardware: the GPU, with the highest memory rate that any card of the name has.
        packaged: the GPU as `load_hardware` gives it.
        parallel: the mapping; with attention data parallelism all GPUs that hold one copy of the
            experts as tensor-parallel ranks: fewer would hold more each.
        replicas: such groups in the system.
        streams: attention groups inside one (data parallelism under expert parallelism): each runs
            its own requests, so that the fullest holds at least 1/streams of them.
        link_share: certain share of the collectives' bytes.
    """

    hardware: Hardware
    packaged: Hardware
    parallel: Parallel
    replicas: int
    streams: int
    link_share: float


def machine(case: Case) -> Machine:
    """The machine of a case whose mapping is stated.

    Under expert parallelism the bound holds the mean rank, and the fullest has at least that. With
    attention data parallelism it holds a rank's share under pure TP: the sum over the ranks reads
    every touched expert once and computes the same products, and attention weights that are copied
    are divided here: less than they are.
    """
    tp, ep, dp = case.parallel.tp or 1, case.parallel.ep or 1, case.parallel.dp or 1
    group = max(tp * dp, ep)
    gpus = max(case.gpus or group, group)
    return Machine(
        hardware=_fastest(case),
        packaged=load_hardware(case.gpu),
        parallel=Parallel(tp=tp, ep=ep) if group == tp and tp % ep == 0 else Parallel(tp=group),
        replicas=max(1, gpus // group),
        streams=max(1, group // tp),
        link_share=_link_share(case),
    )


@lru_cache(maxsize=64)
def has_hardware(gpu: str) -> bool:
    """Whether there is a hardware file of that name."""
    return gpu in resources.names(FOLDER, SUFFIX)


def _link_share(case: Case) -> float:
    """What engines may save of the collectives that pure TP sends.

    With expert parallelism rows may be scattered after attention and gathered after the experts
    (runtime-semantics §4.3): together one all-reduce of the two. INT8 sums halve the bytes again;
    ROCm engines offer them, so that they are never certain there.
    """
    share = 1.0 if case.parallel.ep == 1 else 0.5
    quantised = case.gpu.startswith("mi3") or case.says("quantised all-reduce")
    return share * (0.5 if quantised else 1.0)


def _fastest(case: Case) -> Hardware:
    """The GPU at its best; experts on the host add the host link to the rate of memory."""
    hardware = load_hardware(case.gpu)
    rate = max(hardware.hbm_bandwidth_bytes_per_s, SOLD_WITH.get(case.gpu, 0.0))
    if offloads_experts(case):
        link = hardware.host_link_bytes_per_s
        if link is None:
            raise MissingProfileError(
                f"{case.name}: experts lie on the host, but {case.gpu} has no host link; give "
                "links.host_link_gb_per_s in its hardware file"
            )
        rate += link
    return replace(hardware, hbm_bandwidth_bytes_per_s=rate)


def offloads_experts(case: Case) -> bool:
    """Whether some expert weights lie in the host's memory."""
    return "experts" in case.reason and "host" in case.reason


def lean_policy(case: Case, *, decoder_replay: bool, hit_without_window: bool) -> RuntimePolicy:
    """The reading of a case's engine with the least work.

    Args:
        case: the case.
        decoder_replay: whether late layers run only a tail.
        hit_without_window: whether window rows of the prefix must be recomputed.
    """
    engine = ENGINES[case.engine]
    residency = RESIDENCY.get(case.policy.engram or "", "host_shared")
    return policy(
        engine,
        **LEAN,
        expert_routing="independent",
        expert_popularity=0.0,
        boundary_layer="kv_only" if engine in KV_ONLY_BOUNDARY else "full",
        # Third-party builds skip the late layers of chunks that are not the last.
        replay_anchor=case.policy.late_anchor or "prompt_end",
        indexer=INDEXER_PLACEMENT,
        engram_residency=residency,
        decoder_replay=decoder_replay,
        encoder_replay=_encoder_replay(case, hit_without_window),
        **_speculation(case),
    )


def preset_policy(case: Case, *, decoder_replay: bool, hit_without_window: bool) -> RuntimePolicy:
    """What a user gets for the engine of a case, with the replays, Engram and build of the case."""
    residency = case.policy.engram or case.take.get("engram", "hbm")
    # What a cache in front of the disk has is not stated: nothing, or all of it where the file of
    # the GPU has no disk either.
    unknown = residency == "disk" and load_hardware(case.gpu).disk_bytes_per_s is None
    anchor = case.policy.late_anchor or ANCHORS.get(case.engine)
    stated = {} if anchor is None else {"replay_anchor": anchor}
    return policy(
        ENGINES[case.engine],
        **stated,
        engram_residency=residency,
        engram_hit_share=1.0 if unknown else 0.0,
        decoder_replay=decoder_replay,
        encoder_replay=_encoder_replay(case, hit_without_window),
        build=build_of(case),
        **_speculation(case),
    )


def drafts(case: Case) -> bool:
    """Whether the measured time holds the draft pass of its steps."""
    return case.policy.speculation is not None and bool(
        "draft" in case.includes or case.quantity == DRAFT_GRAPH
    )


def draft_tokens(case: Case) -> int:
    """Tokens drafted for a request and step; 0 where there is no speculation."""
    speculation = case.policy.speculation
    if speculation is None:
        return 0
    stated = speculation.draft_tokens
    return LONGEST_DRAFT if stated is None else stated


def _speculation(case: Case) -> dict[str, Any]:
    if not drafts(case):
        return {}
    return {"speculation": "dspark", "draft_tokens": draft_tokens(case)}


def build_of(case: Case) -> str:
    """Build that a case names, or the value that names none."""
    for start, name in BUILDS.items():
        if case.name.startswith(start) and build(name).engine == ENGINES[case.engine]:
            return name
    return UNNAMED


def _encoder_replay(case: Case, hit_without_window: bool) -> str:
    if not hit_without_window:
        return "off"
    return "separate" if case.policy.encoder_form == "sequential" else "folded"
