"""Measured rows as a law sees them: features, seconds, and the groups that are left out in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aisim_v41.evidence import features as of
from aisim_v41.evidence.laws import FloatArray
from aisim_v41.hardware import Hardware
from aisim_v41.tables.load import load_table
from aisim_v41.tables.table import Identity, OperatorTable, Partition
from aisim_v41.units import MICROSECOND

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Rows of one law.

    Attributes:
        features: of every row, by name.
        seconds: measured [s].
        group: rows with one label are left out together.
        scale: what size bands are cut along.
        hull: sizes whose ranges are recorded.
        sources: package, engine and version of each table.
    """

    features: Mapping[str, FloatArray]
    seconds: FloatArray
    group: Labels
    scale: FloatArray
    hull: Mapping[str, FloatArray]
    sources: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.seconds)

    def where(self, keep: npt.NDArray[np.bool_]) -> Samples:
        """The rows that are kept."""
        return Samples(
            features={name: values[keep] for name, values in self.features.items()},
            seconds=self.seconds[keep],
            group=self.group[keep],
            scale=self.scale[keep],
            hull={name: values[keep] for name, values in self.hull.items()},
            sources=self.sources,
        )


def joined(parts: Sequence[Samples]) -> Samples:
    """Rows of several, with groups kept apart."""
    first = [0, *np.cumsum([int(part.group.max()) + 1 for part in parts[:-1]])]
    return Samples(
        features={
            name: np.concatenate([np.broadcast_to(p.features[name], len(p)) for p in parts])
            for name in parts[0].features
        },
        seconds=np.concatenate([part.seconds for part in parts]),
        group=np.concatenate(
            [part.group + start for part, start in zip(parts, first, strict=True)]
        ),
        scale=np.concatenate([part.scale for part in parts]),
        hull={name: np.concatenate([p.hull[name] for p in parts]) for name in parts[0].hull},
        sources=tuple(dict.fromkeys(source for part in parts for source in part.sources)),
    )


def newest(table: OperatorTable, **identity: str | int) -> list[Identity]:
    """Identities with these values, those of the newest version of each engine only."""
    found = table.matching(**identity)
    best: dict[str, tuple[int, ...]] = {}
    for one in found:
        engine, version = str(one["engine"]), _version(str(one["engine_version"]))
        best[engine] = max(best.get(engine, version), version)
    return [
        one for one in found if _version(str(one["engine_version"])) == best[str(one["engine"])]
    ]


def sizes_of(partition: Partition) -> dict[str, FloatArray]:
    """Sizes of every row, as floats."""
    return {name: values.astype(np.float64) for name, values in partition.sizes.items()}


def named(partition: Partition) -> tuple[str, ...]:
    """Files that the rows come from, with engine and version."""
    engine = f"{partition.identity['engine']} {partition.identity['engine_version']}"
    operator = partition.identity["operator"]
    execution = partition.identity["execution"]
    kernel = partition.identity["kernel_source"]
    kernel = "" if kernel == "engine_choice" else f" {kernel}"
    return (f"{engine} {operator}{kernel}, {execution}",)


def labels(*columns: FloatArray) -> Labels:
    """One label for each distinct combination, in order of first occurrence."""
    order: dict[tuple[float, ...], int] = {}
    keys = zip(*(column.tolist() for column in columns), strict=True)
    return np.array([order.setdefault(key, len(order)) for key in keys], dtype=np.int64)


def product_samples(hardware: Hardware, engine: str, dtype: str) -> Samples | None:
    """Products of an engine: its newest version, and older rows where only those are wide."""
    table = load_table(hardware.name, "gemm")
    parts = []
    current = newest(table, engine=engine, dtype=dtype)
    for identity in table.matching(engine=engine, dtype=dtype):
        partition = table.select(flags=(), **identity)
        if len(partition) == 0:
            continue
        sizes = sizes_of(partition)
        samples = Samples(
            features=of.product_features(hardware, dtype, **sizes),
            seconds=partition.latency_us * MICROSECOND,
            group=labels(sizes["outputs"], sizes["inputs"]),
            scale=sizes["rows"],
            hull=sizes,
            sources=named(partition),
        )
        if identity in current:
            parts.append(samples)
        elif dtype == "bf16":  # older 8-bit kernels are 10 % slower throughout
            parts.append(samples.where(sizes["outputs"] > sizes["rows"].max() / 4))
    parts = [part for part in parts if len(part)]
    return joined(parts) if parts else None


