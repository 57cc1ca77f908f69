"""The form of a hardware file: sections, keys, units, plausible ranges, contradictions.

Pydantic is used at this edge only. Units stand in the key names; every figure carries its
provenance; a unit slip or a contradiction is an error whose text names the key and the remedy.
`hardware/README.md` describes the form for people.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, model_validator

from aisim_v41.arithmetic import Arithmetic
from aisim_v41.units import GB, GIB

MOST_CHARACTERS = 800
USABLE_OVER_SOLD = (0.75, 1.10)
"""Bytes that a program sees over bytes that are sold. Vendors round to decimal GB what is nearly a
power of two (at most 1.074: 288 GiB sold as 288 GB); reserved memory is a few per cent."""


def _between(low: float, high: float, unit: str, remedy: str) -> Callable[[Any], Any]:
    def check(value: float) -> float:
        if not low <= value <= high:
            raise ValueError(f"must be between {low:g} and {high:g} {unit}; {remedy}")
        return value

    return check


def _text(value: str) -> str:
    if not value.strip() or len(value) > MOST_CHARACTERS or not value.isprintable():
        raise ValueError(f"must be one line of 1 to {MOST_CHARACTERS} printable characters")
    return value


def _year_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _date(value: str) -> str:
    if not re.fullmatch(r"(19|20)[0-9]{2}(-(0[1-9]|1[0-2]))?", value):
        raise ValueError('must be a year or a year and month, such as "2026" or "2026-10"')
    return value


def _identifier(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,63}", value):
        raise ValueError("must be 1 to 64 lower-case letters, digits, '_', '.' or '-'")
    return value


Text = Annotated[str, AfterValidator(_text)]
Date = Annotated[str, BeforeValidator(_year_as_text), AfterValidator(_date)]
Identifier = Annotated[str, AfterValidator(_identifier)]

_DENSE = "give dense TFLOP/s, not FLOP/s, not PFLOP/s, not with sparsity"
_ONE_WAY = "give GB/s of one GPU in one direction"
Tflop = Annotated[float, AfterValidator(_between(1, 200_000, "TFLOP/s", _DENSE))]
Top = Annotated[float, AfterValidator(_between(1, 200_000, "TOP/s", "give dense TOP/s"))]
Texp = Annotated[float, AfterValidator(_between(0.01, 500, "Texp/s", "give Texp/s"))]
MemoryRate = Annotated[float, AfterValidator(_between(0.05, 50, "TB/s", "give TB/s, not GB/s"))]
Sold = Annotated[float, AfterValidator(_between(8, 4_000, "GB", "give decimal GB, as sold"))]
Usable = Annotated[
    float, AfterValidator(_between(4, 4_000, "GiB", "give binary GiB, not MiB, not bytes"))
]
Cache = Annotated[
    float, AfterValidator(_between(0.5, 2_000, "MiB", "give binary MiB, not KiB, not bytes"))
]
LinkRate = Annotated[float, AfterValidator(_between(0.5, 10_000, "GB/s", _ONE_WAY))]
HostMemory = Annotated[
    float, AfterValidator(_between(8, 100_000, "GB", "give decimal GB of one host"))
]
DiskReads = Annotated[
    float, AfterValidator(_between(1_000, 1_000_000_000, "reads/s", "count reads of a page"))
]
Launch = Annotated[float, AfterValidator(_between(0.1, 500, "us", "give microseconds"))]
Gap = Annotated[float, AfterValidator(_between(0.01, 100, "us", "give microseconds"))]
Gpus = Annotated[int, AfterValidator(_between(1, 100_000, "GPUs", "count this GPU too"))]
Units = Annotated[
    int, AfterValidator(_between(1, 10_000, "units", "count multiprocessors or compute units"))
]
Clock = Annotated[float, AfterValidator(_between(100, 10_000, "MHz", "give MHz"))]
Power = Annotated[float, AfterValidator(_between(5, 10_000, "W", "give the limit of one GPU"))]
Value = TypeVar("Value")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Entry(_Strict, Generic[Value]):
    """A figure: a value in the unit of its key, and where it comes from."""

    value: Value
    kind: Literal["datasheet", "measured", "derived", "estimate"]
    source: Text
    date: Date
    note: Text | None = None

    @model_validator(mode="after")
    def _explained(self) -> Self:
        if self.kind in ("derived", "estimate") and self.note is None:
            raise ValueError(
                f"note is missing; a figure of kind {self.kind} needs one that says how it was "
                "found"
            )
        return self


class _Section(_Strict):
    @model_validator(mode="before")
    @classmethod
    def _no_bare_null(cls, raw: Any) -> Any:
        for key, value in raw.items() if isinstance(raw, dict) else ():
            if value is None:
                raise ValueError(
                    f"{key} is null; leave the key out if it is not known, or say that the part "
                    "does not exist with value: null and a source"
                )
        return raw


class Compute(_Section):
    """Dense peaks with FP32 accumulation. Null: no such units. Absent: not known."""

    fp32_tflop_per_s: Entry[Tflop]
    tf32_tflop_per_s: Entry[Tflop | None] | None = None
    bf16_tflop_per_s: Entry[Tflop]
    fp8_tflop_per_s: Entry[Tflop | None] | None = None
    mxfp4_mxfp8_tflop_per_s: Entry[Tflop | None] | None = None
    fp4_tflop_per_s: Entry[Tflop | None] | None = None
    int8_top_per_s: Entry[Top | None] | None = None
    exp2_texp_per_s: Entry[Texp | None] | None = None

    @model_validator(mode="after")
    def _narrower_is_not_slower(self) -> Self:
        known = [(f"{item}_tflop_per_s", self.peak(item)) for item in FROM_WIDE_TO_NARROW]
        rates = [(key, rate) for key, rate in known if rate is not None]
        for (wide, slow), (narrow, fast) in pairwise(rates):
            if fast < slow:
                raise ValueError(
                    f"{narrow} is {fast:g}, below {wide} with {slow:g}; narrower operands are "
                    "never slower, so one of the two is in another unit or not dense"
                )
        return self

    def peak(self, arithmetic: Arithmetic) -> float | None:
        """Peak of a class [TFLOP/s], None if the chip lacks it."""
        entry: Entry[float | None] | None = getattr(self, f"{arithmetic}_tflop_per_s")
        return value_of(entry)


FROM_WIDE_TO_NARROW = (
    Arithmetic.FP32,
    Arithmetic.TF32,
    Arithmetic.BF16,
    Arithmetic.FP8,
    Arithmetic.MXFP4_MXFP8,
    Arithmetic.FP4,
)


class Memory(_Section):
    """The GPU's own memory; the keys say hbm for whatever type it is."""

    hbm_bandwidth_tb_per_s: Entry[MemoryRate]
    hbm_bandwidth_achieved_tb_per_s: Entry[MemoryRate] | None = None
    hbm_marketing_gb: Entry[Sold]
    hbm_usable_gib: Entry[Usable]
    l2_mib: Entry[Cache]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _achieved_below_peak(
            "hbm_bandwidth_achieved_tb_per_s",
            value_of(self.hbm_bandwidth_achieved_tb_per_s),
            "hbm_bandwidth_tb_per_s",
            self.hbm_bandwidth_tb_per_s.value,
        )
        low, high = USABLE_OVER_SOLD
        ratio = self.hbm_usable_gib.value * GIB / (self.hbm_marketing_gb.value * GB)
        if not low <= ratio <= high:
            raise ValueError(
                f"hbm_usable_gib {self.hbm_usable_gib.value:g} is {ratio:.2f} times the bytes of "
                f"hbm_marketing_gb {self.hbm_marketing_gb.value:g}; a real GPU shows {low:g} to "
                f"{high:g} of what is sold: check which is decimal GB and which binary GiB"
            )
        return self


