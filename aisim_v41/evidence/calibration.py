"""Which law prices which operator on which GPU, with its errors and where it was fitted.

A calibration is read from ``profiles/<gpu>/op/calibration.yaml``. A law that a GPU lacks is taken
from its sibling, whose shares of peak and launch times carry over to this GPU's own peaks (that is
a transfer by the ratio of the bounds), and last from the defaults of its family; either is tagged,
and its error is wider. Files and fits: docs/calibration.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from aisim_v41 import resources
from aisim_v41.errors import InvalidInputError, MissingProfileError, nearest
from aisim_v41.evidence.laws import Features, FloatArray, LawKind, law_seconds
from aisim_v41.evidence.links import Defaults, Links, collective_law, links_of, network_of
from aisim_v41.hardware import Hardware
from aisim_v41.units import MICROSECOND

FOLDER = "profiles"
SUFFIX = ".yaml"
Origin = Literal["calibrated", "sibling", "default", "theoretical"]

SIBLINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gb200": ("b200", "gb300"),
        "gb300": ("b300", "gb200"),
        "b200": ("gb200", "b300"),
        "b300": ("gb300", "b200"),
        "h200": ("h100",),
        "h100": ("h200",),
    }
)
"""Same chip, or the same architecture, nearest first."""
ENGINES = ("sglang", "vllm", "trtllm")
"""Engines with measured tables, in the order in which they stand in for another."""
COLLECTIVES = tuple(
    [f"all_reduce.{library}" for library in (*ENGINES, "nccl")]
    + [f"{name}.nccl" for name in ("all_gather", "reduce_scatter", "all_to_all")]
)
"""Collectives that follow from the links where no number of GPUs was measured."""
ACROSS = ".network"
"""End of the key of a collective between link domains, which follows from the network cards."""
EXCHANGE = "all_to_all."
"""Start of the keys of an all-to-all: NCCL's stands for an engine's own kernel."""
FAMILIES: Mapping[str, str] = MappingProxyType(
    {"sm10": "datacenter", "sm90": "datacenter", "sm80": "ampere", "gfx": "cdna", "sm": "consumer"}
)
"""File of defaults by the start of the architecture's name; the first that fits."""
SIBLING_PENALTY = 0.10
"""Added to the 90 % error of a sibling's law: four of five laws of GB200 miss B200's rows, and of
GB300 those of B300, by less than that beyond their own error (docs/calibration.md, "Transfers")."""
ENGINE_PENALTY = 0.15
"""Added where another engine's law stands in: typical distance between engines."""
RANKS_PENALTY = 0.25
"""Added where a collective was measured on another number of GPUs only."""
UNKNOWN_HOST_S = 15 * MICROSECOND
"""A bare launch slower than this says that the host is of the slow kind."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibratedLaw:
    """A law with its parameters, and how far it may be trusted.

    Attributes:
        kind: form of the law.
        key: what it prices, such as ``product.fp8``; a collective ends in ``@`` and its GPUs.
        parameters: by name, SI.
        error_median: median of abs(predicted/measured − 1) over rows left out of the fit in turn.
        error_p90: 90th percentile of the same, with ``penalty`` and what a transfer adds.
        penalty: part of it that stands for another shape, format or kernel than V4.1's.
        bias: median of predicted/measured − 1.
        rows_fitted: measured rows behind it; 0 for a stated default.
        hull: lowest and highest value of each size among those rows.
        origin: ``calibrated`` on this GPU, ``sibling``, ``default``, or ``theoretical``: no law.
        sources: tables or publications, engine and version in the name.
        note: what to know about it.
        reach: links that joined the ranks of a collective.
    """

    kind: LawKind
    key: str
    parameters: Mapping[str, float]
    error_median: float
    error_p90: float
    penalty: float
    bias: float
    rows_fitted: int
    hull: Mapping[str, tuple[float, float]]
    origin: Origin
    sources: tuple[str, ...]
    note: str = ""
    reach: str = ""

    def seconds(self, features: Features) -> FloatArray:
        """Seconds for the features of `aisim_v41.evidence.laws.FORMS`."""
        return law_seconds(self.kind, features, self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFile:
    """What a file holds.

    Attributes:
        link_bytes_per_s: of the GPU whose collectives were fitted; None if it has no link [B/s].
        engines: laws by engine and key.
        used_cases: validation cases whose values shaped a law; no error table may count them.
    """

    link_bytes_per_s: float | None
    engines: Mapping[str, Mapping[str, CalibratedLaw]]
    used_cases: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What the host takes to issue work; a property of the platform, not of the GPU.

    Attributes:
        platform: ``x86`` or ``grace``.
        framework_call_s: one call through the framework (module, checks, dispatch, launch) [s].
        bare_launch_s: one more kernel inside a call [s].
        python_call_s: one call inside an engine's own Python code, its share of that code
            included [s]; 20 us on x86 is the unit in which such code is counted.
        error_relative: between processes on one machine.
        origin, sources: as in `CalibratedLaw`.
    """

    platform: str
    framework_call_s: float
    bare_launch_s: float
    python_call_s: float
    error_relative: float
    origin: Origin
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """Every law that holds for one GPU under one engine.

    Attributes:
        gpu, engine: what for.
        laws: by key.
        launch: of the host.
        links: that join the GPUs; None if there are none.
        network: the cards between link domains; None if there are none.
        used_cases: validation cases whose values shaped a law here, or one of the family.
    """

    gpu: str
    engine: str
    laws: Mapping[str, CalibratedLaw]
    launch: Launch
    links: Links | None = None
    network: Links | None = None
    used_cases: frozenset[str] = frozenset()
    _by_ranks: dict[tuple[str, int], CalibratedLaw] = field(default_factory=dict, repr=False)

    def law(self, key: str, ranks: int | None = None) -> CalibratedLaw:
        """The law of a key; of a collective on so many GPUs.

        A collective that was not measured on ``ranks`` GPUs takes the nearest number that was,
        with its rates scaled by what a rank must send, tagged as a sibling. One that was measured
        on no number follows from the links (`aisim_v41.evidence.links`), tagged as a default; one
        between link domains, from the network cards. An engine's own all-to-all was never measured
        at this width: NCCL's stands in, with a penalty.

        Raises:
            MissingProfileError: no law of that key.

        >>> from aisim_v41 import load_hardware
        >>> load_calibration(load_hardware("b300")).law("product.fp8").origin
        'calibrated'
        """
        if ranks is None:
            if key in self.laws:
                return self.laws[key]
            known = self.laws
            raise MissingProfileError(f"no law {key!r} for {self.gpu}; {nearest(key, known)}")
        found = self._by_ranks.get((key, ranks))
        if found is None:
            found = self._by_ranks[key, ranks] = self._nearest_ranks(key, ranks)
        return found

    def _nearest_ranks(self, key: str, ranks: int) -> CalibratedLaw:
        if ranks < 1:
            raise InvalidInputError(f"{key}: ranks must be 1 or more, found {ranks}")
        if key.startswith(EXCHANGE) and not key.endswith((".nccl", ACROSS)):
            return self._exchange(key, ranks)
        measured = sorted(
            int(name.rpartition("@")[2]) for name in self.laws if name.rpartition("@")[0] == key
        )
        if not measured:
            return self._by_links(key, ranks)
        if ranks in measured or ranks == 1:
            return self.laws[f"{key}@{ranks if ranks in measured else measured[0]}"]
        near = min(measured, key=lambda count: (abs(count / ranks - 1), count))
        law = self.laws[f"{key}@{near}"]
        scale = ((near - 1) / near) / ((ranks - 1) / ranks)
        return replace(
            law,
            key=f"{key}@{ranks}",
            parameters=_scaled_rates(law.parameters, scale),
            error_p90=law.error_p90 + RANKS_PENALTY,
            origin="sibling" if law.origin == "calibrated" else law.origin,
            note=f"measured on {near} GPUs; {law.note}".rstrip("; "),
        )

    def _exchange(self, key: str, ranks: int) -> CalibratedLaw:
        law = self._nearest_ranks(f"{EXCHANGE}nccl", ranks)
        return replace(
            law,
            key=f"{key}@{ranks}",
            error_p90=law.error_p90 + ENGINE_PENALTY,
            origin="sibling" if law.origin == "calibrated" else law.origin,
            note=f"NCCL's, not {key.removeprefix(EXCHANGE)}'s own kernel; {law.note}".rstrip("; "),
        )

    def _by_links(self, key: str, ranks: int) -> CalibratedLaw:
        links = self.links
        if key.endswith(ACROSS):
            links, key = self.network, f"{key.removesuffix(ACROSS)}.nccl"
        if links is None or key not in COLLECTIVES:
            known = {name.rpartition("@")[0] for name in self.laws if "@" in name}
            why = "" if links is not None else " (no link or network is known)"
            raise MissingProfileError(
                f"no collective {key!r} for {self.gpu}{why}; {nearest(key, {*known, *COLLECTIVES})}"
            )
        name, _, library = key.partition(".")
        defaults = _link_defaults()[links.kind]
        return collective_law(links, defaults, name, library, max(ranks, 2))


