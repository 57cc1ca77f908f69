"""``aisim-v41 fpm import``: measured forwards of others become a table of one identity."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aisim_v41.cli.fpm.identity import Measured, identity_file, measured
from aisim_v41.cli.options import JsonOption, SetFieldOption
from aisim_v41.cli.output import print_json, print_text
from aisim_v41.errors import AisimError, InvalidInputError

if TYPE_CHECKING:
    from aisim_v41.forwards.records import StepRecord
    from aisim_v41.forwards.table import StepTable
    from aisim_v41.io import Imported

AUTO = "auto"
SHOWN_REASONS = 5
WITHOUT_DRAFTS = ("dynamo_fpm", "self_benchmark", "aisimulate_fpm")
"""Formats of forward pass metrics, which have no field for the rows that verify drafts."""

Text = str | None


def import_files(
    files: Annotated[list[Path], typer.Argument(help="Files, or folders of them.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder that gets profiles/<gpu>/fpm/, or one table's folder."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check everything, write nothing.")
    ] = False,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="auto, csv, dynamo_fpm, self_benchmark, sglang_bench, vllm_latency or "
            "aisimulate_fpm.",
        ),
    ] = AUTO,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="Of the format, such as run=monday or cell.tp=4; repeatable.",
        ),
    ] = None,
    run: Annotated[Text, typer.Option("--run", help="Process run that measured.")] = None,
    regime: Annotated[Text, typer.Option("--regime", help="Label of the conditions.")] = None,
    identity: Annotated[
        Path | None,
        typer.Option("--identity", help="YAML file with what the options below say, by name."),
    ] = None,
    gpu: Annotated[Text, typer.Option("--gpu", help="Packaged name, or a YAML file.")] = None,
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor-parallel GPUs.")] = None,
    ep: Annotated[int | None, typer.Option("--ep", help="Expert-parallel ranks.")] = None,
    model: Annotated[Text, typer.Option("--model", help="Packaged name, or a config.json.")] = None,
    engine: Annotated[Text, typer.Option("--engine", help="Engine, a policy preset.")] = None,
    decoder_replay: Annotated[Text, typer.Option("--decoder-replay", help="on or off.")] = None,
    changes: SetFieldOption = None,
    checkpoint: Annotated[
        Text, typer.Option("--checkpoint", help="Repository and revision of the weights.")
    ] = None,
    engine_build: Annotated[
        Text, typer.Option("--engine-build", help="Version or commit of the engine.")
    ] = None,
    image: Annotated[
        Text, typer.Option("--image", help="Digest of the container image, or none.")
    ] = None,
    topology: Annotated[
        Text, typer.Option("--topology", help='Such as "one node, 4 x GB300".')
    ] = None,
    modality: Annotated[Text, typer.Option("--modality", help="text or image.")] = None,
    timer: Annotated[
        Text,
        typer.Option("--timer", help="gpu_events, sync_wall, scheduler_wall, http or other."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--setting", metavar="NAME=VALUE", help="Of the engine; repeatable."),
    ] = None,
    licence: Annotated[Text, typer.Option("--licence", help="Of the numbers (SPDX).")] = None,
    notice: Annotated[str, typer.Option("--notice", help="Copyright that goes with them.")] = "",
    json: JsonOption = False,
) -> None:
    """Add measured forwards to the table of their identity, or begin one."""
    from aisim_v41.forwards.store import SIDECAR, add_to_table, folder_of, read_table
    from aisim_v41.forwards.table import NOT_STATED, StepTable

    if out is None and not dry_run:
        raise InvalidInputError("--out FOLDER is missing: where the table goes; or give --dry-run")
    filed = identity_file(identity) if identity is not None else {}
    named: dict[str, Any] = {n: v for n, v in (("run", run), ("regime", regime)) if v}
    named |= _nested(_pairs(options))
    formats = _formats(files, form)
    read = _read(formats, timer or filed.get("timer"), named)
    given = {
        "gpu": gpu, "tp": tp, "ep": ep, "model": model, "engine": engine,
        "decoder_replay": decoder_replay, "checkpoint": checkpoint, "engine_build": engine_build,
        "image": image, "topology": topology, "modality": modality, "timer": timer,
    }  # fmt: skip
    known = measured(given, changes, _pairs(settings), filed, _hints(read, formats))
    sources = [_source(path) for path in read]
    _refuse_copies(sources, [])
    table = StepTable(
        identity=known.identity,
        records=tuple(record for one in read.values() for record in one.records),
        licence=licence or NOT_STATED,
        notice=notice,
        sources=tuple(sources),
        remarks=tuple(dict.fromkeys(text for one in read.values() for text in one.remarks)),
    )
    _check(table, known, read, formats)
    folder, records = None, len(table.records)
    if out is not None:
        root = _root(out, table)
        place = folder_of(table, root)
        if (place / SIDECAR).exists():
            there = read_table(place)
            _refuse_copies(sources, there.sources)
            records = len(there.merged(table).records)
        if not dry_run:
            folder = add_to_table(table, root)
            records = len(read_table(folder).records)
    if json:
        print_json(_document(table, read, folder, records))
    else:
        print_text(_lines(table, read, folder, records))


def _pairs(texts: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE texts; numbers and true or false as such, everything else as text."""
    found: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInputError(f"{text!r}: must be NAME=VALUE")
        if value.lower() in ("true", "false"):
            found[name] = value.lower() == "true"
            continue
        try:
            number = json_text.loads(value)
        except (ValueError, RecursionError):
            number = value
        found[name] = number if isinstance(number, (int, float)) else value
    return found