class Links(_Section):
    """Rates of one GPU in one direction."""

    scale_up_kind: Entry[Literal["nvlink", "infinity_fabric", "pcie", "none"]]
    scale_up_gb_per_s: Entry[LinkRate | None] | None = None
    scale_up_domain_gpus: Entry[Gpus]
    peer_to_peer: Entry[bool] | None = None
    in_network_reduction: Entry[bool]
    nic_gb_per_s: Entry[LinkRate | None] | None = None
    host_link_kind: Entry[Literal["pcie", "nvlink_c2c"]] | None = None
    host_link_gb_per_s: Entry[LinkRate | None] | None = None
    host_link_achieved_gb_per_s: Entry[LinkRate] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        kind, gpus = self.scale_up_kind.value, self.scale_up_domain_gpus.value
        rate = value_of(self.scale_up_gb_per_s)
        if (kind == "none") != (rate is None):
            raise ValueError(
                f"scale_up_kind is {kind} but scale_up_gb_per_s is {rate}; give the rate of the "
                "link, or kind none and no rate"
            )
        if kind == "none" and gpus != 1:
            raise ValueError(
                f"scale_up_domain_gpus is {gpus} but scale_up_kind is none; without a link it is 1"
            )
        if self.in_network_reduction.value and kind in ("none", "pcie"):
            raise ValueError(
                f"in_network_reduction is true but scale_up_kind is {kind}, which has no switch "
                "that adds; set it to false"
            )
        _achieved_below_peak(
            "host_link_achieved_gb_per_s",
            value_of(self.host_link_achieved_gb_per_s),
            "host_link_gb_per_s",
            value_of(self.host_link_gb_per_s),
        )
        return self