def load_calibration(hardware: Hardware, engine: str = "sglang") -> Calibration:
    """Laws of a GPU under an engine; what is missing comes from its sibling or family.

    Args:
        hardware: with a packaged name, or with an architecture whose family has defaults.
        engine: ``sglang``, ``vllm`` or ``trtllm``; any other gets theirs, with a penalty.

    Raises:
        SchemaError: a calibration file is not well formed; names file, law and remedy.
        MissingProfileError: neither this GPU nor its family has a file.

    >>> from aisim_v41 import load_hardware
    >>> load_calibration(load_hardware("gb10")).law("product.fp8").origin
    'default'
    """
    roots = os.environ.get(resources.SEARCH_PATH_VARIABLE, "")
    return _load(
        hardware.name,
        hardware.architecture,
        hardware.link_bytes_per_s,
        links_of(hardware),
        network_of(hardware),
        _platform(hardware),
        hardware.eager_launch_s,
        engine,
        roots,
    )


def _platform(hardware: Hardware) -> str:
    for figure in hardware.figures:
        if figure.path == "host.platform" and isinstance(figure.value, str):
            return figure.value
    return "grace" if hardware.eager_launch_s > UNKNOWN_HOST_S else "x86"


@lru_cache(maxsize=64)
def _load(
    gpu: str,
    architecture: str,
    link: float | None,
    links: Links | None,
    network: Links | None,
    platform: str,
    bare_launch_s: float,
    engine: str,
    _roots: str,
) -> Calibration:
    laws: dict[str, CalibratedLaw] = {}
    used: set[str] = set()
    files = _files(gpu, architecture)
    for own in (True, False):  # this engine on a sibling comes before another engine on this GPU
        for origin, path in files:
            if origin == "default" and own:
                continue
            file = _read(path)
            used |= file.used_cases
            scale = 1.0
            if origin != "calibrated" and link is not None and file.link_bytes_per_s is not None:
                scale = link / file.link_bytes_per_s
            found = _of_engine(file.engines, engine) if own else _of_others(file.engines, engine)
            for law in found:
                if law.key not in laws and (origin == "calibrated" or _travels(law)):
                    laws[law.key] = _transferred(law, origin, path, scale)
    launch = _launch(platform, bare_launch_s)
    return Calibration(
        gpu=gpu, engine=engine, laws=MappingProxyType(laws), launch=launch, links=links,
        network=network,
        used_cases=frozenset(used),
    )  # fmt: skip