def experts_samples(
    hardware: Hardware, engine: str, dtype: str, kernel: str | None = None
) -> Samples | None:
    """Balanced rows in graph mode; other models' shapes only by the name of a kernel."""
    table = load_table(hardware.name, "experts")
    parts = []
    for identity in table.matching(
        operator="routed_experts", engine=engine, dtype=dtype, expert_load="balanced"
    ):
        if kernel is not None and kernel not in str(identity["kernel_source"]):
            continue
        partition = table.select(flags=(), **identity)
        foreign = identity["model_shapes"] == "other_model" and kernel is None
        if len(partition) == 0 or foreign:
            continue
        sizes = sizes_of(partition)
        feature = of.experts_features(
            hardware, dtype, "balanced", sizes,
            int(identity["tensor_parallel"]), int(identity["expert_parallel"]),
        )  # fmt: skip
        each = feature["rows"] * feature["top_k"] / feature["routed"]
        parts.append(
            Samples(
                features=feature,
                seconds=partition.latency_us * MICROSECOND,
                group=labels(sizes["hidden"]),
                scale=each,
                hull={"tokens_per_expert": each, "tokens": sizes["tokens"]},
                sources=named(partition),
            )
        )
    return joined(parts) if parts else None


def own_experts(
    hardware: Hardware, tensor_parallel: int, kernel: str | None = None
) -> Samples | None:
    """V4.1's own rows: eager, uniform routing; level holds the host, growth the GPU."""
    table = load_table(hardware.name, "v41_dense")
    for identity in table.matching(operator="routed_experts", tensor_parallel=tensor_parallel):
        if identity["decoder_replay"] == "on":
            continue
        if kernel is not None and kernel not in str(identity["kernel_source"]):
            continue
        partition = table.select(flags=(), **identity)
        sizes = sizes_of(partition)
        return Samples(
            features=of.experts_features(
                hardware, str(identity["dtype"]), "uniform", sizes, tensor_parallel, 1
            ),
            seconds=partition.latency_us * MICROSECOND,
            group=labels(sizes["tokens"]),
            scale=sizes["tokens"],
            hull={"tokens": sizes["tokens"]},
            sources=named(partition),
        )
    return None


def request_samples(
    hardware: Hardware, operator: str, engine: str, kernel: str, **identity: str | int
) -> Samples | None:
    """Kernels keyed by batch, new tokens and prefix: attention, scores, selection."""
    table = load_table(hardware.name, "attention")
    found = newest(table, operator=operator, engine=engine, kernel_source=kernel, **identity)
    parts = []
    for one in found:
        partition = table.select(flags=(), **one)
        if len(partition) == 0:
            continue
        sizes = sizes_of(partition)
        heads, ratio = int(one["heads"]), int(one["compress_ratio"])
        where = (sizes["batch"], sizes["new_tokens_per_request"], sizes["prefix_tokens"])
        if operator == "attention_kernel":
            feature = of.attention_features(hardware, heads, ratio, *where)
        elif operator == "index_topk":
            feature = of.select_features(hardware, ratio, *where)
        else:
            feature = of.scores_features(hardware, heads, ratio, *where)
        parts.append(
            Samples(
                features=feature,
                seconds=partition.latency_us * MICROSECOND,
                group=labels(sizes["prefix_tokens"]),
                scale=feature["rows"],
                hull={
                    "rows": feature["rows"],
                    "batch": sizes["batch"],
                    "new_tokens": sizes["new_tokens_per_request"],
                    "prefix_tokens": sizes["prefix_tokens"],
                },
                sources=named(partition),
            )
        )
    return joined(parts) if parts else None


def seconds_per_pair(hardware: Hardware, fewest_rows: float = 1024.0) -> float:
    """Time that one more query-key pair takes in SGLang's HCA modules, all padded heads [s].

    Rows of one batch and length differ by their keys alone: projections and norms are the same.
    """
    table = load_table(hardware.name, "attention")
    slopes: list[float] = []
    for identity in newest(table, operator="hca_prefill", engine="sglang"):
        partition = table.select(flags=(), **identity)
        sizes = sizes_of(partition)
        where = (sizes["batch"], sizes["new_tokens_per_request"], sizes["prefix_tokens"])
        feature = of.attention_features(
            hardware, int(identity["heads"]), int(identity["compress_ratio"]), *where
        )
        alike = labels(where[0], where[1])
        for label in np.unique(alike):
            same = np.flatnonzero((alike == label) & (feature["rows"] >= fewest_rows))
            for first in same:
                for second in same:
                    pairs = feature["pairs"][second] - feature["pairs"][first]
                    if pairs > 256 * feature["rows"][first]:
                        gained = partition.latency_us[second] - partition.latency_us[first]
                        slopes.append(float(gained * MICROSECOND / pairs))
    return float(np.median(slopes))


