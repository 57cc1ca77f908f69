"""Eager forwards from V4.1's own measured modules, where exactly that was measured.

Beside `estimate`, never inside it: these rows hold the host of one campaign and are no kernels, so
they are not mixed with kernels in graph mode. What no module holds is counted as for any eager
forward (`aisim_v41.estimators.execution`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, NoReturn

from aisim_v41.errors import UnsupportedPlanError
from aisim_v41.estimators.execution import host_form
from aisim_v41.estimators.op.compiled import compiled_op
from aisim_v41.evidence.modules import (
    ModuleStep,
    ModuleTime,
    load_eager_rows,
    module_sum,
    rest_sum,
    total_seconds,
)
from aisim_v41.hardware import Hardware
from aisim_v41.model.description import Model
from aisim_v41.model.load import load_model
from aisim_v41.plan.ledger import ledger
from aisim_v41.plan.plan import Plan

MEASURED: Final = frozenset(
    {
        "q_down", "q_norm", "q_up", "q_rope", "kv_down", "kv_store", "sparse_attention",
        "inverse_rope", "o_down", "o_up", "index_query", "index_query_rope", "index_weights",
        "index_score", "index_select", "candidate_pool", "compress_project",
        "compress_pool", "main_store", "index_key", "index_key_store",
        "mhc_statistics", "mhc_collapse", "mhc_expand",
        "shared_expert", "engram_lookup", "engram_project", "engram_gate", "routed_experts",
        "router_gate", "all_reduce_attention", "all_reduce_experts", "all_reduce_embedding",
        "output_head",
    }
)  # fmt: skip
"""Operators inside the measured modules."""
MODEL: Final = "deepseek-v4.1-flash"
WIDTHS: Final = ("hidden", "attention", "indexer", "experts", "hyper")
"""What a module's time depends on, besides the layer that it is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerModules:
    """The time of an eager forward, from measured modules.

    Attributes:
        modules: calls and seconds of each measured module.
        counted_s: host time of what no module holds [s].
        campaigns: where the rows are from.
    """

    modules: Mapping[str, ModuleTime]
    counted_s: float
    campaigns: tuple[str, ...]

    @property
    def measured_s(self) -> float:
        """Sum of the modules [s]."""
        return total_seconds(self.modules)

    @property
    def total_s(self) -> float:
        """Time of the forward [s]."""
        return self.measured_s + self.counted_s

    @property
    def measured_share(self) -> float:
        """Share of the time that was measured."""
        return self.measured_s / self.total_s


def eager_modules(plan: Plan, hardware: Hardware) -> EagerModules:
    """An eager forward as the sum of its measured modules.

    Args:
        plan: identical prefills, or identical decodes, under SGLang's policy and eager execution.
        hardware: one of the six GPUs with tables of modules.

    Raises:
        UnsupportedPlanError: not what was measured: model, engine, execution, kinds of requests,
            Engram.
        MissingProfileError: no modules of that GPU, mapping and replay setting.
        OutOfRangeError: a size outside the measured rows; names what was measured.

    Example:
        >>> import aisim_v41 as aisim
        >>> plan = aisim.Plan(
        ...     aisim.load_model("deepseek-v4.1-flash"),
        ...     [aisim.Request(new_tokens=1, prefix_tokens=512, kind="decode")],
        ...     parallel=aisim.Parallel(tp=4),
        ...     policy=aisim.policy("sglang", decode_execution="eager"),
        ... )
        >>> eager_modules(plan, aisim.load_hardware("gb300")).measured_share > 0.8
        True
    """
    step = _step(plan)
    replay: Literal["off", "on"] = "on" if plan.policy.decoder_replay else "off"
    rows = load_eager_rows(hardware.name, tensor_parallel=plan.parallel.tp, decoder_replay=replay)
    modules = {**module_sum(rows, plan.model, step), **rest_sum(rows, plan.model, step)}
    compiled = compiled_op(plan.model, hardware, plan.parallel, plan.policy)
    launch = compiled.calibration.launch
    form = host_form(compiled, compiled.host.calls, launch, step.phase, False, MEASURED)
    ((_, counts),) = ledger(plan).passes
    return EagerModules(
        modules=modules, counted_s=float(form @ counts.totals), campaigns=rows.campaigns
    )


def _step(plan: Plan) -> ModuleStep:
    """The plan as a step of the tables.

    Raises:
        UnsupportedPlanError: it is not one.
    """
    policy = plan.policy
    present = [request for request in plan.requests if request.count and request.new_tokens]
    shapes = {(r.kind, r.new_tokens, r.prefix_tokens) for r in present}
    for part in WIDTHS:
        if getattr(plan.model, part) != getattr(_measured_model(), part):
            _refuse(f"another {part} than that of {MODEL}", "the number of layers may differ")
    if policy.name != "sglang":
        _refuse(f"policy {policy.name!r}", "SGLang's modules were measured; use policy('sglang')")
    if policy.engram_residency != "hbm" or policy.speculation != "off":
        _refuse("Engram off the GPU or drafting", "use engram_residency='hbm', speculation='off'")
    if plan.parallel.ep > 1:
        _refuse(f"ep = {plan.parallel.ep}", "modules were timed with a slice of every expert")
    if plan.parallel.dp * plan.parallel.cp > 1:
        _refuse(f"ranks {plan.parallel.named()}", "modules were timed with the same rows on all")
    if len(shapes) != 1:
        _refuse(f"{len(shapes)} kinds of requests", "one step holds identical requests")
    ((kind, new, prefix),) = shapes
    if kind == "verify" or policy.encoder_replay != "off":
        _refuse(f"{kind} with encoder_replay={policy.encoder_replay!r}", "use prefill or decode")
    execution = policy.decode_execution if kind == "decode" else policy.prefill_execution
    if execution != "eager":
        _refuse(f"{kind} as {execution}", f"use {kind}_execution='eager'")
    return ModuleStep(
        "decode" if kind == "decode" else "prefill", sum(r.count for r in present), new, prefix
    )


@cache
def _measured_model() -> Model:
    """The model whose modules were timed."""
    found = load_model(MODEL)
    assert isinstance(found, Model)
    return found


def _refuse(what: str, remedy: str) -> NoReturn:
    raise UnsupportedPlanError(f"no measured modules for {what}: {remedy}")
