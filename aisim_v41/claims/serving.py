"""Claims of recipes and cookbooks on start-up memory, graph rows, and layers that run.

Source of the figures: vLLM recipe DeepSeek-V4.1-Flash.yaml @01b04887; LMSYS blog 2026-09-10. What
needs a simulation over time needs a later issue.
"""

from __future__ import annotations

from collections.abc import Mapping

from aisim_v41.claims.context import Context, Formula
from aisim_v41.claims.prefill import PROMPT, row_ratio
from aisim_v41.claims.speculation import verify_rows
from aisim_v41.claims.work import sglang
from aisim_v41.plan.counts import Count
from aisim_v41.plan.policy import policy
from aisim_v41.plan.request import Request
from aisim_v41.plan.spans import Region
from aisim_v41.units import GB

RUNNING = 128
"""Running sequences of the recipe's tuning section."""
START_UP_FACTOR = 1.2
"""The recipe's rule: memory at start-up over checkpoint bytes (memory section)."""
TRAY_GPUS = 4
"""GPUs of a GB200 NVL4 tray (memory section)."""


def trimmed_layers(context: Context) -> int:
    """Layers whose rows SGLang's decoder replay cuts."""
    counted = context.ledger(Request(new_tokens=PROMPT), policy=sglang(context, replay=True))
    return sum(cls.region is Region.LATE for cls in counted.program.classes)


def layers_run_by_vllm(context: Context) -> int:
    """Layers that run every prompt row in vLLM without decoder replay."""
    request = Request(new_tokens=PROMPT)
    counted = context.ledger(request, policy=policy("vllm"))
    rows = (counted.total(Count.QUERY_ROWS, layer.index) for layer in context.model.layers)
    return sum(count == request.new_tokens for count in rows)


def replay_bound(context: Context) -> float:
    """Most that SGLang's replay can gain in prefill of 8K prompts: rows without over rows with."""
    return float(1 / row_ratio(sglang, PROMPT)(context))


FORMULAS: Mapping[str, Formula] = {
    "serv-01": trimmed_layers,
    "serv-02": replay_bound,
    "serv-03": replay_bound,
    "serv-06": lambda c: c.inventory.total.bytes * START_UP_FACTOR / GB,
    "serv-07": lambda c: TRAY_GPUS * c.hardware("gb200").hbm_bytes / GB,
    "serv-08": layers_run_by_vllm,
    "serv-09": verify_rows(RUNNING),
}