def hyper_samples(hardware: Hardware, engine: str, part: of.HyperPart) -> Samples | None:
    """One site; the tables time two. The newest version of each width."""
    operator = "fused_post_pre" if part == "fused" else part
    table = load_table(hardware.name, "hyper_connections")
    by_width: dict[float, tuple[tuple[int, ...], Samples]] = {}
    for identity in table.matching(operator=operator, engine=engine):
        partition = table.select(flags=(), **identity)
        sizes = sizes_of(partition)
        version = _version(str(identity["engine_version"]))
        sites = float(identity["sites_per_timing"])
        samples = Samples(
            features=of.hyper_features(hardware, part, sizes["tokens"], sizes["hidden"]),
            seconds=partition.latency_us * MICROSECOND / sites,
            group=np.arange(len(partition), dtype=np.int64),
            scale=sizes["tokens"],
            hull={"rows": sizes["tokens"], "hidden": sizes["hidden"]},
            sources=named(partition),
        )
        for width in dict.fromkeys(sizes["hidden"].tolist()):
            if width not in by_width or by_width[width][0] < version:
                by_width[width] = (version, samples.where(sizes["hidden"] == width))
    return joined([part for _, part in by_width.values()]) if by_width else None


def quantise_samples(hardware: Hardware, engine: str) -> Samples | None:
    """Conversion of activations to 8 bits."""
    table = load_table(hardware.name, "quantise")
    for identity in newest(table, engine=engine):
        partition = table.select(flags=(), **identity)
        if len(partition) == 0:
            continue
        sizes = sizes_of(partition)
        return Samples(
            features=of.quantise_features(hardware, sizes["rows"], sizes["inputs"]),
            seconds=partition.latency_us * MICROSECOND,
            group=labels(sizes["inputs"]),
            scale=sizes["rows"],
            hull=sizes,
            sources=named(partition),
        )
    return None


def collective_samples(
    hardware: Hardware, operator: str, engine: str, ranks: int
) -> Samples | None:
    """One collective in graph mode; of several kernels of a library the fastest at each size."""
    table = load_table(hardware.name, "collectives")
    found = table.matching(operator=operator, engine=engine, execution="graph")
    best: dict[float, tuple[tuple[int, ...], float, tuple[str, ...]]] = {}
    for identity in found:
        partition = table.select(flags=(), **identity)
        version = _version(str(identity["engine_version"]))
        rows = zip(partition.sizes["message_bytes"], partition.sizes["ranks"],
                   partition.latency_us, strict=True)  # fmt: skip
        for size, count, us in rows:
            known = best.get(float(size))
            if count == ranks and (known is None or (version, -us) > (known[0], -known[1])):
                best[float(size)] = (version, float(us), named(partition))
    if not best:
        return None
    size = np.array(sorted(best))
    return Samples(
        features=of.message_features(size, np.full_like(size, float(ranks))),
        seconds=np.array([best[one][1] for one in size.tolist()]) * MICROSECOND,
        group=np.arange(len(size), dtype=np.int64),
        scale=size,
        hull={"message_bytes": size},
        sources=tuple(dict.fromkeys(name for _, _, names in best.values() for name in names)),
    )


def reach_of(hardware: Hardware, operator: str, engine: str, ranks: int) -> str:
    """Links that joined the ranks of a collective, such as ``one_board``."""
    table = load_table(hardware.name, "collectives")
    for identity in table.matching(operator=operator, engine=engine, execution="graph"):
        partition = table.select(flags=(), **identity)
        if (partition.sizes["ranks"] == ranks).any():
            return str(identity["reach"])
    return ""


def newest_version(gpu: str, family: str, engine: str) -> tuple[int, ...]:
    """Newest release of an engine in a table, as numbers."""
    table = load_table(gpu, family)
    return max(_version(str(one["engine_version"])) for one in table.matching(engine=engine))


def _version(text: str) -> tuple[int, ...]:
    """Numbers of a release, so that 0.25 is after 0.9; candidates count before their release."""
    digits: list[int] = []
    for part in text.replace("rc", ".-1.").split("."):
        if part.lstrip("-").isdigit():
            digits.append(int(part))
    return tuple(digits)
