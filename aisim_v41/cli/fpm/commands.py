"""``aisim-v41 fpm list | import | fit | report | predict``: measured whole forwards."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aisim_v41.cli.fpm.importing import import_files
from aisim_v41.cli.options import (
    DEFAULT_MODEL,
    DecodeOption,
    GpuOption,
    JsonOption,
    ModelOption,
    PrefillOption,
    SetOption,
    VerifyOption,
    policies,
    requests_from,
    step_model,
)
from aisim_v41.cli.output import print_json, print_text
from aisim_v41.errors import InvalidInputError
from aisim_v41.hardware import load_hardware
from aisim_v41.model.parallel import Parallel
from aisim_v41.resources import names
from aisim_v41.units import MILLISECOND

if TYPE_CHECKING:
    from aisim_v41.estimators.fpm.estimator import Fpm
    from aisim_v41.estimators.fpm.prediction import Prediction
    from aisim_v41.forwards.records import StepRecord
    from aisim_v41.forwards.table import StepTable

app = typer.Typer(
    help="Measured whole forwards: keep them, fit them, see how far off, predict.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TargetArgument = Annotated[
    str, typer.Argument(metavar="GPU|FOLDER", help="A GPU, or the folder of one table.")
]
IdentityOption = Annotated[
    str | None,
    typer.Option("--identity", help="Beginning of an identity's key or folder name."),
]
RegimeOption = Annotated[
    str | None, typer.Option("--regime", help="One of several regimes, by its name.")
]


def list_tables(
    gpu: Annotated[str | None, typer.Argument(metavar="[GPU]", help="Only this GPU.")] = None,
    json: JsonOption = False,
) -> None:
    """Which identities were measured, and how much of each."""
    from aisim_v41.forwards.store import find_tables

    gpus = names("hardware", ".yaml") if gpu is None else [load_hardware(gpu).name]
    tables = [table for name in gpus for table in find_tables(name)]
    if json:
        print_json([_told(table) for table in tables])
        return
    if not tables:
        print_text("no whole forward was measured; import some: aisim-v41 fpm import --help")
        return
    for table in tables:
        told = _told(table)
        print_text(
            f"{table.gpu}  {told['slug']}\n    {told['records']} records of "
            f"{', '.join(told['runs'])}"
        )


def _told(table: StepTable) -> dict[str, Any]:
    return {
        "gpu": table.gpu,
        "slug": table.identity.slug(),
        "records": len(table.records),
        "statuses": table.statuses(),
        "runs": list(dict.fromkeys(record.run for record in table.records)),
        "labels": list(dict.fromkeys(record.regime for record in table.records)),
        "identity": table.identity.to_dict(),
        "licence": table.licence,
    }


def fit(
    target: TargetArgument,
    identity: IdentityOption = None,
    regime: RegimeOption = None,
    model: ModelOption = DEFAULT_MODEL,
    json: JsonOption = False,
) -> None:
    """Fit one identity: its terms, its noise, and how far off left-out steps are."""
    from aisim_v41.reports.fpm.build import report_of
    from aisim_v41.reports.fpm.text import fit_text

    report = report_of(_fitted(target, identity, regime, model))
    if json:
        whole = report.to_dict()
        left_out = ("identity", "points", "coverage", "left_out", "sources")
        print_json({name: value for name, value in whole.items() if name not in left_out})
    else:
        print_text(fit_text(report))


def report(
    target: TargetArgument,
    identity: IdentityOption = None,
    regime: RegimeOption = None,
    model: ModelOption = DEFAULT_MODEL,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Draw it too: a .png, .svg or .pdf file.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """All that is known of one identity: coverage, errors, residuals, terms, flagged points."""
    from aisim_v41.pictures.canvas import check_path
    from aisim_v41.pictures.fpm_report import write_figure
    from aisim_v41.reports.fpm.build import report_of

    if figure is not None:
        check_path(figure)
    found = report_of(_fitted(target, identity, regime, model))
    if figure is not None:
        write_figure(found, figure)
    if json:
        print_json(found.to_dict())
    else:
        print_text(found.to_text())


def _fitted(target: str, identity: str | None, regime: str | None, model: str) -> Fpm:
    """The fitted table that a command is about."""
    from aisim_v41.estimators.fpm.tables import load_fpm
    from aisim_v41.forwards.store import read_table

    chosen: str | Path | None = identity
    gpu = target
    if Path(target).is_dir():
        if identity is not None:
            raise InvalidInputError(
                f"--identity {identity}: {target} is one table's folder; give one of the two"
            )
        chosen = Path(target)
        gpu = read_table(chosen).gpu
    hardware = load_hardware(gpu)
    return load_fpm(hardware, identity=chosen, regime=regime, model=step_model(model))


def predict(
    prefill: PrefillOption = None,
    decode: DecodeOption = None,
    verify: VerifyOption = None,
    gpu: GpuOption = "gb300",
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor-parallel GPUs.")] = None,
    model: ModelOption = DEFAULT_MODEL,
    engine: Annotated[
        str | None, typer.Option("--engine", help="Policy preset: sglang, vllm, ...")
    ] = None,
    decoder_replay: Annotated[
        str | None,
        typer.Option("--decoder-replay", help="on, off, or both side by side."),
    ] = None,
    changes: SetOption = None,
    identity: IdentityOption = None,
    regime: RegimeOption = None,
    extrapolate: Annotated[
        bool,
        typer.Option("--extrapolate", help="Answer outside what was measured, with a wide band."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Time of one step from measured forwards of exactly its identity.

    The identity is that of --tp (4), --engine (sglang), --decoder-replay (both) and --set; or the
    one that --identity names, if none of those is given.
    """
    from aisim_v41.estimators.fpm.tables import load_fpm

    requests = requests_from(prefill, decode, verify)
    load = partial(
        load_fpm, load_hardware(gpu), identity=identity, regime=regime, model=step_model(model),
    )  # fmt: skip
    if identity is not None and (tp, engine, decoder_replay, changes) == (None, None, None, None):
        found = [load()]
    else:
        found = [
            load(parallel=Parallel(tp=tp or 4), policy=policy)
            for _, policy in policies(engine or "sglang", decoder_replay or "both", changes)
        ]
    answers = [
        ("on" if fpm.policy.decoder_replay else "off", fpm,
         fpm.predict(requests, extrapolate=extrapolate))
        for fpm in found
    ]  # fmt: skip
    if json:
        documents = [
            {"decoder_replay": setting, **_document(fpm, answer)}
            for setting, fpm, answer in answers
        ]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    for setting, fpm, answer in answers:
        print_text(f"decoder replay {setting}: {fpm.table.identity.slug()}")
        print_text(_lines(answer))


