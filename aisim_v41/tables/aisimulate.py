"""Tables straight out of an installed ``aisimulate`` or a checkout, into the same `OperatorTable`.

The package is found, never imported; its Parquet files lie under ``aisimulate_core/systems``, and
in a checkout (`aisim_v41.tables.checkout`) under a folder ``systems`` as well:
``data/<system>/<folder>/<engine>/<version>/<table>.parquet``, and V4.1's replay campaigns under
``profiles/dsv41``. Every engine version in it becomes its own identity. Repeated keys are merged
as our packaged tables merge them (experts: mean; others: minimum), with the count in ``samples``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aisim_v41.errors import MissingProfileError, SchemaError, nearest
from aisim_v41.tables import peer
from aisim_v41.tables.columns import check_columns
from aisim_v41.tables.peer import merge_repeats
from aisim_v41.tables.rules import mark
from aisim_v41.tables.schema import ANY, FAMILIES
from aisim_v41.tables.table import OperatorTable
from aisim_v41.tables.write import columns_of
from aisim_v41.units import MICROSECOND, MILLISECOND

if TYPE_CHECKING:
    import pandas

PACKAGE, DISTRIBUTION = "aisimulate_core", "aisimulate"
SYSTEMS: Mapping[str, str] = MappingProxyType(
    {
        "gb200": "gb200",
        "gb300": "gb300",
        "b200": "b200_sxm",
        "b300": "b300_sxm",
        "h200": "h200_sxm",
        "h100": "h100_sxm",
    }
)
"""Our name of a GPU to the package's."""
V41_ROOTS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "data": ("data", ANY),
        "profiles/dsv41/full/data": ("profile-full", 4),
        "profiles/dsv41/decoder_bounded/data": ("profile-decoder_bounded", 4),
        "profiles/dsv41/tp2/full/data": ("profile-tp2-full", 2),
        "profiles/dsv41/tp2/decoder_bounded/data": ("profile-tp2-decoder_bounded", 2),
    }
)
"""Folder of each V4.1 campaign: its name, and its ranks where rows do not say."""
V41_VERSION = "dev-"
_RELEASE = r"\d+\.\d+[\w.]*"
ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "int8": 1, "float": 4}
V41_HEADS, V41_GATE_UP, V41_DOWN, V41_VOCABULARY, V41_EXPERT_COUNT = 64, 4608, 2304, 129280, 384
ENGRAM_LAYERS = {384_006_168: "engram_layer_1", 384_016_682: "engram_layer_14"}
KERNELS = {
    "attention": "mqa_layer_forward",
    "engram": "engram_owned_rows+wkv+gate",
    "mhc": "mhc_mix_combine+hc_post",
    "shared_gate_up": "fp8_linear_merged_column",
    "shared_down": "fp8_linear_row",
}


def load_installed(gpu: str, family: str) -> OperatorTable:
    """A table of the installed package.

    Raises:
        MissingProfileError: the package is not installed, or has no such GPU or table.
        SchemaError: a file of it is not what it was in the version that this was written for.
    """
    if gpu not in SYSTEMS:
        raise MissingProfileError(f"{DISTRIBUTION} has no {gpu!r}; {nearest(gpu, SYSTEMS)}")
    spec = find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise MissingProfileError(
            f"the package {DISTRIBUTION} is not installed; `pip install {DISTRIBUTION}`, or use "
            'the packaged tables: load_table(gpu, family, source="profiles")'
        )
    return _read(Path(places[0]) / "systems", gpu, family)


def rows_of(root: Path, gpu: str, family: str, *, where: str) -> pandas.DataFrame:
    """Every row of a GPU and family under a folder ``systems``, suspect ones marked.

    Raises:
        MissingProfileError: there is none.
        SchemaError: a file is not what it was in the version that this was written for.
    """
    if family not in _READERS:
        raise MissingProfileError(f"{where}: such tables are one's own (docs/collectors.md)")
    frames = [frame for frame in _READERS[family](_Reader(root, gpu)) if len(frame)]
    if not frames:
        raise MissingProfileError(
            f"{where}: no table under {root}; use the packaged tables, or another release"
        )
    return mark(peer.stacked(frames), family=family, gpu=gpu)


