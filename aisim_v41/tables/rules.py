"""Which rows are suspect, and what to know about sound ones.

Each rule is a condition on our own columns with the finding behind it, so that a packaged table
and one read out of another package are marked alike. Findings: the sources' own notes, and our
reading of the numbers. Where two rules meet, the first marks the row. A rule about one node or
build names its GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aisim_v41.errors import MissingProfileError
from aisim_v41.tables.schema import ATTENTION_MODULES, FAMILIES
from aisim_v41.units import MIB

if TYPE_CHECKING:
    import pandas

    Marks = pandas.Series[bool]

BLACKWELL = ("gb200", "gb300", "b200", "b300")
CLOCK_STEP_US = 2.05
"""Step of the times in the mHC tables of Blackwell GPUs; Hopper's show none."""
ROTATED_COPIES = 6
"""Weight copies that the GEMM collectors rotate."""
OPERAND_BYTES = {"bf16": 2.0, "fp8_per_token": 1.0, "fp8_block128": 1.0, "nvfp4": 0.5625}
CUSTOM_ALL_REDUCE_BYTES = 16 * MIB
HOST_AHEAD = 0.75
"""Below this share of its module's floor an eager interval holds GPU time only."""
FALLS = 1.3
"""More than this over the next larger size is no property of the work."""
FLOOR_TOKENS = 128
"""Largest step that sets a module's floor."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A mark for the rows of a family on which ``holds`` is true.

    Attributes:
        mark: a flag or caveat of the schema.
        family: of the table.
        gpus: where the finding was made; empty: everywhere.
        holds: condition on our columns.
    """

    mark: str
    family: str
    gpus: tuple[str, ...]
    holds: Callable[[pandas.DataFrame], Marks]


def _packs_weights(rows: pandas.DataFrame) -> Marks:
    """vLLM's block-FP8 products before 0.31: no call of a whole series below 50 us."""
    series = ["engine", "engine_version", "dtype"]
    fastest = rows.groupby(series)["latency_us"].transform("min")
    return (rows["engine"] == "vllm") & (rows["dtype"] == "fp8_block128") & (fastest > 50)


def _warm_up(rows: pandas.DataFrame) -> Marks:
    """GB200, four ranks, one new token over a past: the first call of a series is timed."""
    level = _floor(rows)
    return (
        rows["operator"].isin(ATTENTION_MODULES)
        & (rows["tensor_parallel"] == 4)
        & (rows["phase"] == "prefill")
        & (rows["new_tokens_per_request"] == 1)
        & (rows["prefix_tokens"] > 0)
        & (rows["latency_us"] > FALLS * level)
    )


def _host_ahead(rows: pandas.DataFrame) -> Marks:
    """An interval far below the module's floor; B300's larger forwards queue ahead as well."""
    low = rows["latency_us"] < HOST_AHEAD * _floor(rows)
    queued = rows["campaign"].str.endswith("-b300_sxm") & rows["operator"].isin(
        ("engram_layer_1", "engram_layer_14", "mhc")
    )
    return (low & ~_no_pair(rows)) | (queued & (rows["tokens"] >= 512))


def _no_pair(rows: pandas.DataFrame) -> Marks:
    """Ratio 2, one new token, no past: no pair of tokens is complete, nothing is compressed."""
    return (
        (rows["operator"] == "full_r2")
        & (rows["phase"] == "prefill")
        & (rows["new_tokens_per_request"] == 1)
        & (rows["prefix_tokens"] == 0)
    )


def _floor(rows: pandas.DataFrame) -> pandas.Series[float]:
    """Median of the row's own series: all lengths of an attention module, small steps of others."""
    series = list(FAMILIES["v41_modules"].identity_names)
    small = rows["tokens"].isna() | (rows["tokens"] <= FLOOR_TOKENS)
    keys = [rows[name] for name in series] + [rows["batch"].fillna(0)]
    return rows["latency_us"].where(small).groupby(keys).transform("median")


def _falls(rows: pandas.DataFrame) -> Marks:
    """A size that takes much longer than the next larger one of its series, suspects aside."""
    sizes = [axis for axis in ("rows", "tokens", "message_bytes") if axis in rows]
    size = rows[sizes].bfill(axis=1).iloc[:, 0].astype("float64")
    one_axis = rows["flag"].eq("") & ~rows["operator"].isin(ATTENTION_MODULES)
    series = [name for name in rows if name in _series_names(rows)]
    found = one_axis & False
    for _, group in rows[one_axis].groupby([rows[name] for name in series], dropna=False):
        ordered = group.assign(size=size).sort_values("size")
        following = ordered["latency_us"].shift(-1)
        found[ordered.index[ordered["latency_us"] > FALLS * following]] = True
    return found