def _document(fpm: Fpm, answer: Prediction) -> dict[str, Any]:
    return {
        "gpu": fpm.table.gpu,
        "slug": fpm.table.identity.slug(),
        "regime": fpm.regime,
        "latency_ms": answer.latency_ms,
        "band_ms": list(answer.band_ms),
        "band_level": fpm.fit.band.level,
        "source": answer.source,
        "domain": {
            "verdict": answer.domain.verdict,
            "axis": answer.domain.axis,
            "text": answer.domain.text,
        },
        "physical_ms": answer.physical_s / MILLISECOND,
        "local": answer.local,
        "online": answer.online,
        "measured": [_record(record) for record in answer.measured],
    }


def _record(record: StepRecord) -> dict[str, Any]:
    return {
        "run": record.run,
        "point": record.point,
        "order": record.order,
        "latency_ms": record.latency_ms,
        "samples": record.samples,
        "source": record.source,
    }


WHERE = {"inside": "inside", "edge": "at the edge of", "outside": "outside"}


def _lines(answer: Prediction) -> str:
    low, high = answer.band_ms
    lines = [
        f"  {answer.latency_ms:.3f} ms ({low:.3f} to {high:.3f}), {answer.source}, "
        f"{WHERE[answer.domain.verdict]} what was measured"
    ]
    if answer.domain.text:
        lines.append(f"  {answer.domain.text}")
    lines.append(
        f"  floor, host and kernels {answer.physical_s / MILLISECOND:.3f} ms, "
        f"local correction x {answer.local:.3f}"
    )
    lines += [
        f"  measured {record.latency_ms:.3f} ms: run {record.run}, {record.samples} samples"
        for record in answer.measured
    ]
    return "\n".join(lines)


app.command("list")(list_tables)
app.command("import")(import_files)
app.command("fit")(fit)
app.command("report")(report)
app.command("predict")(predict)