@lru_cache(maxsize=32)
def _read(root: Path, gpu: str, family: str) -> OperatorTable:
    where = f"{DISTRIBUTION} {_version()}, {gpu}, {family}"
    frame = rows_of(root, gpu, family, where=where)
    columns = columns_of(frame, FAMILIES[family], where=where, in_order=False)
    check_columns(columns, FAMILIES[family], where=where)
    sidecar = {"gpu": gpu, "family": family, "package": DISTRIBUTION, "version": _version()}
    return OperatorTable(
        gpu=gpu,
        family=family,
        origin=where,
        sidecar=MappingProxyType(sidecar),
        columns=MappingProxyType(dict(columns)),
    )


def _version() -> str:
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "of unknown version"


@dataclass(frozen=True, slots=True)
class _Reader:
    """Finds and reads the package's tables of one GPU."""

    root: Path
    gpu: str

    def tables(
        self, folder: str, table: str, needed: Sequence[str], base: str = "data"
    ) -> Iterator[pandas.DataFrame]:
        """Frames of a table, one an engine version, with ``us``, ``engine``, ``version``."""
        found = (self.root / base / SYSTEMS[self.gpu] / folder).glob(f"*/*/{table}.parquet")
        for path in sorted(found):
            engine, version = path.parts[-3:-1]
            frame = _frame(path, [*needed, "latency"])
            yield frame.assign(
                us=frame["latency"] * (MILLISECOND / MICROSECOND),
                engine=engine,
                version=_release(frame, path),
                folder_version=version,
                source=path.name,
            )


def _release(frame: pandas.DataFrame, path: Path) -> pandas.Series[str] | str:
    """Release of each row: its own word where it names one, else the folder's."""
    folder = path.parent.name
    if "version" not in frame:
        return folder
    said = frame["version"].astype(str)
    numbered = said.str.fullmatch(_RELEASE) & (said != folder)
    siblings = {place.name for place in path.parent.parent.iterdir()}
    twice = said.isin(siblings)  # another run of a release that has a folder of its own
    return said.mask(twice, said + "_in_" + folder).where(numbered, folder)


def _frame(path: Path, needed: Sequence[str]) -> pandas.DataFrame:
    import pandas

    try:
        frame = pandas.read_parquet(path)
    except Exception as bad:  # pandas and pyarrow raise what they like on a broken file
        raise SchemaError(
            f"{path}: not readable as Parquet ({type(bad).__name__}). Install {DISTRIBUTION} again."
        ) from None
    missing = [name for name in needed if name not in frame]
    if missing:
        raise SchemaError(
            f"{path}: no column {', '.join(missing)}; this release of {DISTRIBUTION} has another "
            "form. Use the packaged tables."
        )
    for name in ("latency", *(n for n in needed if n in _NUMBERS)):
        if not pandas.api.types.is_numeric_dtype(frame[name]) or frame[name].isna().any():
            raise SchemaError(f"{path}: column {name} must hold a number in every row")
    return frame


_PRODUCT = ("gemm_dtype", "m", "n", "k")
_EXPERTS = (
    "moe_dtype", "kernel_source", "num_tokens", "hidden_size", "inter_size", "topk",
    "num_experts", "moe_tp_size", "moe_ep_size", "distribution",
)  # fmt: skip
_REQUESTS = ("num_heads", "batch_size", "isl", "tp_size", "step", "compress_ratio")
_MODULES = (
    "component", "geometry", "batch_size", "prefix", "x", "sample_count", "execution_profile",
)  # fmt: skip
_NUMBERS = {"m", "n", "k", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts",
            "moe_tp_size", "moe_ep_size", "num_gpus", "message_size", "prefix", "x",
            "sample_count", *_REQUESTS}  # fmt: skip


def _gemm(reader: _Reader) -> Iterator[pandas.DataFrame]:
    for raw in reader.tables("gemm", "gemm_perf", _PRODUCT):
        if not raw["folder_version"].iloc[0].startswith(V41_VERSION):
            yield peer.gemm(merge_repeats(raw, _PRODUCT, "min"))


