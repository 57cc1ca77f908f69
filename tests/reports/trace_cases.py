"""Estimates whose traces are checked: every engine, mode and method, and ranks with own rows."""

from __future__ import annotations

from functools import cache
from typing import Any

import aisim_v41 as aisim
from aisim_v41.estimators.result import Estimate

CHUNK = aisim.Request(new_tokens=500, prefix_tokens=9000, prompt_tokens=20_000)
DECODE = aisim.Request(new_tokens=1, prefix_tokens=5000, kind="decode", count=8)
VERIFY = aisim.Request(new_tokens=6, prefix_tokens=700, kind="verify", count=2)
HITS = aisim.Request(new_tokens=64, prefix_tokens=8192, window="missing", count=3)
STEPS = {
    "prefill": [aisim.Request(new_tokens=3001)],
    "decode": [DECODE],
    "verify": [VERIFY],
    "mixed": [CHUNK, DECODE],
    "hits": [HITS],
    "nothing": [],
}
SETTINGS: dict[str, tuple[str, dict[str, Any], dict[str, int], str]] = {
    "sglang": ("sglang", {"decoder_replay": True}, {"tp": 4}, "gb300"),
    "vllm": ("vllm", {"decoder_replay": False}, {"tp": 4}, "b200"),
    "atom": ("atom", {}, {"tp": 8}, "mi355x"),
    "trtllm": ("trtllm", {}, {"tp": 4}, "gb200"),
    "paper": ("paper", {}, {"tp": 1}, "h200"),
    "host tables": ("sglang", {"engram_residency": "host_sharded"}, {"tp": 4}, "gb300"),
    "experts": ("vllm", {}, {"tp": 4, "ep": 4}, "gb300"),
    "data parallel": ("vllm", {"decoder_replay": False}, {"tp": 2, "dp": 2}, "gb300"),
    "context parallel": ("sglang", {"decoder_replay": False}, {"cp": 2}, "gb300"),
    "drafts": ("sglang", {"speculation": "dspark"}, {"tp": 4}, "gb300"),
    "eager": ("sglang", {"decode_execution": "eager"}, {"tp": 4}, "gb300"),
}


@cache
def priced(setting: str, step: str, method: str) -> Estimate | None:
    """An estimate, or None where the engine refuses the step."""
    engine, fields, mapping, gpu = SETTINGS[setting]
    try:
        plan = aisim.Plan(
            aisim.load_model("deepseek-v4.1-flash"), STEPS[step],
            parallel=aisim.Parallel(**mapping), policy=aisim.policy(engine, **fields),
        )  # fmt: skip
        return aisim.estimate(plan, aisim.load_hardware(gpu), method)
    except aisim.AisimError:
        return None


REFUSED = {
    ("context parallel", "mixed"),
    *((name, "hits") for name in ("sglang", "atom", "host tables", "drafts", "eager",
                                  "context parallel")),
}  # fmt: skip
"""Steps that an engine does not run: window KV that it never rebuilds, prompts beside decodes."""
CASES = [
    (setting, step, method)
    for setting in SETTINGS
    for step in STEPS
    for method in ("sol", "op")
    if (setting, step) not in REFUSED
]
