"""``aisim-v41 capacity``: does it start, what fits, what frees most."""

from __future__ import annotations

from typing import Annotated

import typer

from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    CpOption,
    DpOption,
    EngineOption,
    EpOption,
    GpuOption,
    JsonOption,
    ModelOption,
    SetOption,
    TpOption,
    policies,
    step_model,
    whole,
)
from aisim_v41.cli.output import print_json, print_text
from aisim_v41.hardware import load_hardware
from aisim_v41.memory import capacity as fit
from aisim_v41.model.parallel import Parallel


def capacity(
    gpu: GpuOption = "gb300",
    tp: TpOption = 4,
    ep: EpOption = 1,
    dp: DpOption = 1,
    cp: CpOption = 1,
    model: ModelOption = DEFAULT_MODEL,
    engine: EngineOption = "sglang",
    changes: SetOption = None,
    max_length: Annotated[
        str | None, typer.Option("--max-length", help="Longest context [tokens], such as 128k.")
    ] = None,
    requests: Annotated[
        str | None, typer.Option("--requests", help="Running requests of the replica.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Memory of a deployment: every term, what fits, the term that fails, what frees most."""
    ((_, policy),) = policies(engine, "off", changes)
    report = fit(
        step_model(model),
        load_hardware(gpu),
        parallel=Parallel(tp=tp, ep=ep, dp=dp, cp=cp),
        policy=policy,
        max_length=None if max_length is None else whole(max_length, "--max-length", "128k"),
        requests=None if requests is None else whole(requests, "--requests", "256"),
    )
    if json:
        print_json(report.to_dict())
    else:
        print_text(report.explain())