def _files(gpu: str, architecture: str) -> list[tuple[Origin, Path]]:
    """Files of the GPU, its siblings and its family, best first."""
    found: list[tuple[Origin, Path]] = []
    names: list[tuple[Origin, str]] = [("calibrated", f"{gpu}/op/calibration")]
    names += [("sibling", f"{name}/op/calibration") for name in SIBLINGS.get(gpu, ())]
    names += [("default", f"defaults/{_family(architecture)}")]
    for origin, name in names:
        try:
            found.append((origin, resources.find(FOLDER, name, SUFFIX)))
        except MissingProfileError:
            continue
    if not found:
        raise MissingProfileError(
            f"no calibration for {gpu} ({architecture}): looked for "
            f"{', '.join(f'{FOLDER}/{name}{SUFFIX}' for _, name in names)}; add one of them to a "
            f"folder in {resources.SEARCH_PATH_VARIABLE}"
        )
    return found


def _family(architecture: str) -> str:
    for start, family in FAMILIES.items():
        if architecture.startswith(start):
            return family
    return "datacenter"


_Engines = Mapping[str, Mapping[str, CalibratedLaw]]


def _of_engine(engines: _Engines, engine: str) -> list[CalibratedLaw]:
    """Laws of the engine, and of libraries."""
    return [*engines.get(engine, {}).values(), *engines.get("any", {}).values()]


