"""``aisim-v41 compare`` and ``coverage``: estimators side by side, and what they rest on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    CpOption,
    DecodeOption,
    DpOption,
    EngineOption,
    EpOption,
    GpuOption,
    JsonOption,
    ModelOption,
    PrefillOption,
    ReplayOption,
    SetOption,
    TpOption,
    VerifyOption,
    plans,
    requests_from,
)
from aisim_v41.cli.output import print_json, print_table, print_text
from aisim_v41.estimators.compare import compare as side_by_side
from aisim_v41.estimators.op.coverage import coverage as what_is_known
from aisim_v41.hardware import Hardware, load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.plan.plan import Plan

if TYPE_CHECKING:
    import pandas as pd

NOT_SHOWN = ["kind", "calls", "rows", "rows_fitted", "error_median", "sources", "note"]
"""Columns of `coverage` that a terminal has no room for."""


Table = Callable[[Plan, Hardware], "pd.DataFrame"]


def _table_command(
    table_of: Table, name: str, left_out: list[str], text: str
) -> Callable[..., None]:
    """A command that shows one table of a step; text leaves out columns."""

    def command(
        prefill: PrefillOption = None,
        decode: DecodeOption = None,
        verify: VerifyOption = None,
        gpu: GpuOption = "gb300",
        tp: TpOption = 4,
        ep: EpOption = 1,
        dp: DpOption = 1,
        cp: CpOption = 1,
        model: ModelOption = DEFAULT_MODEL,
        engine: EngineOption = "paper",
        decoder_replay: ReplayOption = "on",
        changes: SetOption = None,
        json: JsonOption = False,
    ) -> None:
        parallel = Parallel(tp=tp, ep=ep, dp=dp, cp=cp)
        requests = requests_from(prefill, decode, verify)
        steps = plans(model, parallel, engine, decoder_replay, changes, requests)
        _show(steps, gpu, table_of, name, left_out, json)

    command.__doc__ = text
    return command


compare = _table_command(
    side_by_side, "operators", ["family"],
    "SOL, OP and measured whole forwards of one step side by side, operator by operator.",
)  # fmt: skip
coverage = _table_command(
    what_is_known, "kernels", NOT_SHOWN,
    "What OP's time of one step rests on, and what to measure to better it.",
)  # fmt: skip


def _show(
    steps: list[tuple[str, Plan]],
    gpu: str,
    table_of: Table,
    name: str,
    left_out: list[str],
    json: bool,
) -> None:
    """One table a plan; text leaves out columns that a terminal has no room for."""
    hardware = load_hardware(gpu)
    tables = [(setting, table_of(plan, hardware)) for setting, plan in steps]
    if json:
        documents = [
            {"decoder_replay": setting, name: table.to_dict(orient="records")}
            for setting, table in tables
        ]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    for setting, table in tables:
        shown = table.drop(columns=left_out)
        print_text(f"decoder replay {setting}")
        print_table("", list(shown.columns), shown.itertuples(index=False))
