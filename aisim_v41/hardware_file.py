"""From a hardware file to a `Hardware`: read, check against the schema, convert to SI, explain.

An error names the file, the field, the value found and what would be right.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.errors import SchemaError, nearest
from aisim_v41.hardware import Figure, Hardware
from aisim_v41.hardware_schema import Entry, HardwareFile, Host, value_of
from aisim_v41.reading import read_mapping
from aisim_v41.units import GB, GB_PER_S, GIB, MIB, MICROSECOND, TB_PER_S, TFLOP_PER_S

MOST_ERRORS_SHOWN = 5
MOST_CHARACTERS_SHOWN = 60
_SECTIONS = ("compute", "memory", "links", "host", "chip")
_A_FIGURE = "a mapping of value, kind, source and date"


def read_hardware(path: Path) -> Hardware:
    """A hardware file as a `Hardware`.

    Raises:
        MissingProfileError: no such file.
        SchemaError: not a hardware file; the message names file, field, value and remedy.
    """
    raw = read_mapping(path)
    try:
        sheet = HardwareFile.model_validate(raw)
    except ValidationError as error:
        raise SchemaError(f"{path}: {_explain(error)}") from None
    return _to_hardware(sheet, tuple(_figures(sheet, raw)))


def _to_hardware(sheet: HardwareFile, figures: tuple[Figure, ...]) -> Hardware:
    memory, links, host = sheet.memory, sheet.links, sheet.host
    peaks = {item: sheet.compute.peak(item) for item in Arithmetic}
    return Hardware(
        name=sheet.name,
        architecture=sheet.architecture,
        peak_flop_per_s={
            item: rate * TFLOP_PER_S for item, rate in peaks.items() if rate is not None
        },
        hbm_bandwidth_bytes_per_s=memory.hbm_bandwidth_tb_per_s.value * TB_PER_S,
        hbm_bytes=int(memory.hbm_usable_gib.value * GIB),
        l2_bytes=int(memory.l2_mib.value * MIB),
        link_bytes_per_s=_rate(links.scale_up_gb_per_s),
        link_domain_gpus=links.scale_up_domain_gpus.value,
        in_network_reduction=links.in_network_reduction.value,
        nic_bytes_per_s=_rate(links.nic_gb_per_s),
        host_link_bytes_per_s=_rate(links.host_link_gb_per_s),
        host_memory_bytes=_host_share(host),
        eager_launch_s=host.eager_launch_us.value * MICROSECOND,
        graph_node_gap_s=host.graph_node_gap_us.value * MICROSECOND,
        disk_bytes_per_s=_per_gpu(_rate(host.disk_gb_per_s), host),
        disk_reads_per_s=_per_gpu(value_of(host.disk_reads_per_s), host),
        figures=figures,
    )


def _host_share(host: Host) -> int | None:
    """Memory of one host over the GPUs that share it [bytes]."""
    size, gpus = value_of(host.memory_gb), value_of(host.memory_shared_by_gpus)
    return None if size is None or gpus is None else int(size * GB / gpus)


def _per_gpu(of_host: float | None, host: Host) -> float | None:
    """Share of one GPU; a host that shares with none has one GPU."""
    gpus = value_of(host.memory_shared_by_gpus)
    return None if of_host is None else of_host / (gpus or 1)


def _rate(entry: Entry[float | None] | None) -> float | None:
    value = value_of(entry)
    return None if value is None else value * GB_PER_S


def _figures(sheet: HardwareFile, raw: dict[str, Any]) -> Iterator[Figure]:
    """Figures in the order of the file, with values as the file prints them."""
    for section in _SECTIONS:
        for key, printed in raw.get(section, {}).items():
            entry = getattr(getattr(sheet, section), key)
            yield Figure(
                path=f"{section}.{key}",
                value=printed["value"],
                kind=entry.kind,
                source=entry.source,
                date=entry.date,
                note=entry.note,
            )


def _explain(error: ValidationError) -> str:
    """Every broken rule in one line: field, what is wrong, what was found, what would be right."""
    found = error.errors(include_url=False, include_context=False)
    sentences = [_sentence(item) for item in found[:MOST_ERRORS_SHOWN]]
    if len(found) > MOST_ERRORS_SHOWN:
        sentences.append(f"{len(found) - MOST_ERRORS_SHOWN} more errors follow")
    return ". ".join(sentences)


def _sentence(item: Any) -> str:
    place = tuple(str(part) for part in item["loc"])
    where = ".".join(_shortened(part) for part in place) or "the file"
    found = f", found {_shortened(repr(item['input']))}"
    is_figure = len(place) == 2
    match item["type"]:
        case "missing":
            form = f"as {_A_FIGURE}" if is_figure else "(hardware/README.md shows the form)"
            return f"{where} is missing; add it {form}"
        case "extra_forbidden":
            return f"{where} is not a known key{found}; {nearest(place[-1], _keys(place))}"
        case "model_type":
            return f"{where} must be {_A_FIGURE if is_figure else 'a mapping'}{found}"
        case "float_type" | "int_type":
            number = "a whole number" if item["type"] == "int_type" else "a number"
            return (
                f"{where} must be {number}{found}; write plain digits without unit or quotes "
                "(YAML reads an exponent only with a dot and a sign, 2.5e+3)"
            )
        case "value_error":
            message = item["msg"].removeprefix("Value error, ")
            return f"{where}: {message}" + ("" if isinstance(item["input"], dict) else found)
        case _:
            return f"{where}: {item['msg']}{found}"


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS_SHOWN else f"{text[:MOST_CHARACTERS_SHOWN]}..."


def _keys(place: tuple[str, ...]) -> list[str]:
    """Keys that would have been known at the parent of ``place``."""
    model: type[BaseModel] = HardwareFile
    for part in place[:-1]:
        annotation = model.model_fields[part].annotation
        model = next(
            item
            for item in (annotation, *get_args(annotation))
            if isinstance(item, type) and issubclass(item, BaseModel)
        )
    return list(model.model_fields)