def _series_names(rows: pandas.DataFrame) -> set[str]:
    family = "v41_modules" if "phase" in rows else "v41_dense"
    return {*FAMILIES[family].identity_names, "outputs", "ranks"}


def _may_stay_in_l2(rows: pandas.DataFrame, l2_bytes: int) -> Marks:
    weights = rows["outputs"] * rows["inputs"] * rows["dtype"].map(OPERAND_BYTES)
    return ROTATED_COPIES * weights <= l2_bytes


FLAG_RULES: tuple[Rule, ...] = (
    Rule("weight_packing", "gemm", (), _packs_weights),
    Rule("noisy_minimum", "gemm", ("gb200",), lambda t: (t["engine"] == "sglang")
         & (t["engine_version"] == "0.5.14") & (t["dtype"] == "fp8_block128")
         & (t["outputs"] >= 25600) & (t["rows"] >= 8192)),
    Rule("slow_quantise", "quantise", (), lambda t: t["engine"] == "sglang"),
    Rule("slow_without_prefix", "attention", ("gb300",), lambda t: (t["engine"] == "sglang")
         & (t["operator"] == "hca_prefill") & (t["batch"] == 1) & (t["prefix_tokens"] == 0)),
    Rule("equal_scores", "attention", (), lambda t: (t["engine"] == "sglang")
         & (t["operator"] == "csa_decode") & t["prefix_tokens"].between(2049, 131071)),
    Rule("warm_up", "v41_modules", ("gb200",), _warm_up),
    Rule("host_ahead", "v41_modules", (), _host_ahead),
    Rule("falls_with_size", "v41_modules", (), _falls),
    Rule("faulty_node", "v41_dense", ("gb200",), lambda t: (t["operator"] == "routed_experts")
         & (t["tensor_parallel"] == 4) & (t["tokens"] == 129)),
    Rule("faulty_node", "v41_dense", ("gb200",), lambda t: (t["operator"] == "routed_experts")
         & (t["tensor_parallel"] == 2) & (t["tokens"] == 4096)),
    Rule("faulty_node", "v41_dense", ("gb200",), lambda t: (t["operator"] == "head")
         & (t["tensor_parallel"] == 2)),
    Rule("falls_with_size", "v41_dense", (), _falls),
)  # fmt: skip

CAVEAT_RULES: tuple[Rule, ...] = (
    Rule("other_library_above", "collectives", BLACKWELL, lambda t: (t["engine"] == "sglang")
         & t["reach"].isin(("one_tray", "one_board"))
         & (t["message_bytes"] > CUSTOM_ALL_REDUCE_BYTES)),
    Rule("copy_kernel", "hyper_connections", (), lambda t:
         t["operator"].isin(("expand", "contract"))),
    Rule("topk_inside", "attention", (), lambda t: (t["engine"] == "trtllm")
         & (t["operator"] == "csa_decode") & (t["prefix_tokens"] > 2048)),
    Rule("no_pair_completes", "v41_modules", (), _no_pair),
)  # fmt: skip


def mark(frame: pandas.DataFrame, *, family: str, gpu: str) -> pandas.DataFrame:
    """The frame with ``flag``, ``caveat`` and ``resolution_us`` filled in.

    Args:
        frame: columns of the family, one GPU.
        family: one of the families.
        gpu: whose rows they are.
    """
    import pandas

    marked = frame.reset_index(drop=True)
    for column in FAMILIES[family].columns:
        if column.kind != "text":
            marked[column.name] = pandas.to_numeric(marked[column.name])
    for field, rules in (("flag", FLAG_RULES), ("caveat", CAVEAT_RULES)):
        for rule in rules:
            if rule.family == family and (not rule.gpus or gpu in rule.gpus):
                holds = rule.holds(marked).astype(bool)
                marked[field] = marked[field].mask(holds & marked[field].eq(""), rule.mark)
    if family == "gemm" and (l2_bytes := _l2_bytes(gpu)):
        small = _may_stay_in_l2(marked, l2_bytes) & marked["caveat"].eq("")
        marked["caveat"] = marked["caveat"].mask(small, "weights_may_stay_in_l2")
    if family == "hyper_connections" and gpu in BLACKWELL:
        marked["resolution_us"] = CLOCK_STEP_US
    return marked


def _l2_bytes(gpu: str) -> int:
    from aisim_v41.hardware import load_hardware

    try:
        return load_hardware(gpu).l2_bytes
    except MissingProfileError:
        return 0