class Host(_Section):
    """The CPU side. Figures of memory and disks are of one host; ``memory_shared_by_gpus`` GPUs
    share them."""

    platform: Entry[Literal["x86", "grace"]]
    eager_launch_us: Entry[Launch]
    graph_node_gap_us: Entry[Gap]
    memory_gb: Entry[HostMemory | None] | None = None
    memory_shared_by_gpus: Entry[Gpus] | None = None
    memory_bandwidth_gb_per_s: Entry[LinkRate] | None = None
    host_to_host_gb_per_s: Entry[LinkRate] | None = None
    disk_gb_per_s: Entry[LinkRate | None] | None = None
    disk_reads_per_s: Entry[DiskReads | None] | None = None

    @model_validator(mode="after")
    def _share_known(self) -> Self:
        if value_of(self.memory_gb) is not None and self.memory_shared_by_gpus is None:
            raise ValueError(
                "memory_gb is given without memory_shared_by_gpus; add how many GPUs share it"
            )
        if value_of(self.disk_reads_per_s) is not None and value_of(self.disk_gb_per_s) is None:
            raise ValueError("disk_reads_per_s is given without disk_gb_per_s; add the rate")
        return self


class Chip(_Section):
    """For the reader; no estimate uses these."""

    sms: Entry[Units] | None = None
    boost_mhz: Entry[Clock] | None = None
    tdp_w: Entry[Power] | None = None


class HardwareFile(_Section):
    """A whole file."""

    name: Identifier
    vendor: Identifier
    architecture: Identifier
    compute: Compute
    memory: Memory
    links: Links
    host: Host
    chip: Chip | None = None


def value_of(entry: Entry[Value] | None) -> Value | None:
    """Value of a figure that may be absent."""
    return None if entry is None else entry.value


def _achieved_below_peak(
    achieved_key: str, achieved: float | None, peak_key: str, peak: float | None
) -> None:
    if achieved is not None and (peak is None or achieved > peak):
        raise ValueError(
            f"{achieved_key} is {achieved:g} but {peak_key} is {peak}; what was achieved cannot "
            "exceed the peak: correct one of them"
        )
