"""Whole forwards of an engine that is made up, over all sizes that the contract asks about.

The engine takes a tenth longer than OP and 0.2 ms beside. Its tables lie where a user's would.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from aisim_v41.estimators.entry import ESTIMATORS
from aisim_v41.forwards.identity import Build, Identity
from aisim_v41.forwards.records import StepRecord
from aisim_v41.forwards.store import publish_table
from aisim_v41.forwards.table import StepTable
from aisim_v41.plan.policy import RuntimePolicy
from aisim_v41.plan.request import Request
from contract.checks import DENSE, REPLAY, SGLANG, STEPS, gpu, plan_of

BUILD = Build(
    checkpoint="made up", engine="sglang", engine_build="made up", image="none",
    topology="one node, 4 x GB300", modality="text", timer="gpu_events", settings={},
)  # fmt: skip
LENGTHS = (2, 64, 128, 512, 1100, 4096, 20_000)
CONTEXTS = (0, 126, 600, 5000, 16_384, 120_000, 1_000_000)
BATCHES = (1, 4, 32, 500)


def steps() -> list[list[Request]]:
    """Prefills, decodes, verify steps and mixed steps, to the ends of the contract's sizes."""
    found = [
        [Request(new_tokens=new, prefix_tokens=context)]
        for new, context in product(LENGTHS, CONTEXTS)
    ]
    for count, context in product(BATCHES, CONTEXTS):
        if count * context <= 500_000 or count == 1:
            found.append([Request(new_tokens=1, prefix_tokens=context, kind="decode", count=count)])
            found.append([Request(new_tokens=6, prefix_tokens=context, kind="verify", count=count)])
    return [*found, *(list(step) for step in STEPS)]


def publish_everywhere(root: Path) -> None:
    """Tables of every policy of the contract under a root, as in ``AISIM_V41_PATH``."""
    for runtime in (SGLANG, REPLAY, DENSE):
        publish_table(_table(runtime), root)


def _table(runtime: RuntimePolicy) -> StepTable:
    plans = [plan_of(step, runtime) for step in steps()]
    plan = plans[0]
    return StepTable(
        identity=Identity.of(plan.model, gpu(), plan.parallel, runtime, BUILD),
        records=tuple(
            StepRecord(
                step=tuple(one.requests),
                latency_ms=1.1 * ESTIMATORS["op"].estimate(one, gpu()).latency_ms + 0.2,
                order=number,
            )
            for number, one in enumerate(plans)
        ),
    )
