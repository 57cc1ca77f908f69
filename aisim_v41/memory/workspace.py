"""Buffers of the largest step, and what is set aside beside it.

A step is bounded by ``chunk_tokens`` rows and the longest context that the engine admits. The
buffer of index scores is the term that decides whether long contexts start at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.hardware import Hardware
from aisim_v41.memory.terms import Kind, Term, round_up
from aisim_v41.memory.window import has_rings, ring_workspace_rows
from aisim_v41.model.cache_rows import cache_rows
from aisim_v41.model.description import Model
from aisim_v41.model.formats import BF16, FP32
from aisim_v41.model.parallel import Parallel
from aisim_v41.model.sharding import local, padded
from aisim_v41.model.tensor import TensorGroup
from aisim_v41.model.tensors import layer_tensors
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.units import MIB

GATHERED_KEY_LENGTHS = 40
"""vLLM reserves flat index keys for so many contexts of full length
(``get_max_prefill_buffer_size`` in vllm/v1/attention/backends/mla/indexer.py)."""
GATHERED_REQUESTS = 4
"""vLLM dequantises whole contexts of so many prefills at once to BF16 (``PREFILL_CHUNK_SIZE`` in
vllm/models/deepseek_v41/attention.py @02ee13be)."""
ROCM_KEY_COPIES = 2
"""On ROCm the flat keys are allocated, and split into contiguous values and scales beside it
(``rocm_aiter_mla_sparse.py``); elsewhere one shared buffer serves keys and rows in turn."""
RESIDUAL_COPIES = 2
"""Residual streams alive around a sublayer: read and written."""

_BF16 = BF16.element_bytes(1, 1)
_FP32 = FP32.element_bytes(1, 1)
_SHAPES = "shapes of the model; which buffers live at once is an assumption"


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestStep:
    """What bounds the buffers of one rank.

    Attributes:
        rows: of one step, those of one attention-data-parallel rank.
        max_length: longest context [tokens].
        requests: with logits.
        together: rows of all such ranks; by default all have as many.
    """

    rows: int
    max_length: int
    requests: int
    together: int | None = None

    def own(self, parallel: Parallel) -> LargestStep:
        """The step with the rows that one of several context-parallel ranks queries."""
        return replace(self, rows=-(-self.rows // parallel.cp))


def workspace_terms(
    model: Model,
    hardware: Hardware,
    parallel: Parallel,
    policy: RuntimePolicy,
    step: LargestStep,
) -> tuple[Term, ...]:
    """Buffers of one step on one rank."""
    candidates = (
        _index_scores(model, policy, step.own(parallel)),
        *_gathered(model, hardware, policy, step),
        _rings(model, policy, step),
        _widened_experts(model, hardware, parallel, policy),
        _hidden(model, parallel, policy, step),
        _logits(model, policy, step),
    )
    return tuple(term for term in candidates if term is not None and term.bytes)


def reserve_terms(parallel: Parallel, policy: RuntimePolicy) -> tuple[Term, ...]:
    """Allowances: what no shape of the model tells."""
    found = [
        Term(
            name="context, libraries, allocator slack",
            kind=Kind.RESERVE,
            bytes=policy.runtime_reserve_mib * MIB,
            formula=f"runtime_reserve_mib = {policy.runtime_reserve_mib}",
            source="policy; an allowance",
            estimate=True,
        )
    ]
    if parallel.gpus > 1:
        found.append(
            Term(
                name="buffers of the collectives",
                kind=Kind.RESERVE,
                bytes=policy.collective_mib * MIB,
                formula=f"collective_mib = {policy.collective_mib}",
                source="policy; an allowance",
                estimate=True,
            )
        )
    if parallel.ep > 1 and policy.expert_exchange == "all_to_all":
        found.append(
            Term(
                name="buffers of the all-to-all",
                kind=Kind.RESERVE,
                bytes=policy.exchange_mib * MIB,
                formula=f"exchange_mib = {policy.exchange_mib}",
                source="policy; an allowance",
                estimate=True,
            )
        )
    return tuple(found)


def graph_terms(policy: RuntimePolicy) -> tuple[Term, ...]:
    """Memory of captured graphs; none when everything runs eagerly."""
    if policy.decode_execution == "eager" and policy.prefill_execution == "eager":
        return ()
    return (
        Term(
            name="graph pool",
            kind=Kind.RESERVE,
            bytes=policy.graph_pool_mib * MIB,
            formula=f"graph_pool_mib = {policy.graph_pool_mib}",
            source="policy; 2.54 GiB in a vLLM log on GB10 (P0741); grows with captured batches",
            estimate=True,
        ),
    )


def entries_in_view(model: Model, length: int) -> int:
    """Index keys that a query of a context of ``length`` tokens can see, at most."""
    return max((length // owner.ratio for owner in model.kv_owners), default=0)


def _index_scores(model: Model, policy: RuntimePolicy, step: LargestStep) -> Term | None:
    if model.indexer is None:
        return None
    width = entries_in_view(model, step.max_length)
    amount = step.rows * width * policy.index_score_bytes
    formula = f"{step.rows} rows x {width} keys x {policy.index_score_bytes} B"
    tile = policy.index_tile_mib * MIB
    if policy.index_workspace == "tiled" and amount > tile:
        amount, formula = tile, f"blocks of rows of {policy.index_tile_mib} MiB, not {formula}"
    return Term(
        name="index scores",
        kind=Kind.WORKSPACE,
        bytes=amount,
        formula=formula,
        source="InferenceX PR 3310 (16 GiB at 8192 x 2**20); policy field index_workspace",
    )


def _gathered(
    model: Model, hardware: Hardware, policy: RuntimePolicy, step: LargestStep
) -> tuple[Term, ...]:
    if policy.gather_workspace == "none" or model.indexer is None:
        return ()
    width = entries_in_view(model, step.max_length)
    key_bytes = cache_rows(model, policy.kv_layout).index_bytes
    if policy.gather_workspace == "keys":
        return (_gather("gathered keys", width * key_bytes, f"{width} keys x {key_bytes} B",
                        "runtime-semantics §5.2; policy gather_workspace"),)  # fmt: skip
    keys = GATHERED_KEY_LENGTHS * width * key_bytes
    head, window = model.attention.head_dim, model.attention.window
    rows = GATHERED_REQUESTS * (width + window + step.rows) * head * _BF16
    keys_text = f"{GATHERED_KEY_LENGTHS} x {width} keys x {key_bytes} B"
    rows_text = (
        f"{GATHERED_REQUESTS} requests x ({width} + {window} + {step.rows}) rows x {head} x 2 B"
    )
    source = "vllm/models/deepseek_v41/attention.py, mla/indexer.py; policy gather_workspace"
    if not is_rocm(hardware):
        return (_gather("gathered keys or rows", max(keys, rows), f"{keys_text}, or {rows_text}",
                        source),)  # fmt: skip
    return (
        _gather("gathered keys", keys * ROCM_KEY_COPIES, f"{keys_text}, and a split copy", source),
        _gather("gathered rows", rows, rows_text, source),
    )


def _rings(model: Model, policy: RuntimePolicy, step: LargestStep) -> Term | None:
    if not has_rings(policy):
        return None
    rows = ring_workspace_rows(model, policy, step.requests)
    row = cache_rows(model, policy.kv_layout).window_bytes
    return Term(
        name="window rows copied from rings",
        kind=Kind.WORKSPACE,
        bytes=rows * row,
        formula=f"{rows} rows x {row} B",
        source="runtime-semantics §2.1, §6.3; that layers share it is an assumption",
        estimate=True,
    )


def _gather(name: str, amount: int, formula: str, source: str) -> Term:
    return Term(name=name, kind=Kind.WORKSPACE, bytes=amount, formula=formula, source=source)


def is_rocm(hardware: Hardware) -> bool:
    """Whether engines run their ROCm paths on it."""
    return hardware.architecture.startswith("gfx")


def _widened_experts(
    model: Model, hardware: Hardware, parallel: Parallel, policy: RuntimePolicy
) -> Term | None:
    """One layer's experts dequantised before the product, where no kernel does it on the fly.

    Engines do so when told to (``expert_arithmetic = "bf16"``) and, on ROCm GPUs without units for
    block-scaled formats, because the products are emulated (an inference that explains a start-up
    log, see tests/memory/test_mi300x.py; NVIDIA GPUs widen in registers).
    """
    emulated = is_rocm(hardware) and Arithmetic.MXFP4_MXFP8 not in hardware.peak_flop_per_s
    if policy.expert_arithmetic != "bf16" and not emulated:
        return None
    widest = 0
    for layer in model.layers[:1]:
        experts = (
            local(tensor, parallel, policy.sharding)
            for tensor in layer_tensors(model, layer).values()
            if tensor.group is TensorGroup.ROUTED_EXPERTS
        )
        widest = max(widest, sum(tensor.parameters for tensor in experts))
    return Term(
        name="experts of one layer in BF16",
        kind=Kind.WORKSPACE,
        bytes=widest * _BF16,
        formula=f"{widest} values x 2 B",
        source="expert_arithmetic = bf16, or emulated block-scaled products on ROCm",
        estimate=policy.expert_arithmetic != "bf16",
    )


def _hidden(
    model: Model, parallel: Parallel, policy: RuntimePolicy, step: LargestStep
) -> Term | None:
    """Residual streams, and the widest of attention, experts and Engram beside them.

    Shapes [rows, ...]: streams 4 x hidden; queries and outputs of the padded local heads; per
    routed copy of a row its input, gate, up and output; keys and value of an Engram module.
    Where ranks bring rows of their own, experts see those of all, and of ep groups each a share.
    """
    own = step.own(parallel).rows
    together = own * parallel.dp * parallel.cp if step.together is None else step.together
    seen = max(own, -(-together // parallel.ep))
    hidden, streams = model.hidden, model.hyper.streams
    residual = RESIDUAL_COPIES * streams * hidden
    held = padded(model, parallel, policy.sharding).attention.heads // parallel.tp
    heads = round_up(held, policy.attention_head_multiple)
    attention = 2 * heads * model.attention.head_dim
    width = -(-model.experts.width // parallel.expert_slices)
    experts = model.experts.top_k * (2 * hidden + 3 * width)
    engram = 0
    if model.engram is not None:
        engram = model.engram.width + (streams + 1) * hidden
    if seen == own:
        widest = own * max(attention, experts, engram)
        formula = f"{own} rows x ({residual} + max({attention}, {experts}, {engram})) x 2 B"
    else:
        widest = max(own * attention, seen * experts, own * engram)
        formula = (
            f"({own} rows x {residual} + max({own} x {attention}, {seen} x {experts}, "
            f"{own} x {engram})) x 2 B"
        )
    return Term(
        name="rows of one layer",
        kind=Kind.WORKSPACE,
        bytes=(own * residual + widest) * _BF16,
        formula=formula,
        source=_SHAPES,
        estimate=True,
    )


def _logits(model: Model, policy: RuntimePolicy, step: LargestStep) -> Term:
    rows = step.requests * (1 if policy.speculation == "off" else 1 + policy.draft_tokens)
    return Term(
        name="logits",
        kind=Kind.WORKSPACE,
        bytes=rows * model.vocab * _FP32,
        formula=f"{rows} rows x {model.vocab} x 4 B",
        source=_SHAPES,
        estimate=True,
    )