def _of_others(engines: _Engines, engine: str) -> list[CalibratedLaw]:
    """Laws of no engine in particular, then of others, with a penalty."""
    return [
        *engines.get("any", {}).values(),
        *(
            replace(
                law,
                error_p90=law.error_p90 + ENGINE_PENALTY,
                note=f"of {other}; {law.note}".rstrip("; "),
            )
            for other in ENGINES
            if other != engine
            for law in engines.get(other, {}).values()
        ),
    ]


def _travels(law: CalibratedLaw) -> bool:
    """Whether a law says anything of another GPU: not links of one machine, not an old engine."""
    return not law.reach.startswith("across") and "_older" not in law.key


def _transferred(law: CalibratedLaw, origin: Origin, path: Path, scale: float) -> CalibratedLaw:
    """A law on another GPU: shares hold for its own peaks, link rates follow its link."""
    if origin == "calibrated":
        return law
    parameters = _scaled_rates(law.parameters, scale)
    if origin == "default":
        return replace(law, origin="default", parameters=parameters)
    return replace(
        law,
        origin="sibling",
        parameters=parameters,
        error_p90=law.error_p90 + SIBLING_PENALTY,
        note=f"of {path.parent.parent.name}; {law.note}".rstrip("; "),
    )


def _scaled_rates(parameters: Mapping[str, float], scale: float) -> Mapping[str, float]:
    return {
        name: value * scale if name.startswith("rate_") else value
        for name, value in parameters.items()
    }


@lru_cache(maxsize=64)
def _read_once(path: Path, _modified_ns: int, _size: int) -> CalibrationFile:
    from aisim_v41.evidence.calibration_file import read_calibration

    return read_calibration(path)


def _read(path: Path) -> CalibrationFile:
    status = path.stat()
    return _read_once(path, status.st_mtime_ns, status.st_size)


def _link_defaults() -> Defaults:
    path = resources.find(FOLDER, "defaults/links", SUFFIX)
    status = path.stat()
    return _read_links_once(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read_links_once(path: Path, _modified_ns: int, _size: int) -> Defaults:
    from aisim_v41.evidence.links_file import read_links

    return read_links(path)


def _launch(platform: str, bare_launch_s: float) -> Launch:
    from aisim_v41.evidence.calibration_file import read_hosts

    hosts = read_hosts(resources.find(FOLDER, "defaults/hosts", SUFFIX))
    known = hosts.get(platform)
    if known is None:
        nearest_kind = "grace" if bare_launch_s > UNKNOWN_HOST_S else "x86"
        known = replace(hosts[nearest_kind], platform=platform, origin="default")
    return known