def _nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options, those called NAME.KEY as entries of a mapping NAME."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        outer, dot, key = name.partition(".")
        if not dot:
            found[name] = value
            continue
        inner = found.setdefault(outer, {})
        if not isinstance(inner, dict):
            raise InvalidInputError(f"--option {outer}: given as a value and as {name}")
        inner[key] = value
    return found


def _formats(files: Sequence[Path], form: str) -> dict[Path, str]:
    """Format of each file, by name or by what it holds."""
    from aisim_v41.io import sniff

    return {path: sniff(path) if form == AUTO else form for path in files}


def _read(
    formats: Mapping[Path, str], timer: str | None, options: Mapping[str, Any]
) -> dict[Path, Imported]:
    """What each file holds; formats that do not say which timer they had are told.

    What such a format takes for granted without being told is not what the file says of its build.
    """
    from aisim_v41.io import IMPORTERS, read_steps

    found: dict[Path, Imported] = {}
    for path, name in formats.items():
        takes = signature(IMPORTERS[name].read).parameters if name in IMPORTERS else {}
        told = {"timer": timer} if timer and "timer" in takes else {}
        given = {**told, **options}
        imported = read_steps(path, name, **given)
        if "timer" in takes and "timer" not in given:
            said = {k: v for k, v in imported.build_hints.items() if k != "timer"}
            imported = replace(imported, build_hints=said)
        found[path] = imported
    return found


def _hints(read: Mapping[Path, Imported], formats: Mapping[Path, str]) -> dict[str, Any]:
    """What the files say of the build; they may not contradict each other.

    Files of one format say the same things: one that is silent where another speaks was measured in
    a build of its own, or lacks what would say so.
    """
    found: dict[str, tuple[Path, Any]] = {}
    firsts: dict[str, Path] = {}
    for path, imported in read.items():
        said = imported.build_hints
        first = firsts.setdefault(formats[path], path)
        for name in dict.fromkeys((*read[first].build_hints, *said)):
            _require_same(name, first, read[first].build_hints.get(name), path, said.get(name))
        for name, value in said.items():
            place, other = found.setdefault(name, (path, value))
            _require_same(name, place, other, path, value)
    return {name: value for name, (_, value) in found.items()}


def _require_same(name: str, first: Path, ours: object, path: Path, theirs: object) -> None:
    if ours != theirs:
        raise InvalidInputError(
            f"{first} says {_say(name, ours)}, {path} says {_say(name, theirs)}: import them apart"
        )


def _say(name: str, value: object) -> str:
    return f"nothing of {name}" if value is None else f"{name} = {value}"


def _refuse_copies(
    sources: Sequence[Mapping[str, str]], there: Sequence[Mapping[str, str]]
) -> None:
    """Refuse one content under two names: one run would count as two."""
    names = {source["sha256"]: source["file"] for source in there if "sha256" in source}
    for source in sources:
        name = names.setdefault(source.get("sha256", ""), source["file"])
        if name != source["file"] and "sha256" in source:
            raise InvalidInputError(
                f"{source['file']} holds what {name} holds, to the byte: the same measurements "
                "twice are not two runs; leave one out"
            )


