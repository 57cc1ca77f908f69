"""Cache layouts that an engine has on some GPUs only."""

from __future__ import annotations

from typing import Final

from aisim_v41.hardware import Hardware
from aisim_v41.plan.policy import RuntimePolicy

DATA_CENTRE_BLACKWELL: Final = ("sm100", "sm103")
ELSEWHERE: Final = {
    "sglang_v41": "sglang_v4",
    "sglang_v41_fp8": "sglang_v4",
    "vllm_fp8": "vllm_packed_index_fp4",
    "vllm_fp8_index_fp8": "vllm_packed",
    "vllm_nvfp4": "vllm_packed_index_fp4",
}
"""Cache layouts that engines have on data-centre Blackwell alone, and the one they use on other
GPUs (runtime-semantics §6.1)."""


def layout_notes(policy: RuntimePolicy, hardware: Hardware) -> tuple[str, ...]:
    """Whether the engine has the policy's cache layout on this GPU.

    Presets state the choice of data-centre Blackwell; it is named rather than changed.
    """
    other = ELSEWHERE.get(policy.kv_layout)
    if other is None or hardware.architecture in DATA_CENTRE_BLACKWELL:
        return ()
    return (
        f"kv_layout={policy.kv_layout!r} exists on {' and '.join(DATA_CENTRE_BLACKWELL)} only; on "
        f"{hardware.name} ({hardware.architecture}) the engine uses kv_layout={other!r}, whose "
        "rows are larger",
    )