def _experts(reader: _Reader) -> Iterator[pandas.DataFrame]:
    for raw in reader.tables("moe", "moe_perf", _EXPERTS):
        if not raw["folder_version"].iloc[0].startswith(V41_VERSION):
            yield peer.experts(merge_repeats(raw, _EXPERTS, "mean").rename(columns=_KERNEL))
    sizes = [*(c for c in _EXPERTS if c != "moe_tp_size"), "num_max_tokens_per_rank"]
    for raw in reader.tables("moe", "dsv4_megamoe_module_perf", sizes):
        yield peer.mega_moe(merge_repeats(raw, sizes, "mean").rename(columns=_KERNEL))


_KERNEL = {"kernel_source": "kernel"}


def _collectives(reader: _Reader) -> Iterator[pandas.DataFrame]:
    for table, dtype in (("custom_allreduce_perf", "allreduce_dtype"), ("nccl_perf", "nccl_dtype")):
        needed = ("op_name", "kernel_source", dtype, "num_gpus", "message_size")
        for raw in reader.tables("comm", table, needed):
            if "wire_dtype" in raw:  # a V4.1 campaign
                continue
            if table == "nccl_perf" and raw["engine"].iloc[0] != "nccl":
                continue  # NCCL inside an engine's image, of unknown release
            merged = merge_repeats(raw, needed, "min").rename(
                columns={**_KERNEL, "op_name": "op", dtype: "dt"}
            )
            size = merged["dt"].map(ELEMENT_BYTES)
            if size.isna().any():
                raise SchemaError(f"{raw['source'].iloc[0]}: element type of unknown size")
            merged = merged.assign(bytes=merged["message_size"] * size)  # elements in the source
            yield peer.collectives(merged, gpu=reader.gpu)


def _hyper_connections(reader: _Reader) -> Iterator[pandas.DataFrame]:
    needed = ("op_name", "num_sites", "hc_mult", "hidden_size", "num_tokens")
    for raw in reader.tables("mhc", "mhc_module_perf", needed):
        yield peer.hyper_connections(merge_repeats(raw, needed, "min"))


def _attention(reader: _Reader) -> Iterator[pandas.DataFrame]:
    for table, (_, _, shapes) in peer.ATTENTION_TABLES.items():
        file = "dsv4_csa_topk_calib" if table == "dsv4_csa_topk" else table
        model = "V4-Flash" if shapes == "v4_family" else "GLM-5"
        needed = ("model", "gemm_type", *_REQUESTS)
        for raw in reader.tables("sparse_attention", f"{file}_perf", needed):
            rows = raw[raw["model"].str.contains(model) & (raw["gemm_type"] == "fp8_block")]
            score = " " + rows["score_mode"] if "score_mode" in rows else ""
            rows = rows.assign(table=table + score)
            yield peer.attention(merge_repeats(rows, ("table", *_REQUESTS), "min"))


def _quantise(reader: _Reader) -> Iterator[pandas.DataFrame]:
    for raw in reader.tables("quantize", "scale_matrix_perf", ("m", "k")):
        yield peer.quantise(merge_repeats(raw, ("m", "k"), "min"))


def _v41_modules(reader: _Reader) -> Iterator[pandas.DataFrame]:
    import pandas

    for base, (campaign, _) in V41_ROOTS.items():
        for raw in reader.tables("dsv41", "dsv41_module_perf", _MODULES, base):
            geometry = pandas.DataFrame([_module(*row) for row in zip(
                raw["component"], raw["geometry"], raw["source"], strict=True)],
                index=raw.index)  # fmt: skip
            ranks = pandas.to_numeric(geometry["tp"]).fillna(V41_ROOTS[base][1])
            replay = raw["execution_profile"].map({"full": "off", "decoder_bounded": "on"})
            yield peer.v41_modules(
                raw.assign(
                    **geometry.assign(tp=ranks),
                    decoder_replay=replay,
                    campaign=f"{campaign}-{SYSTEMS[reader.gpu]}",
                    prefix_tokens=raw["prefix"],
                    samples=raw["sample_count"],
                )
            )