def _source(path: Path) -> dict[str, str]:
    """The file by name and content; where it lay says something about a machine."""
    named = {"file": path.name or path.resolve().name or "/"}
    return named | {"sha256": sha256(path.read_bytes()).hexdigest()} if path.is_file() else named


def _check(
    table: StepTable,
    known: Measured,
    read: Mapping[Path, Imported],
    formats: Mapping[Path, str],
) -> None:
    """Refuse a table without a record, and steps that this policy could not have run."""
    from aisim_v41.forwards.records import StepTotals
    from aisim_v41.plan.compatibility import check_requests

    if not table.records:
        reasons = [reason for one in read.values() for reason in one.reasons()]
        told = "; ".join(reasons[:SHOWN_REASONS]) or "nothing in it"
        raise InvalidInputError(f"no measured step in {', '.join(map(str, read))}: {told}")
    if known.policy.speculation != "off":
        for path, one in read.items():
            decodes = next(filter(_decodes, one.records), None)
            if formats[path] in WITHOUT_DRAFTS and decodes is not None:
                raise InvalidInputError(
                    f"{decodes.source}: {formats[path]} counts a request that verifies drafts as "
                    "a decode of one token, so its steps are not known with speculation = "
                    f"{known.policy.speculation!r}; give steps as a CSV file of kind verify"
                )
    text_only = table.identity.build.modality == "text"
    for step, record in {record.step: record for record in table.measured}.items():
        if text_only and any(request.image_tokens for request in record.requests or ()):
            raise InvalidInputError(f"{record.source}: rows of images, but --modality is text")
        try:
            if isinstance(step, StepTotals):
                step.require_fit(known.model.max_context)
            if record.requests is not None:
                check_requests(known.model, known.policy, record.requests)
        except AisimError as error:
            raise InvalidInputError(
                f"{record.source or record.point}: was measured, but could not have run under this "
                f"identity: {error}"
            ) from None


def _decodes(record: StepRecord) -> bool:
    from aisim_v41.forwards.records import StepTotals

    if isinstance(record.step, StepTotals):
        return record.step.decode_requests > 0
    return any(request.kind == "decode" for request in record.step)


def _root(out: Path, table: StepTable) -> Path:
    """The folder that holds ``profiles``; given a table's own folder, only for its identity."""
    from aisim_v41.forwards.store import SIDECAR, folder_of, read_table

    if not (out / SIDECAR).exists():
        return out
    read_table(out).identity.require_same(table.identity)
    inside = folder_of(table, Path())
    return out.resolve().parents[len(inside.parts) - 1]


def _document(
    table: StepTable, read: Mapping[Path, Imported], folder: Path | None, records: int
) -> dict[str, Any]:
    return {
        "slug": table.identity.slug(),
        "identity": table.identity.to_dict(),
        "files": [
            {
                "file": str(path),
                "records": len(one.records),
                "skipped": [{"place": s.place, "reason": s.reason} for s in one.skipped],
                "remarks": list(one.remarks),
            }
            for path, one in read.items()
        ],
        "statuses": table.statuses(),
        "folder": None if folder is None else str(folder),
        "records": records,
    }


def _lines(
    table: StepTable, read: Mapping[Path, Imported], folder: Path | None, records: int
) -> str:
    lines = []
    for path, one in read.items():
        lines.append(f"{path}: {len(one.records)} records, {len(one.skipped)} skipped")
        reasons = list(one.reasons().items())
        lines += [f"  {count} x {reason}" for reason, count in reasons[:SHOWN_REASONS]]
        if len(reasons) > SHOWN_REASONS:
            lines.append(f"  and {len(reasons) - SHOWN_REASONS} other reasons; --json lists all")
        lines += [f"  note: {remark}" for remark in one.remarks]
    lines += ["", table.identity.text(), ""]
    if folder is None:
        lines.append(f"nothing written; the table would hold {records} records")
    else:
        root = folder.parents[3]
        lines.append(f"written to {folder}, which holds {records} records")
        lines.append(f"to use it: AISIM_V41_PATH={root}")
    return "\n".join(lines)