def _module(component: str, geometry: str, where: str) -> dict[str, Any]:
    """Module, ranks, phase and cut of a row, from its geometry."""
    try:
        size = json.loads(geometry)
        named: dict[str, Any] = {"phase": "any", "bounded_prefill": None, "tp": None}
        if component == "attention":
            role, ratio = size["role"], size["compress_ratio"]
            named = {
                "module": role if role == "swa" else f"{role}_r{ratio}",
                "tp": V41_HEADS // size["num_heads"],
                "phase": "prefill" if size["is_context"] else "decode",
                "bounded_prefill": size["bounded_prefill"],
            }
        elif component == "linear":
            up = size["k"] == peer.V41_EXPERTS[0]
            named["module"] = "shared_gate_up" if up else "shared_down"
            named["tp"] = V41_GATE_UP // size["n"] if up else V41_DOWN // size["k"]
        elif component == "engram":
            named.update(module=ENGRAM_LAYERS[size["num_embeddings"]], tp=size["tp_size"])
        else:
            named["module"] = component
        kernel = KERNELS.get(component) or KERNELS[named["module"]]
    except (ValueError, LookupError, TypeError, ZeroDivisionError) as bad:
        raise SchemaError(
            f"{where}: geometry {geometry!r:.120} of {component!r} is not one of V4.1 ({bad!r})"
        ) from None
    return {**named, "kernel": kernel}


def _v41_dense(reader: _Reader) -> Iterator[pandas.DataFrame]:
    for base, (campaign, ranks) in V41_ROOTS.items():
        names = {
            "campaign": f"{campaign}-{SYSTEMS[reader.gpu]}",
            "decoder_replay": "on" if campaign.endswith("decoder_bounded") else "off",
        }
        for raw in _dense_tables(reader, base, ranks):
            yield peer.v41_dense(raw.assign(samples=raw["sample_count"], **names), gpu=reader.gpu)


def _dense_tables(reader: _Reader, base: str, ranks: int) -> Iterator[pandas.DataFrame]:
    own = ("sample_count",)
    absent = dict.fromkeys(("m", "n", "k", "bytes", "num_gpus"), float("nan"))
    for raw in reader.tables("gemm", "gemm_perf", _PRODUCT, base):
        if raw["folder_version"].iloc[0].startswith(V41_VERSION):
            gate = raw["n"] == V41_EXPERT_COUNT
            yield raw.assign(
                op=gate.map({True: "router_gate", False: "head"}), dtype=raw["gemm_dtype"],
                kernel=gate.map({True: "moe_gate_forward", False: "lm_head_bf16"}),
                version=peer.SGLANG_V41, tp=(V41_VOCABULARY // raw["n"]).mask(gate, ranks),
                bytes=absent["bytes"], num_gpus=absent["num_gpus"],
            )  # fmt: skip
    for raw in reader.tables("moe", "moe_perf", _EXPERTS, base):
        if raw["folder_version"].iloc[0].startswith(V41_VERSION):
            yield raw.assign(**absent | {"m": raw["num_tokens"]}).assign(
                op="routed_experts", dtype=raw["moe_dtype"], kernel=raw["kernel_source"],
                version=peer.SGLANG_V41, tp=raw["moe_tp_size"],
            )  # fmt: skip
    for raw in reader.tables("comm", "nccl_perf", ("num_gpus", "message_size"), base):
        if "wire_dtype" in raw and set(own) <= set(raw):
            size = raw["wire_dtype"].map(ELEMENT_BYTES)
            yield raw.assign(**absent | {"num_gpus": raw["num_gpus"]}).assign(
                op="all_reduce", dtype=raw["wire_dtype"], bytes=raw["message_size"] * size,
                engine="nccl", kernel="torch_all_reduce", tp=ANY,
            )  # fmt: skip


_READERS: Mapping[str, Callable[[_Reader], Iterator[pandas.DataFrame]]] = MappingProxyType(
    {
        "gemm": _gemm,
        "experts": _experts,
        "collectives": _collectives,
        "hyper_connections": _hyper_connections,
        "attention": _attention,
        "quantise": _quantise,
        "v41_modules": _v41_modules,
        "v41_dense": _v41_dense,
    }
)
